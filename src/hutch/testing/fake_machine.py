"""A machine of the fake provider: a workspace in memory, simulated processes, ports without sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count

from hutch.model.errors import (
    FileConflict,
    InvalidRequest,
    NotSupported,
    PortUnreachable,
    SandboxFileNotFound,
    SandboxUnavailable,
)
from hutch.model.files import FileEvent, FileInfo
from hutch.model.session import WORKSPACE_DIR
from hutch.providers.base import (
    ByteStream,
    Capabilities,
    FileIdentity,
    FileReader,
    FileWriter,
    Machine,
    MachineSpec,
    OutputSink,
    Process,
    SpawnRequest,
    Usage,
)
from hutch.providers.base import Listener as HostListener
from hutch.testing.fake_files import File, Folder, Tree
from hutch.testing.fake_ports import FakeListener, stream_pair
from hutch.testing.fake_process import Behaviour, FakeProcess, Listener, Running
from hutch.testing.faults import Faults

Resolver = Callable[[SpawnRequest], Behaviour]


class FakeMachine(Machine):
    def __init__(
        self, spec: MachineSpec, tree: Tree, capabilities: Capabilities, faults: Faults, resolve: Resolver
    ) -> None:
        self.sandbox_id = spec.sandbox_id
        self.spec = spec
        self.tree = tree
        self.unfinished: list[File] = []
        self._capabilities = capabilities
        self._faults = faults
        self._resolve = resolve
        self._pids = count(2)  # 1 is the guest
        self._processes: list[FakeProcess] = []
        self._listeners: dict[int, Listener] = {}
        self._host_listeners: list[FakeListener] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    # --- for tests and simulated processes ---------------------------------------------------------------------

    def next_pid(self) -> int:
        return next(self._pids)

    def running(self) -> Sequence[Running]:
        return [task for process in self._processes for task in process.living()]

    def serve(self, port: int, listener: Listener) -> None:
        """As a program of the sandbox would."""
        self._listeners[port] = listener

    def unserve(self, port: int) -> None:
        self._listeners.pop(port, None)

    def die(self, reason: str = "the machine died") -> None:
        """The end without warning: processes are lost, calls fail, files stay."""
        if self._stopped.done():
            return
        self._stopped.set_result(reason)
        self._listeners.clear()
        for listener in self._host_listeners:
            listener.end()
        for process in list(self._processes):
            process.lose()
        for connection in self._connections:
            connection.cancel()
        self.tree.end_watches(SandboxUnavailable(f"sandbox {self.sandbox_id} has ended: {reason}"))

    def _require_alive(self) -> None:
        if self._stopped.done():
            raise SandboxUnavailable(f"sandbox {self.sandbox_id} is not running: {self._stopped.result()}")

    # --- processes ---------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return not self._stopped.done()

    async def spawn(self, request: SpawnRequest, sink: OutputSink) -> Process:
        self._require_alive()
        if request.pty is not None and not self._capabilities.pty:
            raise NotSupported("the fake was told to have no terminals")
        self._require_folder(request.cwd)
        await self._faults.before("spawn")
        self._require_alive()
        behaviour = self._resolve(request)
        process = FakeProcess(self, request, sink, on_end=lambda: self._processes.remove(process))
        self._processes.append(process)
        await process.start(behaviour)
        return process

    def _require_folder(self, cwd: str) -> None:
        if cwd != WORKSPACE_DIR and not cwd.startswith(WORKSPACE_DIR + "/"):
            return  # the fake has no files outside the workspace, so it cannot know
        place = self.tree.find(os.path.relpath(cwd, WORKSPACE_DIR))
        if not isinstance(place.node, Folder):
            raise SandboxFileNotFound(f"the working directory {cwd!r} does not exist", path=cwd)

    # --- files -------------------------------------------------------------------------------------------------

    async def open_read(self, path: str, offset: int = 0) -> FileReader:
        await self._file_call("open_read")
        if offset < 0:
            raise InvalidRequest(f"offset must not be negative, not {offset}")
        return _Reader(self.tree.file(path), offset)

    async def open_write(self, path: str, *, mode: int = 0o644, parents: bool = False) -> FileWriter:
        await self._file_call("open_write")
        if parents and "/" in path:
            self.tree.mkdir(path.rpartition("/")[0], parents=True)
        place = self.tree.find(path, follow=False)
        if isinstance(place.node, Folder):
            self.tree.file(path)  # says that it is no regular file
        return _Writer(self, path, mode)

    async def stat(self, path: str) -> FileInfo:
        await self._file_call("stat")
        return self.tree.stat(path)

    async def identity(self, path: str) -> FileIdentity | None:
        await self._file_call("stat")
        return self.tree.identity(path)

    async def list(self, path: str, *, recursive: bool, max_entries: int) -> list[FileInfo]:
        await self._file_call("list")
        return self.tree.list(path, recursive=recursive, max_entries=max_entries)

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._file_call("mkdir")
        self.tree.mkdir(path, parents=parents)

    async def move(self, source: str, target: str, *, overwrite: bool) -> None:
        await self._file_call("move")
        self.tree.move(source, target, overwrite=overwrite)

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._file_call("remove")
        self.tree.remove(path, recursive=recursive)

    async def watch(self, path: str, *, recursive: bool) -> AsyncIterator[FileEvent]:
        if not self._capabilities.watch:
            raise NotSupported("the fake was told not to watch files")
        await self._file_call("watch")
        watch = self.tree.watch(path, recursive=recursive)
        try:
            async for event in watch:
                yield event
        finally:
            await watch.aclose()

    async def _file_call(self, name: str) -> None:
        self._require_alive()
        await self._faults.before(name)
        self._require_alive()

    # --- ports, usage, end -------------------------------------------------------------------------------------

    async def connect(self, port: int) -> ByteStream:
        self._require_alive()
        if not self._capabilities.ports:
            raise NotSupported("the fake was told to have no ports")
        if not 0 < port < 65536:
            raise InvalidRequest(f"{port} is not a port")
        await self._faults.before("connect")
        listener = self._listeners.get(port)
        if listener is None:
            raise PortUnreachable(f"nothing in the sandbox listens on port {port}", port=port)
        ours, theirs = stream_pair()

        async def answer() -> None:
            try:
                await listener(theirs)
            finally:
                await theirs.aclose()

        connection = asyncio.get_running_loop().create_task(answer())
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        return ours

    async def listen(self, port: int) -> HostListener:
        self._require_alive()
        if not self._capabilities.listen:
            raise NotSupported("the fake was told to have no listeners")
        if not 0 < port < 65536:
            raise InvalidRequest(f"{port} is not a port")
        await self._faults.before("listen")
        if port in self._listeners:
            raise FileConflict(f"something in the sandbox listens on port {port}")
        listener = FakeListener(port, lambda: self.unserve(port))
        self._host_listeners.append(listener)
        self.serve(port, listener.answer)
        return listener

    def _holds(self) -> tuple[int, int]:
        total_bytes, files = self.tree.usage()
        return total_bytes + sum(len(file.data) for file in self.unfinished), files + len(self.unfinished)

    async def usage(self, max_files: int, max_bytes: int) -> Usage:
        await self._file_call("usage")
        total_bytes, files = self._holds()
        return Usage(total_bytes, files)

    def headroom_hint(self) -> tuple[int, int]:
        total_bytes, files = self._holds()
        return self._faults.disk_bytes - total_bytes, self._faults.disk_files - files

    async def stop(self) -> None:
        await self._faults.before("stop")
        processes = list(self._processes)
        self.die("stopped")
        for process in processes:
            await process.gone()
        if self._connections:
            await asyncio.wait(self._connections)

    async def wait_stopped(self) -> str:
        return await asyncio.shield(self._stopped)


class _Reader(FileReader):
    def __init__(self, file: File, offset: int) -> None:
        self._file = file
        self._offset = offset
        self.size = len(file.data)

    async def read(self, max_bytes: int) -> bytes:
        data = self._file.data[self._offset : self._offset + max_bytes]
        self._offset += len(data)
        return data

    async def aclose(self) -> None:
        return None


class _Writer(FileWriter):
    def __init__(self, machine: FakeMachine, path: str, mode: int) -> None:
        self._machine = machine
        self._path = path
        self._file = File(mode=mode)
        self._open = True
        machine.unfinished.append(self._file)  # as a real one has it in the workspace, under a name of its own

    async def write(self, data: bytes) -> None:
        self._require_open()
        self._file.data += data

    async def commit(self) -> None:
        self._require_open()
        self._end()
        self._machine.tree.put(self._path, self._file)

    async def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._open:
            self._open = False
            self._machine.unfinished = [file for file in self._machine.unfinished if file is not self._file]

    def _require_open(self) -> None:
        if not self._open:
            raise InvalidRequest(f"the writer of {self._path!r} was already committed or aborted")
        if not self._machine.alive:
            raise SandboxUnavailable(f"sandbox {self._machine.sandbox_id} is not running")
