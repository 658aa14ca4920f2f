"""Where a request to a coordinator belongs, by what its address and query say. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from hutch.model.errors import InvalidRequest

# What a name in a body or query is: a thread, or the session of one.
Named = Literal["thread_id", "session_id"]


@dataclass(frozen=True, slots=True)
class Own:
    """The coordinator answers by itself."""


@dataclass(frozen=True, slots=True)
class AnyWorker:
    """All workers say the same."""


@dataclass(frozen=True, slots=True)
class AllWorkers:
    """Each worker knows a part of the list."""


@dataclass(frozen=True, slots=True)
class OfSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class OfName:
    """The thread or session that is named in the query (`value`), or in the body: JSON, or a form with a file."""

    named: Named
    value: str | None = None
    form: bool = False
    makes: bool = False  # a thread without a sandbox gets one


Destination = Own | AnyWorker | AllWorkers | OfSandbox | OfName

_SANDBOX = re.compile(r"/v1/sandboxes/([^/]+)(?:/.*)?\Z", re.DOTALL)
_STATUS = re.compile(r"/status/([^/]+)\Z")
_MYPA_JSON = frozenset({"/execute", "/download_file", "/cleanup"})


def destination(method: str, raw_path: str, query: dict[str, str]) -> Destination:
    """Raises: InvalidRequest."""
    if found := _SANDBOX.match(raw_path):
        return OfSandbox(unquote(found[1]))
    if raw_path in ("/openapi.json", "/v1/templates"):
        return AnyWorker()
    if raw_path == "/v1/sessions":
        if method == "PUT":
            return OfName("thread_id", makes=True)
        if method in ("GET", "HEAD"):
            return OfName("thread_id", query["thread_id"]) if "thread_id" in query else AllWorkers()
    return _of_older_clients(method, raw_path, query) or Own()


def pattern(raw_path: str, where: Destination) -> str:
    """The path without names, for numbers and logs."""
    if isinstance(where, OfSandbox):
        return "/v1/sandboxes/{sandbox_id}"
    return "/status/{session_id}" if _STATUS.match(raw_path) else raw_path


def _of_older_clients(method: str, path: str, query: dict[str, str]) -> Destination | None:
    if method == "POST":
        if path == "/create_session":
            return OfName("thread_id", makes=True)
        if path in _MYPA_JSON:
            return OfName("session_id")
        if path == "/upload_file":
            return OfName("session_id", form=True)
    if method in ("GET", "HEAD"):
        if path == "/get_session":
            return OfName("thread_id", query.get("thread_id", ""))
        if path == "/list_files":
            return OfName("session_id", query.get("session_id", ""))
        if found := _STATUS.match(path):
            return OfName("session_id", unquote(found[1]))
    return None


def named_in(document: object, named: Named) -> str:
    """Raises: InvalidRequest."""
    value = document.get(named) if isinstance(document, dict) else None
    if not isinstance(value, str):
        raise InvalidRequest(f"The request names no {named}.")
    return value
