"""Running things in a sandbox: `execute` waits, `start` does not, both keep what was printed."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from hutch.engine.context import check_env
from hutch.engine.egress.service import Egress
from hutch.engine.live import LiveSandbox
from hutch.engine.observe import CommandKind, EventName, Watchers, about
from hutch.engine.process_log import ProcessLog
from hutch.engine.sandboxes import Sandboxes
from hutch.model.errors import (
    CommandRejected,
    HutchError,
    InvalidRequest,
    NotSupported,
    ProcessEnded,
    SandboxUnavailable,
)
from hutch.model.limits import LimitName
from hutch.model.process import (
    ExecResult,
    LogChunk,
    OutputEvent,
    ProcessExit,
    ProcessInfo,
    ProcessSpec,
    SignalScope,
    StreamName,
)
from hutch.model.session import WORKSPACE_DIR
from hutch.policy import Judge
from hutch.providers.base import Machine, Process, SpawnRequest

WATCH_AFTER = 0.15  # seconds until a command's workspace is watched: most are over by then
MAX_LOG_READ = 8 * 1024 * 1024

BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": WORKSPACE_DIR,
    "USER": "sandboxuser",
    "LOGNAME": "sandboxuser",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
}


@dataclass(frozen=True, slots=True)
class Running:
    live: LiveSandbox
    machine: Machine
    log: ProcessLog
    process: Process


class StreamedCommand:
    """A command that lives as long as somebody follows it."""

    def __init__(self, sandboxes: Sandboxes, running: Running, end: asyncio.Task[None]) -> None:
        self._sandboxes = sandboxes
        self._running = running
        self._end = end

    @property
    def process_id(self) -> str:
        return self._running.log.process_id

    async def events(self) -> AsyncIterator[OutputEvent]:
        """Raises: SandboxUnavailable."""
        async for event in self._running.log.follow():
            if event["type"] == "exit":
                await _refuse_lost(self._sandboxes, self._running)
            yield event

    async def aclose(self) -> None:
        """End the command if it has not ended."""
        self._end.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._end


class Processes:
    def __init__(
        self,
        sandboxes: Sandboxes,
        judge_for: Callable[[str], Judge],
        max_timeout: float,
        watchers: Watchers,
        egress: Egress,
    ) -> None:
        self._sandboxes = sandboxes
        self._judge_for = judge_for
        self._max_timeout = max_timeout
        self._watchers = watchers
        self._egress = egress
        self._background: set[asyncio.Task[None]] = set()

    # -- commands that somebody waits for

    async def execute(self, tenant: str, sandbox_id: str, spec: ProcessSpec) -> ExecResult:
        """Run to the end and return all of it.

        Raises: CommandRejected, InvalidRequest, SessionExpiredError, PoolExhausted, SandboxUnavailable (also when the
            machine ended under the command: that is no result of the command's).
        """
        self._check_timeout(spec.timeout)
        running = await self._begin(tenant, sandbox_id, spec)
        await self._finish(running)
        await _refuse_lost(self._sandboxes, running)
        return running.log.result()

    async def stream(self, tenant: str, sandbox_id: str, spec: ProcessSpec) -> AsyncIterator[OutputEvent]:
        """Like `execute`, piece by piece. Closing the iterator ends the command."""
        running = await self.begin_stream(tenant, sandbox_id, spec)
        try:
            async for event in running.events():
                yield event
        finally:
            await running.aclose()

    async def begin_stream(self, tenant: str, sandbox_id: str, spec: ProcessSpec) -> StreamedCommand:
        """The same for callers who need to know the process before its first output. It must be closed."""
        self._check_timeout(spec.timeout)
        running = await self._begin(tenant, sandbox_id, spec)
        return StreamedCommand(self._sandboxes, running, asyncio.create_task(self._finish(running)))

    async def start(self, tenant: str, sandbox_id: str, spec: ProcessSpec) -> ProcessInfo:
        """Run in the background until it ends by itself, is killed, or its time-out comes."""
        if spec.timeout is not None:
            self._check_timeout(spec.timeout)
        running = await self._begin(tenant, sandbox_id, spec)
        task = asyncio.create_task(self._finish(running))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return running.log.info()

    def _check_timeout(self, timeout: float | None) -> None:
        check_timeout(timeout, self._max_timeout)

    async def _begin(self, tenant: str, sandbox_id: str, spec: ProcessSpec) -> Running:
        check_env(spec.env)
        live = await self._sandboxes.find(tenant, sandbox_id)
        try:
            self._judge(live, spec)
            return await self._spawn(live, spec)
        except HutchError as error:
            rejected = isinstance(error, CommandRejected)
            event: EventName = "validation_failed" if rejected else "command_failed"
            self._watchers.tell(about(event, live, command=_text_of(spec), kind=_kind_of(spec), code=error.code))
            raise

    def _judge(self, live: LiveSandbox, spec: ProcessSpec) -> None:
        """Raises: CommandRejected, NotSupported."""
        if spec.user not in (None, "sandboxuser"):
            raise NotSupported(f"The only user in this sandbox is sandboxuser, so nothing can run as {spec.user!r}.")
        if spec.command is not None:
            self._judge_for(live.template.policy).check(spec.command)
        elif live.template.strict and spec.argv:
            raise NotSupported("In a strict sandbox only shell commands run: they are what its policy can judge.")

    async def _spawn(self, live: LiveSandbox, spec: ProcessSpec) -> Running:
        live.touch()
        live.busy += 1
        log = ProcessLog.new(spec, live.budget, live.spool_folder)
        try:
            machine = await self._sandboxes.machine(live)
            log.process = process = await machine.spawn(_request(live, spec, self._egress), log)
            log.recreated, live.died = live.died, False
        except BaseException:
            live.busy -= 1
            raise
        live.keep(log)
        return Running(live, machine, log, process)

    async def _finish(self, running: Running) -> None:
        """Wait for the end, holding the command to its time and its workspace to its size."""
        live, log, process = running.live, running.log, running.process
        loop = asyncio.get_running_loop()
        helpers: list[asyncio.Task[None]] = []

        def kill(limit: LimitName | None) -> None:
            if limit is None:
                log.timed_out = True
            log.limit = log.limit or limit
            helpers.append(asyncio.create_task(process.kill()))

        def watch() -> None:
            helpers.append(asyncio.create_task(live.gauge.watch(running.machine, kill)))

        timers = [loop.call_later(WATCH_AFTER, watch)]
        if log.spec.timeout is not None:
            timers.append(loop.call_later(log.spec.timeout, kill, None))
        ended = ProcessExit(128 + signal.SIGKILL, signal.SIGKILL, lost=True)
        try:
            free = running.machine.headroom_hint()[0]
            ended = await process.wait()
            log.stop_clock()
            for timer in timers:
                timer.cancel()  # what is counted now is no time of the command's
            if not ended.lost:
                with contextlib.suppress(SandboxUnavailable):  # the machine ended after the command: the result stands
                    log.limit = await live.gauge.after_command(running.machine) or log.limit
                    if ended.exit_code != 0 and log.limit is None:
                        log.limit = await live.gauge.after_failure(running.machine, log.started_at, free)
        except asyncio.CancelledError:
            await asyncio.shield(process.kill())
            raise
        finally:
            for timer in timers:
                timer.cancel()
            for helper in helpers:
                helper.cancel()
            live.busy -= 1
            live.touch()
            log.finish(ended)
            if self._watchers:
                self._tell_end(live, log)

    def _tell_end(self, live: LiveSandbox, log: ProcessLog) -> None:
        lost = log.exit is not None and log.exit.lost and not log.timed_out and log.limit is None
        ended = about(
            "command_failed" if lost else "command_executed",
            live,
            command=_text_of(log.spec),
            kind=_kind_of(log.spec),
            timed_out=log.timed_out,
            exit_code=log.exit_code,
            duration_ms=log.duration_ms,
            size_bytes=log.stdout.total + log.stderr.total,
            limit=log.limit,
            code="sandbox_unavailable" if lost else "",
        )
        self._watchers.tell(ended)
        if log.limit is not None:
            self._watchers.tell(replace(ended, event="resource_limit_exceeded"))

    # -- processes that are already there

    async def list(self, tenant: str, sandbox_id: str) -> list[ProcessInfo]:
        live = await self._sandboxes.find(tenant, sandbox_id)
        return live.process_infos()

    async def attach(
        self, tenant: str, sandbox_id: str, process_id: str, *, replay: bool = True
    ) -> AsyncIterator[OutputEvent]:
        """Follow a process by its id; with `replay` from its first byte. Leaving does not end it."""
        live = await self._sandboxes.find(tenant, sandbox_id)
        async for event in live.process(process_id).follow(replay=replay):
            yield event

    async def logs(
        self, tenant: str, sandbox_id: str, process_id: str, *, stream: StreamName, offset: int, max_bytes: int
    ) -> LogChunk:
        """Raises: ProcessNotFound, InvalidRequest."""
        if stream not in ("stdout", "stderr"):
            raise InvalidRequest(f"stream must be 'stdout' or 'stderr', not {stream!r}.")
        if offset < 0 or not 0 < max_bytes <= MAX_LOG_READ:
            raise InvalidRequest(f"offset must be 0 or more, max_bytes from 1 to {MAX_LOG_READ}.")
        live = await self._sandboxes.find(tenant, sandbox_id)
        return live.process(process_id).chunk(stream, offset, max_bytes)

    async def wait(self, tenant: str, sandbox_id: str, process_id: str, timeout: float | None) -> ExecResult | None:
        """The result of a process, or None when it still runs after `timeout` seconds."""
        live = await self._sandboxes.find(tenant, sandbox_id)
        log = live.process(process_id)
        if log.exit is None:
            try:
                async with asyncio.timeout(timeout):
                    await log.ended.wait()
            except TimeoutError:
                return None
        return log.result()

    async def send_input(self, tenant: str, sandbox_id: str, process_id: str, data: bytes) -> None:
        await (await self._running(tenant, sandbox_id, process_id)).write(data)

    async def close_input(self, tenant: str, sandbox_id: str, process_id: str) -> None:
        await (await self._running(tenant, sandbox_id, process_id)).close_input()

    async def resize(self, tenant: str, sandbox_id: str, process_id: str, rows: int, columns: int) -> None:
        if not (0 < rows < 10_000 and 0 < columns < 10_000):
            raise InvalidRequest(f"A terminal has from 1 to 9999 rows and columns, not {rows} x {columns}.")
        await (await self._running(tenant, sandbox_id, process_id)).resize(rows, columns)

    async def signal(self, tenant: str, sandbox_id: str, process_id: str, signum: int, scope: SignalScope) -> None:
        if signum not in set(signal.Signals):
            raise InvalidRequest(f"{signum} is not the number of a signal.")
        await (await self._running(tenant, sandbox_id, process_id)).signal(signum, scope)

    async def kill(self, tenant: str, sandbox_id: str, process_id: str) -> None:
        """End the process and all it started. Fine when it has ended already."""
        live = await self._sandboxes.find(tenant, sandbox_id)
        log = live.process(process_id)
        if log.exit is None and log.process is not None:
            await log.process.kill()

    async def _running(self, tenant: str, sandbox_id: str, process_id: str) -> Process:
        live = await self._sandboxes.find(tenant, sandbox_id)
        log = live.process(process_id)
        if log.exit is not None or log.process is None:
            raise ProcessEnded(
                f"Process {process_id} has ended with exit code {log.exit_code}.", exit_code=log.exit_code
            )
        live.touch()
        return log.process


def check_timeout(timeout: float | None, maximum: float) -> None:
    """Raises: InvalidRequest."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= maximum:
        raise InvalidRequest(
            f"timeout must be more than 0 and at most {maximum:g} seconds, not {timeout!r:.60} "
            "(HUTCH_MAX_COMMAND_TIMEOUT sets the ceiling).",
            maximum=maximum,
        )


def _text_of(spec: ProcessSpec) -> str:
    if spec.command is not None:
        return spec.command
    return " ".join(spec.argv) or "(shell)"


def _kind_of(spec: ProcessSpec) -> CommandKind:
    if spec.pty is not None:
        return "shell"
    return "background" if spec.timeout is None else "command"


async def _refuse_lost(sandboxes: Sandboxes, running: Running) -> None:
    """Raises: SandboxUnavailable when the command did not end but its machine did, and not to enforce a limit."""
    log = running.log
    if log.exit is None or not log.exit.lost or log.timed_out or log.limit is not None:
        return
    kept = await sandboxes.keeps_files(running.live)
    what = "its files are kept, and the next call starts it again" if kept else "it was closed, and its files are gone"
    raise SandboxUnavailable(
        f"The sandbox ended while the command ran: {what}.", process_id=log.process_id, files_kept=kept
    )


def _request(live: LiveSandbox, spec: ProcessSpec, egress: Egress) -> SpawnRequest:
    env = {**BASE_ENV, **egress.env(live, live.record.env, spec.env), **live.record.env, **spec.env}
    if spec.pty is not None:
        env.setdefault("TERM", "xterm-256color")
    if spec.command is not None:
        argv: tuple[str | None, ...] = (None, "-c", spec.command)
    elif spec.argv:
        argv = spec.argv
    else:
        argv = (None,) if spec.pty is None else (None, "-i")
    return SpawnRequest(
        argv=argv,
        env=env,
        cwd=live.record.cwd if spec.cwd is None else folder_in_sandbox(spec.cwd),
        stdin=spec.stdin == "pipe",
        pty=spec.pty,
        leftovers=spec.leftovers,
    )


def folder_in_sandbox(cwd: str) -> str:
    """Where a command shall run: any folder the sandbox sees; relative to the workspace.

    Raises: InvalidRequest.
    """
    if not isinstance(cwd, str) or not cwd or "\0" in cwd:
        raise InvalidRequest(f"cwd must be the path of a folder in the sandbox, not {cwd!r:.80}.")
    return posixpath.join(WORKSPACE_DIR, cwd)
