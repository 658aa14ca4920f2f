"""The escape classes E1 to E12, each tried from inside a real sandbox."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from hutch.model.errors import SandboxUnavailable
from hutch.providers.bubblewrap import BubblewrapProvider
from hutch.providers.bubblewrap.machine import BubblewrapMachine
from hutch.providers.bubblewrap.plan import bubblewrap_arguments
from tests.hostile.walls_rig import AS_ROOT, Box, boxes, in_box

EPERM, ENOSYS = 1, 38
BAD_POINTER = 1  # a call that is let through answers EFAULT or EINVAL instead
X86 = os.uname().machine == "x86_64"
CALLS = {  # name -> (x86_64, aarch64)
    "ptrace": (101, 117),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "open_by_handle_at": (304, 265),
    "syslog": (103, 116),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "io_setup": (206, 0),
}
REFUSED = (
    "keyctl add_key request_key unshare setns mount umount2 pivot_root chroot bpf perf_event_open userfaultfd".split()
)
REFUSED += "init_module kexec_load open_by_handle_at syslog pidfd_getfd".split()
UNKNOWN = "io_uring_setup io_uring_enter io_uring_register clone3 fsopen fsconfig fsmount fspick open_tree".split()
UNKNOWN += ["move_mount", "mount_setattr", "io_setup"]


def number(name: str) -> int:
    return CALLS[name][0 if X86 else 1]


async def errnos(box: Box, names: list[str]) -> dict[str, int]:
    code = f"""
import ctypes
library = ctypes.CDLL(None, use_errno=True)
for name, number in {[(name, number(name)) for name in names]}:
    result = library.syscall(ctypes.c_long(number), *[ctypes.c_long({BAD_POINTER})] * 5)
    print(name, ctypes.get_errno() if result == -1 else 0)
"""
    lines = (await box.python(code)).splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def test_e1_planted_links_lead_the_launcher_nowhere() -> None:
    """What a sandbox left in its workspace is never followed when its next machine is built."""

    async def run() -> None:
        async with boxes() as (box,):
            host = Path(tempfile.mkdtemp(prefix="hutch-test-host-", dir="/var/tmp"))
            host.chmod(0o777)
            try:
                names = "link tmp dev etc usr proc files work lock guest.sock .x skills .venv newroot oldroot".split()
                for name in names:
                    await box.says(f"ln -s /oldroot{host} {name}; ln -s {host} {name}-direct")
                await box.machine.stop()
                again = await box.provider.start(box.spec)
                assert isinstance(again, BubblewrapMachine)
                box.machine = again
                await box.says("for name in *; do (echo x > $name/y) 2>/dev/null; done; true")
                assert list(host.iterdir()) == []
                assert not (box.spec.folder / "work").is_symlink()
            finally:
                shutil.rmtree(host)

    asyncio.run(run())


def test_e1_bubblewrap_mounts_nothing_below_what_a_sandbox_writes() -> None:
    async def body(box: Box) -> None:
        blue = box.provider._site.blueprint(box.spec, box.machine._cgroups)
        arguments = bubblewrap_arguments(blue)
        targets = [arguments[place + 2] for place, word in enumerate(arguments) if word.endswith("bind")]
        targets += [arguments[place + 1] for place, word in enumerate(arguments) if word in ("--dir", "--proc")]
        assert "/workspace" in targets
        written = ("/workspace/", "/tmp/", "/dev/shm/")
        assert [target for target in targets if target.startswith(written)] == []

    in_box(body)


def test_e2_a_setuid_bubblewrap_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "bwrap"
    shutil.copy("/usr/bin/bwrap", copy)
    copy.chmod(0o4755)
    assert copy.stat().st_mode & stat.S_ISUID

    async def run() -> None:
        provider = BubblewrapProvider(tmp_path / "data", bubblewrap=copy)
        from tests.hostile.walls_rig import make_spec

        with pytest.raises(SandboxUnavailable, match="setuid"):
            await provider.start(make_spec(provider, tmp_path / "data", strict=False))
        await provider.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("pty", [None, (24, 80)])
def test_e3_nothing_can_be_typed_into_a_terminal(pty: tuple[int, int] | None) -> None:
    async def body(box: Box) -> None:
        code = f"""
import ctypes
library = ctypes.CDLL(None, use_errno=True)
for request in (0x5412, 0x541c, 0x1_0000_5412, 0x1_0000_541c, 0xffff_ffff_0000_5412):
    result = library.syscall(ctypes.c_long({16 if X86 else 29}), 0, ctypes.c_ulong(request), b"x")
    print(ctypes.get_errno() if result == -1 else 0)
"""
        writer = await box.machine.open_write("type.py")
        await writer.write(code.encode())
        await writer.commit()
        _, text = await box.run("python3 type.py", pty=pty)
        assert text.split() == [str(EPERM)] * 5

    in_box(body)


def test_e4_the_runtime_cannot_be_overwritten() -> None:
    async def body(box: Box) -> None:
        code = """
import os
for path in ('/proc/1/exe', '/proc/self/exe', f'/proc/{os.getppid()}/exe'):
    try:
        os.close(os.open(path, os.O_WRONLY)); print('opened')
    except OSError:
        print('refused')
"""
        assert set((await box.python(code)).split()) == {"refused"}
        if AS_ROOT:
            owner = os.stat(shutil.which("bwrap") or "/usr/bin/bwrap").st_uid
            assert owner != box.spec.host_uid

    in_box(body)


def test_e7_a_name_that_is_swapped_for_a_link_writes_no_host_file() -> None:
    """A link to a host file is a link in the sandbox's own view, whoever resolves it."""

    async def body(box: Box) -> None:
        with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="hutch-test-") as target:
            os.chmod(target.name, 0o666)
            await box.says(f"ln -s {target.name} direct; ln -s /proc/self/root{target.name} magic")
            for name in ("direct", "magic"):
                writer = await box.machine.open_write(name)
                await writer.write(b"overwritten")
                await writer.commit()
            assert Path(target.name).read_bytes() == b""

    in_box(body)


def test_e8_the_kernel_cannot_be_told_to_run_something() -> None:
    async def body(box: Box) -> None:
        for path in (
            "/proc/sys/kernel/core_pattern",
            "/proc/sysrq-trigger",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/fs/binfmt_misc/register",
            "/sys/kernel/uevent_helper",
        ):
            ended, _ = await box.run(f"echo x > {path}")
            assert ended.exit_code != 0, path
        mounts = await box.says("cat /proc/mounts")
        assert " cgroup" not in mounts
        assert " sysfs " not in mounts

    in_box(body)


def test_e9_calls_that_no_sandbox_needs_are_refused() -> None:
    async def body(box: Box) -> None:
        answers = await errnos(box, [name for name in REFUSED if number(name)])
        assert answers == dict.fromkeys(answers, EPERM)

    in_box(body)


def test_e9_calls_with_an_older_way_are_unknown() -> None:
    async def body(box: Box) -> None:
        answers = await errnos(box, [name for name in UNKNOWN if number(name)])
        assert answers == dict.fromkeys(answers, ENOSYS)

    in_box(body)


def test_e9_no_unusual_sockets_however_the_family_is_spelled() -> None:
    async def body(box: Box) -> None:
        call = 41 if X86 else 198
        for family in (38, 40, 17, 29, 31, 0x1_0000_0026, 0x1_0000_0028):  # AF_ALG, AF_VSOCK, packet, CAN, Bluetooth
            assert await box.call(call, family, 1, 0) == EPERM, family
        for family in (1, 2, 10):
            assert await box.call(call, family, 1, 0) == 0, family

    in_box(body)


@pytest.mark.skipif(not X86, reason="the other architectures of this processor")
def test_e9_calls_by_the_rules_of_another_architecture_are_refused() -> None:
    async def body(box: Box) -> None:
        assert await box.call(0x4000_0000 + 39) == ENOSYS  # getpid of x32
        code = """
import ctypes, mmap
# mov eax, 20 (getpid); int 0x80; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex('b814000000cd80c3'))
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
        assert await box.python(code) == str(-ENOSYS)

    in_box(body)


def test_e9_no_namespace_by_clone() -> None:
    async def body(box: Box) -> None:
        for flag in (0x1000_0000, 0x0002_0000, 0x2000_0000, 0x4000_0000, 0x0400_0000, 0x0800_0000):
            assert await box.call(56 if X86 else 220, flag | 17, 0, 0, 0, 0) == EPERM, hex(flag)

    in_box(body)


async def still_works(box: Box) -> bool:
    """A command that kills what serves the next one may cost one more try."""
    for _ in range(5):
        try:
            return await box.says("echo alive") == "alive"
        except SandboxUnavailable:
            assert box.machine.alive
    return False


def test_e10_no_devices_no_setuid_no_tracing_of_the_init() -> None:
    async def body(box: Box) -> None:
        assert (
            await box.python(
                "import os, stat\n"
                "try: os.mknod('/workspace/d', stat.S_IFBLK | 0o666, os.makedev(254, 0)); print('made')\n"
                "except PermissionError: print('refused')"
            )
            == "refused"
        )
        options = [line.split()[5] for line in (await box.says("cat /proc/self/mountinfo")).splitlines()]
        assert all("nosuid" in option.split(",") for option in options)
        assert await box.call(number("ptrace"), 16, 1, 0, 0) == EPERM  # PTRACE_ATTACH to the init
        for path in ("/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm"):
            assert (await box.run(f"test -e {path}"))[0].exit_code == 1, path
        ended, _ = await box.run("cat /proc/1/mem; cat /proc/1/environ; ls /proc/1/fd /proc/1/root")
        assert ended.exit_code != 0
        try:
            await box.run("kill -9 1; kill -9 -1")
        except SandboxUnavailable:
            pass  # it may kill its own handler before that has said that it started
        assert await still_works(box)

    in_box(body)


def test_e11_abstract_sockets_and_daemons_of_the_host_are_out_of_reach() -> None:
    name = f"hutch-test-{os.getpid()}"

    async def body(box: Box) -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"\0{name}")
            listening.listen(1)
            code = f"import socket; print(socket.socket(socket.AF_UNIX).connect_ex('\\0{name}'))"
            assert await box.python(code) == "111"
        for path in (
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/run/containerd",
            "/run/dbus",
            "/run/user",
            "/root",
            "/home",
        ):
            assert (await box.run(f"test -e {path}"))[0].exit_code == 1, path

    in_box(body)


def test_e12_files_of_a_workspace_are_never_run_by_the_host() -> None:
    """Whatever a program would load from its folder or home: no process of the host starts in the workspace."""

    async def run() -> None:
        async with boxes() as (box,):
            marker = Path(tempfile.gettempdir()) / f"hutch-test-ran-{os.getpid()}"
            python = f"open('{marker}', 'w').close()"
            for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "json.py", "x.pth"):
                await box.says(f'printf %s "import os; {python}" > {name}')
            for name in (".bashrc", ".profile", ".bash_profile", ".env"):
                await box.says(f"echo 'touch {marker}' > {name}")
            await box.machine.stop()
            again = await box.provider.start(box.spec)
            assert isinstance(again, BubblewrapMachine)
            box.machine = again
            await box.machine.usage(1000, 1 << 30)
            assert await box.says("echo fine") == "fine"
            assert not marker.exists()
            for pid in (box.monitor_pid, box.machine.init.pid):
                try:
                    assert box.spec.sandbox_id not in os.readlink(f"/proc/{pid}/cwd")
                except PermissionError:
                    pass  # only root may look there

    asyncio.run(run())
