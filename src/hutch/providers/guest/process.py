"""A command in the sandbox, seen from the host: its connection, its pipes, and how it ended."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from hutch.model.errors import InvalidRequest, NotSupported, ProcessEnded, SandboxUnavailable
from hutch.model.limits import LimitName
from hutch.model.process import KilledProcess, ProcessExit, SignalScope
from hutch.providers.base import OutputSink, Process
from hutch.providers.guest import protocol
from hutch.providers.guest.connection import SMALL_ANSWER_BYTES, Connection, GuestGone, close_all
from hutch.providers.guest.descriptors import CommandPipes
from hutch.providers.guest.input import InputFeed
from hutch.providers.guest.output import OutputDrain
from hutch.providers.guest.protocol import Kind, Op

QUIET_START_SECONDS = 0.002
ORPHAN_SECONDS = 0.5  # how long the init may take to kill what a dead handler left
_SCOPES: dict[SignalScope, int] = {"process": 0, "group": 1, "tree": 2}
_HANDLER_KILLED = 137


class CommandMachine(Protocol):
    """What a command needs of its machine."""

    shell: str | None

    @property
    def alive(self) -> bool: ...
    def rlimits(self) -> Sequence[tuple[int, int, int]]: ...
    def limit_mark(self) -> object: ...
    def limit_seen(self, mark: object, exit: ProcessExit, /) -> LimitName | None: ...
    async def end_machine(self) -> None: ...
    async def take_connection(self, *, prepared: bool = False) -> Connection: ...
    def give_back(self, connection: Connection) -> None: ...
    def command_ended(self) -> None: ...
    def prepare_another(self) -> None: ...
    async def ping(self) -> bool: ...
    def hold(self, process: GuestProcess) -> None: ...
    def let_go(self, process: GuestProcess) -> None: ...


class GuestProcess(Process):
    """Driven by callbacks: it ends properly even if nobody awaits anything."""

    def __init__(
        self,
        machine: CommandMachine,
        connection: Connection,
        pid: int,
        pipes: CommandPipes,
        sink: OutputSink,
        *,
        keep: bool,
        terminal: bool,
        mark: object,
    ) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._connection = connection
        self._keep = keep
        self._mark = mark
        self._killed = not keep  # whether what is left when it ends is killed, or lives on
        self._terminal = terminal
        self._exit: ProcessExit | None = None
        self._over = False  # nothing of it is left in the sandbox
        self._waiters: set[asyncio.Future[None]] = set()
        self._judging: asyncio.Task[None] | None = None
        # A terminal has one descriptor for both ways; the drain owns it.
        self._input = InputFeed(self._loop, pipes.stdout if terminal else pipes.stdin, owned=not terminal)
        self._drains = [OutputDrain(self._loop, pipes.stdout, "stdout", sink, self._output_ended)]
        if not terminal:
            self._drains.append(OutputDrain(self._loop, pipes.stderr, "stderr", sink, self._output_ended))
        connection.on_readable = self._readable
        machine.hold(self)
        for drain in self._drains:
            # Most commands end within this pause, and are read once, at their end: watching their pipes costs more
            # than their whole way through this process. Somebody waits at a terminal or feeds a pipe: no pause there.
            drain.start_in(0.0 if terminal or pipes.stdin >= 0 else QUIET_START_SECONDS)

    # What the guest says

    def _readable(self) -> None:
        """Every packet that is there: STARTED's EXITED often comes with GONE."""
        try:
            while not self._over:
                packet = self._connection.receive_now(SMALL_ANSWER_BYTES)
                if packet is None:
                    return
                data, descriptors = packet
                close_all(descriptors)
                self._heard(protocol.unpack_answer(data))
        except (GuestGone, SandboxUnavailable):
            self._broken()

    def _heard(self, answer: protocol.Answer) -> None:
        if answer.kind is Kind.EXITED and self._exit is None:
            self._ended(protocol.unpack_exit(answer.payload))
            if not self._keep:
                self._close(reuse=True)
        elif answer.kind is Kind.GONE and self._exit is not None and self._keep:
            self._close(reuse=True)
        elif answer.kind is not Kind.ERROR:  # ERROR: a signal or kill that could not be done any more
            raise protocol.malformed(f"unexpected {answer.kind.name}")

    def _ended(self, report: protocol.ExitReport) -> None:
        for drain in self._drains:
            drain.read_rest()
        self._set_exit(
            ProcessExit(
                exit_code=report.exit_code,
                signal=report.signal,
                killed=tuple(KilledProcess(one.pid, one.name) for one in report.processes) if self._killed else (),
                cpu_ms=report.cpu_ms,
                max_rss_bytes=report.max_rss_bytes,
                tasks_left=report.tasks,
            )
        )

    def _set_exit(self, exit: ProcessExit) -> None:
        limit = None if exit.lost else self._machine.limit_seen(self._mark, exit)
        self._exit = exit if limit is None else replace(exit, limit=limit)
        self._wake()

    def _close(self, *, reuse: bool) -> None:
        """Nothing is left in the sandbox: let go of every descriptor."""
        self._over = True
        self._connection.on_readable = None
        if reuse:
            self._machine.give_back(self._connection)
            if not self._terminal:
                self._machine.command_ended()
        else:
            self._connection.close()
        for drain in self._drains:
            drain.read_rest()
        self._input.close()
        for drain in self._drains:
            drain.close()
        self._machine.let_go(self)
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            _wake_waiter(waiter)

    def _output_ended(self) -> None:
        if self._terminal:
            self._input.close()
        self._wake()

    # When the connection breaks

    def hung_up(self) -> None:
        """The connection broke before the command was known to run."""
        self._broken()

    def _broken(self) -> None:
        self._connection.close()
        if self._judging is None and not self._over:
            self._judging = self._loop.create_task(self._judge())

    async def _judge(self) -> None:
        """The command killed its own handler, or the machine died: its init knows."""
        alive = self._machine.alive and await self._machine.ping()
        if alive:
            await self._orphans_killed()
        self._finish_broken(lost=not alive)

    async def _orphans_killed(self) -> None:
        """The init kills what a dead handler left; then nobody holds the pipes any more."""
        deadline = self._loop.time() + ORPHAN_SECONDS
        for drain in self._drains:
            drain.start()
        while any(drain.open for drain in self._drains):
            left = deadline - self._loop.time()
            if left <= 0:
                return
            await self._change(left)

    def _finish_broken(self, *, lost: bool) -> None:
        if self._over:
            return
        for drain in self._drains:
            drain.read_rest()
        if self._exit is None:
            self._set_exit(ProcessExit(exit_code=_HANDLER_KILLED, signal=9, lost=lost))
        self._close(reuse=False)

    def abandon(self) -> None:
        """The machine has ended."""
        if self._judging is not None:
            self._judging.cancel()
        self._finish_broken(lost=True)

    # What callers do

    async def wait(self) -> ProcessExit:
        """The end of the command. Cancelling the last task that waits kills the tree; `wait` may be awaited again."""
        while self._exit is None:
            try:
                await self._change(None)
            except asyncio.CancelledError:
                if not self._waiters and self._exit is None:
                    self._ask_to_kill()
                raise
        return self._exit

    async def _change(self, seconds: float | None) -> None:
        """Returns when the state has changed, or `seconds` have passed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, _wake_waiter, waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()

    async def write(self, data: bytes) -> None:
        await self._input.write(data)

    async def close_input(self) -> None:
        if self._terminal:
            await self._input.write(b"\x04")  # what a terminal's reader takes for the end
        else:
            self._input.close()

    async def signal(self, signum: int, scope: SignalScope) -> None:
        """Raises: ProcessEnded, InvalidRequest."""
        if not 1 <= signum <= 64:
            raise InvalidRequest(f"Not a signal: {signum}")
        if self._over or (self._exit is not None and scope == "process"):
            raise ProcessEnded("The process has ended.", pid=self.pid)
        self._tell(protocol.pack_request(Op.SIGNAL, a=signum, b=_SCOPES[scope]))

    async def kill(self, grace: float = 0.7) -> None:
        """Returns when nothing of the tree is left."""
        if self._over:
            return
        self._ask_to_kill()
        deadline = self._loop.time() + grace
        while not self._over:
            left = deadline - self._loop.time()
            if left <= 0:
                await self._machine.end_machine()
                self.abandon()
                return
            await self._change(left)

    def _ask_to_kill(self) -> None:
        self._killed = True
        self._tell(protocol.pack_request(Op.KILL))

    def _tell(self, packet: bytes) -> None:
        if not self._connection.open:
            return  # it broke: its end is being judged
        try:
            self._connection.send(packet)
        except (GuestGone, SandboxUnavailable):
            self._broken()  # closing the connection asks for a kill, too

    async def resize(self, rows: int, columns: int) -> None:
        """Raises: NotSupported, ProcessEnded, InvalidRequest."""
        if not self._terminal:
            raise NotSupported("Only a process with a terminal can be resized: start it with `pty`.")
        if not (0 < rows <= 0xFFFF and 0 < columns <= 0xFFFF):
            raise InvalidRequest(f"A terminal has 1 to 65,535 rows and columns, not {rows} x {columns}.")
        if not self._input.open:
            raise ProcessEnded("The terminal is closed.", pid=self.pid)
        fcntl.ioctl(self._input.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _wake_waiter(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
