"""Clients over real sandboxes, each with a data folder and an engine of its own that ends with the test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hutch import SandboxClient
from hutch.engine.homes import HOMES
from hutch.settings import read_settings


@contextmanager
def settings_of(data_dir: Path, **variables: str) -> Iterator[None]:
    """The environment of a client, put back afterwards; at the end its engine is stopped."""
    wanted = {"HUTCH_DATA_DIR": str(data_dir), **variables}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        HOMES.get(read_settings()).close()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def client_of(data_dir: Path, policy: str = "open", **variables: str) -> Iterator[SandboxClient]:
    """A client bound to a session of its own in the calling thread."""
    with settings_of(data_dir, **variables):
        client = SandboxClient(policy=policy)
        client.get_or_create_session(user_id="tester", thread_id="rig")
        yield client
        client.close_session()


def memory_mib() -> float:
    """What this process holds in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
