"""Tools for the files of a sandbox."""

from __future__ import annotations

from typing import Annotated

from mcp_types import ImageContent
from pydantic import Field

from hutch.model.errors import InvalidRequest, LimitExceeded
from hutch.model.files import FileInfo
from hutch.tools.mcp import texts
from hutch.tools.mcp.calls import Call
from hutch.tools.mcp.content import image_of, page

Path = Annotated[str, Field(min_length=1, description="Below /workspace: `notes.txt` or `/workspace/notes.txt`.")]
EDITED_BYTES = 10 * 1024 * 1024


async def files_read(
    call: Call,
    path: Path,
    offset: Annotated[int, Field(ge=0, description="Byte to read from.")] = 0,
    max_bytes: Annotated[int, Field(ge=1, le=texts.SHOWN_BYTES)] = texts.SHOWN_BYTES,
) -> str | list[ImageContent]:
    """Read a text file of the sandbox (of a long one a piece, and where the next one begins), or look at an image."""
    size = (await call.client.files.stat(path))["size_bytes"]
    image = image_of(path, size) if offset == 0 else None
    if image is not None:
        return [image.shown(await call.client.files.read(path))]
    return page(await call.client.files.read(path, offset=offset, length=max_bytes), path, offset, size)


async def files_write(
    call: Call,
    path: Path,
    content: Annotated[str, Field(description="All of the file's text.")],
    overwrite: Annotated[bool, Field(description="Replace what is there under that name.")] = True,
) -> str:
    """Write a text file of the sandbox, whole; folders on the way are made. To change a part use files_edit."""
    written = await call.client.files.write(path, content, overwrite=overwrite)
    return f"{written['path']}: {written['size_bytes']} bytes written."


async def files_edit(
    call: Call,
    path: Path,
    old: Annotated[str, Field(min_length=1, description="Text to replace, exactly as it stands there.")],
    new: Annotated[str, Field(description="What takes its place.")],
    replace_all: Annotated[bool, Field(description="Everywhere; else it must be there exactly once.")] = False,
) -> str:
    """Replace text in a file of the sandbox."""
    status = await call.client.files.stat(path)
    if status["size_bytes"] > EDITED_BYTES:
        raise LimitExceeded(
            f"{path!r} has {status['size_bytes']} bytes, and at most {EDITED_BYTES} can be edited. Use sed by execute.",
            limit="edit",
            maximum=EDITED_BYTES,
            actual=status["size_bytes"],
        )
    data = await call.client.files.read(path)
    changed, count = edited(data, path, old, new, everywhere=replace_all)
    await call.client.files.write(path, changed, mode=_mode(status))
    return f"{path}: {count} replaced."


def edited(data: bytes, path: str, old: str, new: str, *, everywhere: bool) -> tuple[bytes, int]:
    """Raises: InvalidRequest."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path!r} is no UTF-8 text, so it cannot be edited as such.") from None
    count = text.count(old)
    if count == 0:
        raise InvalidRequest(f"That text is not in {path!r}. Read the file: white space counts, too.")
    if count > 1 and not everywhere:
        raise InvalidRequest(f"That text is {count} times in {path!r}. Give more of it, or replace_all=true.")
    return text.replace(old, new).encode(), count


def _mode(status: FileInfo) -> int:
    """Of `-rwxr-xr-x`."""
    return sum(0o400 >> at for at, letter in enumerate(status["permissions"][1:10]) if letter != "-")


async def files_list(
    call: Call,
    path: Annotated[str, Field(description="A folder.")] = ".",
    recursive: Annotated[bool, Field(description="All that lies below it, too.")] = False,
) -> str:
    """List a folder of the sandbox: kind, size, time and path of each file."""
    found = await call.client.files.list(path, recursive=recursive)
    return texts.cut_lines([_row(one) for one in found], "files", "list a folder below") or "Empty."


async def files_stat(call: Call, path: Path) -> str:
    """Kind, size, time and permissions of a file of the sandbox."""
    return _row(await call.client.files.stat(path))


def _row(one: FileInfo) -> str:
    target = f" -> {one['target']}" if one["target"] else ""
    return f"{one['permissions']}  {one['size_bytes']:>10}  {one['modified']}  {one['path']}{target}"


async def files_mkdir(call: Call, path: Path) -> str:
    """Make a folder in the sandbox, with those on the way."""
    await call.client.files.mkdir(path, parents=True)
    return f"{path} is there."


async def files_move(
    call: Call,
    source: Path,
    target: Path,
    overwrite: Annotated[bool, Field(description="Replace what is there under the new name.")] = False,
) -> str:
    """Rename or move a file or folder of the sandbox."""
    await call.client.files.move(source, target, overwrite=overwrite)
    return f"{source} is now {target}."


async def files_remove(
    call: Call, path: Path, recursive: Annotated[bool, Field(description="A folder with all in it.")] = False
) -> str:
    """Delete a file or folder of the sandbox."""
    await call.client.files.remove(path, recursive=recursive)
    return f"{path} is gone."
