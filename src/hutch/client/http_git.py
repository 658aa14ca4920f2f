"""git in the sandboxes of a server."""

from __future__ import annotations

from typing import Any

from hutch.client.http_calls import Call, Caller, segment
from hutch.client.http_streams import events
from hutch.engine.loop import closing_items
from hutch.model.errors import SandboxUnavailable
from hutch.model.git import GIT_VERBS, GitOrder
from hutch.model.wire import plain


class HttpGit:
    """Implements `GitTransport`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def do(self, sandbox_id: str, order: GitOrder) -> Any:
        """As a stream of one event, kept alive while git works: a clone may take minutes."""
        verb = next(name for name, kind in GIT_VERBS.items() if isinstance(order, kind))
        body = {name: value for name, value in plain(order).items() if value is not None}
        call = Call("POST", f"/v1/sandboxes/{segment(sandbox_id)}/git/{verb}", json=body)
        async with closing_items(events(self._caller, call)) as items:
            async for _, fields in items:
                return fields["answer"]
        raise SandboxUnavailable("The sandbox ended before git did.")
