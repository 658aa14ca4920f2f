"""What the flat routes of older clients share: who may call them, and how they say that something failed.

A failure has the fields and status codes that those clients know, beside our code.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from hutch.model.errors import CommandRejected, HutchError, InvalidRequest, LimitExceeded
from hutch.model.limits import MIB
from hutch.model.principal import Principal, Scope
from hutch.model.wire import pack_error
from hutch.server.answers import Json, malformed, refusal
from hutch.server.auth import admit, has_key, principal_of
from hutch.server.services import services_of

INSUFFICIENT_STORAGE = 507
# Whoever comes without a key, where that is allowed: apart from everything that belongs to a key.
KEYLESS = Principal("mypa-open", "without a key", "mypa-open", "use")
_VIA_PROXY = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def _caller(scope: Scope) -> Any:
    async def check(connection: HTTPConnection) -> Principal:
        services = services_of(connection)
        if services.options.mypa_open and not has_key(connection) and not _came_from_elsewhere(connection):
            await admit(KEYLESS, connection, services)
            return KEYLESS
        principal = await principal_of(connection, services)
        principal.require(scope)
        return principal

    return Depends(check)


def _came_from_elsewhere(connection: HTTPConnection) -> bool:
    """A proxy on this machine may stand before a server that listens to this machine only."""
    return any(name in connection.headers for name in _VIA_PROXY)


Looker = Annotated[Principal, _caller("read")]
Caller = Annotated[Principal, _caller("use")]


class MypaRoute(APIRoute):
    """A route whose errors are answered in the dialect."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        bad_request = 422 if self.path == "/create_session" else 400

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return failed(malformed(error), http_status=bad_request)
            except InvalidRequest as error:
                return failed(error, http_status=bad_request)
            except HutchError as error:
                return failed(error)

        return answered


def failed(error: HutchError, *, http_status: int | None = None, **fields: Any) -> Response:
    """`error` as older clients know it; `fields` are those of the route."""
    answer = refusal(error)
    body = {"error": error.message, **pack_error(error), **_fields(error), **fields}
    if isinstance(error, LimitExceeded) and error.details.get("limit") != "file_size":
        http_status = INSUFFICIENT_STORAGE
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    return Json(body, http_status or error.http_status, headers)


def _fields(error: HutchError) -> dict[str, Any]:
    details = error.details
    if isinstance(error, CommandRejected):
        return {"forbidden_pattern": details.get("word", "")}
    if not isinstance(error, LimitExceeded):
        return {}
    maximum, actual = details.get("maximum", 0), details.get("actual", 0)
    if details.get("limit") == "files":
        return {"max_files": maximum, "current_files": actual}
    if details.get("limit") == "workspace":
        used = details.get("used", actual)
        return {
            "max_workspace_mb": _mb(maximum),
            "current_workspace_mb": _mb(used),
            "file_size_mb": _mb(actual - used),
        }
    return {"max_size_mb": _mb(maximum), "uploaded_size_mb": _mb(actual)}


def _mb(size: int) -> float:
    return round(size / MIB, 2)
