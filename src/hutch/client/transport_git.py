"""The part of the transport that asks git."""

from __future__ import annotations

from typing import Any, Protocol

from hutch.model.git import GitOrder


class GitTransport(Protocol):
    async def do(self, sandbox_id: str, order: GitOrder) -> Any:
        """The answer that belongs to the order."""
        ...
