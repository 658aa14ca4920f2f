"""Clients that are gone in the middle of something, a thousand times: what they asked for happens, nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from hutch.engine.live import FINISHED_KEPT
from hutch.providers.guest.machine import IDLE_CONNECTION_SECONDS
from hutch.settings import Settings
from tests.hostile.bad_luck_stage import data_folder, descendants
from tests.hostile.server.wire_stage import Wire, resident_bytes, until_true
from tests.server_rig import Served, served

MB = 1024 * 1024
TIMES = 1000
SANDBOXES = 4
GROWTH = 24 * MB  # of the whole process, which also plays all the clients
PIECE = 300_000


@dataclass(slots=True)
class Stage:
    server: Served
    data: Path
    sandboxes: list[str]
    followed: list[str]  # in each sandbox one process that nobody ends
    done: Counter[str] = field(default_factory=Counter[str])

    def wire(self) -> Wire:
        return Wire(self.server.url)

    def get(self, target: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.server.key}"}
        return httpx.get(self.server.url + target, headers=headers, trust_env=False, timeout=20)

    def running(self) -> list[str]:
        """Commands that run, but for those that nobody ends."""
        rows = [row for one in self.sandboxes for row in self.get(f"/v1/sandboxes/{one}/processes").json()]
        return [row["command"] for row in rows if row["status"] == "running" and row["process_id"] not in self.followed]

    def counts(self) -> dict[str, int]:
        return {
            "processes": len(descendants(os.getpid())),
            "descriptors": len(_descriptors() - _spools()),
            "threads": len(os.listdir("/proc/self/task")),
            "tasks": self.server.run(_tasks()),
        }

    def files(self) -> set[str]:
        """Every name below the data folder; the workspaces with it, and so half-written files."""
        return {os.path.join(folder, name) for folder, _, names in os.walk(self.data) for name in names}


def _descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def _spools() -> set[str]:
    """Nameless files with what ended commands printed, of the last few of each sandbox."""
    found = set()
    for name in _descriptors():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").endswith(" (deleted)"):
                found.add(name)
    return found


async def _tasks() -> int:
    return len(asyncio.all_tasks())


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with data_folder() as folder, served(Settings(data_dir=folder)) as server:
        headers = {"authorization": f"Bearer {server.key}"}
        with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=20) as http:
            made, followed = [], []
            for number in range(SANDBOXES):
                body = {"user_id": "u", "thread_id": f"t{number}", "template": "open"}
                made.append(http.put("/v1/sessions", json=body).json()["sandbox_id"])
                sandbox = f"/v1/sandboxes/{made[-1]}"
                assert http.put(f"{sandbox}/files?path=large", content=bytes(8 * MB)).status_code == 200
                order = {"command": "echo followed; sleep 1000"}
                followed.append(http.post(f"{sandbox}/processes", json=order).json()["process_id"])
        yield Stage(server, folder, made, followed)


# --- ways to be gone -------------------------------------------------------------------------------------------------


def in_a_stream(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    order = {"command": "echo on; sleep 1000"}
    wire.ask("POST", f"{sandbox}/exec", stage.server.key, order, Accept="text/event-stream")
    wire.until(b"stdout")
    wire.reset()


def in_a_flood(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    wire.ask("POST", f"{sandbox}/exec", stage.server.key, {"command": "yes"}, Accept="text/event-stream")
    wire.until(b"stdout")
    wire.reset()


def while_waiting(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    wire.ask("POST", f"{sandbox}/exec", stage.server.key, {"command": "sleep 1000"})
    if number % 2:  # others are gone before it began
        time.sleep(0.01)
    wire.reset()


def but_wants_it_kept(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    command = f"sleep 0.02; mkdir -p kept; : > kept/{number}"
    wire.ask("POST", f"{sandbox}/exec?on_disconnect=keep", stage.server.key, {"command": command})
    time.sleep(0.01)
    wire.reset()


def but_asks_again(stage: Stage, number: int, sandbox: str) -> None:
    """With an Idempotency-Key: it runs once, and its result can be had."""
    command = {"command": f"mkdir -p once; echo {number} | tee -a once/{number}"}
    first = stage.wire()
    first.ask("POST", f"{sandbox}/exec", stage.server.key, command, Idempotency_Key=f"n{number}")
    first.reset()
    with stage.wire() as wire:
        wire.ask("POST", f"{sandbox}/exec", stage.server.key, command, Idempotency_Key=f"n{number}")
        assert f'"stdout":"{number}\\n"'.encode() in wire.until(b"process_id")


def in_an_upload(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    headers = {"Authorization": f"Bearer {stage.server.key}", "Content-Length": str(4 * MB)}
    wire.head("PUT", f"{sandbox}/files?path=half-{number}", headers)
    wire.send(bytes(PIECE))
    wire.reset()


def in_an_upload_of_unknown_size(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    headers = {"Authorization": f"Bearer {stage.server.key}", "Transfer-Encoding": "chunked"}
    wire.head("PUT", f"{sandbox}/files?path=half-{number}", headers)
    wire.send(f"{PIECE:x}\r\n".encode() + bytes(PIECE) + b"\r\n")
    wire.reset()


def in_a_download(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    wire.ask("GET", f"{sandbox}/files?path=large", stage.server.key)
    wire.until(b"\r\n\r\n")
    wire.reset()


def in_a_watch(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    wire.ask("GET", f"{sandbox}/files/watch", stage.server.key)
    wire.until(b"ready")
    wire.reset()


def while_following(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    process = stage.followed[number % SANDBOXES]
    wire.ask("GET", f"{sandbox}/processes/{process}/events", stage.server.key)
    wire.until(b"followed")
    wire.reset()


def in_a_shell(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    wire.upgrade(f"{sandbox}/shell", stage.server.key)
    wire.frame(b"sleep 1000\n", opcode=2)
    wire.reset()


def in_a_command_with_input(stage: Stage, number: int, sandbox: str) -> None:
    wire = stage.wire()
    wire.upgrade(f"{sandbox}/exec", stage.server.key)
    wire.frame(b'{"command": "echo on; cat", "stdin": "pipe"}')
    wire.until(b"on\\n")
    wire.frame(b'{"input": "' + b"x" * 60_000)  # a message that never ends
    wire.reset()


WAYS: tuple[Callable[[Stage, int, str], None], ...] = (
    in_a_stream,
    in_a_flood,
    while_waiting,
    but_wants_it_kept,
    but_asks_again,
    in_an_upload,
    in_an_upload_of_unknown_size,
    in_a_download,
    in_a_watch,
    while_following,
    in_a_shell,
    in_a_command_with_input,
)


def hang_up(stage: Stage, numbers: range) -> None:
    chosen = random.Random(3)
    for number in numbers:
        way = chosen.choice(WAYS)
        stage.done[way.__name__] += 1
        way(stage, number, f"/v1/sandboxes/{stage.sandboxes[number % SANDBOXES]}")


@pytest.mark.serial
def test_a_thousand_clients_that_are_gone_leave_nothing(stage: Stage) -> None:
    hang_up(stage, range(-120, 0))  # what is kept at hand, and what is made at first use
    assert until_true(lambda: not stage.running()), stage.running()
    time.sleep(IDLE_CONNECTION_SECONDS + 1)
    before, files, memory = stage.counts(), stage.files(), resident_bytes()
    kept = stage.done["but_wants_it_kept"]

    hang_up(stage, range(TIMES))
    assert len(stage.done) == len(WAYS)
    assert until_true(lambda: not stage.running()), stage.running()
    assert until_true(lambda: _near(stage.counts(), before)), (before, stage.counts())
    assert len(_spools()) <= 2 * FINISHED_KEPT * SANDBOXES
    assert resident_bytes() - memory < GROWTH
    new = {name for name in stage.files() - files if "/kept/" not in name and "/once/" not in name}
    assert not new
    names = [Path(name).name for name in stage.files() if "/kept/" in name]
    assert len(names) == stage.done["but_wants_it_kept"] > kept
    for sandbox, process in zip(stage.sandboxes, stage.followed, strict=True):
        rows = stage.get(f"/v1/sandboxes/{sandbox}/processes").json()
        assert {row["status"] for row in rows if row["process_id"] == process} == {"running"}


def _near(now: dict[str, int], before: dict[str, int]) -> bool:
    """Threads of pools come and go; the rest is as it was."""
    spare = {"processes": 0, "descriptors": 2, "threads": 8, "tasks": 2}
    return all(now[name] <= before[name] + spare[name] for name in before)
