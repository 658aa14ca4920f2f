"""The references that need nothing but this machine: a bare subprocess, and bubblewrap for each command."""

from __future__ import annotations

import shutil
import subprocess

from bench.table import Absent

ECHO = "echo hi"
_BUBBLEWRAP_ARGUMENTS = (
    "--unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib "
    "--symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp"
)


def bare(command: str = ECHO) -> str:
    """The host's own bash, without any wall."""
    return _checked(["bash", "-c", command])


def bubblewrapped(command: str = ECHO) -> str:
    """Plain namespaces for one command: fewer walls than a sandbox of Hutch, no files kept, no limits."""
    return _checked(["bwrap", *_BUBBLEWRAP_ARGUMENTS.split(), "bash", "-c", command])


def bubblewrap_here() -> Absent | None:
    if shutil.which("bwrap") is None:
        return Absent("bubblewrap is not on PATH")
    try:
        bubblewrapped()
    except RuntimeError as error:
        return Absent(str(error))
    return None


def _checked(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} failed with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout
