"""How results travel as JSON: bytes beside text, and server-sent events. Pure; server and client share it.

Text says nearly everything; bytes are sent beside it, in base64, only where the text does not say exactly the same.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hutch.model.errors import HutchError, error_from_code
from hutch.model.process import LogChunk, OutputEvent

PROTOCOL = 1  # of the HTTP API; a peer that is one lower is still understood
API_KEY_HEADER = "x-api-key"
IDEMPOTENCY_HEADER = "idempotency-key"
REFUSED_HEADER = "x-hutch-refused"  # how many commands the client refused by itself since its last call
REFUSED_AT_ONCE = 100
REQUEST_ID_HEADER = "x-request-id"  # the log tells of a request by it


def dumps(value: Any) -> bytes:
    """JSON in ASCII: names of files may hold bytes that are no text, which only escapes can carry."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def plain(value: Any) -> Any:
    """Records within `value` as what JSON can say."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple | set | frozenset) else value


def pack_bytes(data: bytes, text: str) -> dict[str, str]:
    """The fields `text` and, where it does not give `data` back, `data`."""
    if text.encode("utf-8", "surrogatepass") == data:
        return {"text": text}
    return {"text": text, "data": base64.b64encode(data).decode("ascii")}


def unpack_bytes(fields: Mapping[str, Any]) -> bytes:
    packed = fields.get("data")
    return base64.b64decode(packed) if packed is not None else str(fields["text"]).encode("utf-8", "surrogatepass")


def pack_event(event: OutputEvent) -> dict[str, Any]:
    if event["result"] is not None:
        return {"result": event["result"]}
    return {**pack_bytes(event["data"], event["text"]), "offset": event["offset"]}


def unpack_event(kind: str, fields: Mapping[str, Any]) -> OutputEvent:
    if kind == "exit":
        return {"type": "exit", "data": b"", "text": "", "offset": 0, "result": fields["result"]}
    return {
        "type": "stderr" if kind == "stderr" else "stdout",
        "data": unpack_bytes(fields),
        "text": fields["text"],
        "offset": fields["offset"],
        "result": None,
    }


def pack_chunk(chunk: LogChunk) -> dict[str, Any]:
    return {**chunk, "data": base64.b64encode(chunk["data"]).decode("ascii")}


def unpack_chunk(fields: Mapping[str, Any]) -> LogChunk:
    return {**fields, "data": base64.b64decode(fields["data"])}  # type: ignore[typeddict-item]  # as pack_chunk made it


def pack_error(error: HutchError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "details": _plain(error.details),
        "retryable": error.retryable,
    }


def unpack_error(fields: Mapping[str, Any]) -> HutchError:
    details = fields.get("details")
    return error_from_code(str(fields["code"]), str(fields["message"]), details if isinstance(details, Mapping) else {})


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can say of `details`; the rest as text."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(details), default=lambda value: _listed(value) or str(value)))
    return plain


def _listed(value: Any) -> list[Any] | None:
    return sorted(value, key=str) if isinstance(value, set | frozenset) else None


class ServerSentEvent(NamedTuple):
    kind: str
    data: str


def sse(kind: str, fields: Mapping[str, Any]) -> bytes:
    """One event. JSON in ASCII holds no line break, so nothing a sandbox prints can end or forge an event."""
    return b"event: " + kind.encode("ascii") + b"\ndata: " + dumps(fields) + b"\n\n"


SSE_KEEPALIVE = b": still here\n\n"


class SseReader:
    """Turns the bytes of an event stream into events. A comment is no event."""

    def __init__(self, max_line_bytes: int) -> None:
        self._rest = b""
        self._max = max_line_bytes
        self._kind = "message"
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """Raises: ValueError when a line is longer than any that our server sends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._max:
            raise ValueError("a line of the event stream does not end")
        for line in lines:
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            if not text:
                if self._data:
                    yield ServerSentEvent(self._kind, "\n".join(self._data))
                self._kind, self._data = "message", []
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._kind = value
            elif name == "data":
                self._data.append(value)
