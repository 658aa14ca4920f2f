"""`client.code`: Python that keeps its state from call to call. Needs template `open`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hutch.client.transport_code import CodeTransport
from hutch.engine.loop import close_items
from hutch.model.code import CODE_TIMEOUT, CodeContext, CodeEvent, CodeOrder, CodeResult
from hutch.model.errors import InvalidRequest, SandboxUnavailable

CodeCallback = Callable[[CodeEvent], None]


class AsyncCode:
    """Variables, imports and functions stay in a *context*; one is there by itself, more can be made."""

    def __init__(self, transport: CodeTransport, sandbox: Callable[[], Awaitable[str]]) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def run(
        self,
        code: str,
        *,
        context: str | None = None,
        timeout: float = CODE_TIMEOUT,
        on_output: CodeCallback | None = None,
    ) -> CodeResult:
        """Run Python as in a notebook's cell: the last expression is a result, `!command`, `%magic` and `await` work.

        Args:
            context: where (the id of one that `create_context` made); default: the sandbox's own.
            timeout: seconds; then the code is interrupted and what it defined stays. The interpreter goes only when the
                code ignores that (`state_lost`).
            on_output: called with each piece of output as it comes, here in the caller's thread.

        Raises: InvalidRequest, NotSupported, ContextNotFound, InterpreterMissing, LimitExceeded, NoActiveSession,
            SessionExpiredError, SandboxUnavailable. Code that fails is a result: see its `error`.
        """
        if not isinstance(code, str):
            raise InvalidRequest(f"code must be a text, not {type(code).__name__}.")
        items = self._transport.run(await self._sandbox(), CodeOrder(code, context, timeout))
        try:
            async for event in items:
                if event["result"] is not None:
                    return event["result"]
                if on_output is not None:
                    on_output(event)
        finally:
            await close_items(items)
        raise SandboxUnavailable("The sandbox ended before the code did.")

    async def contexts(self) -> list[CodeContext]:
        """Raises: NoActiveSession, SessionExpiredError, NotSupported."""
        return await self._transport.contexts(await self._sandbox())

    async def create_context(self, cwd: str | None = None) -> CodeContext:
        """An interpreter of its own, in a folder of the sandbox. Raises: LimitExceeded, SandboxFileNotFound."""
        return await self._transport.create(await self._sandbox(), cwd)

    async def restart_context(self, context_id: str) -> CodeContext:
        """Forget all that its code defined; what runs in it ends. Raises: ContextNotFound."""
        return await self._transport.restart(await self._sandbox(), context_id)

    async def interrupt(self, context_id: str = "default") -> None:
        """End what runs in it, as Ctrl-C would; what it defined stays. Raises: ContextNotFound."""
        await self._transport.interrupt(await self._sandbox(), context_id)

    async def close_context(self, context_id: str) -> None:
        """End its interpreter and forget it. Raises: ContextNotFound."""
        await self._transport.close(await self._sandbox(), context_id)
