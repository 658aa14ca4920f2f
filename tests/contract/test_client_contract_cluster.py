"""The client contract through a coordinator with two workers, over a real Redis and PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite(
    *(
        f"hutch.testing.client_contract_{part}"
        for part in ("commands", "drive", "egress", "errors", "files", "open", "placing", "sessions")
    )
)

from hutch.testing.client_contract import ClientContract  # noqa: E402 - the rewrite must come before the import
from hutch.testing.client_contract_stage import SYNC_OF, over_sync  # noqa: E402
from tests.cluster_rig import Cluster, running_cluster  # noqa: E402

pytestmark = pytest.mark.once

Make = Callable[..., Any]
TENANTS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    with running_cluster(
        tmp_path_factory.mktemp("cluster"), CLEANUP_INTERVAL="0.1", HUTCH_EGRESS_PRIVATE_TENANTS="*"
    ) as made:
        first = made.coordinator("c1")
        for name in ("w1", "w2"):
            made.worker(name)
        made.ready(first, "w1", "w2")
        yield made, first.url


class OnCluster(ClientContract):
    """Each test has a tenant of its own, and so a world of its own."""

    cluster: tuple[Cluster, str]

    @pytest.fixture(autouse=True)
    def _use(self, cluster: tuple[Cluster, str]) -> None:
        self.cluster = cluster

    @contextmanager
    def on_cluster(self, folder: Path, make: Make) -> Iterator[Make]:
        made, url = self.cluster
        key = made.key(f"tenant{next(TENANTS)}", "admin")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HUTCH_DATA_DIR", str(folder.parent / "nowhere"))
            patch.chdir(folder.parent)
            yield lambda kind, **options: make(kind, **{"mode": "remote", "server_url": url, "api_key": key, **options})


class TestAsyncOnCluster(OnCluster):
    def clients(self, folder: Path) -> Any:
        return self.on_cluster(folder, lambda kind, **options: kind(**options))


class TestSyncOnCluster(OnCluster):
    def clients(self, folder: Path) -> Any:
        return self.on_cluster(folder, lambda kind, **options: over_sync(SYNC_OF[kind](**options)))


del OnCluster, ClientContract  # pytest collects every class that it finds here
