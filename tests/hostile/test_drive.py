"""Attacks on drives, and bad luck: killed writers, patterns that never end, floods, bytes that are no text."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from hutch.engine.drive import matchers
from hutch.engine.drive.matchers import RegexMatcher
from hutch.engine.drive.patterns import path_matcher
from hutch.model.errors import LimitExceeded
from hutch.model.limits import MIB
from hutch.testing.fake_provider import FakeProvider
from tests.server_rig import Served, served
from tests.unit.engine_stage import Stage, pieces, play, settings

pytestmark = pytest.mark.once

ANN = ("local", "ann")


def test_a_killed_writer_leaves_nothing_and_loses_no_index(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hostile.drive_writer", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half\n"
        writer.send_signal(signal.SIGKILL)

    async def check(stage: Stage) -> None:
        drive = stage.engine.drive
        assert [one["path"] for one in await drive.files.ls(*ANN)] == ["/kept.txt"]
        assert [one["path"] for one in (await drive.search.search(*ANN, "walrus"))["hits"]] == ["/kept.txt"]
        store = drive.files.store
        assert await _count(store, "drive_chunks") > 30
        while await store.clear_some(time.time() + 3600):  # once it is clear that nobody writes it any more
            pass
        assert await _count(store, "drive_chunks") == 1

    play(tmp_path, check)


async def _count(store: Any, table: str) -> int:
    return int(
        await store._database.read(lambda connection: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    )


def test_memory_stays_flat_however_large_a_file_is(tmp_path: Path) -> None:
    with served(settings(tmp_path), FakeProvider()) as server:
        with _client(server) as client:
            _send(client, "/warm", 8)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            _send(client, "/large", 100)
            size = 0
            with client.stream("GET", "/v1/drive/files", params={"user_id": "ann", "path": "/large"}) as answer:
                for piece in answer.iter_bytes():
                    size += len(piece)
            assert size == 100 * MIB
            assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 40 * MIB


def _send(client: httpx.Client, path: str, count: int) -> None:
    content = (bytes([number]) * MIB for number in range(count))
    client.put("/v1/drive/files", params={"user_id": "ann", "path": path}, content=content).raise_for_status()


def _client(server: Served, key: str | None = None) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key or server.key}"}, timeout=60)


def test_an_upload_that_breaks_off_is_no_file(tmp_path: Path) -> None:
    with served(settings(tmp_path), FakeProvider()) as server:

        def broken() -> Any:
            yield bytes(3 * MIB)
            raise RuntimeError("the sender is gone")

        with _client(server) as client:
            with pytest.raises(RuntimeError):
                client.put("/v1/drive/files", params={"user_id": "ann", "path": "/half"}, content=broken())
            assert client.get("/v1/drive/list", params={"user_id": "ann"}).json() == []


def test_keys_reach_the_drives_of_their_tenant_only(tmp_path: Path) -> None:
    with served(settings(tmp_path), FakeProvider()) as server:
        reader, other = server.new_key(scope="read"), server.new_key("acme")
        here = {"user_id": "ann", "path": "/f"}
        with _client(server) as client:
            client.put("/v1/drive/files", params=here, content=b"mine").raise_for_status()
        with _client(server, other) as client:
            for route in ("files", "stat", "list", "versions"):
                assert client.get(f"/v1/drive/{route}", params=here).json()["code"] == "drive_file_not_found"
            assert client.get("/v1/drive/usage", params=here).json()["files"] == 0
            assert client.get("/v1/drive/search", params={**here, "path": "/", "query": "mine"}).json()["hits"] == []
        with _client(server, reader) as client:
            assert client.get("/v1/drive/files", params=here).content == b"mine"
            calls: list[httpx.Response] = [
                client.put("/v1/drive/files", params=here, content=b"x"),
                client.delete("/v1/drive/files", params=here),
                client.post("/v1/drive/undo", params=here, json={"path": "/f"}),
                client.post("/v1/drive/move", params=here, json={"source": "/f", "target": "/g"}),
                client.post("/v1/drive/edit", params=here, json={"path": "/f", "old": "m", "new": "n"}),
            ]
            assert {call.status_code for call in calls} == {403}
        with httpx.Client(base_url=server.url) as client:
            assert client.get("/v1/drive/files", params=here).status_code == 401
        with _client(server) as client:  # two ids that are no text never become one
            for odd in ("%FF", "%FE", "", "a%00"):
                assert client.get(f"/v1/drive/list?user_id={odd}").json()["code"] == "invalid_request"
            assert client.get("/v1/drive/list").json()["code"] == "invalid_request"


def test_every_call_leaves_an_audit_row(tmp_path: Path) -> None:
    with served(settings(tmp_path), FakeProvider()) as server, _client(server) as client:
        here = {"user_id": "ann@example.com", "path": "/f"}
        client.put("/v1/drive/files", params=here, content=b"x").raise_for_status()
        client.delete("/v1/drive/files", params=here).raise_for_status()
        client.delete("/v1/drive/files", params=here)
        rows = client.get("/v1/audit", params={"user_id": "ann@example.com"}).json()
        assert [(row["action"], row["detail"], row["outcome"]) for row in reversed(rows)] == [
            ("drive.write", "/f", "ok"),
            ("drive.delete", "/f", "ok"),
            ("drive.delete", "/f", "drive_file_not_found"),
        ]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", r"(\w+\s?)*!!$"])
def test_a_pattern_that_never_ends_is_ended_and_holds_up_nobody(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matchers, "BATCH_SECONDS", 1.0)

    async def run() -> None:
        async with asyncio.timeout(30):
            async with RegexMatcher.open(pattern, ignore_case=False, most=10) as matcher:
                hunt = asyncio.create_task(matcher.lines([b"a" * 60 + b"!"], 10))
                turns = 0
                while not hunt.done():
                    await asyncio.sleep(0.01)
                    turns += 1
                assert turns > 10  # the loop went on all the time
                with pytest.raises(LimitExceeded, match="took more than"):
                    await hunt
                assert matcher._process.returncode is None or matcher._process.returncode < 0
            assert matcher._process.returncode is not None

    asyncio.run(run())


def test_a_glob_is_never_slow() -> None:
    matches = path_matcher("/".join(["**", "*a*a*a*a*a*a*a*b"] * 8), "/")
    began = time.process_time()
    assert not matches("/" + "/".join(["a" * 100] * 20))
    assert time.process_time() - began < 5


def test_a_file_over_the_limit_stops_all_with_both_numbers(tmp_path: Path) -> None:
    async def check(stage: Stage) -> None:
        sandbox = await stage.session(user="ann", template="bash")
        for path, size in (("/small", 10), ("/large", MIB + 1)):
            await stage.engine.drive.files.write(*ANN, path, pieces(bytes(size)))
        placing = stage.engine.placing
        calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: placing.place("local", sandbox, "ann", ["/small", "/large"]),
            lambda: placing.place_bytes("local", sandbox, [("small", b"x"), ("large", bytes(MIB + 1))]),
        ]
        for call in calls:
            with pytest.raises(LimitExceeded) as caught:
                await call()
            assert (caught.value.details["maximum"], caught.value.details["actual"]) == (MIB, MIB + 1)
            assert await stage.engine.files.list("local", sandbox, ".", recursive=True) == []
        many = [(f"f{number}", bytes(MIB)) for number in range(3)]
        with pytest.raises(LimitExceeded) as caught:
            await placing.place_bytes("local", sandbox, many)
        assert (caught.value.details["limit"], caught.value.details["maximum"]) == ("workspace", 2 * MIB)
        assert await stage.engine.files.list("local", sandbox, ".", recursive=True) == []

    play(tmp_path, check, max_file_size_mb=1, max_workspace_size_mb=2)


def test_a_parcel_that_lies_about_itself_leaves_nothing(tmp_path: Path) -> None:
    with served(settings(tmp_path), FakeProvider()) as server, _client(server) as client:
        made = client.put("/v1/sessions", json={"user_id": "ann", "thread_id": "t"}).json()
        route = f"/v1/sandboxes/{made['sandbox_id']}/drive/bytes"
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        for body in (
            b"",
            b"no json\n",
            b"[" * 100_000 + b"\n",
            b'[["a", -1, "%s"]]\n' % empty.encode(),
            b'[["a", 5, "%s"]]\nabc' % empty.encode(),
            b'[["a", 3, "%s"]]\nabc' % empty.encode(),
            b'[["a", 0, "x"]]\n',
            b'[["a", true, "%s"]]\n' % empty.encode(),
            b"x" * 3_000_000,
        ):
            assert client.put(route, content=body).json()["code"] == "invalid_request", body[:40]
        listed = client.get(f"/v1/sandboxes/{made['sandbox_id']}/files/list").json()
        assert listed == []
