"""From the name of a conversation to its sandbox."""

from __future__ import annotations

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import NoActiveSession, ThreadOwnedByOther
from hutch.tools.mcp.calls import Conversation

USER = "mcp"  # whose a conversation is when nobody says
TEMPLATE = "open"


async def joined(client: AsyncSandboxClient, thread: str, user: str | None, *, makes: bool) -> Conversation:
    """The conversation of that name. Where no user is named, it is used whoever it belongs to.

    With `makes`, it gets a sandbox where it has none. The binding lasts as long as the calling task.
    Raises: NoActiveSession, ThreadOwnedByOther, HutchError.
    """
    if user is None or not makes:
        client.thread_id = thread
        try:
            found = await client.info()
        except NoActiveSession:
            if not makes:
                raise
        else:
            if user not in (None, found["user_id"]):
                raise ThreadOwnedByOther(f"Thread {thread!r} belongs to another user.")
            return Conversation(client, found["user_id"])
    handle = client.for_thread(user or USER, thread)
    session = await handle.get_or_create_session(user or USER, thread)
    return Conversation(handle, session["user_id"], is_new=session["status"] == "created")


async def owner(client: AsyncSandboxClient, thread: str | None, user: str | None) -> Conversation:
    """The user of the conversation of that name, with a sandbox or without. Raises: ThreadOwnedByOther, HutchError."""
    if thread is not None and user is None:
        try:
            return await joined(client, thread, None, makes=False)
        except NoActiveSession:
            pass
    return Conversation(client, user or USER)
