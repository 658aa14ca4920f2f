"""One request that was let in: the port it is for, and the stream to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.types import Scope

from hutch.engine.ports import ByteStream
from hutch.model.errors import InvalidRequest
from hutch.server.preview.address import Front, Place, target_of
from hutch.server.preview.headers import Headers, inwards, outwards

_TARGET = re.compile(rb"/[\x21-\x7e]*\Z")


@dataclass(frozen=True, slots=True)
class Visit:
    place: Place
    front: Front
    ours: frozenset[str]  # names of the server itself
    target: bytes  # path and query for the sandbox
    stream: ByteStream

    def headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        return inwards(scope["headers"], self.place, self.front)

    def answer_headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Raises: Forbidden."""
        return outwards(headers, self.place, self.front, self.ours)


def checked_target(scope: Scope, place: Place) -> bytes:
    """Raises: InvalidRequest."""
    query = scope["query_string"]
    target = target_of(scope, place) + (b"?" + query if query else b"")
    if _TARGET.match(target) is None:
        raise InvalidRequest("The path of this request is not one that can be passed on.")
    return target
