"""A workspace as a tar archive, written and read *inside* the sandbox: the host never unpacks what a sandbox made."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shlex
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import IO, cast

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.async_shell import AsyncConnection
from hutch.model.errors import HutchError, LimitExceeded, ProcessEnded, SandboxUnavailable
from hutch.model.limits import MIB
from hutch.model.process import ExecResult

CHANGED = 1  # tar's exit code when a file grew while it was read
PIECE = 256 * 1024
MEMORY_BYTES = 8 * MIB
SECONDS = 3600.0

# Output of a command is kept up to 64 MiB; a connection carries any amount, at the pace of its reader.
_SERVE = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
server.settimeout(60)
stream = server.accept()[0]
stream.setblocking(True)
server.close()
os.dup2(stream.fileno(), 1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


async def pack(box: AsyncSandboxClient, root: str, skipped: Sequence[str], most_bytes: int) -> io.IOBase:
    """The files below `root`, in a temporary file that the caller closes.

    Raises: LimitExceeded, SandboxUnavailable, HutchError.
    """
    tar = ["tar", "--create", "--sparse", "--numeric-owner", "--file=-", f"--directory={root}", "--anchored"]
    tar += ["--no-wildcards", *(f"--exclude=./{path}" for path in sorted(skipped)), "."]
    async with _process(box, ["python3", "-c", _SERVE, *tar], stdin=False) as process_id:
        async with await box.connect(await _port(box, process_id)) as connection:
            archive = await spooled(_received(connection, most_bytes))
        try:
            _check_end(await box.wait(process_id, SECONDS), "packed", (0, CHANGED))
        except BaseException:
            archive.close()
            raise
    return archive


async def unpack(box: AsyncSandboxClient, root: str, archive: io.IOBase) -> None:
    """Raises: SandboxUnavailable when tar cannot read it, HutchError."""
    tar = ["tar", "--extract", "--preserve-permissions", "--no-same-owner", "--file=-", f"--directory={root}"]
    async with _process(box, tar, stdin=True) as process_id:
        with contextlib.suppress(ProcessEnded):  # its end tells why
            while piece := await asyncio.to_thread(archive.read, PIECE):
                await box.send_input(process_id, piece)
            await box.close_input(process_id)
        _check_end(await box.wait(process_id, SECONDS), "unpacked", (0,))


@contextlib.asynccontextmanager
async def _process(box: AsyncSandboxClient, argv: Sequence[str], *, stdin: bool) -> AsyncIterator[str]:
    started = await box.start(f"exec {shlex.join(argv)}", cwd="/", stdin=stdin, timeout=SECONDS, tag="archive")
    try:
        yield started["process_id"]
    except BaseException:
        with contextlib.suppress(HutchError):
            await box.kill(started["process_id"])
        raise


async def _port(box: AsyncSandboxClient, process_id: str) -> int:
    said = ""
    async for event in box.attach(process_id):
        said = (said + event["text"])[:2000]
        if event["type"] == "stdout" and said.endswith("\n") and said.strip().isdigit():
            return int(said)
    raise SandboxUnavailable(f"The files cannot be packed, the sandbox needs python3 and tar for it: {said!r:.500}")


async def _received(connection: AsyncConnection, most: int) -> AsyncIterator[bytes]:
    """Raises: LimitExceeded."""
    size = 0
    while piece := await connection.receive(PIECE):
        size += len(piece)
        if size > most:
            raise LimitExceeded(
                f"The archive of the workspace is larger than {most} bytes (most_archive_bytes).",
                limit="archive",
                maximum=most,
                actual=size,
            )
        yield piece


async def spooled(pieces: AsyncIterator[bytes]) -> io.IOBase:
    """All of it, to be read: in memory while it is small, else in a file without a name."""
    stream: IO[bytes] = io.BytesIO()
    try:
        async for piece in pieces:
            if isinstance(stream, io.BytesIO) and stream.tell() + len(piece) > MEMORY_BYTES:
                small, stream = stream, tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
                stream.write(small.getbuffer())
            stream.write(piece)
    except BaseException:
        stream.close()
        raise
    stream.seek(0)
    return cast(io.IOBase, stream)


def _check_end(result: ExecResult | None, done: str, good: Sequence[int]) -> None:
    """Raises: SandboxUnavailable."""
    if result is None or result["exit_code"] not in good:
        why = "it took too long" if result is None else result["stderr"].strip() or f"tar: {result['exit_code']}"
        raise SandboxUnavailable(f"The files of the sandbox cannot be {done}: {why:.2000}")
