"""A coordinator before two workers, with a Redis and a PostgreSQL of their own, all over loopback."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.hutch_side import ALWAYS, QUOTA_OFF
from bench.remote_side import Address
from tests.cluster_rig import Cluster, Member, running_cluster
from tests.postgres_rig import binaries

WORKERS = ("w1", "w2")


class ClusterMissing(Exception):
    """What a cluster needs is not on this machine."""


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Address, Address]]:
    """The coordinator, and one of its workers. Raises: ClusterMissing."""
    _look()
    with running_cluster(folder, **ALWAYS, **QUOTA_OFF) as here:
        coordinator = here.coordinator("coordinator")
        workers = [here.worker(name) for name in WORKERS]
        here.ready(coordinator, *WORKERS)
        yield _address(here, coordinator), _address(here, workers[0])


def _look() -> None:
    """Raises: ClusterMissing."""
    if shutil.which("redis-server") is None:
        raise ClusterMissing("redis-server is not installed")
    try:
        binaries()
    except FileNotFoundError as missing:
        raise ClusterMissing(str(missing)) from missing


def _address(here: Cluster, member: Member) -> Address:
    return Address(member.url, here.key(), member.process.pid)
