"""The provider contract: what makes machines, and what a machine can do.

A provider gets a resolved `MachineSpec`, never a template name; it declares `Capabilities` and raises `NotSupported`
for what it lacks. The engine above owns policy, sessions, deadlines, output keeping and workspace limits; a provider
owns walls, kernel limits, processes, files and ports. All methods run on the engine's event loop and must not block it.

Failures: `SandboxUnavailable` (could not make or reach the machine), `WallMissing`, file errors of `model.errors`.
A command that fails is a `ProcessExit`, never an exception.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hutch.model.files import FileEvent, FileInfo
from hutch.model.limits import Limits
from hutch.model.process import Leftovers, ProcessExit, SignalScope, StreamName
from hutch.model.wall import WallReport

TREES_DIR = "/opt/hutch"


@dataclass(frozen=True, slots=True)
class Capabilities:
    pty: bool
    ports: bool
    listen: bool  # the host can listen on a sandbox's loopback (`Machine.listen`): what egress by rule needs
    watch: bool
    strict: bool  # can build the strict walls
    survives_engine: bool  # machines outlive the process that started them
    shared: bool  # another process of this user can reach a running machine (`Provider.reach`)


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine to start from its folder. The folder and its workspace outlive the machine."""

    sandbox_id: str
    folder: Path  # the sandbox's own; holds `files/` (the workspace), the socket, the lock
    limits: Limits
    strict: bool
    host_uid: int | None = None  # set when the server is root
    trees: Path | None = None  # of the host, shown read-only at TREES_DIR; what comes into it later is seen, too


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """`argv` as the sandbox will see it; `argv[0]` None stands for the sandbox's bash."""

    argv: Sequence[str | None]
    env: Mapping[str, str]
    cwd: str
    stdin: bool = False  # True: a pipe fed by `Process.write`; False: empty
    pty: tuple[int, int] | None = None  # rows, columns
    leftovers: Leftovers = "kill"


class OutputSink(Protocol):
    """Receives output as it is read, on the event loop. Must be quick; must never raise."""

    def feed(self, stream: StreamName, data: bytes) -> bool:
        """Take `data`. False asks the provider to read slowly: nobody keeps it any more."""
        ...


class Process(ABC):
    """A running process tree."""

    pid: int  # as the sandbox sees it

    @abstractmethod
    async def wait(self) -> ProcessExit:
        """The end of the process; when it returns all output was fed and leftovers are dealt with."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Feed stdin or the terminal.

        Raises: ProcessEnded when nobody reads any more.
        """

    @abstractmethod
    async def close_input(self) -> None: ...

    @abstractmethod
    async def signal(self, signum: int, scope: SignalScope) -> None: ...

    @abstractmethod
    async def kill(self, grace: float = 0.7) -> None:
        """End the whole tree. When `grace` seconds do not suffice the machine itself is ended (`wait` says lost)."""

    @abstractmethod
    async def resize(self, rows: int, columns: int) -> None: ...


class ByteStream(ABC):
    """A two-way byte stream, such as a connection to a port."""

    @abstractmethod
    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Next bytes; empty at the end."""

    @abstractmethod
    async def send(self, data: bytes) -> None: ...

    @abstractmethod
    async def send_eof(self) -> None: ...

    @abstractmethod
    async def aclose(self) -> None: ...


class Listener(ABC):
    """A port of the sandbox's loopback that the host answers. It ends with its machine."""

    port: int

    @abstractmethod
    async def accept(self) -> ByteStream:
        """The next connection that something in the sandbox makes. One task at a time.

        Raises: SandboxUnavailable when the machine has ended, or the listener was closed.
        """

    @abstractmethod
    async def aclose(self) -> None: ...


class FileReader(ABC):
    """An open regular file. `size` is what it held when opened."""

    size: int

    @abstractmethod
    async def read(self, max_bytes: int) -> bytes:
        """Next bytes; empty at the end."""

    @abstractmethod
    async def aclose(self) -> None: ...


class FileWriter(ABC):
    """A new file that appears under its name, whole, at `commit`; `abort` leaves nothing."""

    @abstractmethod
    async def write(self, data: bytes) -> None: ...

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Two that are equal: nobody wrote to the file, or put another one in its place."""

    mode: int
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Usage:
    bytes: int
    files: int
    largest: tuple[int, float] = (0, 0.0)  # size of the largest file, and when it was last written to
    complete: bool = True  # False: counting stopped at the ceiling it was given


class Machine(ABC):
    """A running sandbox. Paths are relative to the workspace, already checked for shape by the engine."""

    sandbox_id: str

    @property
    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    async def spawn(self, request: SpawnRequest, sink: OutputSink) -> Process: ...

    @abstractmethod
    async def open_read(self, path: str, offset: int = 0) -> FileReader: ...

    @abstractmethod
    async def open_write(self, path: str, *, mode: int = 0o644, parents: bool = False) -> FileWriter: ...

    @abstractmethod
    async def stat(self, path: str) -> FileInfo:
        """Of the path itself: a symlink is not followed."""

    async def identity(self, path: str) -> FileIdentity | None:
        """Of the path itself; None: this provider cannot tell."""
        return None

    @abstractmethod
    async def list(self, path: str, *, recursive: bool, max_entries: int) -> list[FileInfo]: ...

    @abstractmethod
    async def mkdir(self, path: str, *, parents: bool) -> None: ...

    @abstractmethod
    async def move(self, source: str, target: str, *, overwrite: bool) -> None: ...

    @abstractmethod
    async def remove(self, path: str, *, recursive: bool) -> None: ...

    @abstractmethod
    def watch(self, path: str, *, recursive: bool) -> AsyncIterator[FileEvent]: ...

    @abstractmethod
    async def connect(self, port: int) -> ByteStream: ...

    @abstractmethod
    async def listen(self, port: int) -> Listener:
        """Raises: NotSupported, FileConflict when something in the sandbox listens there, SandboxUnavailable."""

    @abstractmethod
    async def usage(self, max_files: int, max_bytes: int) -> Usage:
        """What the workspace holds; counting may stop once it is past either number."""

    @abstractmethod
    def headroom_hint(self) -> tuple[int, int]:
        """Free (bytes, inodes) of the file system the workspace lies on: a cheap sign that much was written."""

    @abstractmethod
    async def stop(self) -> None:
        """End every process. Files stay. Returns when nothing of the machine is left running."""

    @abstractmethod
    async def wait_stopped(self) -> str:
        """Returns, with a reason, when the machine has ended for whatever cause."""


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """What doctor shows."""

    provider: str
    usable: bool
    walls: tuple[WallReport, ...]
    limits: Mapping[str, str] = field(default_factory=dict[str, str])  # limit name -> how it is enforced, or the gap
    missing_programs: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()


class Provider(ABC):
    name: str
    capabilities: Capabilities

    @abstractmethod
    async def start(self, spec: MachineSpec) -> Machine:
        """Start a machine from its folder (made, with an empty workspace, if missing).

        Raises: WallMissing, SandboxUnavailable.
        """

    @abstractmethod
    async def reach(self, spec: MachineSpec) -> Machine | None:
        """A machine that another process runs, or None when there is none (any more)."""

    @abstractmethod
    async def destroy(self, spec: MachineSpec) -> None:
        """Remove all that a stopped machine left: folder, cgroups, stray processes. Missing pieces are fine."""

    @abstractmethod
    async def sweep(self, spec: MachineSpec) -> None:
        """After a crash: end what is left running of that machine; its files stay."""

    @abstractmethod
    def allocate_uid(self, taken: frozenset[int]) -> int | None:
        """A host uid of its own for a new sandbox, or None where the server is not root."""

    @abstractmethod
    async def report(self) -> ProviderReport: ...

    @abstractmethod
    async def aclose(self) -> None:
        """Stop every machine this provider started."""
