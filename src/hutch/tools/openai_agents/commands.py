"""A command in the words of the Agents SDK: exact bytes, its time-out, its failures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from agents.sandbox.errors import ExecTimeoutError, ExecTransportError
from agents.sandbox.types import ExecResult

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import CommandRejected, HutchError, InvalidRequest
from hutch.model.limits import MIB
from hutch.model.process import ExecResult as Executed
from hutch.model.process import StreamName

CANNOT_RUN = 126  # a shell's exit code for a command that it may not run
OUTPUT_BYTES = 10 * MIB  # of one stream in a result
SHOWN = 2000  # characters of a stream, when the time is up


async def run(
    box: AsyncSandboxClient, argv: Sequence[str], cwd: str | None, env: Mapping[str, str], seconds: float
) -> ExecResult:
    """Raises: ExecTimeoutError, ExecTransportError (the sandbox is gone or cannot be reached)."""
    try:
        result = await box.execute(
            f"exec {shlex.join(argv)}",
            timeout=seconds,
            auto_retry=False,  # a new, empty sandbox in mid-run would look like lost work
            cwd=cwd,
            env=env,
            leftovers="keep",
        )
        if not result["timed_out"]:
            return ExecResult(
                stdout=await _bytes(box, result, "stdout"),
                stderr=await _bytes(box, result, "stderr") + _remarks(result),
                exit_code=result["exit_code"],
            )
    except (CommandRejected, InvalidRequest) as error:
        return ExecResult(stdout=b"", stderr=refusal(error), exit_code=CANNOT_RUN)
    except HutchError as error:
        raise unreachable(argv, error) from error
    said = {"stdout": result["stdout"][-SHOWN:], "stderr": result["stderr"][-SHOWN:]}
    raise ExecTimeoutError(command=argv, timeout_s=seconds, context=said)


def context_of(error: HutchError) -> dict[str, object]:
    return {"backend": "hutch", "code": error.code, **error.details}


def refusal(error: HutchError) -> bytes:
    """What a model reads that asked for what cannot be run."""
    return f"{error.code}: {error}\n".encode()


def unreachable(argv: Sequence[str], error: HutchError) -> ExecTransportError:
    return ExecTransportError(
        command=argv, message=str(error), context=context_of(error), cause=error, retryable=error.retryable
    )


async def _bytes(box: AsyncSandboxClient, result: Executed, stream: StreamName) -> bytes:
    """What was printed, exactly: as text only what is UTF-8 comes unchanged."""
    text = result[stream]
    if "\ufffd" not in text:
        return text.encode()
    pieces, offset = [], 0
    while offset < OUTPUT_BYTES:
        chunk = await box.logs(result["process_id"], stream=stream, offset=offset, max_bytes=MIB)
        pieces.append(chunk["data"])
        offset = chunk["next_offset"]
        if chunk["complete"] or not chunk["data"]:
            break
    return b"".join(pieces)


def _remarks(result: Executed) -> bytes:
    """What the exit code alone does not tell."""
    said = []
    if result["limit"] is not None:
        said.append(f"hutch: the command hit the limit '{result['limit']}' of its sandbox\n")
    if result["truncated"]:
        said.append(f"hutch: {result['stdout_bytes'] + result['stderr_bytes']} bytes were printed; this is the start\n")
    return "".join(said).encode()
