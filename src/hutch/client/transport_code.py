"""The part of the transport that runs code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from hutch.model.code import CodeContext, CodeEvent, CodeOrder


class CodeTransport(Protocol):
    def run(self, sandbox_id: str, order: CodeOrder) -> AsyncIterator[CodeEvent]: ...

    async def contexts(self, sandbox_id: str) -> list[CodeContext]: ...

    async def create(self, sandbox_id: str, cwd: str | None) -> CodeContext: ...

    async def restart(self, sandbox_id: str, context_id: str) -> CodeContext: ...

    async def interrupt(self, sandbox_id: str, context_id: str) -> None: ...

    async def close(self, sandbox_id: str, context_id: str) -> None: ...
