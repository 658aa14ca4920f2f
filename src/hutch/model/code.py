"""Code that runs in an interpreter of the sandbox: what it prints, shows and leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from hutch.model.limits import LimitName

DEFAULT_CONTEXT = "default"
MOST_CONTEXTS = 8  # of one sandbox: each is a Python process with what it loaded
CODE_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class CodeOrder:
    code: str
    context: str | None = None  # None: the sandbox's default one
    timeout: float = CODE_TIMEOUT


class CodeOutput(TypedDict):
    """Something shown, in each form it has: text, and `image/png` in base64, or JSON."""

    type: Literal["display", "result"]  # `result` is the value of the last line
    data: dict[str, Any]  # by MIME type


class CodeError(TypedDict):
    name: str
    value: str
    traceback: str


class CodeResult(TypedDict):
    stdout: str
    stderr: str
    outputs: list[CodeOutput]
    error: CodeError | None
    execution_count: int | None
    execution_time_ms: int
    timed_out: bool
    truncated: bool  # there was more output than is kept
    limit: LimitName | None  # the limit that ended it
    context_id: str
    context_restarted: bool  # it began in a new interpreter: what earlier code left behind was gone
    state_lost: bool  # the interpreter ended under it: what it left behind is gone


class CodeEvent(TypedDict):
    """One piece of what code prints or shows, or its end."""

    type: Literal["stdout", "stderr", "display", "result", "error", "end"]
    text: str  # of stdout and stderr
    data: dict[str, Any] | None  # of display and result
    error: CodeError | None
    result: CodeResult | None  # of the end


class CodeContext(TypedDict):
    context_id: str
    language: Literal["python"]
    cwd: str
    status: Literal["idle", "busy", "stopped"]  # a stopped one starts again, empty, with its next code
    created_at: str
