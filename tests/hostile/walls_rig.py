"""Real sandboxes for the tests of the walls. HUTCH_TEST_WALL_OFF builds them without the named wall."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hutch.model.ids import new_sandbox_id
from hutch.model.limits import MIB
from hutch.model.process import ProcessExit, StreamName
from hutch.model.template import BASH, OPEN
from hutch.providers.base import MachineSpec, SpawnRequest
from hutch.providers.bubblewrap import BubblewrapProvider
from hutch.providers.bubblewrap.machine import BubblewrapMachine

WALL_OFF = "HUTCH_TEST_WALL_OFF"
DATA = "HUTCH_TEST_WALLS_DATA"
AS_ROOT = os.geteuid() == 0
ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
# Without these a wall cannot be taken down alone: bubblewrap needs them to build the others.
ALSO_OFF = {
    "user_namespace": {"disable_userns", "host_uid"},
    "no_new_privs": {"seccomp"},
    "noexec": {"landlock"},
    "program_folder": {"landlock"},
}
LIMITS = {
    True: replace(BASH.limits, cpu_percent=0, tmp_bytes=8 * MIB),
    False: replace(
        OPEN.limits,
        cpu_percent=0,
        tmp_bytes=8 * MIB,
        pids=64,
        memory_bytes=256 * MIB,
        ptys=8,
        inotify_watches=500,
    ),
}
# bubblewrap sets no_new_privs always; this is how the test of that wall gets a sandbox without it.
KEEP_PRIVILEGES = """
#include <dlfcn.h>
#include <stdarg.h>
int prctl(int option, ...) {
    va_list list;
    va_start(list, option);
    unsigned long a = va_arg(list, unsigned long), b = va_arg(list, unsigned long);
    unsigned long c = va_arg(list, unsigned long), d = va_arg(list, unsigned long);
    va_end(list);
    if (option == 38) return 0;
    int (*real)(int, ...) = (int (*)(int, ...))dlsym(RTLD_NEXT, "prctl");
    return real(option, a, b, c, d);
}
"""
START_WITH = """
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    setenv("LD_PRELOAD", LIBRARY, 1);
    execv(PROGRAM, words);
    return 127;
}
"""


def walls_off() -> frozenset[str]:
    name = os.environ.get(WALL_OFF, "")
    return frozenset({name, *ALSO_OFF.get(name, ())}) if name else frozenset()


class Printed:
    def __init__(self) -> None:
        self.data = b""

    def feed(self, stream: StreamName, data: bytes) -> bool:
        self.data += data
        return True


@dataclass
class Box:
    """A sandbox and its host."""

    provider: BubblewrapProvider
    machine: BubblewrapMachine
    spec: MachineSpec

    async def run(self, command: str, *, pty: tuple[int, int] | None = None) -> tuple[ProcessExit, str]:
        printed = Printed()
        request = SpawnRequest((None, "-c", command), ENV, "/workspace", pty=pty)
        process = await self.machine.spawn(request, printed)
        ended = await asyncio.wait_for(process.wait(), 60)
        return ended, printed.data.decode(errors="replace").replace("\r\n", "\n")

    async def says(self, command: str) -> str:
        """What a command prints, which must succeed."""
        ended, text = await self.run(command)
        assert ended.exit_code == 0, (command, ended, text)
        return text.strip()

    async def python(self, code: str) -> str:
        """Run Python in the sandbox."""
        name = new_sandbox_id() + ".py"
        writer = await self.machine.open_write(name)
        await writer.write(code.encode())
        await writer.commit()
        return await self.says(f"python3 /workspace/{name}")

    async def call(self, number: int, *arguments: int) -> int:
        """The errno of a system call made in the sandbox; 0 when it succeeds."""
        return int(await self.python(CALL.format(number=number, arguments=list(arguments))))

    @property
    def monitor_pid(self) -> int:
        """bubblewrap itself, outside."""
        for line in Path(f"/proc/{self.machine.init.pid}/status").read_text().splitlines():
            if line.startswith("PPid:"):
                return int(line.split()[1])
        raise AssertionError("no parent")


CALL = """
import ctypes
library = ctypes.CDLL(None, use_errno=True)
arguments = [ctypes.c_long(value) for value in {arguments}]
result = library.syscall(ctypes.c_long({number}), *arguments)
print(ctypes.get_errno() if result == -1 else 0)
"""


def make_spec(provider: BubblewrapProvider, data: Path, *, strict: bool) -> MachineSpec:
    name = new_sandbox_id()
    uid = provider.allocate_uid(frozenset())
    return MachineSpec(name, data / "sandboxes" / name, LIMITS[strict], strict, uid)


@asynccontextmanager
async def boxes(count: int = 1, *, strict: bool = False, off: frozenset[str] = frozenset()) -> AsyncIterator[list[Box]]:
    """`off`: walls that stand in the way of looking at another one."""
    data = Path(os.environ[DATA])
    with keep_privileges() as shim:
        provider = BubblewrapProvider(data, walls_off=walls_off() | off, bubblewrap=shim)
        specs = [make_spec(provider, data, strict=strict) for _ in range(count)]
        try:
            made = []
            for spec in specs:
                machine = await provider.start(spec)
                assert isinstance(machine, BubblewrapMachine)
                made.append(Box(provider, machine, spec))
            yield made
        finally:
            for spec in specs:
                await provider.destroy(spec)
            await provider.aclose()


def in_box(body: Callable[[Box], Awaitable[None]], *, strict: bool = False, off: frozenset[str] = frozenset()) -> None:
    async def run() -> None:
        async with boxes(strict=strict, off=off) as made:
            await body(made[0])

    asyncio.run(run())


class keep_privileges:  # noqa: N801 - used like a function
    """A bubblewrap that leaves no_new_privs alone, when that is the wall to take down."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def __enter__(self) -> Path | None:
        if os.environ.get(WALL_OFF) != "no_new_privs":
            return None
        self._folder = Path(tempfile.mkdtemp(prefix="hutch-test-"))
        self._folder.chmod(0o755)
        program = shutil.which("bwrap") or "/usr/bin/bwrap"
        library, shim = self._folder / "keep.so", self._folder / "bwrap"
        _compile(KEEP_PRIVILEGES, library, "-shared", "-fPIC", "-D_GNU_SOURCE")
        _compile(START_WITH, shim, f'-DLIBRARY="{library}"', f'-DPROGRAM="{program}"')
        return shim

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)


def _compile(source: str, target: Path, *options: str) -> None:
    compiler = [found] if (found := shutil.which("gcc")) else [sys.executable, "-m", "ziglang", "cc"]
    command = [*compiler, *options, "-x", "c", "-", "-o", str(target), "-ldl"]
    subprocess.run(command, input=source.encode(), check=True, timeout=60)
    target.chmod(0o755)
