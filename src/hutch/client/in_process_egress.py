"""Egress of sandboxes that an engine in this process runs."""

from __future__ import annotations

from hutch.client.transport_egress import Documents
from hutch.engine.homes import EngineHome
from hutch.model.egress import EgressRecord, HostRuleInfo


class InProcessEgress:
    """Implements `EgressTransport`."""

    def __init__(self, home: EngineHome, tenant: str) -> None:
        self._home = home
        self._tenant = tenant

    async def rules(self, sandbox_id: str) -> list[HostRuleInfo]:
        return await self._home.do(lambda engine: engine.egress.rules(self._tenant, sandbox_id))

    async def set(self, sandbox_id: str, rules: Documents) -> list[HostRuleInfo]:
        return await self._home.do(lambda engine: engine.egress.set(self._tenant, sandbox_id, rules))

    async def allow(self, sandbox_id: str, rules: Documents) -> list[HostRuleInfo]:
        return await self._home.do(lambda engine: engine.egress.allow(self._tenant, sandbox_id, rules))

    async def log(self, sandbox_id: str, *, after: int, limit: int) -> list[EgressRecord]:
        return await self._home.do(lambda engine: engine.egress.log(self._tenant, sandbox_id, after=after, limit=limit))
