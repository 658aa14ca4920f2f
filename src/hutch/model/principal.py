"""Who calls: API keys, what they allow, and for whom."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypedDict

from hutch.model.errors import Forbidden
from hutch.model.ids import new_key_id

Scope = Literal["read", "use", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "use", "admin")  # each allows what those before it do
KEY_FILE = "api-key"  # in the data folder: the key that the first start of a server made
LOCAL_TENANT = "local"  # of programs that use the data folder directly, and of the first key made in it

CALLER = "hutch.caller"  # where the scope of a request to a mounted app holds its `Caller`
COUNTED = "hutch.counted"  # in the scope of a call that another one makes, which was counted

_KEY = re.compile(r"hutch_(k[a-z2-7]{16})_([A-Za-z0-9_-]{43})\Z")


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of one request."""

    key_id: str
    name: str
    tenant: str
    scope: Scope

    def may(self, wanted: Scope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(wanted)

    def require(self, wanted: Scope) -> None:
        """Raises: Forbidden."""
        if not self.may(wanted):
            raise Forbidden(f"This key may {self.scope}, and the call needs a key that may {wanted}.")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is behind a request to an app beside the API, with the key to act for them there."""

    principal: Principal
    key: str = field(repr=False)


class NewKey(NamedTuple):
    key_id: str
    text: str  # shown once, never stored
    digest: str


class KeyInfo(TypedDict):
    """A key as it is listed; the key itself is not kept."""

    key_id: str
    name: str
    tenant: str
    scope: Scope
    created_at: str
    last_used_at: str | None
    revoked_at: str | None


def new_key() -> NewKey:
    key_id, secret = new_key_id(), secrets.token_urlsafe(32)
    return NewKey(key_id, f"hutch_{key_id}_{secret}", digest(secret))


def split_key(text: str) -> tuple[str, str] | None:
    """Id and secret of a key's text; None when it is none."""
    match = _KEY.match(text)
    return (match[1], match[2]) if match else None


def digest(secret: str) -> str:
    """A plain hash will do: the secret is 256 random bits, which nobody guesses however fast the hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def same_digest(one: str, other: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(one, other)
