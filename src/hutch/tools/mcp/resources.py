"""Files as resources: a client shows or attaches them without the model's doing."""

from __future__ import annotations

from urllib.parse import quote, unquote

from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp_types import Resource, ResourceTemplate

from hutch.model.errors import HutchError, NoActiveSession
from hutch.tools.mcp import texts
from hutch.tools.mcp.calls import Conversation, Reach, Request, to_its_end
from hutch.tools.mcp.content import check_size, is_text, kind_of

WORKSPACE = "workspace:///"
DRIVE = "drive:///"
MOST_LISTED = 1_000
TEMPLATES = [
    ResourceTemplate(
        uri_template=WORKSPACE + "{+path}",
        name="workspace",
        title="A file of the sandbox",
        description="Text as it is, anything else as a blob; at most 2 MiB.",
    ),
    ResourceTemplate(
        uri_template=DRIVE + "{+path}",
        name="drive",
        title="A file of the user's drive",
        description="As above, of the files that outlive the sandbox.",
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
    scheme = next((one for one in (WORKSPACE, DRIVE) if uri.startswith(one)), None)
    if scheme is None:
        raise ResourceNotFoundError(f"Unknown resource: {uri!r:.200}. There are {WORKSPACE}… and {DRIVE}….")
    path = unquote(uri.removeprefix(scheme))

    async def work() -> bytes:
        if scheme == DRIVE:
            return await _of_drive(await reach.owner(request), f"/{path}")
        return await _of_sandbox(await reach.conversation(request, makes=False), path)

    try:
        data = await to_its_end(work(), reach.gone(request))
    except HutchError as error:
        missing = error.http_status in (400, 404)
        raise (ResourceNotFoundError if missing else ResourceError)(texts.failure(error)) from error
    content = data.decode() if is_text(data, whole=True) else data
    return [ReadResourceContents(content=content, mime_type=kind_of(path))]


async def _of_sandbox(conversation: Conversation, path: str) -> bytes:
    """Raises: HutchError."""
    files = conversation.client.files
    check_size(path, (await files.stat(path))["size_bytes"], "files_read reads it in pieces.")
    return await files.read(path)


async def _of_drive(conversation: Conversation, path: str) -> bytes:
    """Raises: HutchError."""
    drive = conversation.client.drive_of(conversation.user_id)
    check_size(path, (await drive.stat(path))["size_bytes"], "drive_read reads it in pieces.")
    return await drive.read_file(path)
