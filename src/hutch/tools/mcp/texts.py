"""What of a result, a file or a failure reaches a model: at most 100 KB, and how to have the rest. Pure."""

from __future__ import annotations

from hutch.model.errors import HutchError
from hutch.model.process import ExecResult, LogChunk, StreamName

SHOWN_BYTES = 100_000
ERRORS_BYTES = 20_000  # of stderr, where there is too much of both
HINTS = ("hint", "remedy")


def failure(error: HutchError) -> str:
    """An error as a text that a model can act on."""
    hints = [hint for name in HINTS if isinstance(hint := error.details.get(name), str) and hint not in error.message]
    again = " It may work when tried again." if error.retryable else ""
    return " ".join([f"ERROR: {error.code}: {error.message}", *hints]) + again


def outcome(result: ExecResult) -> str:
    """Of a command that ended."""
    process_id = result["process_id"]
    errors = result["stderr"].encode("utf-8", "replace")
    room_for_errors = min(len(errors), max(ERRORS_BYTES, SHOWN_BYTES - len(result["stdout"])))
    parts = [
        _part(result["stdout"], result["stdout_bytes"], SHOWN_BYTES - room_for_errors, "stdout", process_id),
        _part(result["stderr"], result["stderr_bytes"], room_for_errors, "stderr", process_id),
        f"[exit code {result['exit_code']}, {result['execution_time_ms']} ms{_why(result)}]",
    ]
    return "\n".join(part for part in parts if part)


def _why(result: ExecResult) -> str:
    said = []
    if result["timed_out"]:
        said.append("timed out: it was ended with all it started; give more timeout, or use process_start")
    elif result["limit"]:
        said.append(f"limit hit: {result['limit']}")
    if result["killed_processes"]:
        names = ", ".join(sorted({one["name"] for one in result["killed_processes"]}))
        said.append(f"still running at its end, and ended: {names}; process_start keeps a program running")
    if result["session_recreated"]:
        said.append("the session had expired: this is a new sandbox, without the old files")
    return "".join(f"; {one}" for one in said)


def _part(text: str, printed: int, room: int, stream: StreamName, process_id: str) -> str:
    """Beginning and end of what was printed, and where to read on."""
    if not printed:
        return ""
    head = "" if stream == "stdout" else "[stderr]\n"
    data = text.encode("utf-8", "replace")
    if len(data) <= room and printed <= len(data):
        return head + text.rstrip("\n")
    whole = printed <= len(data)  # else the end was not kept, so that only a beginning can be shown
    first = whole_text(data[: room // 2 if whole else room])
    last = data[-(room // 2) :].decode("utf-8", "ignore") if whole else ""
    offset = len(first.encode())
    return (
        f"{head}{first}\n[{stream}: {printed} bytes in all, {printed - offset - len(last.encode())} left out here; "
        f'process_output(process_id="{process_id}", stream="{stream}", offset={offset}) reads on]\n{last}'
    ).rstrip("\n")


def chunk(found: LogChunk) -> str:
    """Of a process's output."""
    if found["offset"] < found["first_offset"]:
        lost = f"[bytes before {found['first_offset']} are no longer kept]\n"
    else:
        lost = ""
    if found["complete"]:
        end = "[the end; the process has ended]"
    elif found["next_offset"] < found["total_bytes"]:
        end = f"[{found['total_bytes'] - found['next_offset']} more bytes: offset={found['next_offset']} reads on]"
    else:
        end = f"[all there is now; offset={found['next_offset']} reads what comes]"
    return f"{lost}{found['text']}\n{end}"


def whole_text(data: bytes) -> str:
    """`data`, which was cut somewhere, without the part of a character at its end."""
    for short in range(4):
        try:
            return data[: len(data) - short].decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start < len(data) - 4:
                break
    return data.decode("utf-8", "replace")


def cut_lines(lines: list[str], what: str, how: str) -> str:
    """A list for a model: as much as fits, then how to narrow it."""
    kept: list[str] = []
    size = 0
    for line in lines:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > SHOWN_BYTES:
            return "\n".join([*kept, f"[{len(lines) - len(kept)} more {what}: {how}]"])
        kept.append(line)
    return "\n".join(kept)


def cut_middle(text: str, how: str) -> str:
    """Beginning and end of what cannot be read on."""
    data = text.encode("utf-8", "replace")
    if len(data) <= SHOWN_BYTES:
        return text
    half = SHOWN_BYTES // 2
    left_out = len(data) - 2 * half
    return (
        f"{whole_text(data[:half])}\n[{left_out} bytes left out here: {how}]\n{data[-half:].decode('utf-8', 'ignore')}"
    )
