"""One test for each wall, in a real sandbox. With HUTCH_TEST_WALL_OFF=<wall> its test has to fail."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import re
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from hutch.model.template import STRICT_PROGRAMS
from hutch.providers.bubblewrap.cgroups import discover
from hutch.providers.bubblewrap.doctor import landlock_version
from tests.hostile.walls_outside import launchers_of, open_in, unshare_inside
from tests.hostile.walls_rig import AS_ROOT, LIMITS, Box, boxes, in_box

ROOT_HOLDS = {
    "bin",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "run",
    "sbin",
    "tmp",
    "usr",
    "var",
    "workspace",
}


async def own_namespace(box: Box, name: str) -> None:
    inside = await box.python(f"import os; print(os.readlink('/proc/self/ns/{name}'))")
    assert re.fullmatch(rf"{name}:\[\d+\]", inside)
    assert inside != os.readlink(f"/proc/self/ns/{name}")


async def has_cgroups(box: Box) -> bool:
    return not discover(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup").read_text()).missing


def test_wall_user_namespace() -> None:
    async def body(box: Box) -> None:
        await own_namespace(box, "user")
        first, _, count = (await box.says("cat /proc/self/uid_map")).split()
        assert (first, count) == ("1000", "1")

    in_box(body)


def test_wall_pid_namespace() -> None:
    async def body(box: Box) -> None:
        await own_namespace(box, "pid")
        ended, _ = await box.run(f"kill -0 {os.getpid()}")
        assert ended.exit_code != 0
        assert len(re.findall(r"^\d+$", await box.says("ls /proc"), re.MULTILINE)) < 10

    in_box(body)


def test_wall_mount_namespace() -> None:
    async def body(box: Box) -> None:
        await own_namespace(box, "mnt")
        assert set((await box.says("ls /")).split()) <= ROOT_HOLDS
        with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="hutch-test-marker-") as marker:
            assert await box.says(f"find / -name {Path(marker.name).name} 2>/dev/null | cat") == ""

    in_box(body)


def test_wall_net_namespace() -> None:
    async def body(box: Box) -> None:
        await own_namespace(box, "net")
        with socket.create_server(("127.0.0.1", 0)) as server:
            code = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {server.getsockname()[1]})))"
            assert await box.python(code) != "0"
        assert re.findall(r"^\s*(\w+):", await box.says("cat /proc/net/dev"), re.MULTILINE) == ["lo"]

    in_box(body)


def test_wall_ipc_namespace() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    segment = library.shmget(0, 4096, 0o666 | 0o1000)
    assert segment >= 0

    async def body(box: Box) -> None:
        await own_namespace(box, "ipc")
        listed = (await box.says("cat /proc/sysvipc/shm")).splitlines()[1:]
        assert listed == []

    try:
        in_box(body)
    finally:
        library.shmctl(segment, 0, None)


def test_wall_uts_namespace() -> None:
    async def body(box: Box) -> None:
        await own_namespace(box, "uts")
        assert await box.says("cat /proc/sys/kernel/hostname") == "hutch"

    in_box(body)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_wall_disable_userns() -> None:
    async def body(box: Box) -> None:
        uid = box.spec.host_uid if box.spec.host_uid is not None else os.geteuid()
        assert unshare_inside(box.machine.init.pid, uid) == errno.ENOSPC

    in_box(body)


def test_wall_no_capabilities() -> None:
    async def body(box: Box) -> None:
        held = re.findall(r"^Cap\w+:\s*(\w+)$", await box.says("cat /proc/self/status"), re.MULTILINE)
        assert len(held) == 5
        assert {int(value, 16) for value in held} == {0}

    in_box(body)


def test_wall_no_new_privs() -> None:
    async def body(box: Box) -> None:
        assert "NoNewPrivs:\t1" in await box.says("cat /proc/self/status")
        for pid in (box.monitor_pid, box.machine.init.pid):  # bubblewrap and the init, each by itself
            assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()

    in_box(body)


def test_wall_seccomp() -> None:
    async def body(box: Box) -> None:
        assert "Seccomp:\t2" in await box.says("cat /proc/self/status")
        code = "import socket\ntry: socket.socket(38, 5); print('open')\nexcept PermissionError: print('refused')"
        assert await box.python(code) == "refused"  # AF_ALG

    in_box(body)


def test_wall_keyring() -> None:
    """A key in the server's session keyring, which belongs to the sandbox's user, must not be found from inside."""
    library = ctypes.CDLL(None, use_errno=True)
    keyctl, add = (250, 248) if os.uname().machine == "x86_64" else (219, 217)
    join, chown, set_permissions, search, session_keyring = 1, 4, 5, 10, -3
    possessor_only = 0x3F000000
    assert library.syscall(keyctl, join, None) > 0

    async def body(box: Box) -> None:
        key = library.syscall(add, b"user", b"hutch-test-secret", b"x", 1, session_keyring)
        assert key > 0
        if AS_ROOT:
            assert library.syscall(keyctl, chown, key, box.spec.host_uid, -1) == 0
        assert library.syscall(keyctl, set_permissions, key, possessor_only) == 0 or AS_ROOT
        code = f"""
import ctypes
library = ctypes.CDLL(None, use_errno=True)
found = library.syscall({keyctl}, {search}, {session_keyring}, b"user", b"hutch-test-secret", 0)
print('found' if found > 0 else ctypes.get_errno())
"""
        assert await box.python(code) == str(errno.ENOKEY)

    try:
        in_box(body, off=frozenset({"seccomp"}))  # which refuses keyctl altogether
    finally:
        library.syscall(keyctl, join, None)


def test_wall_read_only_root() -> None:
    async def body(box: Box) -> None:
        for folder in ("/", "/usr", "/etc", "/dev", "/run", "/var"):
            ended, _ = await box.run(f"true > {folder}/x")
            assert ended.exit_code != 0, folder

    in_box(body)


def test_wall_sized_tmpfs() -> None:
    async def body(box: Box) -> None:
        code = "import os\ns = os.statvfs('{}'); print(s.f_blocks * s.f_frsize, s.f_files)"
        for line in [await box.python(code.format(path)) for path in ("/tmp", "/dev/shm")]:
            size, inodes = map(int, line.split())
            assert 0 < size <= LIMITS[False].tmp_bytes
            assert 0 < inodes <= 4096

    in_box(body)


def test_wall_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_TEST_SECRET", "seen")

    async def body(box: Box) -> None:
        _, text = await box.run("cat /proc/1/environ; cat /proc/[0-9]*/environ")
        assert "HUTCH_TEST_SECRET" not in text
        for pid in (box.monitor_pid, box.machine.init.pid):
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes()
            except PermissionError:
                continue  # only root may look there
            assert b"HUTCH_TEST_SECRET" not in environment
        launched = launchers_of(os.getpid())
        assert launched
        for pid in launched:
            assert b"HUTCH_TEST_SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()

    in_box(body)


def test_wall_no_descriptors() -> None:
    leaked = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    os.set_inheritable(leaked, True)

    async def body(box: Box) -> None:
        inside = await box.python("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
        assert inside == "[0, 1, 2, 3]"
        outside, held = open_in(box.monitor_pid), open_in(box.machine.init.pid)
        assert (outside and held) or not AS_ROOT
        assert [name for name, _ in outside if not re.match(r"/dev/null$|pipe:|socket:|anon_inode:", name)] == []
        root = os.stat("/")
        assert [name for name, info in held if (info.st_dev, info.st_ino) == (root.st_dev, root.st_ino)] == []

    try:
        in_box(body)
    finally:
        os.close(leaked)


@pytest.mark.skipif(not AS_ROOT, reason="only root gives each sandbox a uid of its own")
def test_wall_host_uid() -> None:
    async def run() -> None:
        async with boxes(2) as made:
            uids = set()
            for box in made:
                status = Path(f"/proc/{box.machine.init.pid}/status").read_text()
                found = re.search(r"^Uid:\t(\d+)\t(\d+)\t(\d+)\t(\d+)$", status, re.MULTILINE)
                assert found is not None
                assert set(found.groups()) == {str(box.spec.host_uid)}
                uids.add(found[1])
            assert len(uids) == 2
            assert "0" not in uids

    asyncio.run(run())


def test_wall_program_folder() -> None:
    async def body(box: Box) -> None:
        assert set((await box.says("ls /usr/bin")).split()) <= set(STRICT_PROGRAMS)
        for program in ("/usr/bin/env", "/usr/bin/bash", "/bin/sh", "/usr/bin/perl", "/usr/sbin/chroot"):
            ended, _ = await box.run(f"{program} --version; exit $?")
            assert ended.exit_code in (126, 127), program
        loaders = await box.says("ls /lib64/ld-linux* /lib/ld-linux* 2>/dev/null | cat")
        for loader in loaders.split():
            ended, _ = await box.run(f"{loader} /usr/bin/env")
            assert ended.exit_code != 0
        strays = await box.python(STRAYS)
        assert strays == "[]"

    in_box(body, strict=True)


STRAYS = """
import os
found = []
for folder, _, names in os.walk('/usr'):
    for name in names:
        path = os.path.join(folder, name)
        if folder != '/usr/bin' and '.so' not in name and os.path.isfile(path) and os.access(path, os.X_OK):
            with open(path, 'rb') as file:
                if file.read(4) == b'\\x7fELF':
                    found.append(path)
print(found)
"""


def test_wall_noexec() -> None:
    async def body(box: Box) -> None:
        for folder in ("/workspace", "/tmp", "/dev/shm"):
            await box.says(f"cat /usr/bin/cat > {folder}/p")
            await box.python(f"import os; os.chmod('{folder}/p', 0o755)")
            ended, text = await box.run(f"{folder}/p /etc/hostname")
            assert ended.exit_code == 126, (folder, text)
            code = f"""
import mmap
with open('{folder}/p', 'rb') as file:
    try:
        mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC); print('mapped')
    except PermissionError:
        print('refused')
"""
            assert await box.python(code) == "refused"

    in_box(body, strict=True)


def test_wall_memfd() -> None:
    async def body(box: Box) -> None:
        code = "import os\ntry: os.memfd_create('x'); print('made')\nexcept PermissionError: print('refused')"
        assert await box.python(code) == "refused"

    in_box(body, strict=True)


def test_wall_cgroup_namespace() -> None:
    async def body(box: Box) -> None:
        await own_namespace(box, "cgroup")
        assert box.spec.sandbox_id not in await box.says("cat /proc/self/cgroup")

    in_box(body)


def test_wall_cgroup_limits() -> None:
    async def body(box: Box) -> None:
        if not await has_cgroups(box):
            pytest.skip("this user has no writable cgroups here")
        ended, _ = await box.run("python3 -c 'x = bytearray(600 << 20); print(len(x))'")
        assert (ended.exit_code, ended.limit) == (137, "memory")
        ended, text = await box.run("for i in $(seq 200); do sleep 5 & done 2>&1; exit 3")
        assert ended.limit == "pids", text
        assert await box.says("echo alive") == "alive"

    in_box(body)


@pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
def test_wall_landlock() -> None:
    async def body(box: Box) -> None:
        # A shared library that is a program as well: the overlay has to leave it, Landlock does not.
        code = """
import glob, subprocess
library = glob.glob('/usr/lib/*-linux-gnu/libc.so.6')[0]
try:
    print(subprocess.run([library], capture_output=True).returncode)
except PermissionError:
    print('refused')
"""
        assert await box.python(code) == "refused"

    in_box(body, strict=True)


def test_wall_hidden_paths() -> None:
    async def body(box: Box) -> None:
        table = await box.says("cat /proc/self/mountinfo /proc/mounts")
        assert box.spec.sandbox_id not in table
        assert str(box.spec.folder.parent.parent) not in table

    in_box(body)


def test_every_wall_has_its_test() -> None:
    from hutch.model.wall import WALLS

    assert {f"test_wall_{wall.name}" for wall in WALLS} <= set(vars(sys.modules[__name__]))
