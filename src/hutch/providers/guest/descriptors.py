"""The pipes between a command and this process."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from hutch.model.errors import SandboxUnavailable
from hutch.providers.guest.connection import close_all

_PTY_MASTER_DEVICE = os.makedev(5, 2)


@dataclass(slots=True)
class CommandPipes:
    """`ours` stay here, `theirs` (stdin, stdout, stderr) go to the command. -1: not open, or given to somebody."""

    stdin: int = -1
    stdout: int = -1
    stderr: int = -1
    theirs: list[int] = field(default_factory=list[int])

    def close_theirs(self) -> None:
        close_all(self.theirs)
        self.theirs.clear()

    def close(self) -> None:
        self.close_theirs()
        close_all([end for end in (self.stdin, self.stdout, self.stderr) if end >= 0])
        self.stdin = self.stdout = self.stderr = -1


def make_pipes(*, stdin: bool) -> CommandPipes:
    """Pipes for a command without a terminal; without `stdin` it reads from /dev/null.

    Raises: SandboxUnavailable.
    """
    pipes = CommandPipes()
    try:
        if stdin:
            theirs, pipes.stdin = os.pipe2(os.O_CLOEXEC)
            pipes.theirs.append(theirs)
            os.set_blocking(pipes.stdin, False)
            os.fchmod(theirs, 0o666)
        else:
            pipes.theirs.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        pipes.stdout = _output_pipe(pipes.theirs)
        pipes.stderr = _output_pipe(pipes.theirs)
    except OSError as failure:
        pipes.close()
        raise SandboxUnavailable(
            f"No pipes for a command: {failure.strerror}. Raise the limit of open files (ulimit -n) of this program."
        ) from failure
    return pipes


def _output_pipe(theirs: list[int]) -> int:
    ours, end = os.pipe2(os.O_CLOEXEC)
    theirs.append(end)
    os.set_blocking(ours, False)
    # The pipe belongs to this process's user. Where the sandbox has another one, /dev/stdout and /dev/stderr could not
    # be opened again by name (`tee /dev/stderr`) without this.
    os.fchmod(end, 0o666)
    return ours


def check_terminal(descriptor: int) -> None:
    """Raises: SandboxUnavailable when it is not the master of a terminal: anything else could block our reads."""
    found = os.fstat(descriptor)
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != _PTY_MASTER_DEVICE:
        raise SandboxUnavailable("The sandbox's init handed out something that is no terminal.")
    os.set_blocking(descriptor, False)
