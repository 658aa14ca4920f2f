"""Output that is too long for a model: a part is shown, all of it is kept in the sandbox as a file to page through.

The note names nothing but commands of the tool itself, as that may be the only tool the model has.
"""

from __future__ import annotations

import asyncio

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import HutchError
from hutch.model.process import ExecResult, StreamName
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.answers import MODEL_BYTES, Shown, head_bytes, noted, shown

FOLDER = ".output"
KEPT_FILES = 8  # older ones go
_ERRORS_BYTES = 20_000  # of stderr, when both are long


async def shortened(client: AsyncSandboxClient, result: ExecResult) -> dict[str, str]:
    """stdout and stderr, together no longer than a model should read."""
    errors = min(len(result["stderr"].encode()), max(_ERRORS_BYTES, MODEL_BYTES - len(result["stdout"].encode())))
    return {
        "stdout": await _part(client, result, "stdout", MODEL_BYTES - errors),
        "stderr": await _part(client, result, "stderr", errors),
    }


async def _part(client: AsyncSandboxClient, result: ExecResult, stream: StreamName, most: int) -> str:
    part = await ends(client, result, stream, most)
    if not part.left_out:
        return part.head
    text, printed = result[stream].encode(), printed_bytes(result, stream)
    name = f"{FOLDER}/{result['process_id']}.{stream}"
    try:
        await client.files.write(name, text)
        await _forget_older(client)
    except HutchError as error:
        return noted(part, f"They could not be kept ({error}): run the command again with its output in a file.")
    path = f"{WORKSPACE_DIR}/{name}"
    kept = "All" if printed <= len(text) else f"The first {len(text):,} bytes of {printed:,}"
    verb = "is" if kept == "All" else "are"
    return noted(part, f"{kept} {verb} in {path}: read on with sed -n '1000,1200p' {path}, or grep it")


async def ends(client: AsyncSandboxClient, result: ExecResult, stream: StreamName, most: int) -> Shown:
    """The start and the end of what was printed, which may be more than the result holds."""
    text, printed = result[stream], printed_bytes(result, stream)
    if not result["truncated"] or printed <= len(text.encode()):
        return shown(text, most)
    head = shown(text, most).head.encode()[: head_bytes(most)]
    try:
        end = await client.logs(
            result["process_id"], stream=stream, offset=printed - (most - len(head)), max_bytes=most - len(head)
        )
    except HutchError:
        return Shown(head.decode("utf-8", "ignore"), "", printed - len(head))
    return Shown(head.decode("utf-8", "ignore"), end["text"], printed - len(head) - len(end["data"]))


def printed_bytes(result: ExecResult, stream: StreamName) -> int:
    return result["stdout_bytes"] if stream == "stdout" else result["stderr_bytes"]


async def _forget_older(client: AsyncSandboxClient) -> None:
    files = sorted(await client.files.list(FOLDER), key=lambda file: file["modified"], reverse=True)
    await asyncio.gather(*(client.files.remove(file["path"]) for file in files[2 * KEPT_FILES :]))
