"""Several processes at one store, some of which die in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hutch.model.errors import StoreUnavailable
from hutch.store.records import SandboxRecord
from hutch.store.store import Store

pytestmark = pytest.mark.once

WORKER = Path(__file__).with_name("store_worker.py")


@contextmanager
def worker(verb: str, path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(WORKER), verb, str(path), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the worker ended without an answer"
    found: dict[str, Any] = json.loads(line)
    return found


def records(path: Path) -> list[SandboxRecord]:
    async def read() -> list[SandboxRecord]:
        store = await Store.open(path)
        try:
            assert len(await store.sessions()) <= len(await store.sandboxes())
            return await store.sandboxes()
        finally:
            await store.aclose()

    return asyncio.run(read())


def assert_whole(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("fresh", [True, False], ids=["while the file is made", "in a file that exists"])
def test_two_processes_make_one_sandbox_for_a_thread(tmp_path: Path, fresh: bool) -> None:
    path, gate = tmp_path / "hutch.db", tmp_path / "gate"
    if not fresh:
        assert records(path) == []
    with worker("race", path, str(gate), "50") as one, worker("race", path, str(gate), "50") as two:
        assert answer(one) == answer(two) == {"ready": True}
        gate.touch()
        first, second = answer(one), answer(two)
    assert len(first["bound"]) == 50
    assert first["bound"] == second["bound"]
    assert first["made"] + second["made"] == 50
    assert len(records(path)) == 50
    assert_whole(path)


def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"
    with worker("use", path) as before:
        assert answer(before) == {"ok": True}
    with worker("hang", path) as process:
        assert answer(process) == {"inside": True}
        process.kill()
        process.wait()
    with worker("use", path) as after:
        assert answer(after) == {"ok": True}
    assert len(records(path)) == 2
    assert_whole(path)


def test_what_was_acknowledged_survives_kill(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"
    acknowledged: set[str] = set()
    chance = random.Random(20)
    for _ in range(5):
        with worker("write", path) as one, worker("write", path) as two:
            lines = [answer(one)["written"], answer(two)["written"]]
            time.sleep(chance.uniform(0.01, 0.2))
            for process in (one, two):
                process.kill()
            for process in (one, two):
                assert process.stdout is not None
                rest = process.stdout.read().splitlines(keepends=True)
                lines += [json.loads(line)["written"] for line in rest if line.endswith("\n")]
            acknowledged.update(lines)
    assert acknowledged <= {record.sandbox_id for record in records(path)}
    assert len(acknowledged) >= 10
    assert_whole(path)


def test_a_locked_database_is_a_bounded_wait_and_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"

    async def run(process: subprocess.Popen[str]) -> None:
        store = await Store.open(path, busy_seconds=0.3)
        try:
            began = time.monotonic()
            calls = [store.take_pooled("bash") for _ in range(20)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            waited = time.monotonic() - began
            for result in results:
                assert isinstance(result, StoreUnavailable)
                assert result.details["cause"] == "another process holds it locked"
                assert result.retryable
            assert waited < 10  # not 20 times 0.3 and more: time in the queue counts; far above what it takes
            assert await store.sandboxes() == []  # readers do not wait
            process.kill()
            await asyncio.to_thread(process.wait)
            assert await store.take_pooled("bash") is None
        finally:
            await store.aclose()

    assert records(path) == []
    with worker("hang", path) as process:
        assert answer(process) == {"inside": True}
        asyncio.run(run(process))


def test_a_short_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"
    assert records(path) == []

    async def run() -> None:
        store = await Store.open(path)
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(store.take_pooled("bash"))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            other.execute("ROLLBACK")
            assert await waiting is None
        await store.aclose()

    asyncio.run(run())


def test_a_forked_process_is_told_to_open_its_own(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from hutch.model.errors import StoreUnavailable\n"
        "from hutch.store.store import Store\n"
        "store = asyncio.run(Store.open(Path(sys.argv[1])))\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        asyncio.run(store.sandboxes())\n"
        "    except StoreUnavailable as error:\n"
        "        assert 'forked' in error.details['cause']\n"
        "        asyncio.run(store.aclose())\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "assert asyncio.run(store.sandboxes()) == []\n"
        "asyncio.run(store.aclose())\n"
    )
    # A warning about fork and threads is what this is about.
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "hutch.db")]
    subprocess.run(command, check=True, timeout=60, env={**os.environ})
