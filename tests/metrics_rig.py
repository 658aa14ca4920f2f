"""What a server's /metrics say, and what an action changes in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.server_rig import Served

Series = tuple[str, tuple[tuple[str, str], ...]]


def series(name: str, **labels: str) -> Series:
    return name, tuple(sorted(labels.items()))


def scrape(server: Served) -> dict[Series, float]:
    answer = httpx.get(f"{server.url}/metrics", headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
    assert answer.status_code == 200, answer.text
    found = text_string_to_metric_families(answer.text)
    return {series(one.name, **one.labels): one.value for family in found for one in family.samples}


@contextmanager
def moving(server: Served) -> Iterator[dict[Series, float]]:
    """What the block adds to each counter, without those of HTTP, and without how long things took."""
    before = scrape(server)
    moved: dict[Series, float] = {}
    yield moved
    for name, value in scrape(server).items():
        counts = name[0].endswith(("_total", "_count")) and not name[0].startswith(("hutch_http", "process_"))
        if counts and value != before.get(name, 0.0):
            moved[name] = value - before.get(name, 0.0)
