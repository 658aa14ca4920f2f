"""What Hutch does in the race: the deeds a program does, by the client that programs use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from bench.references import ECHO
from bench.timing import timed
from hutch import AsyncSandboxClient, SandboxClient
from hutch.tools import Bound, bind

USER = "bench"
QUOTA_OFF = {"HUTCH_CPU_QUOTA": "off"}
QUOTA_ON = {"HUTCH_CPU_QUOTA": "25000"}  # what the template bash has when nobody says otherwise
# The pool stays empty: every figure of a start is a cold one.
ALWAYS = {"HUTCH_POOL_SIZE": "0", "HUTCH_MIN_POOL_SIZE": "0", "HUTCH_MAX_POOL_SIZE": "1200"}


class HutchSide:
    """A client on a data folder of its own, one living sandbox, and the deeds that are compared."""

    def __init__(self, folder: Path, quota: Mapping[str, str]) -> None:
        with environment({**ALWAYS, **quota}):  # settings are read when a client is made
            self.client = SandboxClient(data_dir=folder)
            self._for_tools = AsyncSandboxClient(data_dir=folder)
        self._numbers = count()
        self._live = self.client.for_thread(USER, "live")

    def execute(self) -> None:
        self.echo_in(self._live)

    def echo_in(self, handle: SandboxClient) -> None:
        result = handle.execute(ECHO)
        if (result["exit_code"], result["stdout"]) != (0, "hi\n"):
            raise RuntimeError(f"echo hi went wrong: {result}")

    def handle(self, name: str) -> SandboxClient:
        """A conversation; its sandbox is made at first use."""
        return self.client.for_thread(USER, name)

    def tools(self, name: str) -> Bound:
        """What an agent has in a conversation."""
        return bind(USER, name, self._for_tools)

    def whole_life(self) -> None:
        """Create, first command, remove."""
        handle = self.handle(f"life-{next(self._numbers)}")
        self.echo_in(handle)
        handle.close_session()

    def life_in_steps(self) -> tuple[float, float, float]:
        """Milliseconds of making a session, its first command, and closing it."""
        handle = self.handle(f"life-{next(self._numbers)}")
        name = handle.thread_id or ""
        made = timed(lambda: handle.get_or_create_session(user_id=USER, thread_id=name))
        return made, timed(lambda: self.echo_in(handle)), timed(handle.close_session)

    def upload(self, path: Path) -> None:
        self._live.upload_file(path, "data.bin")

    def download(self, path: Path) -> None:
        self._live.download_file("data.bin", path)

    def fill(self, files: int) -> SandboxClient:
        """A conversation whose workspace holds that many files. Raises: RuntimeError."""
        handle = self.handle("full")
        result = handle.execute(f"for ((n = 0; n < {files}; n++)); do echo $n > file-$n; done")
        found = handle.list_files()["total_files"]
        if result["exit_code"] != 0 or found != files:
            raise RuntimeError(f"{found} of {files} files were made: {result}")
        return handle

    def close(self) -> None:
        for name in ("live", "full"):
            self.handle(name).close_session()
        self.client.close()


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
