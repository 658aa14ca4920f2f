"""The pinned packages that an interpreter needs, for the Python of the sandboxes, installed once below the data folder.

A tree's name is made of all that decides what is in it, so one that is there is the right one, for good. It is built
beside and renamed whole; a lock keeps two processes from doing the work twice. Every sandbox that is not strict sees
the folder of trees read-only at /opt/hutch from its start, whatever is in it by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from hutch.model.errors import InterpreterMissing, NotSupported

TREE_VERSION = "1"  # counts up when this file builds something else of the same requirements
PIP_SECONDS = 600.0
FAILURE_SECONDS = 30.0  # how long a failure is remembered: a network that is away is not asked at every call
SHOWN_FAILURE = 300
ASK_PYTHON = "import platform, sys; print(sys.implementation.cache_tag, platform.machine(), platform.libc_ver()[0])"
REMEDY = "On the machine that runs the sandboxes, where pip can reach a package index, run: hutch trees build"


def trees_folder(data_dir: Path) -> Path:
    return data_dir / "trees"


class Trees:
    """Thread-safe: what blocks runs in worker threads."""

    def __init__(self, folder: Path, python: Path = Path("/usr/bin/python3")) -> None:
        self._folder = folder
        self._python = python
        self._building: asyncio.Task[str] | None = None
        self._failure: tuple[float, InterpreterMissing] | None = None
        self._known: tuple[tuple[int, int], str] | None = None

    async def ready(self) -> str:
        """The name of the tree, built now if it is not there.

        Raises: InterpreterMissing, NotSupported.
        """
        if self._known is not None and self._known[0] == self._stamp() and (self._folder / self._known[1]).is_dir():
            return self._known[1]
        if self._failure is not None and time.monotonic() < self._failure[0]:
            raise InterpreterMissing(self._failure[1].message)
        if self._building is None or self._building.done():
            self._building = asyncio.create_task(asyncio.to_thread(self.build))
            self._building.add_done_callback(lambda task: task.cancelled() or task.exception())  # told to whoever waits
        return await asyncio.shield(self._building)

    def gap(self) -> str | None:
        """What doctor says when no code could run without a network. Blocks."""
        try:
            there = (self._folder / self.name()).is_dir()
        except NotSupported as error:
            return error.message
        return None if there else f"The packages for code.run are not installed yet. {REMEDY}"

    def name(self) -> str:
        """Raises: NotSupported."""
        digest = hashlib.sha256(f"{TREE_VERSION} {self._tag()}\n".encode())
        digest.update(_requirements().read_bytes())
        return digest.hexdigest()[:16]

    def _stamp(self) -> tuple[int, int]:
        try:
            found = os.stat(self._python)
        except OSError as error:
            raise _no_python(self._python) from error
        return found.st_ino, found.st_mtime_ns

    def _tag(self) -> str:
        try:
            told = subprocess.run(
                [self._python, "-I", "-c", ASK_PYTHON], capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _no_python(self._python) from error
        return told.stdout.strip()

    def build(self) -> str:
        """Blocks. Raises: InterpreterMissing, NotSupported."""
        stamp, name = self._stamp(), self.name()
        try:
            self._folder.mkdir(mode=0o755, exist_ok=True)
            self._folder.chmod(0o755)  # sandboxes have users of their own
            with _locked(self._folder.with_name("trees.lock")):
                if not (self._folder / name).is_dir():
                    self._install(self._folder / name)
        except OSError as error:
            raise InterpreterMissing(f"The folder {self._folder} cannot be written: {error.strerror}.") from error
        except InterpreterMissing as error:
            self._failure = (time.monotonic() + FAILURE_SECONDS, error)
            raise
        self._known = (stamp, name)
        return name

    def _install(self, tree: Path) -> None:
        for left in tree.parent.parent.glob(".tree-*"):  # of a build that was killed
            shutil.rmtree(left, ignore_errors=True)
        building = tree.parent.with_name(f".tree-{secrets.token_hex(4)}")
        try:
            building.mkdir(mode=0o755)
            self._pip(building / "lib")
            for entry in (building, *building.rglob("*")):  # whatever the umask was
                if not entry.is_symlink():
                    entry.chmod(0o755 if entry.is_dir() else 0o644)
            building.rename(tree)
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def _pip(self, target: Path) -> None:
        """Raises: InterpreterMissing."""
        options = "--quiet --no-input --disable-pip-version-check --retries 1 --timeout 15".split()
        # Wheels only: nothing that is fetched runs here.
        what = ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(_requirements())]
        command = [
            *self._pip_command(),
            *options,
            "install",
            "--no-warn-script-location",
            "--target",
            str(target),
            *what,
        ]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_SECONDS, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise InterpreterMissing(f"pip could not be run ({error}). {REMEDY}") from error
        if done.returncode != 0:
            said = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), done.stderr)
            raise InterpreterMissing(
                f"The packages that code.run needs could not be installed: {said.strip():.{SHOWN_FAILURE}}. {REMEDY}"
            )

    def _pip_command(self) -> list[str]:
        """Our pip, acting for the sandbox's Python, which often has none; else that Python's own."""
        if importlib.util.find_spec("pip") is not None:
            return [sys.executable, "-m", "pip", "--python", str(self._python)]
        return [str(self._python), "-m", "pip"]


def _requirements() -> Path:
    return Path(str(resources.files("hutch.engine.interpreter").joinpath("requirements.txt")))


def _no_python(python: Path) -> NotSupported:
    return NotSupported(f"There is no {python} on the machine that runs the sandboxes, so no code can run in them.")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits for whoever holds it. Raises: OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
