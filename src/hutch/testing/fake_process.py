"""Simulated processes: a behaviour is an async function that stands for a program, and a tree of them is a process.

No process is started. Signals, process groups, leftovers, standard input and terminals work as the contract says.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from hutch.model.errors import InvalidRequest, NotSupported, ProcessEnded
from hutch.model.process import KilledProcess, ProcessExit, SignalScope, StreamName
from hutch.providers.base import ByteStream, OutputSink, Process, SpawnRequest
from hutch.testing.fake_files import Tree
from hutch.testing.fake_ports import FakeStream, Pipe

_IGNORED_BY_DEFAULT = frozenset({signal.SIGCHLD, signal.SIGCONT, signal.SIGWINCH, signal.SIGURG})
_SLOW_PAUSE = 0.005  # between two pieces that nobody keeps

Behaviour = Callable[["Running"], Awaitable["ProcessExit | int | None"]]
Listener = Callable[[FakeStream], Awaitable[None]]


class Computer(Protocol):
    """What a process sees of its machine."""

    tree: Tree

    def next_pid(self) -> int: ...
    def serve(self, port: int, listener: Listener) -> None: ...
    def unserve(self, port: int) -> None: ...
    async def connect(self, port: int) -> ByteStream: ...
    def running(self) -> Sequence[Running]: ...
    def die(self, reason: str) -> None: ...


class Running:
    """One simulated process, as its behaviour sees it."""

    def __init__(self, process: FakeProcess, name: str, group: int | None = None) -> None:
        self.process = process
        self.request = process.request
        self.computer = process.computer
        self.pid = self.computer.next_pid()
        self.group = self.pid if group is None else group
        self.name = name
        self.unkillable = False  # stands for a process stuck in the kernel: only the end of the machine ends it
        self.ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self._handlers: dict[int, Callable[[], None] | None] = {}
        self._going = asyncio.Event()
        self._going.set()
        self._task: asyncio.Task[None] | None = None

    # --- for behaviours ----------------------------------------------------------------------------------------

    def out(self, data: bytes | str, stream: StreamName = "stdout") -> bool:
        """Print. False: nobody keeps it any more."""
        return self.process.print(data.encode() if isinstance(data, str) else data, stream)

    def err(self, data: bytes | str) -> bool:
        return self.out(data, "stderr")

    async def flood(self, total_bytes: int | None = None, piece: bytes = b"y\n" * 8192) -> None:
        """Print `piece` again and again; None: for ever."""
        printed = 0
        while total_bytes is None or printed < total_bytes:
            part = piece if total_bytes is None else piece[: total_bytes - printed]
            printed += len(part)
            await self.sleep(0 if self.out(part) else _SLOW_PAUSE)

    async def read(self, max_bytes: int = 65536) -> bytes:
        """Standard input; empty at its end."""
        return await self.process.input.take(max_bytes)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._going.wait()

    async def forever(self) -> None:
        await asyncio.Event().wait()

    def on_signal(self, signum: int, handler: Callable[[], None] | None) -> None:
        """Call `handler` when the signal comes; None ignores it. SIGKILL and SIGSTOP cannot be caught."""
        self._handlers[signum] = handler

    def child(self, name: str, behaviour: Behaviour, *, own_group: bool = False) -> Running:
        """A process below this one. Await its `ended`, or leave it behind."""
        child = Running(self.process, name, None if own_group else self.group)
        self.process.adopt(child, behaviour)
        return child

    def exit(self, code: int) -> None:
        """End at once; for signal handlers. A behaviour itself just returns its code."""
        self._end(ProcessExit(exit_code=code))

    # --- for the machine ---------------------------------------------------------------------------------------

    def start(self, behaviour: Behaviour) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(behaviour))

    def deliver(self, signum: int) -> None:
        if self.ended.done() or (self.unkillable and signum == signal.SIGKILL):
            return
        if signum == signal.SIGSTOP:
            self._going.clear()
        elif signum == signal.SIGCONT:
            self._going.set()
        elif signum in self._handlers and signum != signal.SIGKILL:
            handler = self._handlers[signum]
            if handler is not None:
                handler()
        elif signum not in _IGNORED_BY_DEFAULT:
            self.vanish(signum)

    def vanish(self, signum: int = signal.SIGKILL) -> None:
        """End by a signal, whatever the behaviour wants."""
        self._end(ProcessExit(exit_code=128 + signum, signal=int(signum)))

    def _end(self, result: ProcessExit) -> None:
        if not self.ended.done():
            self.ended.set_result(result)
        if self._task is not None:
            self._task.cancel()

    async def _run(self, behaviour: Behaviour) -> None:
        try:
            returned = await behaviour(self)
        except asyncio.CancelledError:
            self._end(ProcessExit(exit_code=137, signal=9))
        except Exception as error:  # a mistake in the test's own behaviour: whoever waits shall see it
            if not self.ended.done():
                self.ended.set_exception(error)
        else:
            if not self.ended.done():
                exit_code = returned if isinstance(returned, int) else 0
                self.ended.set_result(returned if isinstance(returned, ProcessExit) else ProcessExit(exit_code))


class FakeProcess(Process):
    def __init__(self, computer: Computer, request: SpawnRequest, sink: OutputSink, on_end: Callable[[], None]) -> None:
        self.computer = computer
        self.request = request
        self.size = request.pty
        self.input = Pipe()
        self._sink = sink
        self._on_end = on_end
        self._lost = False
        self._exit: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self._tasks: list[Running] = []
        self.root = Running(self, (request.argv[0] or "bash").rpartition("/")[2])
        self.pid = self.root.pid
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self, behaviour: Behaviour) -> None:
        if not self.request.stdin and self.request.pty is None:
            await self.input.end()
        self.adopt(self.root, behaviour)
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())

    def adopt(self, task: Running, behaviour: Behaviour) -> None:
        self._tasks.append(task)
        task.start(behaviour)

    def living(self) -> list[Running]:
        return [task for task in self._tasks if not task.ended.done()]

    def print(self, data: bytes, stream: StreamName) -> bool:
        if self._lost or (self._exit.done() and self.request.leftovers == "kill"):
            return False
        if self.size is not None:
            return self._sink.feed("stdout", data.replace(b"\n", b"\r\n"))
        return self._sink.feed(stream, data)

    def lose(self) -> None:
        """The machine dies under the process."""
        self._lost = True
        while living := self.living():
            for task in living:
                task.vanish()

    async def gone(self) -> None:
        """Until nothing of the tree is left, leftovers included."""
        await asyncio.wait({self._exit})
        while living := self.living():
            await asyncio.wait([task.ended for task in living])
        if self._supervisor is not None:
            await self._supervisor

    async def _supervise(self) -> None:
        try:
            result = await self.root.ended
            result = await self._deal_with_leftovers(result)
        except Exception as error:  # the behaviour's own failure: hand it to whoever waits
            self._exit.set_exception(error)
        else:
            lost = ProcessExit(exit_code=137, signal=9, lost=True)
            self._exit.set_result(lost if self._lost else result)
        await self.input.break_off()
        while living := self.living():
            await asyncio.wait([task.ended for task in living])
        self._on_end()

    async def _deal_with_leftovers(self, result: ProcessExit) -> ProcessExit:
        left = self.living()
        if not left or self.request.leftovers == "keep":
            return result
        while living := self.living():
            for task in living:
                task.deliver(signal.SIGKILL)
            await asyncio.sleep(0)
            if living := self.living():
                await asyncio.wait([task.ended for task in living], timeout=0.01)
        killed = tuple(KilledProcess(task.pid, task.name) for task in left)
        return replace(result, killed=killed)

    # --- the contract ------------------------------------------------------------------------------------------

    async def wait(self) -> ProcessExit:
        return await asyncio.shield(self._exit)

    async def write(self, data: bytes) -> None:
        if self._exit.done() or (not self.request.stdin and self.size is None):
            raise ProcessEnded("the process reads no input")
        try:
            if self.size is None:
                await self.input.put(data)
            else:
                await self._type(data)
        except BrokenPipeError:
            raise ProcessEnded("nobody reads the input of this process any more") from None

    async def _type(self, data: bytes) -> None:
        """What a terminal does with typed bytes: it echoes, and turns Ctrl-C and Ctrl-D into what they mean."""
        for byte in (data[index : index + 1] for index in range(len(data))):
            if byte == b"\x03":
                for task in self.living():
                    task.deliver(signal.SIGINT)
            elif byte == b"\x04":
                await self.input.end()
            else:
                self.print(byte, "stdout")
                await self.input.put(byte.replace(b"\r", b"\n"))

    async def close_input(self) -> None:
        await self.input.end()

    async def signal(self, signum: int, scope: SignalScope) -> None:
        if self._exit.done():
            raise ProcessEnded("the process has ended")
        if not 0 < signum < signal.NSIG:
            raise InvalidRequest(f"{signum} is not a signal")
        for task in self.living():
            if scope == "tree" or (task is self.root if scope == "process" else task.group == self.root.group):
                task.deliver(signum)

    async def kill(self, grace: float = 0.7) -> None:
        for task in self.living():
            task.deliver(signal.SIGKILL)
        gone = asyncio.ensure_future(self.gone())
        done, _ = await asyncio.wait({gone}, timeout=grace)
        if not done:
            self.computer.die("a process could not be killed")
            await asyncio.wait({gone})

    async def resize(self, rows: int, columns: int) -> None:
        if self.size is None:
            raise NotSupported("the process has no terminal to resize")
        if rows < 1 or columns < 1:
            raise InvalidRequest(f"a terminal cannot have {rows} rows and {columns} columns")
        self.size = (rows, columns)
        for task in self.living():
            task.deliver(signal.SIGWINCH)
