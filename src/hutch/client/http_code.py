"""Code in the sandboxes of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from hutch.client.http_calls import Call, Caller, segment
from hutch.client.http_streams import events
from hutch.engine.loop import closing_items
from hutch.model.code import CodeContext, CodeEvent, CodeOrder

START_SECONDS = 120.0  # an interpreter may be the first, whose packages are fetched


class HttpCode:
    """Implements `CodeTransport`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def run(self, sandbox_id: str, order: CodeOrder) -> AsyncIterator[CodeEvent]:
        body = {"code": order.code, "context_id": order.context, "timeout": order.timeout}
        async with closing_items(events(self._caller, Call("POST", _at(sandbox_id, "run"), json=body))) as items:
            async for _, fields in items:
                yield cast(CodeEvent, fields)

    async def contexts(self, sandbox_id: str) -> list[CodeContext]:
        return cast(list[CodeContext], await self._caller.json(Call("GET", _at(sandbox_id, "contexts"))))

    async def create(self, sandbox_id: str, cwd: str | None) -> CodeContext:
        call = Call("POST", _at(sandbox_id, "contexts"), json={"cwd": cwd}, seconds=START_SECONDS)
        return cast(CodeContext, await self._caller.json(call))

    async def restart(self, sandbox_id: str, context_id: str) -> CodeContext:
        call = Call("POST", _at(sandbox_id, f"contexts/{segment(context_id)}/restart"), seconds=START_SECONDS)
        return cast(CodeContext, await self._caller.json(call))

    async def interrupt(self, sandbox_id: str, context_id: str) -> None:
        await self._caller.json(Call("POST", _at(sandbox_id, f"contexts/{segment(context_id)}/interrupt")))

    async def close(self, sandbox_id: str, context_id: str) -> None:
        call = Call("DELETE", _at(sandbox_id, f"contexts/{segment(context_id)}"), repeat=False)
        await self._caller.json(call)


def _at(sandbox_id: str, rest: str) -> str:
    return f"/v1/sandboxes/{segment(sandbox_id)}/code/{rest}"
