"""Apps beside the API, each at a path of its own; they act by calls to the API, in the name of the caller's key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from hutch.model.errors import HutchError
from hutch.model.principal import CALLER
from hutch.server.answers import refusal
from hutch.server.auth import caller_of
from hutch.server.services import Services

Mount = Callable[[ASGIApp], ASGIApp]  # from the API that it acts on
Mounts = Mapping[str, Mount]
NO_MOUNTS: Mounts = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Route:
    """What numbers and logs know a mounted app by."""

    path: str


class Beside:
    """Wraps the API. A mounted app is told who calls, in the scope; what it does is judged and written down there."""

    def __init__(self, api: ASGIApp, services: Services, mounts: Mounts) -> None:
        self._api = api
        self._services = services
        self._mounted = {path: mount(api) for path, mount in mounts.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").rstrip("/")
        app = self._mounted.get(path) if scope["type"] == "http" else None
        if app is None:
            return await self._api(scope, receive, send)
        scope["route"] = _Route(path)
        try:
            caller = await caller_of(HTTPConnection(scope), self._services)
        except HutchError as error:
            return await refusal(error)(scope, receive, send)
        await app({**scope, CALLER: caller}, receive, send)
