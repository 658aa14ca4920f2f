"""Code and git on each transport there is, in real sandboxes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("hutch.testing.client_contract_code")

from hutch.testing.client_contract_code import CodeContract  # noqa: E402 - the rewrite must come before the import
from tests.cluster_rig import Cluster, running_cluster  # noqa: E402
from tests.contract.test_client_contract import (  # noqa: E402
    Make,
    make_async,
    make_sync,
    on_bubblewrap,
    on_server,
)
from tests.tree_rig import with_trees  # noqa: E402

TENANTS = itertools.count()
pytestmark = pytest.mark.once


class TestAsyncOnBubblewrap(CodeContract):
    def clients(self, folder: Path) -> Any:
        return on_bubblewrap(with_trees(folder), make_async)


class TestSyncOnServer(CodeContract):
    def clients(self, folder: Path) -> Any:
        return on_server(with_trees(folder), make_sync)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder) as made:
        first = made.coordinator("c1")
        with_trees(folder / "w1")
        made.worker("w1")
        made.ready(first, "w1")
        yield made, first.url


class TestAsyncOnCluster(CodeContract):
    cluster: tuple[Cluster, str]

    @pytest.fixture(autouse=True)
    def _use(self, cluster: tuple[Cluster, str]) -> None:
        self.cluster = cluster

    @contextmanager
    def clients(self, folder: Path) -> Iterator[Make]:
        made, url = self.cluster
        key = made.key(f"tenant{next(TENANTS)}", "admin")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HUTCH_DATA_DIR", str(folder.parent / "nowhere"))
            remote = {"mode": "remote", "server_url": url, "api_key": key}

            def make(kind: type, **options: Any) -> Any:
                return kind(**{**remote, **options})

            yield make


del CodeContract  # pytest collects every class that it finds here
