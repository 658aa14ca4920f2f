"""Egress over the seam between the client and whatever runs the sandboxes."""

from __future__ import annotations

from typing import Any, Protocol

from hutch.model.egress import EgressRecord, HostRuleInfo

Documents = list[dict[str, Any]]  # of rules, with the secrets of their headers


class EgressTransport(Protocol):
    async def rules(self, sandbox_id: str) -> list[HostRuleInfo]: ...

    async def set(self, sandbox_id: str, rules: Documents) -> list[HostRuleInfo]: ...

    async def allow(self, sandbox_id: str, rules: Documents) -> list[HostRuleInfo]: ...

    async def log(self, sandbox_id: str, *, after: int, limit: int) -> list[EgressRecord]: ...
