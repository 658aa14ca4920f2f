"""`hutch files`: the files of a thread's sandbox. `-` stands for standard input or output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hutch.cli import options, show
from hutch.cli.lease import Wanted, existing, session
from hutch.cli.place import Place
from hutch.cli.spool import standard_input_as_file
from hutch.model.files import FileInfo

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

RemotePath = Annotated[str, typer.Argument(metavar="PATH", help="Relative to /workspace, or absolute below it.")]
RemotePaths = Annotated[list[str], typer.Argument(metavar="PATH", help="Relative to /workspace.")]
ShownFolder = Annotated[str, typer.Argument(metavar="PATH", help="Default: /workspace.")]


def build_app() -> typer.Typer:
    app = typer.Typer(help="The files of a thread's sandbox.", no_args_is_help=True, rich_markup_mode=None)
    for name, verb in (
        ("ls", list_files),
        ("get", get),
        ("put", put),
        ("cat", cat),
        ("rm", remove),
        ("mv", move),
        ("mkdir", make_folder),
        ("stat", stat),
        ("watch", watch),
    ):
        app.command(name)(options.at_a_place(verb))
    return app


def list_files(
    thread: options.NeededThread,
    path: ShownFolder = ".",
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="Also what lies in folders.")] = False,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """List a folder."""
    entries = sorted(_client(place, thread).files.list(path, recursive=recursive), key=lambda row: row["path"])
    if as_json:
        show.document(entries)
        return
    rows = [[row["permissions"], show.size(row["size_bytes"]), _time(row), _named(row)] for row in entries]
    if rows:
        show.table(["MODE", "SIZE", "MODIFIED", "NAME"], rows)


def get(
    thread: options.NeededThread,
    path: RemotePath,
    target: Annotated[
        str | None, typer.Argument(metavar="LOCAL|-", help="File or folder here. Default: the file's name, here.")
    ] = None,
    *,
    place: Place,
) -> None:
    """Copy a file from the sandbox."""
    client = _client(place, thread)
    if target == "-":
        _print(client, path)
        return
    name = Path(path).name
    local = Path(name if target is None else target)
    saved = client.download_file(path, local / name if local.is_dir() else local)
    show.note(f"saved {show.visible(saved)}")


def put(
    thread: options.NeededThread,
    source: Annotated[str, typer.Argument(metavar="LOCAL|-", help="A file here, or standard input.")],
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="Name in the sandbox; with a / at its end, a folder. Needed with -."),
    ] = None,
    user: options.User = None,
    template: options.Template = None,
    *,
    place: Place,
) -> None:
    """Copy a file into the sandbox, replacing one of that name; makes the thread's session if there is none."""
    if source == "-" and (path is None or path.endswith("/")):
        raise typer.BadParameter("What comes from standard input needs a name in the sandbox.", param_hint="PATH")
    name = Path(source).name
    remote = name if path is None else path + name if path.endswith("/") else path
    with session(Wanted(thread, user, template, place=place), "files") as client:
        if source == "-":
            with standard_input_as_file() as spooled:
                result = client.upload_file(spooled, remote)
        else:
            result = client.upload_file(source, remote)
    show.note(f"stored {show.visible(result['path'])}, {show.size(result['size_bytes'])}")


def cat(thread: options.NeededThread, paths: RemotePaths, *, place: Place) -> None:
    """Print files, byte for byte."""
    client = _client(place, thread)
    for path in paths:
        _print(client, path)


def remove(
    thread: options.NeededThread,
    paths: RemotePaths,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Folders with all that is in them.")] = False,
    *,
    place: Place,
) -> None:
    """Remove files and folders."""
    client = _client(place, thread)
    for path in paths:
        client.files.remove(path, recursive=recursive)


def move(
    thread: options.NeededThread,
    source: Annotated[str, typer.Argument(metavar="PATH", help="As it is called now.")],
    target: Annotated[str, typer.Argument(metavar="NEW_PATH", help="As it shall be called.")],
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace what has that name.")] = False,
    *,
    place: Place,
) -> None:
    """Give a file or folder another name."""
    _client(place, thread).files.move(source, target, overwrite=force)


def make_folder(
    thread: options.NeededThread,
    paths: RemotePaths,
    parents: Annotated[
        bool, typer.Option("--parents", "-p", help="Also the folders above; no error if it is there.")
    ] = False,
    *,
    place: Place,
) -> None:
    """Make folders."""
    client = _client(place, thread)
    for path in paths:
        client.files.mkdir(path, parents=parents)


def stat(thread: options.NeededThread, path: RemotePath, as_json: options.Json = False, *, place: Place) -> None:
    """Show what a file is; a link is not followed."""
    info = _client(place, thread).files.stat(path)
    if as_json:
        show.document(info)
        return
    rows = [[name, str(value)] for name, value in info.items() if value is not None]
    show.table(["FIELD", "VALUE"], rows)


def watch(
    thread: options.NeededThread,
    path: ShownFolder = ".",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also below its folders.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")] = False,
    *,
    place: Place,
) -> None:
    """Print changes as they happen, until Ctrl-C."""
    for event in _client(place, thread).files.watch(path, recursive=recursive):
        if as_json:
            show.record(event)
        else:
            folder = "/" if event["is_directory"] else ""
            show.line(f"{event['kind']:<10}  {show.visible(event['path'])}{folder}")


def _client(place: Place, thread: str) -> SandboxClient:
    """Raises: NoActiveSession."""
    client = place.client()
    existing(client, thread)
    return client


def _print(client: SandboxClient, path: str) -> None:
    for piece in client.files.read_pieces(path):
        show.write(show.STDOUT, piece)


def _named(info: FileInfo) -> str:
    if info["target"] is not None:
        return f"{info['path']} -> {info['target']}"
    return info["path"] + ("/" if info["kind"] == "directory" else "")


def _time(info: FileInfo) -> str:
    return info["modified"][:16].replace("T", " ")
