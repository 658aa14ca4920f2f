"""The session that a verb works in: one of its own, or a thread's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hutch.cli.endings import Interrupted
from hutch.cli.place import Place
from hutch.model.errors import NoActiveSession

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

USER = "cli"


@dataclass(frozen=True, slots=True)
class Wanted:
    thread: str | None = None  # None: a session that goes when the verb ends
    user: str | None = None  # None: `cli` for a new session, anybody's for one that is there
    template: str | None = None
    policy: str | None = None
    place: Place = field(default_factory=Place)


@contextmanager
def session(wanted: Wanted, prefix: str, timeout_minutes: float | None = None) -> Iterator[SandboxClient]:
    """A client bound to the session that is wanted.

    Args:
        prefix: of the thread, where the verb has a session of its own.
        timeout_minutes: idle minutes of such a session, should we be killed before it is closed.

    Raises: HutchError.
    """
    client = wanted.place.client(wanted.policy, wanted.template)
    if wanted.thread is not None:
        _join(client, wanted, wanted.thread)
        yield client
        return
    thread = f"{prefix}_{secrets.token_hex(4)}"
    client.thread_id = thread  # so that closing finds it even when we are interrupted while it is made
    try:
        client.get_or_create_session(wanted.user or USER, thread, timeout_minutes)
        yield client
    finally:
        try:
            client.close_session()
        except Interrupted:  # just now; it comes only once
            client.thread_id = thread
            client.close_session()
            raise


def _join(client: SandboxClient, wanted: Wanted, thread: str) -> None:
    """Whoever may use a place may use every session in it; so only what was said on the line counts."""
    if wanted.user is None and wanted.template is None and wanted.policy is None:
        try:
            existing(client, thread)
            return
        except NoActiveSession:
            pass
    client.get_or_create_session(wanted.user or USER, thread)


def existing(client: SandboxClient, thread: str) -> None:
    """Bind to a thread that has a session. Raises: NoActiveSession."""
    client.thread_id = thread
    try:
        client.info()
    except NoActiveSession as error:
        raise NoActiveSession(
            f"No session for thread {thread!r}. hutch sessions list shows those there are.", thread_id=thread
        ) from error
