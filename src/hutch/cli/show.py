"""What the verbs print: raw bytes, text that cannot drive a terminal, tables, JSON, one-line messages."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hutch.cli.endings import OutputClosed
from hutch.model.errors import HutchError

STDOUT = 1
STDERR = 2
_TIME_UNITS = ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"), (None, 86_400, "days"))


def write(descriptor: int, data: bytes) -> None:
    """All of `data`, unbuffered.

    Raises: OutputClosed (of standard output), HutchError when it cannot be written.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # somebody we share the terminal with made it non-blocking
            select.select([], [descriptor], [])
        except BrokenPipeError:
            if descriptor == STDOUT:
                raise OutputClosed from None
            return
        except OSError as error:
            if descriptor == STDOUT:
                raise HutchError(f"Standard output cannot be written: {error.strerror}.") from error
            return


def line(text: str = "") -> None:
    write(STDOUT, (text + "\n").encode("utf-8", "backslashreplace"))


def note(text: str) -> None:
    """A message beside the output."""
    write(STDERR, (f"hutch: {text}\n").encode("utf-8", "backslashreplace"))


def failure(error: HutchError) -> None:
    """One line with code and message, then the hint where there is one."""
    note(f"{error.code}: {visible(error.message)}")
    for name in ("hint", "remedy"):
        hint = error.details.get(name)
        if isinstance(hint, str) and hint and hint not in error.message:
            note(f"hint: {visible(hint)}")


def document(value: Any) -> None:
    """JSON. ASCII only: what a sandbox named its files must neither drive a terminal nor fail to encode."""
    line(json.dumps(value, indent=2))


def record(value: Any) -> None:
    """JSON on one line, for output that goes on."""
    line(json.dumps(value))


def visible(text: str) -> str:
    """`text` with control, direction and undecodable characters spelled out; it comes out of a sandbox."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str] | None = None) -> None:
    """Aligned columns; on a terminal fitted to its width, and cells that `styles` names in colour."""
    cells = [[visible(cell) for cell in row] for row in rows]
    if os.isatty(STDOUT):
        _terminal_table(columns, cells, styles or {})
        return
    widths = [max(len(row[at]) for row in [columns, *cells]) for at in range(len(columns))]
    for row in [columns, *cells]:
        line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _terminal_table(columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for at, column in enumerate(columns):
        shown.add_column(column, overflow="fold", no_wrap=at == 0 and len(columns) > 2)
    for row in rows:
        shown.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    Console(highlight=False).print(shown)


def heading(text: str) -> None:
    if os.isatty(STDOUT):
        from rich.console import Console
        from rich.text import Text

        Console(highlight=False).print(Text(text, style="bold"))
    else:
        line(text)


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def when(iso: str, now: datetime | None = None) -> str:
    """A time as its distance from now: "12 s ago", "in 29 min"."""
    seconds = (datetime.fromisoformat(iso) - (now or datetime.now(UTC))).total_seconds()
    distance = round(abs(seconds))
    seconds_each, unit = next((each, name) for limit, each, name in _TIME_UNITS if limit is None or distance < limit)
    amount = f"{distance // seconds_each} {unit}"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"
