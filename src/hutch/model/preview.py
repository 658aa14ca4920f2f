"""Previews: a port of a sandbox at an address of its own, and the tokens that open it. Pure."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple, TypedDict

from hutch.model.ids import new_token_id
from hutch.model.principal import digest

TOKEN_HEADER = "hutch-preview-token"
TOKEN_QUERY = "hutch_token"
DEFAULT_SECONDS = 3600.0
LONGEST_SECONDS = 7 * 86_400.0

_TOKEN = re.compile(r"hutchp_(t[a-z2-7]{16})_([A-Za-z0-9_-]{43})\Z")
_LABEL = re.compile(r"([1-9][0-9]{0,4})-(sb[a-z2-7]{16})\Z")


class PreviewInfo(TypedDict):
    """A token that opens one port of one sandbox; the token itself is not kept."""

    token_id: str
    sandbox_id: str
    port: int
    created_at: str
    expires_at: str


class Preview(PreviewInfo):
    """A token that was made just now, and what it opens."""

    token: str  # shown now and never again; programs send it as the header `hutch-preview-token`
    url: str  # for a browser: holds the token
    address: str  # for programs: a path below it is a path of the port


class NewToken(NamedTuple):
    token_id: str
    text: str
    digest: str


def new_token() -> NewToken:
    token_id, secret = new_token_id(), secrets.token_urlsafe(32)
    return NewToken(token_id, f"hutchp_{token_id}_{secret}", digest(secret))


def split_token(text: str) -> tuple[str, str] | None:
    """Id and secret of a token's text; None when it is none."""
    match = _TOKEN.match(text)
    return (match[1], match[2]) if match else None


def label(sandbox_id: str, port: int) -> str:
    """First part of the host name of a port's preview."""
    return f"{port}-{sandbox_id}"


def split_label(text: str) -> tuple[str, int] | None:
    """Sandbox and port of a label; None when it is none. Each port has one label only."""
    match = _LABEL.match(text)
    if match is None or int(match[1]) > 65535:
        return None
    return match[2], int(match[1])
