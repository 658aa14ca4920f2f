"""How often a key may call: one budget for all servers that share a Redis; one for each server while that is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path

import httpx
import pytest

from hutch.model.errors import RateLimited
from hutch.model.principal import Principal
from hutch.server import rate as rates
from hutch.server.rate import Rate
from hutch.server.services import ServerOptions
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.redis_rig import running_redis
from tests.server_rig import served

pytestmark = pytest.mark.once

ADA, BOB = (Principal(name, name, "local", "use") for name in ("kada", "kbob"))


async def _allowed(rate: Rate, who: Principal, calls: int) -> int:
    """How many of so many calls are let through."""
    passed = 0
    for _ in range(calls):
        with contextlib.suppress(RateLimited):
            await rate.count(who)
            passed += 1
    return passed


def test_two_servers_with_one_redis_share_one_budget(tmp_path: Path) -> None:
    with running_redis(tmp_path) as redis:
        options = ServerOptions(rate="10/day", redis_url=redis.url)
        data = Settings(data_dir=tmp_path / "data")  # shared, so that a key is known to both
        with served(data, FakeProvider(), options) as one, served(data, FakeProvider(), options) as other:
            key, second = one.new_key(), one.new_key()
            codes = [_status(url, key) for _ in range(8) for url in (one.url, other.url)]
            assert codes == [200] * 10 + [429] * 6
            assert _status(other.url, second) == 200  # another key's is its own
            refused = httpx.get(f"{one.url}/v1/sessions", headers=_headers(key), trust_env=False)
            assert refused.json()["code"] == "rate_limited"
            assert int(refused.headers["retry-after"]) > 1
            health = httpx.get(f"{one.url}/health", headers=_headers(second), trust_env=False).json()
            assert health["redis_connected"] is True


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _status(url: str, key: str) -> int:
    return httpx.get(f"{url}/v1/sessions", headers=_headers(key), trust_env=False).status_code


@pytest.mark.parametrize("way", ["kill", "pause"])
def test_while_redis_is_away_a_server_counts_for_itself_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(rates, "RETRY_SECONDS", 0.3)
    caplog.set_level(logging.INFO)

    async def live() -> None:
        with running_redis(tmp_path, "--requirepass", "hunter2") as redis:
            url = redis.url.replace("redis://", "redis://:hunter2@")
            one, other = Rate("5/day", url), Rate("5/day", url)
            try:
                assert await _allowed(one, ADA, 3) == 3
                assert await _allowed(other, ADA, 10) == 2
                if way == "kill":
                    redis.stop()
                else:
                    redis.pause()
                assert await _allowed(one, ADA, 10) == 5  # its own budget, no error
                assert not one.connected
                assert await _allowed(one, BOB, 1) == 1
                said = [record.getMessage() for record in caplog.records if "rate_" in record.getMessage()]
                assert len(said) == 1
                assert "rate_unshared" in said[0]
                if way == "kill":
                    redis.start()
                else:
                    redis.resume()
                deadline = time.monotonic() + 20
                while not one.connected and time.monotonic() < deadline:
                    await asyncio.sleep(0.1)
                    await _allowed(one, BOB, 1)
                assert one.connected
                assert await _allowed(one, ADA, 10) == (5 if way == "kill" else 0)  # as Redis has it
                said = [record.getMessage() for record in caplog.records if "rate_" in record.getMessage()]
                assert "rate_shared_again" in said[-1]
                assert "hunter2" not in caplog.text
            finally:
                await one.aclose()
                await other.aclose()

    asyncio.run(live())


def test_an_address_where_no_redis_ever_was_is_no_reason_to_refuse(tmp_path: Path) -> None:
    options = ServerOptions(rate="3/day", redis_url="redis://127.0.0.1:1/0")
    with served(Settings(data_dir=tmp_path), FakeProvider(), options) as server:
        key = server.new_key()
        assert [_status(server.url, key) for _ in range(4)] == [200, 200, 200, 429]
