"""The leak classes L1 to L6 and the pools that all sandboxes of a host share (R6), in real sandboxes."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.hostile.walls_rig import LIMITS, Box, boxes, in_box

EPERM = 1


def test_l1_the_servers_environment_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_TEST_SECRET", "seen")

    async def body(box: Box) -> None:
        _, text = await box.run("cat /proc/*/environ; cat /proc/self/environ | tr '\\0' '\\n'; export -p")
        assert "HUTCH_TEST_SECRET" not in text

    in_box(body)


def test_l2_command_lines_name_neither_paths_nor_values() -> None:
    async def body(box: Box) -> None:
        inside = await box.says("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        outside = Path(f"/proc/{box.monitor_pid}/cmdline").read_text()
        for text in (inside, outside):
            assert box.spec.sandbox_id not in text
            assert str(box.spec.folder.parent.parent) not in text

    in_box(body)


def test_l3_nothing_names_the_host_path_of_the_workspace() -> None:
    async def body(box: Box) -> None:
        code = """
import os
seen = []
for folder in ('/proc/self', '/proc/1', '/proc/self/task'):
    for name in ('mountinfo', 'mounts', 'mountstats', 'maps', 'cgroup', 'cwd', 'root', 'exe'):
        try:
            link = name in ('cwd', 'root', 'exe')
            seen.append(os.readlink(f'{folder}/{name}') if link else open(f'{folder}/{name}').read())
        except OSError:
            pass
print(seen)
"""
        text = await box.python(code)
        text += await box.says("readlink /proc/self/exe /proc/$$/exe /proc/self/fd/*; df -a; mount 2>&1 | cat")
        assert box.spec.sandbox_id not in text
        assert str(box.spec.folder.parent.parent) not in text

    in_box(body)


def test_l4_keys_are_neither_listed_nor_made() -> None:
    async def body(box: Box) -> None:
        assert await box.says("cat /proc/keys /proc/key-users 2>/dev/null | cat") == ""
        code = """
import ctypes, os
library = ctypes.CDLL(None, use_errno=True)
keyctl, add = (250, 248) if os.uname().machine == 'x86_64' else (219, 217)
for call, words in ((keyctl, (0, -3, 0)), (add, (b'user', b'name', b'x', 1, -3))):
    print(library.syscall(call, *words), ctypes.get_errno())
"""
        assert (await box.python(code)).splitlines() == [f"-1 {EPERM}"] * 2

    in_box(body)


HOLD = """
import fcntl, sys, time
files = [open(path) for path in ('/usr/bin/env', '/etc/passwd', '/usr/lib/os-release', '/proc/self/exe')]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print('held', flush=True)
time.sleep(30)
"""
TRY = """
import fcntl
for path in ('/usr/bin/env', '/etc/passwd', '/usr/lib/os-release', '/proc/self/exe'):
    try:
        fcntl.flock(open(path), fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')
    except BlockingIOError:
        print('locked')
"""


def test_l5_a_lock_in_one_sandbox_cannot_be_felt_in_another() -> None:
    async def run() -> None:
        async with boxes(2) as (first, second):
            writer = await first.machine.open_write("hold.py")
            await writer.write(HOLD.encode())
            await writer.commit()
            holding = asyncio.ensure_future(first.run("python3 hold.py > held"))
            for _ in range(300):
                if "held" in await first.says("cat held 2>/dev/null | cat"):
                    break
                await asyncio.sleep(0.05)
            assert (await first.python(TRY)).split().count("locked") == 4  # the lock is real …
            assert set((await second.python(TRY)).split()) == {"free"}  # … and the first sandbox's own
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)

    asyncio.run(run())


def test_l5_no_folder_and_no_memory_is_shared() -> None:
    async def run() -> None:
        async with boxes(2) as (first, second):
            for folder in ("/tmp", "/dev/shm", "/workspace"):
                await first.says(f"echo x > {folder}/shared-name")
                assert (await second.run(f"test -e {folder}/shared-name"))[0].exit_code == 1
            code = "import socket\ntry: socket.socket(40, 1); print('open')\nexcept PermissionError: print('refused')"
            assert await second.python(code) == "refused"  # AF_VSOCK

    asyncio.run(run())


def test_l6_the_kernels_messages_and_cores_stay_with_the_host() -> None:
    async def body(box: Box) -> None:
        assert await box.call(103 if os.uname().machine == "x86_64" else 116, 3, 0, 0) == EPERM  # syslog
        assert await box.says("ulimit -Hc") == "0"
        symbols = await box.says("head -50 /proc/kallsyms 2>/dev/null | cat")
        addresses = set(re.findall(r"^(\w+) ", symbols, re.MULTILINE))
        assert addresses <= {"0" * 16}

    in_box(body)


def test_r6_terminals_of_one_sandbox_are_counted() -> None:
    async def run() -> None:
        async with boxes(2) as (first, second):
            code = """
import os
held = []
try:
    while len(held) < 4000:
        held += os.openpty()
except OSError:
    pass
print(len(held) // 2)
"""
            assert int(await first.python(code)) <= LIMITS[False].ptys
            _, text = await second.run("tty", pty=(24, 80))
            assert text.strip().startswith("/dev/pts/")

    asyncio.run(run())


def test_r6_watches_of_one_sandbox_are_counted() -> None:
    async def body(box: Box) -> None:
        code = """
import ctypes, os
library = ctypes.CDLL(None, use_errno=True)
held = []
while len(held) < 2000 and (descriptor := library.inotify_init()) >= 0:
    held.append(descriptor)
print(len(held))
watches = 0
for number in range(20000):
    os.makedirs(f'/tmp/w/{number % 100}', exist_ok=True)
    name = f'/tmp/w/{number % 100}/{number}'
    try:
        os.mkdir(name)
    except OSError:
        break
    if library.inotify_add_watch(held[0], name.encode(), 2) < 0:
        break
    watches += 1
print(watches)
"""
        instances, watches = map(int, (await box.python(code)).split())
        assert 0 < instances <= LIMITS[False].inotify_instances
        assert 0 < watches <= LIMITS[False].inotify_watches

    in_box(body)
