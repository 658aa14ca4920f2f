"""Files as resources: a client shows or attaches them without the model's doing."""

from __future__ import annotations

from urllib.parse import quote, unquote

from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp_types import Resource, ResourceTemplate

from hutch.model.errors import HutchError, LimitExceeded, NoActiveSession
from hutch.tools.mcp import texts
from hutch.tools.mcp.calls import Conversation, Reach, Request, to_its_end
from hutch.tools.mcp.content import MAX_CONTENT_BYTES, is_text, kind_of

WORKSPACE = "workspace:///"
MOST_LISTED = 1_000
TEMPLATES = [
    ResourceTemplate(
        uri_template=WORKSPACE + "{+path}",
        name="workspace",
        title="A file of the sandbox",
        description="Text as it is, anything else as a blob; at most 2 MiB.",
    ),
]


async def listed(reach: Reach, request: Request) -> list[Resource]:
    """The files of a conversation's sandbox; none while it has none: looking makes no sandbox."""

    async def work() -> list[Resource]:
        try:
            found = await (await reach.conversation(request, makes=False)).client.files.list(".", recursive=True)
        except NoActiveSession:
            return []
        files = [one for one in found if one["kind"] == "file"]
        return [
            Resource(
                uri=WORKSPACE + quote(one["path"]),
                name=one["path"],
                mime_type=kind_of(one["path"]),
                size=one["size_bytes"],
            )
            for one in files[:MOST_LISTED]
        ]

    return await to_its_end(work(), reach.gone(request))


async def read(reach: Reach, request: Request, uri: str) -> list[ReadResourceContents]:
    """Raises: ResourceError."""
    if not uri.startswith(WORKSPACE):
        raise ResourceNotFoundError(f"Unknown resource: {uri:.200}. There are {WORKSPACE}… of the sandbox.")
    path = unquote(uri.removeprefix(WORKSPACE), errors="strict")

    async def work() -> bytes:
        return await _content(await reach.conversation(request, makes=False), path)

    try:
        data = await to_its_end(work(), reach.gone(request))
    except HutchError as error:
        missing = error.http_status in (400, 404)
        raise (ResourceNotFoundError if missing else ResourceError)(texts.failure(error)) from error
    content = data.decode() if is_text(data, whole=True) else data
    return [ReadResourceContents(content=content, mime_type=kind_of(path))]


async def _content(conversation: Conversation, path: str) -> bytes:
    """Raises: HutchError."""
    size = (await conversation.client.files.stat(path))["size_bytes"]
    if size > MAX_CONTENT_BYTES:
        raise LimitExceeded(
            f"{path!r} has {size} bytes, and a resource at most {MAX_CONTENT_BYTES}. files_read reads it in pieces.",
            limit="resource",
            maximum=MAX_CONTENT_BYTES,
            actual=size,
        )
    return await conversation.client.files.read(path)
