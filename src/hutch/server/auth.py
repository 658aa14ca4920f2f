"""Who calls, and whether they may."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from hutch.model.errors import Unauthorized
from hutch.model.principal import COUNTED, Caller, Principal, Scope
from hutch.model.wire import API_KEY_HEADER
from hutch.server import trail
from hutch.server.services import Services, services_of


async def principal_of(connection: HTTPConnection, services: Services) -> Principal:
    """Raises: Unauthorized, RateLimited."""
    text = _key_text(connection)
    if text is None:
        raise Unauthorized(
            "This server wants an API key: send the header 'Authorization: Bearer <key>'. hutch keys create makes one."
        )
    principal = await services.keys.authenticate(text)
    await admit(principal, connection, services)
    return principal


async def admit(principal: Principal, connection: HTTPConnection, services: Services) -> None:
    """What happens from here on is this caller's. Raises: RateLimited."""
    if services.rate is not None and not connection.scope.get(COUNTED):
        await services.rate.count(principal)
    trail.begins(connection, principal)


def _key_text(connection: HTTPConnection) -> str | None:
    given = connection.headers.get("authorization", "")
    scheme, _, text = given.partition(" ")
    if scheme.lower() == "bearer" and text.strip():
        return text.strip()
    return connection.headers.get(API_KEY_HEADER)


async def caller_of(connection: HTTPConnection, services: Services) -> Caller:
    """The same with the key itself, for what acts in its name. Raises: Unauthorized, RateLimited."""
    principal = await principal_of(connection, services)
    return Caller(principal, _key_text(connection) or "")


def has_key(connection: HTTPConnection) -> bool:
    return _key_text(connection) is not None


def _needs(scope: Scope) -> Callable[[HTTPConnection], Coroutine[Any, Any, Principal]]:
    async def check(connection: HTTPConnection) -> Principal:
        principal = await principal_of(connection, services_of(connection))
        principal.require(scope)
        return principal

    return check


Reader = Annotated[Principal, Depends(_needs("read"))]
User = Annotated[Principal, Depends(_needs("use"))]
Admin = Annotated[Principal, Depends(_needs("admin"))]
