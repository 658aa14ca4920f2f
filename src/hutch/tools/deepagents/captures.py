"""Output that is too much for a model: it stays in the sandbox as a file, and the model sees where it begins and ends.

Pure. deepagents would wrap the command into a pipeline; then a program left in the background would hold the call up,
and what was printed before a time-out would be lost. Here the command runs as it is.
"""

from __future__ import annotations

from dataclasses import fields

from deepagents.backends.protocol import ExecuteOffloadResult, ExecuteResponse

CAPTURED_BYTES = 10 * 1024 * 1024
SHOWN_LINES = 5  # of the beginning, and of the end
SHOWN_BYTES = 2000
MARKER = "... [{omitted} lines truncated] ..."  # the words deepagents explains to the model
CLIPPED = "... [output clipped here; {size} bytes are at the path above] ..."
CLIPPED_LINES = "... [lines above and below are cut to {size} bytes in all] ..."
_FIELDS = {field.name for field in fields(ExecuteOffloadResult)}


def inline(response: ExecuteResponse) -> ExecuteOffloadResult:
    return ExecuteOffloadResult(offloaded=False, response=response)


def offloaded(kept: bytes, note: str, exit_code: int | None, *, truncated: bool) -> ExecuteOffloadResult:
    """The answer for an output of which `kept` is in a file now."""
    shown, marked = preview(kept)
    response = ExecuteResponse(output=shown + note, exit_code=exit_code, truncated=truncated)
    more = {"preview_has_truncation_marker": marked} if "preview_has_truncation_marker" in _FIELDS else {}
    return ExecuteOffloadResult(offloaded=True, response=response, **more)


def preview(kept: bytes) -> tuple[str, bool]:
    """The first and last lines, and whether a marker stands between them."""
    lines = kept.splitlines(keepends=True)
    omitted = len(lines) - 2 * SHOWN_LINES
    if omitted <= 0:
        start = kept[: 2 * SHOWN_BYTES].decode(errors="replace")
        return (start + "\n" + CLIPPED.format(size=len(kept)) if len(kept) > 2 * SHOWN_BYTES else start), False
    head, tail = b"".join(lines[:SHOWN_LINES]), b"".join(lines[-SHOWN_LINES:])
    cut = max(len(head), len(tail)) > SHOWN_BYTES
    parts = [
        head[:SHOWN_BYTES].decode(errors="replace").removesuffix("\n"),
        *([CLIPPED_LINES.format(size=SHOWN_BYTES)] if cut else []),
        MARKER.format(omitted=omitted),
        tail[-SHOWN_BYTES:].decode(errors="replace"),
    ]
    return "\n".join(parts), True
