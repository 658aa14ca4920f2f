"""Code in the sandboxes of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hutch.engine.homes import EngineHome
from hutch.model.code import CodeContext, CodeEvent, CodeOrder


class InProcessCode:
    """Implements `CodeTransport`."""

    def __init__(self, home: EngineHome, tenant: str) -> None:
        self._home = home
        self._tenant = tenant

    def run(self, sandbox_id: str, order: CodeOrder) -> AsyncIterator[CodeEvent]:
        return self._home.each(lambda engine: engine.code.run(self._tenant, sandbox_id, order))

    async def contexts(self, sandbox_id: str) -> list[CodeContext]:
        return await self._home.do(lambda engine: engine.code.contexts(self._tenant, sandbox_id))

    async def create(self, sandbox_id: str, cwd: str | None) -> CodeContext:
        return await self._home.do(lambda engine: engine.code.create(self._tenant, sandbox_id, cwd))

    async def restart(self, sandbox_id: str, context_id: str) -> CodeContext:
        return await self._home.do(lambda engine: engine.code.restart(self._tenant, sandbox_id, context_id))

    async def interrupt(self, sandbox_id: str, context_id: str) -> None:
        await self._home.do(lambda engine: engine.code.interrupt(self._tenant, sandbox_id, context_id))

    async def close(self, sandbox_id: str, context_id: str) -> None:
        await self._home.do(lambda engine: engine.code.close(self._tenant, sandbox_id, context_id))
