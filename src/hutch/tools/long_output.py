"""Output that is too long for a model: a part is shown, all of it is kept in the sandbox as a file to page through.

The note names nothing but commands of the tool itself, as that may be the only tool the model has.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import HutchError
from hutch.model.process import ExecResult
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.answers import MODEL_BYTES, cut

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


async def _part(client: AsyncSandboxClient, result: ExecResult, stream: Literal["stdout", "stderr"], most: int) -> str:
    text = result[stream]
    printed = result["stdout_bytes"] if stream == "stdout" else result["stderr_bytes"]
    if len(text.encode()) <= most:
        return text
    name = f"{FOLDER}/{result['process_id']}.{stream}"
    try:
        await client.files.write(name, text)
        await _forget_older(client)
    except HutchError as error:
        return cut(text, f"They could not be kept ({error}): run the command again with its output in a file.", most)
    path = f"{WORKSPACE_DIR}/{name}"
    more = "" if printed <= len(text.encode()) else f" (its first {len(text.encode()):,} of {printed:,} bytes)"
    return cut(text, f"All is in {path}{more}: read on with sed -n '1000,1200p' {path}, or grep it", most)


async def _forget_older(client: AsyncSandboxClient) -> None:
    files = sorted(await client.files.list(FOLDER), key=lambda file: file["modified"], reverse=True)
    await asyncio.gather(*(client.files.remove(file["path"]) for file in files[2 * KEPT_FILES :]))
