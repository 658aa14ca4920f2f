"""Who may enter a preview: a token in a header, in the query, or in the cookie that it was exchanged for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from hutch.engine.previews import Admission, Previews
from hutch.model.errors import Forbidden, Unauthorized
from hutch.model.preview import TOKEN_HEADER
from hutch.server.preview.address import Front, Place
from hutch.server.preview.headers import COOKIES, cookies

By = Literal["header", "query", "cookie"]
COOKIES_LOOKED_AT = 4  # of our name; a page of the same site may have added some


class Entry(NamedTuple):
    admission: Admission
    by: By
    token: str


async def enter(scope: Scope, place: Place, front: Front, previews: Previews, of_query: str | None) -> Entry:
    """
    Args:
        of_query: the token that the query held.

    Raises: Unauthorized, Forbidden, StoreUnavailable.
    """
    refused: Unauthorized | None = None
    for by, token in _presented(scope, place, front, of_query):
        try:
            admission = await previews.admit(token, place.sandbox_id, place.port)
        except Unauthorized as error:
            refused = refused or error
            continue
        if by == "cookie":
            _check_origin(scope, place)
        return Entry(admission, by, token)
    raise refused or Unauthorized(
        "This preview wants its token: open the whole address that was made for it, or send the token as the header "
        f"{TOKEN_HEADER}. GET /v1/sandboxes/{place.sandbox_id}/ports/{place.port} makes both."
    )


def _presented(scope: Scope, place: Place, front: Front, of_query: str | None) -> Iterator[tuple[By, str]]:
    headers = Headers(scope=scope)
    given = headers.get(TOKEN_HEADER)
    if given is not None:
        yield "header", given.strip()
    if of_query is not None:
        yield "query", of_query
    if place.by_host:
        found = [value for name, value in cookies(scope["headers"]) if name == cookie_name(front)]
        for value in found[:COOKIES_LOOKED_AT]:
            yield "cookie", value


def _check_origin(scope: Scope, place: Place) -> None:
    """A cookie comes by itself; so what other pages make a browser send does not count, but for following a link.

    Raises: Forbidden.
    """
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    followed = link and scope.get("method") in ("GET", "HEAD")
    foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if (origin is not None and _netloc(origin) != place.host) or (foreign and not followed):
        raise Forbidden("Pages of other origins may not use this preview.")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def cookie_name(front: Front) -> str:
    return COOKIES[front.secure]


def wants_exchange(scope: Scope, entry: Entry, place: Place) -> bool:
    """Whether a browser shows a page under an address that holds the token."""
    accepts = Headers(scope=scope).get("accept", "")
    return (
        entry.by == "query"
        and place.by_host
        and scope["type"] == "http"
        and scope["method"] in ("GET", "HEAD")
        and "text/html" in accepts
    )


def exchange(scope: Scope, entry: Entry, place: Place, front: Front) -> Response:
    """The token becomes a cookie of this host, and leaves the address."""
    left = max(1, int(entry.admission.expires_at - time.time()))
    secure = "; Secure" if front.secure else ""
    path = scope["raw_path"].decode("latin-1")
    query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
    headers = {
        "location": f"{front.scheme}://{place.host}{path}{query}",
        "set-cookie": f"{cookie_name(front)}={entry.token}; Path=/; Max-Age={left}; HttpOnly; SameSite=Lax{secure}",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
    }
    return Response(status_code=303, headers=headers)
