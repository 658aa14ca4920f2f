"""Which databases the store is tested on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_records import PLACES
from tests.postgres_rig import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def each_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """The test runs once on a file, once on a new database of PostgreSQL."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        PLACES[tmp_path] = server.new_database()
    yield
    PLACES.pop(tmp_path, None)
