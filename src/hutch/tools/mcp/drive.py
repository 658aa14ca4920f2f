"""Tools for a user's drive: files that outlive every sandbox and conversation."""

from __future__ import annotations

from typing import Annotated

from mcp_types import ImageContent
from pydantic import Field

from hutch.model.drive import DriveEntry, PlacedFile
from hutch.tools.mcp import texts
from hutch.tools.mcp.calls import Call
from hutch.tools.mcp.content import image_of, page

Path = Annotated[str, Field(min_length=1, description="Absolute, such as /memories/notes.md.")]
Folder = Annotated[str, Field(min_length=1, description="Absolute path of a folder.")]


async def drive_read(
    call: Call,
    path: Path,
    offset: Annotated[int, Field(ge=0, description="Byte to read from.")] = 0,
    max_bytes: Annotated[int, Field(ge=1, le=texts.SHOWN_BYTES)] = texts.SHOWN_BYTES,
    version: Annotated[int | None, Field(ge=1, description="As it was then; drive_versions lists them.")] = None,
) -> str | list[ImageContent]:
    """Read a text file of the drive (of a long one a piece, and where the next one begins), or look at an image."""
    size = (await call.drive.stat(path))["size_bytes"]
    if version is not None:
        size = next((one["size_bytes"] for one in await call.drive.versions(path) if one["version"] == version), size)
    image = image_of(path, size) if offset == 0 else None
    if image is not None:
        return [image.shown(await call.drive.read_file(path, version=version))]
    data = await call.drive.read_file(path, offset=offset, length=max_bytes, version=version)
    return page(data, path, offset, size)


async def drive_write(
    call: Call,
    path: Path,
    content: Annotated[str, Field(description="All of the file's text.")],
    overwrite: Annotated[bool, Field(description="Replace what is there under that name.")] = True,
) -> str:
    """Write a text file of the drive, whole. What it replaces can be had back with drive_undo."""
    written = await call.drive.write_file(path, content, overwrite=overwrite)
    return f"{written['path']}: {written['size_bytes']} bytes written, version {written['version']}."


async def drive_edit(
    call: Call,
    path: Path,
    old: Annotated[str, Field(min_length=1, description="Text to replace, exactly as it stands there.")],
    new: Annotated[str, Field(description="What takes its place.")],
    replace_all: Annotated[bool, Field(description="Everywhere; else it must be there exactly once.")] = False,
) -> str:
    """Replace text in a file of the drive. drive_undo takes it back."""
    done = await call.drive.edit_file(path, old, new, replace_all=replace_all)
    return f"{done['path']}: {done['replacements']} replaced, version {done['version']}."


async def drive_list(
    call: Call,
    path: Folder = "/",
    recursive: Annotated[bool, Field(description="All that lies below it, too.")] = False,
) -> str:
    """List a folder of the drive. By custom /memories holds notes, /data-exports data, /scripts programs."""
    return _rows(await call.drive.ls(path, recursive=recursive))


async def drive_glob(
    call: Call,
    pattern: Annotated[str, Field(min_length=1, description="Such as **/*.md.")],
    path: Folder = "/",
) -> str:
    """Find files of the drive by name."""
    return _rows(await call.drive.glob(pattern, path))


def _rows(found: list[DriveEntry]) -> str:
    return texts.cut_lines([_row(one) for one in found], "files", "look in a folder below") or "Nothing."


def _row(one: DriveEntry) -> str:
    return f"{one['path']}/" if one["kind"] == "directory" else f"{one['path']}  {one['size_bytes']}  {one['modified']}"


async def drive_grep(
    call: Call,
    pattern: Annotated[str, Field(min_length=1, description="Text that a line holds.")],
    path: Folder = "/",
    regex: Annotated[bool, Field(description="The pattern is a regular expression.")] = False,
    ignore_case: bool = False,
    glob: Annotated[str | None, Field(description="Only in files of such names, e.g. *.md.")] = None,
) -> str:
    """Find lines of text files of the drive."""
    found = await call.drive.grep(pattern, path, regex=regex, ignore_case=ignore_case, glob=glob)
    lines = [f"{one['path']}:{one['line']}: {one['text']}" for one in found["matches"]]
    if found["truncated"]:
        lines.append("[there are more: narrow the pattern or the folder]")
    return texts.cut_lines(lines, "lines", "narrow the pattern or the folder") or "No line."


async def drive_search(
    call: Call,
    query: Annotated[str, Field(min_length=1, description="What it is about.")],
    path: Folder = "/",
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
) -> str:
    """Find files of the drive that are about something, the best first."""
    found = await call.drive.search(query, path=path, limit=limit)
    lines = [f"{one['path']}  ({one['score']:.3f})\n  {one['snippet']}" for one in found["hits"]]
    return texts.cut_lines([*(lines or ["Nothing."]), found["note"] or f"[by {found['by']}]"], "files", "narrow it")


async def drive_move(
    call: Call,
    source: Path,
    target: Path,
    overwrite: Annotated[bool, Field(description="Replace what is there under the new name.")] = False,
) -> str:
    """Rename or move a file or folder of the drive."""
    await call.drive.move(source, target, overwrite=overwrite)
    return f"{source} is now {target}."


async def drive_delete(
    call: Call, path: Path, recursive: Annotated[bool, Field(description="A folder with all in it.")] = False
) -> str:
    """Delete a file or folder of the drive. drive_undo brings a file back."""
    await call.drive.delete(path, recursive=recursive)
    return f"{path} is gone."


async def drive_versions(call: Call, path: Path) -> str:
    """The versions of a file of the drive that are kept, the latest first."""
    found = await call.drive.versions(path)
    return "\n".join(
        f"{one['version']}  {one['size_bytes']} B  {one['created']}{'  (current)' if one['current'] else ''}"
        for one in found
    )


async def drive_undo(call: Call, path: Path) -> str:
    """Take the last change of a file of the drive back, or its deletion."""
    done = await call.drive.undo(path)
    return f"{done['path']} is as it was: {done['size_bytes']} bytes, version {done['version']}."


async def drive_place(
    call: Call, paths: Annotated[list[str], Field(min_length=1, description="Absolute paths in the drive.")]
) -> str:
    """Copy files of the drive into the sandbox, where commands can use them. The answer says where each one is."""
    return "\n".join(_placed(one) for one in await call.client.place(paths))


def _placed(one: PlacedFile) -> str:
    return f"{one['drive_path']} is at {one['path']} ({one['size_bytes']} bytes)."


async def drive_save(
    call: Call,
    filename: Annotated[str, Field(min_length=1, description="A file below /workspace.")],
    path: Path,
) -> str:
    """Copy a file of the sandbox into the drive, where it outlives this conversation."""
    saved = await call.client.save_to_drive(filename, path)
    return f"{filename} is {saved['path']} of the drive ({saved['size_bytes']} bytes, version {saved['version']})."
