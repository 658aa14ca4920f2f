"""A shell without a terminal: each line is a command of its own."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from hutch.cli import show
from hutch.cli.endings import CALLER_ERROR, exit_code
from hutch.cli.running import Job, pass_through, remarks, run
from hutch.model.errors import HutchError
from hutch.model.session import WORKSPACE_DIR

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

# Only a line that does nothing else: of a longer one nobody could say which folder it ends in.
CHANGES_FOLDER = re.compile(r"cd(\s[^;&|<>()`#]*)?\Z")
ENDS = re.compile(r"(?:exit|quit)(?:\s+(\d{1,3}))?\Z")


def run_lines(client: SandboxClient, timeout: float) -> int:
    """Returns the exit code of the last command. Raises: HutchError when no further command could run."""
    cwd = client.info()["cwd"] or WORKSPACE_DIR
    code = 0
    while line := _next_line(cwd):
        text = line.decode("utf-8", "surrogateescape").strip()
        if end := ENDS.match(text):
            return int(end[1]) & 0xFF if end[1] else code
        if not text:
            continue
        try:
            if CHANGES_FOLDER.match(text):
                cwd, code = _change_folder(client, text, cwd, timeout)
            else:
                code = _run(client, Job(text, timeout, cwd))
        except HutchError as error:
            code = exit_code(error)
            if code != CALLER_ERROR:
                raise
            show.failure(error)
    return code


def _next_line(cwd: str) -> bytes:
    if os.isatty(0):
        show.write(show.STDERR, f"hutch:{show.visible(cwd)}$ ".encode())
    return sys.stdin.buffer.readline()


def _run(client: SandboxClient, job: Job) -> int:
    result = run(client, job, pass_through)
    for remark in remarks(result, job.timeout):
        show.note(remark)
    return result["exit_code"]


def _change_folder(client: SandboxClient, text: str, cwd: str, timeout: float) -> tuple[str, int]:
    """Bash itself says where the line leads."""
    result = client.execute(f"{text} && pwd", timeout, cwd=cwd)
    show.write(show.STDERR, result["stderr"].encode())
    if result["exit_code"] != 0:
        return cwd, result["exit_code"]
    return result["stdout"].splitlines()[-1], 0
