"""The log: one line for each thing worth one, as JSON or as text.

What a caller or a sandbox chose can neither begin a line of its own nor drive a terminal: values are written in ASCII
with everything else escaped. What looks like a secret is hidden, ids are cut short.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, Literal, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter

from hutch.engine.observe import Observation
from hutch.model.audit import redacted
from hutch.model.clock import iso

EVENTS = "hutch.events"  # the logger of what happened to sessions, commands and files
LONGEST_TRACE = 20_000
LINES_WAITING = 10_000  # for whoever reads the log; then lines are dropped, and counted
GATHERING_SECONDS = 0.05
CLOSING_SECONDS = 2.0
# What these say in between holds whole addresses and headers, and with them keys.
TOO_FRANK = ("httpcore", "httpx", "mcp", "sse_starlette", "uvicorn.error", "websockets")
USER, ID, COMMAND = 8, 12, 50  # how much is shown

# Of the request that is being answered: set for each, inherited by what it starts.
REQUEST_ID: ContextVar[str | None] = ContextVar("hutch_request_id", default=None)

_BARE = re.compile(r"[\w.:/@%+-]+\Z", re.ASCII)
_FIELD = re.compile(r" (\w+)=")
Fields = MutableMapping[str, Any]


def event_log() -> Any:
    """The logger that events are told to. Nothing is made of them where nobody wants them."""
    return structlog.wrap_logger(
        logging.getLogger(EVENTS),
        processors=[structlog.stdlib.filter_by_level, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class Chronicle:
    """A watcher of the engine that writes events down."""

    def __init__(self) -> None:
        self._log = event_log()

    def watch(self, seen: Observation) -> None:
        bad = seen.event.endswith("_failed") or seen.event == "resource_limit_exceeded"
        (self._log.warning if bad else self._log.info)(seen.event, **_fields(seen))


def _fields(seen: Observation) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "user": seen.user_id[:USER],
        "thread": seen.thread_id[:ID],
        "session": seen.session_id[:ID],
        "sandbox": seen.sandbox_id,
        "tenant": seen.tenant,
        "command": redacted(seen.command)[:COMMAND],
        "limit": seen.limit,
        "code": seen.code,
        "size_bytes": seen.size_bytes,
    }
    shown = {name: value for name, value in fields.items() if value}
    if seen.exit_code is not None:
        shown["exit_code"] = seen.exit_code
    if seen.timed_out:
        shown["timed_out"] = True
    if seen.duration_ms:
        shown["duration_ms"] = round(seen.duration_ms, 1)
    return shown


def make_formatter(form: Literal["json", "text"]) -> logging.Formatter:
    """For events, and for what other parts log as `name key=%s key=%s`."""
    return ProcessorFormatter(
        foreign_pre_chain=[_named, structlog.processors.format_exc_info, _hidden],
        pass_foreign_args=True,
        processors=[
            _about_the_record,
            ProcessorFormatter.remove_processors_meta,
            _as_json if form == "json" else _as_text,
        ],
    )


def _named(_: Any, __: str, fields: Fields) -> Fields:
    """The parts of a message `name key=%s`, each by its name: no value can pass for another."""
    waiting = fields.pop("positional_args")
    name, *pairs = _FIELD.split(str(fields["_record"].msg))
    if not pairs or " " in name or "%" in name or not isinstance(waiting, tuple):
        return fields
    fields["event"] = name
    for key, form in zip(pairs[::2], pairs[1::2], strict=True):
        wanted = form.count("%")
        values, waiting = waiting[:wanted], waiting[wanted:]
        fields[key] = values[0] if form == "%s" else form % values
    return fields


def _hidden(_: Any, __: str, fields: Fields) -> Fields:
    """What others log, as text that holds no secret and has an end."""
    for name, value in fields.items():
        if name == "exception":
            fields[name] = "\n".join(map(redacted, value[-LONGEST_TRACE:].split("\n")))
        elif not name.startswith("_") and not (value is None or isinstance(value, bool | int | float)):
            fields[name] = redacted(str(value))
    return fields


def _about_the_record(_: Any, __: str, fields: Fields) -> Fields:
    record: logging.LogRecord = fields["_record"]
    request_id = REQUEST_ID.get()
    about = {"at": iso(record.created), "level": record.levelname.lower(), "event": fields.pop("event")}
    if record.name != EVENTS:
        about["logger"] = record.name
    if request_id is not None:
        about["request_id"] = request_id
    return {**about, **fields}


def _as_json(_: Any, __: str, fields: Fields) -> str:
    return json.dumps(dict(fields), separators=(",", ":"))


def _as_text(_: Any, __: str, fields: Fields) -> str:
    at, level = fields.pop("at"), fields.pop("level")
    said = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
    return f"{at} {level.upper()} [SANDBOX] {said}"


def _shown(value: Any) -> str:
    text = str(value)
    return text if _BARE.match(text) else json.dumps(text)


class LogWriter(logging.Handler):
    """Writes lines on a thread of its own: a log that nobody reads does not stop the server."""

    def __init__(self, form: Literal["json", "text"], stream: TextIO | None = None) -> None:
        super().__init__()
        self.setFormatter(make_formatter(form))
        self._stream = stream or sys.stderr
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_WAITING)
        self.dropped = 0
        self._writer = threading.Thread(target=self._write, name="hutch-log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self.dropped += 1
        except Exception:  # noqa: BLE001 - as every handler does: what cannot be logged must not end a call
            self.handleError(record)

    def _write(self) -> None:
        told = 0
        while (lines := self._waiting())[-1] is not None:
            told = self._put(lines, told)
        self._put(lines[:-1], told)

    def _waiting(self) -> list[str | None]:
        """What came within a moment of a first line: a thread that is woken for each would cost each call dear."""
        lines = [self._lines.get()]
        if lines[0] is not None:
            time.sleep(GATHERING_SECONDS)
        with contextlib.suppress(queue.Empty):
            while lines[-1] is not None:
                lines.append(self._lines.get_nowait())
        return lines

    def _put(self, lines: list[str | None], told: int) -> int:
        lost = self.dropped - told
        if lost:
            lines = [*lines, self.format(_lost(lost))]
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):  # whoever read it is gone; the server goes on
            pass
        return told + lost

    def close(self) -> None:
        """What waits is written, unless nobody reads it."""
        try:
            self._lines.put(None, timeout=CLOSING_SECONDS)
        except queue.Full:
            pass
        self._writer.join(CLOSING_SECONDS)
        super().close()


@contextlib.contextmanager
def logging_to(form: Literal["json", "text"], *, debug: bool, stream: TextIO | None = None) -> Iterator[LogWriter]:
    """Whatever this process logs is written so meanwhile."""
    root, writer = logging.getLogger(), LogWriter(form, stream)
    levels = {"": logging.DEBUG if debug else logging.INFO, **dict.fromkeys(TOO_FRANK, logging.WARNING)}
    before = {name: logging.getLogger(name).level for name in levels}
    root.addHandler(writer)
    _set_levels(levels)
    try:
        yield writer
    finally:
        root.removeHandler(writer)
        _set_levels(before)
        writer.close()


def _set_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _lost(lines: int) -> logging.LogRecord:
    return logging.LogRecord("hutch.log", logging.WARNING, "", 0, "log_lines_dropped lines=%s", (lines,), None)
