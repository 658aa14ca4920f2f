"""A sandbox with nothing but the guest init in it: bubblewrap's namespaces, the host's /usr, a workspace."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from hutch.model.process import StreamName
from hutch.providers.base import SpawnRequest, Usage
from hutch.providers.guest.machine import GuestMachine

ROOT = Path(__file__).resolve().parent.parent
PATH = "/usr/local/bin:/usr/bin:/bin"
HANG = 30.0  # no test takes a tenth of it

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    async def bounded() -> _T:
        return await asyncio.wait_for(work, HANG)

    return asyncio.run(bounded())


@cache
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hutch_guest_build", ROOT / "guest" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def built_guest() -> Path:
    """The real binary, where the package looks for it."""
    machine = platform.machine()
    out: list[Path] = builder().build(builder().DEFAULT_OUT / machine, machine)
    return next(path for path in out if path.name == "hutch-guest")


class Kept:
    """A sink that keeps everything, or says that nobody does."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        self.data: dict[StreamName, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.fed_bytes = 0

    def feed(self, stream: StreamName, data: bytes) -> bool:
        self.fed_bytes += len(data)
        if self.keeps:
            self.data[stream] += data
        return self.keeps

    @property
    def stdout(self) -> str:
        return self.data["stdout"].decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.data["stderr"].decode("utf-8", "replace")


class RigMachine(GuestMachine):
    def __init__(self, folder: Path, running: subprocess.Popen[bytes], *, shell: str | None = None) -> None:
        super().__init__("sbrig", folder / "guest.sock", shell=shell)
        self.running = running
        self.workspace = folder / "files"
        self.limits_set: list[tuple[int, int, int]] = []
        self.ended_by_grace = False

    @property
    def alive(self) -> bool:
        return self.running.poll() is None

    def rlimits(self) -> Sequence[tuple[int, int, int]]:
        return self.limits_set

    async def end_machine(self) -> None:
        self.ended_by_grace = True
        self.running.kill()

    async def usage(self, max_files: int, max_bytes: int) -> Usage:
        return Usage(bytes=0, files=0)

    def headroom_hint(self) -> tuple[int, int]:
        return (0, 0)

    async def stop(self) -> None:
        self.running.kill()
        self.running.wait(HANG)
        self.release()

    async def wait_stopped(self) -> str:
        await asyncio.to_thread(self.running.wait)
        return "ended"

    async def bash(self, text: str, **more: Any) -> tuple[Any, Kept]:
        """Run a script to its end."""
        sink = Kept()
        process = await self.spawn(request(text, **more), sink)
        return await process.wait(), sink

    def init_pid(self) -> int:
        """The init, as this side of the namespace numbers it."""
        pids = [self.running.pid, *_descendants(self.running.pid)]
        return next(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == "hutch-guest")

    def processes(self) -> list[str]:
        """What runs in the sandbox besides the init and its handlers, told from outside."""
        found: list[str] = []
        for name in _descendants(self.running.pid):
            try:
                line = (
                    Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                )
            except (FileNotFoundError, ProcessLookupError):
                continue
            if line and not line.startswith(("/opt/hutch-guest", "bwrap", "/usr/bin/bwrap")):
                found.append(line)
        return found


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [int(child) for child in children]
    return found[1:]


def request(text: str, **more: Any) -> SpawnRequest:
    env = {"PATH": PATH, "HOME": "/workspace", "LANG": "C.UTF-8", **more.pop("env", {})}
    return SpawnRequest(argv=(None, "-c", text), env=env, cwd=more.pop("cwd", "/workspace"), **more)


def sandbox_arguments(guest: Path, files: Path) -> list[str]:
    return [
        "bwrap",
        *("--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1", "--die-with-parent", "--clearenv"),
        *("--uid", "1000", "--gid", "1000", "--ro-bind", "/usr", "/usr"),
        *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", str(guest), "/opt/hutch-guest"),
        *("--bind", str(files), "/workspace", "--chdir", "/workspace"),
        *("--setenv", "ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1"),
    ]


@asynccontextmanager
async def rig(
    *,
    guest: Path | None = None,
    options: Sequence[str] = (),
    shell_descriptor: bool = False,
    folder: Path | None = None,
) -> AsyncIterator[RigMachine]:
    """A machine that is gone, with its folder, at the end."""
    binary = guest or built_guest()
    place = folder or Path(tempfile.mkdtemp(prefix="hutch-rig-"))
    running = _start(place, binary, options, shell_descriptor=shell_descriptor)
    machine = RigMachine(place, running, shell=None if shell_descriptor else "/usr/bin/bash")
    try:
        assert await machine.ping(), "the guest did not start"
        yield machine
    finally:
        await machine.stop()
        _remove(place)


def _start(place: Path, guest: Path, options: Sequence[str], *, shell_descriptor: bool) -> subprocess.Popen[bytes]:
    (place / "files").mkdir(parents=True)
    os.chmod(place, 0o755)
    passed: list[int] = []
    arguments = list(options)
    if shell_descriptor:
        passed.append(os.open("/usr/bin/bash", os.O_RDONLY | os.O_CLOEXEC))
        arguments += ["--shell", str(passed[0])]
    with listening(place / "guest.sock") as listener:
        arguments += ["--listen", str(listener.fileno())]
        running = subprocess.Popen(
            [*sandbox_arguments(guest, place / "files"), "--", "/opt/hutch-guest", *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=[*passed, listener.fileno()],
        )
    for descriptor in passed:
        os.close(descriptor)
    return running


def _remove(place: Path) -> None:
    """Whatever a test made there: folders without permissions, paths too long for Python's own removal."""
    subprocess.run(["chmod", "-R", "u+rwx", str(place)], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", str(place)], check=True)


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(path.parent, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    listener.listen(128)
    return listener
