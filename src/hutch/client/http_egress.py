"""Egress of sandboxes that a server runs."""

from __future__ import annotations

from typing import cast

from hutch.client.http_calls import Call, Caller, segment
from hutch.client.transport_egress import Documents
from hutch.model.egress import EgressRecord, HostRuleInfo


class HttpEgress:
    """Implements `EgressTransport`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def rules(self, sandbox_id: str) -> list[HostRuleInfo]:
        return cast(list[HostRuleInfo], await self._caller.json(Call("GET", _path(sandbox_id))))

    async def set(self, sandbox_id: str, rules: Documents) -> list[HostRuleInfo]:
        return await self._send("PUT", sandbox_id, rules)

    async def allow(self, sandbox_id: str, rules: Documents) -> list[HostRuleInfo]:
        return await self._send("PATCH", sandbox_id, rules)

    async def _send(self, method: str, sandbox_id: str, rules: Documents) -> list[HostRuleInfo]:
        call = Call(method, _path(sandbox_id), json={"rules": rules}, repeat=True)
        return cast(list[HostRuleInfo], await self._caller.json(call))

    async def log(self, sandbox_id: str, *, after: int, limit: int) -> list[EgressRecord]:
        call = Call("GET", _path(sandbox_id) + "/log", {"after": after, "limit": limit})
        return cast(list[EgressRecord], await self._caller.json(call))


def _path(sandbox_id: str) -> str:
    return f"/v1/sandboxes/{segment(sandbox_id)}/egress"
