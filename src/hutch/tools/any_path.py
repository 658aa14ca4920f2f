"""Whole files anywhere in a sandbox: below /workspace by `client.files`, elsewhere by commands in the sandbox.

Both ways the sandbox's own kernel decides what a path is and who may use it. Failures are Python's own:
FileNotFoundError, IsADirectoryError, PermissionError; and `PathRejected` for what is no regular file.
"""

from __future__ import annotations

import shlex

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import LimitExceeded, PathRejected, SandboxFileNotFound, SandboxUnavailable
from hutch.model.process import ExecResult
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.ceiling import longest_timeout

TRANSFER_SECONDS = 600.0
NEW_FILE_MODE = 0o644
# How the commands below say what is wrong.
_FOLDER, _NO_FILE, _TOO_LARGE = 71, 72, 73
_REASONS: tuple[tuple[str, type[OSError]], ...] = (
    ("No such file or directory", FileNotFoundError),
    ("Is a directory", IsADirectoryError),
    ("Permission denied", PermissionError),
    ("Read-only file system", PermissionError),
    ("Operation not permitted", PermissionError),
)


def in_workspace(path: str) -> bool:
    """Whether `client.files` is asked first; it refuses what its text or a link leads elsewhere."""
    return path == WORKSPACE_DIR or path.startswith(WORKSPACE_DIR + "/")


async def read_anywhere(client: AsyncSandboxClient, path: str, most_bytes: int | None = None) -> bytes:
    """The bytes of the regular file at the absolute `path`.

    Raises: FileNotFoundError, IsADirectoryError, PermissionError, PathRejected, LimitExceeded (larger than
        `most_bytes`), SessionExpiredError, SandboxUnavailable.
    """
    if in_workspace(path):
        try:
            if most_bytes is not None:
                _check_size(path, (await client.files.stat(path))["size_bytes"], most_bytes)
            return await client.files.read(path)
        except PathRejected:
            pass  # a link, a folder, one that may not be read: the sandbox's own shell tells which
    return await _read_by_command(client, path, most_bytes)


async def write_anywhere(client: AsyncSandboxClient, path: str, data: bytes) -> None:
    """Store a file at the absolute `path`, with its folders; one that is there keeps its permissions.

    Raises: IsADirectoryError, PermissionError, NotADirectoryError, PathRejected, LimitExceeded, SessionExpiredError,
        SandboxUnavailable.
    """
    if in_workspace(path):
        try:
            mode = await _mode_to_keep(client, path)
            if mode is not None:
                await client.files.write(path, data, mode=mode)
                return
        except PathRejected:
            pass
    await _write_by_command(client, path, data)


async def _mode_to_keep(client: AsyncSandboxClient, path: str) -> int | None:
    """None: it is nothing that a new file could take the place of. Raises: PermissionError, PathRejected."""
    try:
        present = await client.files.stat(path)
    except SandboxFileNotFound:
        return NEW_FILE_MODE
    if present["kind"] != "file":
        return None
    mode = mode_of(present["permissions"])
    if not mode & 0o200:
        raise PermissionError(f"Permission denied: {path!r} is not writable.")
    return mode


def mode_of(permissions: str) -> int:
    """0o755 of "-rwxr-xr-x"."""
    bits = "".join("0" if letter in "-ST" else "1" for letter in permissions[1:10])
    return int(bits, 2)


async def _read_by_command(client: AsyncSandboxClient, path: str, most_bytes: int | None) -> bytes:
    file = shlex.quote(_told_apart(path))
    limit = "" if most_bytes is None else f"[ $(stat -Lc %s -- {file}) -le {most_bytes} ] || exit {_TOO_LARGE}; "
    command = (
        f"export LC_ALL=C; if [ -d {file} ]; then exit {_FOLDER}; fi; "
        f"if [ -e {file} ] && [ ! -f {file} ]; then exit {_NO_FILE}; fi; {limit}exec cat -- {file}"
    )
    pieces: list[bytes] = []
    result: ExecResult | None = None
    async for event in client.stream(command, await _patience(client)):
        if event["type"] == "stdout":
            pieces.append(event["data"])
        result = event["result"] or result
    data = b"".join(pieces)
    if result is None or (result["exit_code"] == 0 and len(data) != result["stdout_bytes"]):
        raise SandboxUnavailable(f"{path!r} did not arrive whole; copy it below {WORKSPACE_DIR} and read it there.")
    _check(path, result, most_bytes)
    return data


async def _write_by_command(client: AsyncSandboxClient, path: str, data: bytes) -> None:
    file = shlex.quote(_told_apart(path))
    command = (
        f"export LC_ALL=C; if [ -d {file} ]; then exit {_FOLDER}; fi; "
        f"if [ -e {file} ] && [ ! -f {file} ]; then exit {_NO_FILE}; fi; "
        f'mkdir -p -- "$(dirname -- {file})" && cat > {file}'
    )
    _check(path, await client.execute(command, await _patience(client), False, stdin=data), None)


async def _patience(client: AsyncSandboxClient) -> float:
    return min(TRANSFER_SECONDS, await longest_timeout(client))


def _told_apart(path: str) -> str:
    """Raises: PathRejected."""
    if "\0" in path:
        raise PathRejected("A path cannot hold a NUL character.", path=path)
    return path


def _check_size(path: str, size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise LimitExceeded(
            f"{path!r} has {size} bytes, more than the {most_bytes} that may be read.",
            limit="read",
            maximum=most_bytes,
            actual=size,
        )


def _check(path: str, result: ExecResult, most_bytes: int | None) -> None:
    code = result["exit_code"]
    if code == 0:
        return
    if code == _FOLDER:
        raise IsADirectoryError(f"{path!r} is a directory.")
    if code == _NO_FILE:
        raise PathRejected(f"{path!r} is not a regular file.", path=path)
    if code == _TOO_LARGE and most_bytes is not None:
        raise LimitExceeded(
            f"{path!r} has more than the {most_bytes} bytes that may be read.", limit="read", maximum=most_bytes
        )
    said = result["stderr"].strip()
    for words, kind in _REASONS:
        if words in said:
            raise kind(f"{words}: {path!r}")
    raise PathRejected(f"{path!r}: {said or f'exit code {code}'}"[:1000], path=path)
