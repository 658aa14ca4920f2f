"""A machine whose PID 1 is `hutch-guest`: everything that needs no more than the guest's socket.

A provider subclasses `GuestMachine`, says how its machine lives and ends (`alive`, `usage`, `headroom_hint`, `stop`,
`wait_stopped`), and may override the hooks: `rlimits`, `limit_mark`, `limit_seen`, `end_machine`. When the machine
has ended it calls `release`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from hutch.model.errors import HutchError, InvalidRequest, SandboxUnavailable
from hutch.model.files import FileEvent, FileInfo
from hutch.model.limits import LimitName
from hutch.model.process import ProcessExit
from hutch.providers.base import (
    ByteStream,
    FileIdentity,
    FileReader,
    FileWriter,
    Listener,
    Machine,
    OutputSink,
    SpawnRequest,
)
from hutch.providers.guest import protocol
from hutch.providers.guest.connection import Connection, GuestGone, close_all, open_connection, open_now
from hutch.providers.guest.failures import file_error, listen_error, port_error, reason
from hutch.providers.guest.files import GuestReader, GuestWriter, temporary_beside
from hutch.providers.guest.listening import GuestListener
from hutch.providers.guest.listing import file_info, sorted_infos
from hutch.providers.guest.process import GuestProcess
from hutch.providers.guest.protocol import Answer, Kind, Op
from hutch.providers.guest.starting import start_process
from hutch.providers.guest.streams import GuestStream
from hutch.providers.guest.watching import watch_folder

IDLE_CONNECTION_SECONDS = 2.0
BURST_SECONDS = 0.01
HABIT_SECONDS = 0.5  # commands closer together than this are taken to go on so
IDLE_CONNECTIONS = 2  # one for the command that runs, one whose shell is being started meanwhile
ANSWER_SECONDS = 30.0
LONG_ANSWER_SECONDS = 300.0  # removing a tree of many files is one request


class GuestMachine(Machine):
    """`socket_path`: where the guest listens (any length). `shell`: the sandbox's bash as a path in the sandbox, or
    None for the descriptor the guest was started with (`--shell`)."""

    def __init__(self, sandbox_id: str, socket_path: Path, *, shell: str | None = None) -> None:
        self.sandbox_id = sandbox_id
        self.socket_path = socket_path
        self.shell = shell
        self._idle: list[Connection] = []
        self._last_end = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._processes: set[GuestProcess] = set()
        self._listeners: set[GuestListener] = set()

    # Hooks for the provider

    def rlimits(self) -> Sequence[tuple[int, int, int]]:
        """(resource, soft, hard) for each command; -1 is no limit."""
        return ()

    def limit_mark(self) -> object:
        """Taken before each command, given back to `limit_seen`: the kernel's counters, for example."""
        return None

    def limit_seen(self, mark: object, exit: ProcessExit) -> LimitName | None:
        """Which limit a command hit. Called when it has ended; must be quick."""
        if exit.exit_code == 128 + signal.SIGXFSZ:
            return "file_size"
        return "cpu" if exit.exit_code == 128 + signal.SIGXCPU else None

    async def end_machine(self) -> None:
        """End the machine at once: killing a tree in it took longer than the caller's grace."""
        raise NotImplementedError

    def release(self) -> None:
        """Close every connection. Commands that still run are lost. To be called when the machine has ended."""
        self.drop_idle()
        for process in tuple(self._processes):
            process.abandon()
        for listener in tuple(self._listeners):
            listener.close()

    # Connections

    async def take_connection(self, *, prepared: bool = False) -> Connection:
        """An idle connection that is still good, if there is one with a `prepared` shell or without, or a new one.

        Raises: SandboxUnavailable.
        """
        self._idle.sort(key=lambda one: one.prepared == prepared)
        while self._idle:
            idle = self._idle.pop()
            if idle.quiet():
                idle.prepared = False
                return idle
            idle.close()
        return await open_connection(self.socket_path)

    def give_back(self, connection: Connection) -> None:
        """Keep a few for the next calls, but only for a moment: the handler of each is a process of the sandbox."""
        if len(self._idle) >= IDLE_CONNECTIONS or not connection.open or not self.alive:
            connection.close()
            return
        self._idle.append(connection)
        if self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(IDLE_CONNECTION_SECONDS, self.drop_idle)

    def expect_command(self) -> None:
        """Start a shell for a command that is sure to come."""
        if not self._idle and (connection := open_now(self.socket_path)) is not None:
            self.give_back(connection)
        self.prepare_shell()

    def prepare_another(self) -> None:
        """A command has started: when commands come one upon the other, the next one's shell is started beside it."""
        if asyncio.get_running_loop().time() - self._last_end < BURST_SECONDS:
            self.expect_command()

    def command_ended(self) -> None:
        """Where two commands came soon after each other a third is likely. In a crowd of sandboxes that run one now and
        then, shells started for nothing would take the time of those that work."""
        before, self._last_end = self._last_end, asyncio.get_running_loop().time()
        if self._last_end - before < HABIT_SECONDS:
            self.prepare_shell()

    def prepare_shell(self) -> None:
        """Start a shell ahead of the next command, on an idle connection."""
        if not self._idle or any(one.prepared for one in self._idle):
            return
        connection = self._idle[-1]
        try:
            connection.send(protocol.pack_request(Op.PREPARE))
            connection.prepared = True
        except (GuestGone, SandboxUnavailable):
            pass  # the next call finds out, and takes another connection

    def drop_idle(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        while self._idle:
            self._idle.pop().close()

    async def ping(self) -> bool:
        """Whether the init answers: it is what tells a broken connection from a dead machine."""
        self.drop_idle()  # whatever killed one handler may have killed theirs: only a fresh connection tells
        try:
            answer, descriptors = await self._ask(protocol.pack_request(Op.PING), seconds=2.0)
        except SandboxUnavailable:
            return False
        close_all(descriptors)
        return answer.kind is Kind.OK or answer.last  # out of processes, but alive

    async def _ask(self, packet: bytes, *, seconds: float = ANSWER_SECONDS) -> tuple[Answer, list[int]]:
        """One request, one answer. Raises: SandboxUnavailable."""
        connection = await self.take_connection()
        try:
            try:
                connection.send(packet)
            except GuestGone:
                pass  # a guest that could not fork has answered so, and hung up, before it read anything
            answer, descriptors = _checked(*await connection.receive(seconds=seconds))
        except GuestGone:
            connection.close()
            raise SandboxUnavailable("The sandbox's init hung up in the middle of a call. Try again.") from None
        except BaseException:
            connection.close()
            raise
        if answer.last:
            connection.close()
        else:
            self.give_back(connection)
        return answer, descriptors

    async def _file_call(self, packet: bytes, path: str, *, seconds: float = ANSWER_SECONDS) -> Answer:
        """A call that answers OK or with the errno of `path`, and brings no descriptor."""
        answer, descriptors = await self._ask(packet, seconds=seconds)
        close_all(descriptors)
        return _ok(answer, path)

    async def _descriptor_call(self, packet: bytes, path: str) -> int:
        answer, descriptors = await self._ask(packet)
        try:
            _ok(answer, path)
            if len(descriptors) != 1:
                raise protocol.malformed("descriptors")
        except BaseException:
            close_all(descriptors)
            raise
        return descriptors[0]

    # Processes

    async def spawn(self, request: SpawnRequest, sink: OutputSink) -> GuestProcess:
        """Start a command.

        Cancelling it ends whatever had started. The task that awaits `wait` owns the command: when the last such task
        is cancelled the whole tree is killed (and `wait` may be awaited again for how it ended).

        Raises: SandboxFileNotFound (its folder or program), PathRejected, LimitExceeded, InvalidRequest,
            SandboxUnavailable.
        """
        return await start_process(self, request, sink)

    def hold(self, process: GuestProcess) -> None:
        self._processes.add(process)

    def let_go(self, process: GuestProcess) -> None:
        self._processes.discard(process)

    # Files

    async def open_read(self, path: str, offset: int = 0) -> FileReader:
        if offset < 0:
            raise InvalidRequest(f"An offset cannot be negative: {offset}")
        packet = protocol.pack_request(Op.OPEN, a=os.O_RDONLY, payload=protocol.pack_path(path))
        descriptor = await self._descriptor_call(packet, path)
        return GuestReader(_regular(descriptor, path), path, offset)

    async def open_write(self, path: str, *, mode: int = 0o644, parents: bool = False) -> FileWriter:
        temporary = temporary_beside(path)
        await self._refuse_folder(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        packet = protocol.pack_request(Op.OPEN, a=flags, b=mode & 0o7777, payload=protocol.pack_path(temporary))
        folder = os.path.dirname(path)
        if parents and folder:
            await self.mkdir(folder, parents=True)
        descriptor = await self._descriptor_call(packet, path)
        return GuestWriter(self, _regular(descriptor, path), path, temporary)

    async def _refuse_folder(self, path: str) -> None:
        """Known before the bytes are sent, not after."""
        try:
            entry, _ = await self._entry(path)
        except (FileNotFoundError, ValueError):
            return  # what stands in the way, if anything does, shows when the file is made
        if stat.S_ISDIR(entry.mode):
            raise file_error(errno.EISDIR, path)

    async def _entry(self, path: str) -> tuple[protocol.Entry, int | None]:
        answer = await self._file_call(protocol.pack_request(Op.STAT, payload=protocol.pack_path(path)), path)
        return protocol.unpack_entry(answer.payload)

    async def stat(self, path: str) -> FileInfo:
        return file_info(path, (await self._entry(path))[0])

    async def identity(self, path: str) -> FileIdentity | None:
        entry, inode = await self._entry(path)
        return None if inode is None else FileIdentity(entry.mode, entry.size, entry.mtime_ns, inode)

    async def entries(self, path: str, *, recursive: bool, max_entries: int) -> tuple[Sequence[protocol.Entry], bool]:
        """What a folder holds, as the guest told it, and whether there is more than `max_entries`."""
        count = max(0, min(max_entries, 0xFFFFFFFF))
        packet = protocol.pack_request(Op.LIST, flags=int(recursive), a=count, payload=protocol.pack_path(path))
        connection = await self.take_connection()
        found: list[protocol.Entry] = []
        try:
            try:
                connection.send(packet)
            except GuestGone:
                pass  # as in _ask
            while True:
                packet_in = await connection.receive(protocol.MAX_ANSWER_BYTES, seconds=ANSWER_SECONDS)
                answer, descriptors = _checked(*packet_in)
                close_all(descriptors)
                if answer.kind is Kind.END:
                    cut = protocol.unpack_end(answer.payload)
                    break
                found += protocol.unpack_entries(_ok(answer, path, expected=Kind.ENTRIES).payload)
                if len(found) > count:
                    raise protocol.malformed("more entries than asked for")
        except GuestGone:
            connection.close()
            raise SandboxUnavailable("The sandbox's init hung up in the middle of a list. Try again.") from None
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)
        return found, cut

    async def mkdir(self, path: str, *, parents: bool) -> None:
        packet = protocol.pack_request(Op.MKDIR, flags=int(parents), b=0o755, payload=protocol.pack_path(path))
        await self._file_call(packet, path)

    async def move(self, source: str, target: str, *, overwrite: bool) -> None:
        names = protocol.pack_path(source) + protocol.pack_path(target)
        packet = protocol.pack_request(Op.RENAME, flags=int(not overwrite), payload=names)
        answer, descriptors = await self._ask(packet)
        close_all(descriptors)
        about_target = answer.error in (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR)
        _ok(answer, target if about_target else f"{source} -> {target}")

    async def remove(self, path: str, *, recursive: bool) -> None:
        packet = protocol.pack_request(Op.REMOVE, flags=int(recursive), payload=protocol.pack_path(path))
        await self._file_call(packet, path, seconds=LONG_ANSWER_SECONDS)

    async def list(self, path: str, *, recursive: bool, max_entries: int) -> list[FileInfo]:
        entries, _ = await self.entries(path, recursive=recursive, max_entries=max_entries)
        return sorted_infos(path, entries)

    def watch(self, path: str, *, recursive: bool) -> AsyncIterator[FileEvent]:
        return watch_folder(self, path, recursive=recursive)

    # Ports

    async def connect(self, port: int) -> ByteStream:
        if not 1 <= port <= 65535:
            raise InvalidRequest(f"Not a port: {port}. Ports are 1 to 65535.")
        answer, descriptors = await self._ask(protocol.pack_request(Op.DIAL, a=port))
        if answer.kind is Kind.ERROR:
            close_all(descriptors)
            raise port_error(answer.error, port)
        return GuestStream(_one(answer, descriptors))

    async def listen(self, port: int) -> Listener:
        if not 1 <= port <= 65535:
            raise InvalidRequest(f"Not a port: {port}. Ports are 1 to 65535.")
        answer, descriptors = await self._ask(protocol.pack_request(Op.LISTEN, a=port))
        if answer.kind is Kind.ERROR:
            close_all(descriptors)
            raise listen_error(answer.error, port)
        listener = GuestListener(_one(answer, descriptors), port, self._listeners.discard)
        self._listeners.add(listener)
        return listener


def _checked(data: bytes, descriptors: list[int]) -> tuple[Answer, list[int]]:
    try:
        return protocol.unpack_answer(data), descriptors
    except BaseException:
        close_all(descriptors)
        raise


def _ok(answer: Answer, path: str, *, expected: Kind = Kind.OK) -> Answer:
    if answer.kind is Kind.ERROR:
        raise file_error(answer.error, path)
    if answer.kind is not expected:
        raise protocol.malformed(f"unexpected {answer.kind.name}")
    return answer


def _one(answer: Answer, descriptors: list[int]) -> int:
    if answer.kind is not Kind.OK or len(descriptors) != 1:
        close_all(descriptors)
        raise protocol.malformed("descriptors")
    return descriptors[0]


def _regular(descriptor: int, path: str) -> int:
    """Only a regular file can neither hang a read nor do more than hold bytes: the guest's word is not enough.

    Raises: PathRejected.
    """
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise file_error(errno.EINVAL, path)
    except OSError as failure:
        os.close(descriptor)
        raise SandboxUnavailable(f"Cannot use {path!r}: {reason(failure.errno or 0)}.") from failure
    except HutchError:
        os.close(descriptor)
        raise
    return descriptor
