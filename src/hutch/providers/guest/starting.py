"""Starting a command in the sandbox: the request, the descriptors, and what happens when it cannot start."""

from __future__ import annotations

from hutch.model.errors import InvalidRequest, SandboxUnavailable
from hutch.providers.base import OutputSink, SpawnRequest
from hutch.providers.guest import protocol
from hutch.providers.guest.connection import Connection, GuestGone, close_all
from hutch.providers.guest.descriptors import CommandPipes, check_terminal, make_pipes
from hutch.providers.guest.failures import spawn_error
from hutch.providers.guest.process import CommandMachine, GuestProcess
from hutch.providers.guest.protocol import Answer, Kind

START_SECONDS = 30.0
SHELL_NAME = "bash"


class _NotRead(Exception):
    """The connection ended before anybody read the request: nothing has started."""


class _Refused(Exception):
    """The guest could not start the command. Unless it was its `last` word it is ready for the next one."""

    def __init__(self, answer: Answer) -> None:
        self.error = answer.error
        self.step = answer.payload.decode("ascii", "replace")[:40]
        self.last = answer.last


async def start_process(machine: CommandMachine, request: SpawnRequest, sink: OutputSink) -> GuestProcess:
    """Raises: as `GuestMachine.spawn`."""
    program, packet = _spawn_packet(machine, request)
    try:
        return await _attempt(machine, request, sink, packet)
    except _NotRead:
        pass  # its handler ended while the connection was idle: a fresh one has not
    except _Refused as refused:
        raise spawn_error(refused.error, refused.step, program, request.cwd) from None
    try:
        return await _attempt(machine, request, sink, packet)
    except _NotRead:
        raise SandboxUnavailable("The sandbox's init hung up before the command had started. Try again.") from None
    except _Refused as refused:
        raise spawn_error(refused.error, refused.step, program, request.cwd) from None


async def _attempt(machine: CommandMachine, request: SpawnRequest, sink: OutputSink, packet: bytes) -> GuestProcess:
    """Raises: _NotRead, _Refused, SandboxUnavailable."""
    terminal = request.pty is not None
    connection = await machine.take_connection(prepared=request.argv[:1] == (None,) and not terminal)
    pipes = CommandPipes()
    try:
        mark = machine.limit_mark()
        if not terminal:
            pipes = make_pipes(stdin=request.stdin)
        pid = await _launch(connection, packet, pipes, terminal=terminal)
    except GuestGone:
        # It was read, and then the connection ended: the command killed its own handler before that had said STARTED.
        process = _process(machine, connection, 0, pipes, sink, request, mark)
        process.hung_up()
        return process
    except BaseException as failure:
        pipes.close()
        if isinstance(failure, _Refused) and not failure.last:
            machine.give_back(connection)
        else:
            connection.close()  # which ends what had started
        raise
    machine.prepare_another()
    return _process(machine, connection, pid, pipes, sink, request, mark)


def _process(
    machine: CommandMachine,
    connection: Connection,
    pid: int,
    pipes: CommandPipes,
    sink: OutputSink,
    request: SpawnRequest,
    mark: object,
) -> GuestProcess:
    keep, terminal = request.leftovers == "keep", request.pty is not None
    return GuestProcess(machine, connection, pid, pipes, sink, keep=keep, terminal=terminal, mark=mark)


def _spawn_packet(machine: CommandMachine, request: SpawnRequest) -> tuple[str, bytes]:
    """(program as told to the user, packet). Raises: InvalidRequest."""
    if not request.argv:
        raise InvalidRequest("A command needs at least one word.")
    first, *rest = request.argv
    words = [word for word in rest if word is not None]
    if len(words) != len(rest) or first == "":
        raise InvalidRequest("The words of a command are text, and the first one is not empty.")
    packet = protocol.pack_spawn(
        program=(machine.shell or "") if first is None else first,
        argv=[SHELL_NAME if first is None else first, *words],
        env=request.env,
        cwd=request.cwd,
        pty=request.pty,
        keep=request.leftovers == "keep",
        rlimits=machine.rlimits(),
    )
    return first or SHELL_NAME, packet


async def _launch(connection: Connection, packet: bytes, pipes: CommandPipes, *, terminal: bool) -> int:
    """The pid of the started command. Raises: _NotRead, _Refused, GuestGone, SandboxUnavailable."""
    sent = True
    try:
        connection.send(packet, pipes.theirs)
    except GuestGone:
        sent = False  # an init that could not fork has said so, and hung up, before it read anything
    pipes.close_theirs()
    try:
        data, descriptors = await connection.receive(seconds=START_SECONDS)
    except GuestGone as gone:
        if not sent or isinstance(gone.__cause__, OSError):  # a reset: the request was there, and nobody read it
            raise _NotRead from None
        raise
    try:
        answer = protocol.unpack_answer(data)
        if answer.kind is Kind.ERROR:
            raise _Refused(answer)
        return _started(answer, descriptors, pipes, terminal=terminal)
    finally:
        close_all(descriptors)


def _started(answer: Answer, descriptors: list[int], pipes: CommandPipes, *, terminal: bool) -> int:
    if answer.kind is not Kind.STARTED or len(descriptors) != int(terminal):
        raise protocol.malformed(f"unexpected {answer.kind.name}")
    pid = protocol.unpack_started(answer.payload)
    if terminal:
        check_terminal(descriptors[0])
        pipes.stdout = descriptors.pop()
    return pid
