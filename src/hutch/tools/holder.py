"""The client that all tools of a process share.

It is memoised, not assigned: by process (a forked child makes its own) and by what the settings say (a changed
environment gives another one). See decision 0085.
"""

from __future__ import annotations

import contextvars
import os
from functools import lru_cache

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.by_settings import Place, client_at, place_by_settings, plain
from hutch.client.sync_client import SandboxClient
from hutch.model.errors import InvalidRequest


@lru_cache(maxsize=4)
def _made(process_id: int, place: Place) -> tuple[AsyncSandboxClient, SandboxClient]:
    client = client_at(place)
    return client, plain(client)


def get_sandbox_client() -> SandboxClient:
    """The client of this process: on the server that SANDBOX_MODE and SANDBOX_URL name, or in this process.

    Whoever calls it gets the same one; the session belongs to the calling task or thread, so that users never meet.

    Raises: SettingsInvalid, InvalidRequest.
    """
    return _made(os.getpid(), place_by_settings())[1]


def get_async_client() -> AsyncSandboxClient:
    """The same, for coroutines. Raises: SettingsInvalid, InvalidRequest."""
    return _made(os.getpid(), place_by_settings())[0]


def end_conversation(thread_id: str) -> None:
    """Delete the sandbox of a conversation with all its files. One that is gone already is no error.

    Raises: InvalidRequest, SettingsInvalid.
    """
    if not isinstance(thread_id, str) or not thread_id:
        raise InvalidRequest("thread_id must be the name of a conversation.")
    client = get_sandbox_client()

    def end() -> None:
        client.thread_id = None  # forget whose thread the caller was in: this one may be another user's
        client.thread_id = thread_id
        client.close_session()

    contextvars.copy_context().run(end)  # the caller's own binding stays as it is
