"""Code that keeps its state: interpreters of a sandbox, each a context."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from hutch.engine.interpreter.kernel import Kernel
from hutch.engine.interpreter.run import CodeRun
from hutch.engine.interpreter.trees import Trees
from hutch.engine.live import LiveSandbox
from hutch.engine.observe import Watchers, about
from hutch.engine.processes import BASE_ENV, check_timeout, folder_in_sandbox
from hutch.engine.sandboxes import Sandboxes
from hutch.model.clock import iso
from hutch.model.code import DEFAULT_CONTEXT, MOST_CONTEXTS, CodeContext, CodeEvent, CodeOrder
from hutch.model.errors import ContextNotFound, HutchError, InvalidRequest, LimitExceeded, NotSupported, ProcessEnded
from hutch.model.limits import MIB, LimitName
from hutch.providers.base import Machine

INTERRUPT_SECONDS = 3.0  # how long code may take to end when it is interrupted; then its interpreter goes
WATCH_AFTER = 0.15  # seconds until its workspace is watched
LONGEST_CODE = MIB
SIGKILL = 9


@dataclass(slots=True, eq=False)
class Context:
    context_id: str
    cwd: str | None  # None: the sandbox's
    created_at: float = field(default_factory=time.time)
    kernel: Kernel | None = None
    worked: bool = False  # it had an interpreter before: a new one starts empty
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # code waits for the code before it
    waiting: int = 0

    def alive(self) -> bool:
        return self.kernel is not None and self.kernel.alive

    async def stop(self) -> None:
        kernel, self.kernel = self.kernel, None
        if kernel is not None:
            await kernel.kill()


class Interpreter:
    def __init__(self, sandboxes: Sandboxes, trees: Trees, max_timeout: float, watchers: Watchers) -> None:
        self._sandboxes = sandboxes
        self._trees = trees
        self._max_timeout = max_timeout
        self._watchers = watchers
        self._contexts: WeakKeyDictionary[LiveSandbox, dict[str, Context]] = WeakKeyDictionary()

    # -- contexts

    async def contexts(self, tenant: str, sandbox_id: str) -> list[CodeContext]:
        """Raises: SessionExpiredError, NotSupported."""
        live = await self._find(tenant, sandbox_id)
        return [_info(live, one) for one in self._of(live).values()]

    async def create(self, tenant: str, sandbox_id: str, cwd: str | None = None) -> CodeContext:
        """A new context, its interpreter started.

        Raises: LimitExceeded, InvalidRequest, SandboxFileNotFound (no such folder), InterpreterMissing.
        """
        live = await self._find(tenant, sandbox_id)
        made = Context(f"ctx_{secrets.token_hex(8)}", None if cwd is None else folder_in_sandbox(cwd))
        self._add(live, made)
        try:
            with _busy(live):
                async with made.turn:
                    await self._kernel(live, made)
        except BaseException:
            self._of(live).pop(made.context_id, None)
            raise
        return _info(live, made)

    async def restart(self, tenant: str, sandbox_id: str, context_id: str) -> CodeContext:
        """Raises: ContextNotFound; InterpreterMissing, SandboxUnavailable (it did not start again)."""
        live = await self._find(tenant, sandbox_id)
        context = self._get(live, context_id)
        with _busy(live):
            await context.stop()  # whatever runs ends with it
            async with context.turn:
                await self._kernel(live, context)
        return _info(live, context)

    async def interrupt(self, tenant: str, sandbox_id: str, context_id: str) -> None:
        """Raises: ContextNotFound."""
        context = self._get(await self._find(tenant, sandbox_id), context_id)
        if context.kernel is not None:
            with contextlib.suppress(ProcessEnded, TimeoutError):
                async with asyncio.timeout(INTERRUPT_SECONDS):
                    await context.kernel.interrupt()

    async def close(self, tenant: str, sandbox_id: str, context_id: str) -> None:
        """Raises: ContextNotFound."""
        live = await self._find(tenant, sandbox_id)
        context = self._get(live, context_id)
        del self._of(live)[context_id]
        await context.stop()

    async def _find(self, tenant: str, sandbox_id: str) -> LiveSandbox:
        live = await self._sandboxes.find(tenant, sandbox_id)
        if live.template.strict:
            raise NotSupported(
                f"A sandbox of template {live.template.name} has no interpreter: it runs commands that its policy can "
                'judge. Use template "open".'
            )
        return live

    def _of(self, live: LiveSandbox) -> dict[str, Context]:
        return self._contexts.setdefault(live, {})

    def _get(self, live: LiveSandbox, context_id: str) -> Context:
        found = self._of(live).get(context_id)
        if found is None:
            raise ContextNotFound(
                f"This sandbox has no context {context_id!r:.80}; contexts end with the server that made them.",
                context_id=context_id[:80],
            )
        return found

    def _add(self, live: LiveSandbox, context: Context) -> None:
        contexts = self._of(live)
        if len(contexts) >= MOST_CONTEXTS:
            raise LimitExceeded(
                f"A sandbox has at most {MOST_CONTEXTS} contexts, and this one has {len(contexts)}. Close one first.",
                limit="contexts",
                maximum=MOST_CONTEXTS,
                actual=len(contexts) + 1,
            )
        contexts[context.context_id] = context

    async def _kernel(self, live: LiveSandbox, context: Context) -> Kernel:
        """The interpreter of a context, started if it does not run. With its turn held."""
        if context.kernel is not None and context.kernel.alive:
            return context.kernel
        await context.stop()
        tree = await self._trees.ready()
        machine = await self._sandboxes.machine(live)
        kernel = Kernel()
        await kernel.start(machine, tree, {**BASE_ENV, **live.record.env}, context.cwd or live.record.cwd)
        context.kernel, context.worked = kernel, True
        return kernel

    # -- code

    async def run(self, tenant: str, sandbox_id: str, order: CodeOrder) -> AsyncIterator[CodeEvent]:
        """What the code says, as it comes, then its end. Leaving interrupts it.

        Raises: InvalidRequest, NotSupported, ContextNotFound, InterpreterMissing, SessionExpiredError,
            SandboxUnavailable.
        """
        check_timeout(order.timeout, self._max_timeout)
        _check_code(order.code)
        live = await self._find(tenant, sandbox_id)
        wanted = order.context or DEFAULT_CONTEXT
        if wanted == DEFAULT_CONTEXT and wanted not in self._of(live):
            self._add(live, Context(wanted, None))
        context = self._get(live, wanted)
        run = CodeRun(context.context_id)
        conducting = asyncio.create_task(self._conduct(live, context, order, run))
        conducting.add_done_callback(lambda _: run.finish())
        try:
            async for event in run.events():
                if event["type"] == "end":
                    await conducting  # raises what kept it from running
                yield event
        finally:
            conducting.cancel()
            await asyncio.wait({conducting})

    async def _conduct(self, live: LiveSandbox, context: Context, order: CodeOrder, run: CodeRun) -> None:
        with _busy(live):
            context.waiting += 1
            try:
                async with context.turn:
                    fresh = not context.alive()
                    run.restarted = fresh and context.worked
                    try:
                        kernel = await self._kernel(live, context)
                        await self._hold(live, context, kernel, order, run)
                    except HutchError as error:
                        self._watchers.tell(about("command_failed", live, command=order.code, code=error.code))
                        raise
            finally:
                context.waiting -= 1

    async def _hold(self, live: LiveSandbox, context: Context, kernel: Kernel, order: CodeOrder, run: CodeRun) -> None:
        """Let the code run, and hold it to its time and its workspace to its size."""
        machine = await self._sandboxes.machine(live)
        watching = asyncio.create_task(_watch_workspace(live, machine, kernel, run))
        try:
            with contextlib.suppress(ProcessEnded):
                try:
                    async with asyncio.timeout(order.timeout):
                        await kernel.begin(run, order.code)
                        await run.said.wait()
                except TimeoutError:
                    run.timed_out = True
                    await _interrupt(kernel, run)
        except asyncio.CancelledError:
            await asyncio.shield(_interrupt(kernel, run))
            raise
        finally:
            watching.cancel()
            kernel.let_go()
            if not kernel.alive:
                await asyncio.shield(kernel.settle())
                context.kernel = None if context.kernel is kernel else context.kernel
                _explain_end(kernel, run)
            run.finish()
            self._tell_end(live, order, run)

    def _tell_end(self, live: LiveSandbox, order: CodeOrder, run: CodeRun) -> None:
        if self._watchers and run.result is not None:
            self._watchers.tell(
                about(
                    "command_executed",
                    live,
                    command=order.code,
                    timed_out=run.timed_out,
                    exit_code=int(run.error is not None),
                    duration_ms=float(run.result["execution_time_ms"]),
                    limit=run.limit,
                )
            )


async def _interrupt(kernel: Kernel, run: CodeRun) -> None:
    """End the code; its interpreter stays when it heeds that, and goes when it does not."""
    with contextlib.suppress(TimeoutError, ProcessEnded):
        async with asyncio.timeout(INTERRUPT_SECONDS):
            await kernel.interrupt()
            await run.said.wait()
    if not run.said.is_set():
        await kernel.kill()


async def _watch_workspace(live: LiveSandbox, machine: Machine, kernel: Kernel, run: CodeRun) -> None:
    kills: list[asyncio.Task[None]] = []

    def hit(limit: LimitName) -> None:
        run.limit = limit
        kills.append(asyncio.create_task(kernel.kill()))

    await asyncio.sleep(WATCH_AFTER)
    await live.gauge.watch(machine, hit)
    for kill in kills:
        await kill


def _explain_end(kernel: Kernel, run: CodeRun) -> None:
    run.state_lost = True
    ended = kernel.exit
    run.limit = run.limit or (ended.limit if ended is not None and kernel.dead in (None, -SIGKILL) else None)
    if run.limit == "memory":
        why = "it used more memory than the sandbox may"
    elif run.limit is not None:
        why = f"it passed the limit {run.limit!r}"
    elif run.timed_out:
        why = "it ran out of time and ignored being interrupted"
    elif kernel.dead is not None:
        why = f"signal {-kernel.dead} ended it" if kernel.dead < 0 else f"it ended with exit code {kernel.dead}"
    else:
        why = "its process ended"
    value = f"The interpreter is gone: {why}. The next code starts in a new one, without what was defined before."
    run.fail({"name": "InterpreterDied", "value": value, "traceback": ""})


@contextlib.contextmanager
def _busy(live: LiveSandbox) -> Iterator[None]:
    live.busy += 1
    live.touch()
    try:
        yield
    finally:
        live.busy -= 1
        live.touch()


def _check_code(code: str) -> None:
    """Raises: InvalidRequest, LimitExceeded."""
    if not isinstance(code, str):
        raise InvalidRequest(f"code must be a text, not {type(code).__name__}.")
    size = len(code.encode("utf-8", "surrogatepass"))
    if size > LONGEST_CODE:
        raise LimitExceeded(
            f"The code has {size} bytes, at most {LONGEST_CODE} are possible. Upload it as a file and import it.",
            limit="code",
            maximum=LONGEST_CODE,
            actual=size,
        )


def _info(live: LiveSandbox, context: Context) -> CodeContext:
    return {
        "context_id": context.context_id,
        "language": "python",
        "cwd": context.cwd or live.record.cwd,
        "status": "busy" if context.waiting else "idle" if context.alive() else "stopped",
        "created_at": iso(context.created_at),
    }
