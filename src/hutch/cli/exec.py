"""`hutch exec`: one command in a sandbox."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from hutch.cli import show
from hutch.cli.lease import Wanted, session
from hutch.cli.place import Place
from hutch.cli.running import Job, discard, pass_through, remarks, run

FORGOTTEN_MINUTES = 1.0  # of a session of our own, should we be killed before we close it


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What the line said; the options are declared in `verbs.py`."""

    command: tuple[str, ...]
    thread: str | None = None
    user: str | None = None
    template: str | None = None
    policy: str | None = None
    timeout: float | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bool | None = None  # None: when it is not a terminal
    as_json: bool = False
    url: str | None = None
    api_key: str | None = None


def execute(request: ExecRequest) -> int:
    """Returns the command's exit code. Raises: HutchError when it did not run."""
    from hutch.settings import read_settings

    words = request.command
    job = Job(
        command=words[0] if len(words) == 1 else shlex.join(words),
        timeout=read_settings().default_command_timeout if request.timeout is None else request.timeout,
        cwd=request.cwd,
        env=request.env,
        stdin=not os.isatty(0) if request.stdin is None else request.stdin,
    )
    wanted = Wanted(request.thread, request.user, request.template, request.policy, Place(request.url, request.api_key))
    with session(wanted, "single", FORGOTTEN_MINUTES) as client:
        result = run(client, job, discard if request.as_json else pass_through)
        for remark in remarks(result, job.timeout):
            show.note(remark)
        if request.as_json:
            show.document(result)
    return result["exit_code"]
