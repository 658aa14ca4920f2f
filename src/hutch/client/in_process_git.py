"""git in the sandboxes of this process."""

from __future__ import annotations

from typing import Any

from hutch.engine.homes import EngineHome
from hutch.model.git import GitOrder


class InProcessGit:
    """Implements `GitTransport`."""

    def __init__(self, home: EngineHome, tenant: str) -> None:
        self._home = home
        self._tenant = tenant

    async def do(self, sandbox_id: str, order: GitOrder) -> Any:
        return await self._home.do(lambda engine: engine.git.do(self._tenant, sandbox_id, order))
