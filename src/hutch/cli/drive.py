"""`hutch drive`: files of a user that outlive every sandbox. `-` stands for standard input or output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hutch.cli import options, show
from hutch.cli.place import Place
from hutch.model.drive import DriveFile
from hutch.model.errors import PathRejected, SandboxFileNotFound

User = Annotated[str, typer.Option("--user", "-u", metavar="USER", help="Whose drive it is.")]
DrivePath = Annotated[str, typer.Argument(metavar="PATH", help="Absolute, like /memories/notes.md.")]
DrivePaths = Annotated[list[str], typer.Argument(metavar="PATH", help="Absolute, like /memories/notes.md.")]
Folder = Annotated[str, typer.Option("--path", metavar="FOLDER", help="Only below this folder.")]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Folders with all that is in them.")]
PIECE_BYTES = 1024 * 1024


def build_app() -> typer.Typer:
    app = typer.Typer(help="A user's drive: files that stay.", no_args_is_help=True, rich_markup_mode=None)
    for name, verb in (
        ("ls", list_folder),
        ("cat", cat),
        ("get", get),
        ("put", put),
        ("rm", remove),
        ("mv", move),
        ("versions", versions),
        ("undo", undo),
        ("grep", grep),
        ("search", search),
        ("usage", usage),
    ):
        app.command(name)(options.at_a_place(verb))
    return app


def list_folder(
    user: User,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Default: /.")] = "/",
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="Also what lies in folders.")] = False,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """List a folder."""
    entries = place.client().drive_of(user).ls(path, recursive=recursive)
    if as_json:
        show.document(entries)
        return
    rows = [
        [
            str(one["version"] or ""),
            show.size(one["size_bytes"]) if one["kind"] == "file" else "",
            one["modified"][:16].replace("T", " "),
            one["path"] + ("/" if one["kind"] == "directory" else ""),
        ]
        for one in entries
    ]
    if rows:
        show.table(["VERSION", "SIZE", "MODIFIED", "PATH"], rows)


def cat(
    user: User,
    paths: DrivePaths,
    version: Annotated[int | None, typer.Option("--version", metavar="NUMBER", help="As that version was.")] = None,
    *,
    place: Place,
) -> None:
    """Print files, byte for byte."""
    drive = place.client().drive_of(user)
    for path in paths:
        for piece in drive.stream(path, version=version):
            show.write(show.STDOUT, piece)


def get(
    user: User,
    path: DrivePath,
    target: Annotated[
        str | None, typer.Argument(metavar="LOCAL|-", help="File or folder here. Default: the file's name, here.")
    ] = None,
    *,
    place: Place,
) -> None:
    """Copy a file from the drive."""
    if target == "-":
        cat(user, [path], place=place)
        return
    name = Path(path).name
    local = Path(name if target is None else target)
    local = local / name if local.is_dir() else local
    partial = local.with_name(f".{local.name}.part")
    pieces = place.client().drive_of(user).stream(path)
    try:
        with partial.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        partial.replace(local)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.errno is None:  # of the drive
            raise
        raise PathRejected(f"{str(local)!r} cannot be written here: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    show.note(f"saved {show.visible(str(local))}")


def put(
    user: User,
    source: Annotated[str, typer.Argument(metavar="LOCAL|-", help="A file here, or standard input.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="In the drive; with a / at its end, a folder.")],
    *,
    place: Place,
) -> None:
    """Copy a file into the drive; what it replaces stays a version of it."""
    if path.endswith("/"):
        if source == "-":
            raise typer.BadParameter("What comes from standard input needs a name in the drive.", param_hint="PATH")
        path += Path(source).name
    stored = place.client().drive_of(user).write_file(path, _pieces(source))
    show.note(f"stored {_told(stored)}")


def remove(user: User, paths: DrivePaths, recursive: Recursive = False, *, place: Place) -> None:
    """Delete files; undo brings one back, for thirty days."""
    drive = place.client().drive_of(user)
    for path in paths:
        drive.delete(path, recursive=recursive)


def move(
    user: User,
    source: Annotated[str, typer.Argument(metavar="PATH", help="As it is called now.")],
    target: Annotated[str, typer.Argument(metavar="NEW_PATH", help="As it shall be called.")],
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace the file of that name.")] = False,
    *,
    place: Place,
) -> None:
    """Give a file or folder another path."""
    place.client().drive_of(user).move(source, target, overwrite=force)


def versions(user: User, path: DrivePath, as_json: options.Json = False, *, place: Place) -> None:
    """List the versions of a file that are kept."""
    found = place.client().drive_of(user).versions(path)
    if as_json:
        show.document(found)
        return
    rows = [
        [f"{one['version']}{' *' if one['current'] else ''}", show.size(one["size_bytes"]), show.when(one["created"])]
        for one in found
    ]
    show.table(["VERSION", "SIZE", "STORED"], rows)


def undo(user: User, path: DrivePath, *, place: Place) -> None:
    """Take the last change of a file back; a deleted one is there again."""
    show.note(f"it is {_told(place.client().drive_of(user).undo(path))} again")


def grep(
    user: User,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Text that a line holds.")],
    path: Folder = "/",
    regex: Annotated[
        bool, typer.Option("--regex", "-E", help="It is a regular expression, as Python has them.")
    ] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Capitals or not.")] = False,
    glob: Annotated[str | None, typer.Option("--glob", "-g", metavar="GLOB", help="Only files named so.")] = None,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Show the lines of files that hold a text. Exit code 1: there are none."""
    drive = place.client().drive_of(user)
    found = drive.grep(pattern, path, regex=regex, ignore_case=ignore_case, glob=glob)
    if as_json:
        show.document(found)
    else:
        for one in found["matches"]:
            show.line(f"{show.visible(one['path'])}:{one['line']}:{show.visible(one['text'])}")
        if found["truncated"]:
            show.note("there are more")
    raise typer.Exit(0 if found["matches"] else 1)


def search(
    user: User,
    query: Annotated[list[str], typer.Argument(metavar="WORD", help="What the files are about.")],
    path: Folder = "/",
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="NUMBER", help="At most so many.")] = 20,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Find files by what they are about."""
    found = place.client().drive_of(user).search(" ".join(query), path=path, limit=limit)
    if as_json:
        show.document(found)
        return
    for one in found["hits"]:
        show.line(show.visible(one["path"]))
        if one["snippet"]:
            show.line(f"    {show.visible(one['snippet'])}")
    if found["note"]:
        show.note(show.visible(found["note"]))


def usage(user: User, as_json: options.Json = False, *, place: Place) -> None:
    """Show how much a drive holds."""
    found = place.client().drive_of(user).usage()
    if as_json:
        show.document(found)
        return
    quota = found["quota_bytes"]
    rows = [
        ["files", str(found["files"])],
        ["size", show.size(found["bytes"])],
        ["earlier versions", show.size(found["kept_bytes"])],
        ["quota", "none" if quota is None else show.size(quota)],
    ]
    show.table(["WHAT", "HOW MUCH"], rows)


def _told(file: DriveFile) -> str:
    return f"{show.visible(file['path'])}, version {file['version']}, {show.size(file['size_bytes'])}"


def _pieces(source: str) -> Iterator[bytes]:
    """Raises: SandboxFileNotFound, PathRejected."""
    try:
        descriptor = os.dup(0) if source == "-" else os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise SandboxFileNotFound(f"There is no file {source!r} on this machine.", path=source) from error
    except OSError as error:
        raise PathRejected(f"{source!r} cannot be read: {error.strerror}.", path=source) from error

    def walk() -> Iterator[bytes]:
        try:
            while piece := os.read(descriptor, PIECE_BYTES):
                yield piece
        except OSError as error:
            raise PathRejected(f"{source!r} cannot be read: {error.strerror}.", path=source) from error
        finally:
            os.close(descriptor)

    return walk()
