"""Following a process: replay, logs by offset, waiting, input."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hutch.model.errors import InvalidRequest, ProcessEnded, ProcessNotFound
from hutch.model.process import OutputEvent
from hutch.testing.fake_process import Running
from tests.unit.engine_stage import TENANT, Stage, play, until

LARGE = 400 * 1024


def test_followers_see_everything_however_late_they_come(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()

        async def talk(me: Running) -> None:
            await me.flood(LARGE)
            await me.sleep(0.2)
            me.out("end\n")

        stage.provider.on("talk", talk)
        process = await stage.start(sandbox, "talk")

        async def follow() -> bytes:
            events = stage.engine.processes.attach(TENANT, sandbox, process)
            return b"".join([event["data"] async for event in events])

        early = [asyncio.create_task(follow()) for _ in range(3)]
        whole = await asyncio.gather(*early)
        assert {len(data) for data in whole} == {LARGE + 4}
        assert await follow() == whole[0]  # after its end, too

    play(tmp_path, body)


def test_following_from_now_on_skips_what_was(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        process = await stage.start(sandbox, "echo old; sleep 0.3; echo new")
        log = stage.live(sandbox).process(process)
        await until(lambda: log.stdout.total > 0)
        events = stage.engine.processes.attach(TENANT, sandbox, process, replay=False)
        seen: list[OutputEvent] = [event async for event in events]
        assert [(event["text"], event["offset"]) for event in seen[:-1]] == [("new\n", 4)]

    play(tmp_path, body)


def test_leaving_a_follower_does_not_end_the_process(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        process = await stage.start(sandbox, "echo first; sleep 20")
        async with aclosing(stage.engine.processes.attach(TENANT, sandbox, process)) as events:  # type: ignore[type-var]
            async for _ in events:
                break
        (info,) = await stage.engine.processes.list(TENANT, sandbox)
        assert (info["status"], info["process_id"]) == ("running", process)

    play(tmp_path, body)


def test_logs_are_paged_by_offset(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        result = await stage.run(sandbox, "echo 0123456789")
        ask = stage.engine.processes.logs
        chunk = await ask(TENANT, sandbox, result["process_id"], stream="stdout", offset=4, max_bytes=3)
        assert (chunk["data"], chunk["next_offset"], chunk["complete"]) == (b"456", 7, False)
        for bad in ({"offset": -1}, {"max_bytes": 0}, {"max_bytes": 10**9}, {"stream": "stdlog"}):
            arguments: dict[str, Any] = {"stream": "stdout", "offset": 0, "max_bytes": 10, **bad}
            with pytest.raises(InvalidRequest):
                await ask(TENANT, sandbox, result["process_id"], **arguments)
        with pytest.raises(ProcessNotFound):
            await ask(TENANT, sandbox, "pnone", stream="stdout", offset=0, max_bytes=10)

    play(tmp_path, body)


def test_waiting_has_an_end_of_its_own(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        process = await stage.start(sandbox, "sleep 0.3; exit 3")
        wait = stage.engine.processes.wait
        assert await wait(TENANT, sandbox, process, 0) is None
        assert await wait(TENANT, sandbox, process, 0.01) is None
        ended = await wait(TENANT, sandbox, process, 10)
        assert ended is not None
        assert ended["exit_code"] == 3
        assert await wait(TENANT, sandbox, process, 0) == ended

    play(tmp_path, body)


def test_input_is_fed_and_ended(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        process = await stage.start(sandbox, "cat", stdin="pipe")
        await stage.engine.processes.send_input(TENANT, sandbox, process, b"one ")
        await stage.engine.processes.send_input(TENANT, sandbox, process, b"two")
        await stage.engine.processes.close_input(TENANT, sandbox, process)
        ended = await stage.engine.processes.wait(TENANT, sandbox, process, 10)
        assert ended is not None
        assert ended["stdout"] == "one two"
        with pytest.raises(ProcessEnded):
            await stage.engine.processes.send_input(TENANT, sandbox, process, b"late")

    play(tmp_path, body)
