"""A worker that empties itself finds another heir when one goes, and one sandbox that cannot move stops no other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

from hutch.cluster.membership import Membership
from hutch.cluster.registry import Registry, View
from hutch.cluster.workers import WorkerInfo
from hutch.engine.moving import Carry, Moving
from hutch.model.errors import WorkerLost
from hutch.model.location import Location
from hutch.model.wire import PROTOCOL
from hutch.server.drain import Drain

HEIR = WorkerInfo("heir", "http://127.0.0.1:9", PROTOCOL, "1", capacity=10)


class Play:
    """Stands for all that a drain talks to: `gone` workers take nothing, `stubborn` sandboxes go nowhere."""

    worker_id = "old"

    def __init__(self, *sandboxes: str, gone: tuple[str, ...] = (), stubborn: tuple[str, ...] = ()) -> None:
        self._here = list(sandboxes)
        self._gone = gone
        self._stubborn = stubborn
        self.moved: dict[str, str] = {}

    async def drain(self) -> None: ...

    async def refresh(self) -> View:
        names = ("a-heir", "b-heir", "old")
        return View({name: replace(HEIR, worker_id=name) for name in names}, trusted=True)

    async def ours(self) -> list[Location]:
        return [Location(name, "local", "running", "old", 0) for name in self._here]

    def idle(self, sandbox_id: str) -> bool:
        return True

    async def send(self, sandbox_id: str, carry: Carry) -> None:
        worker = cast(Any, carry).__self__.to.worker_id
        if worker in self._gone:
            raise WorkerLost("it went in the middle", sent=True)
        if sandbox_id in self._stubborn:
            raise OSError("no space left")
        self._here.remove(sandbox_id)
        self.moved[sandbox_id] = worker

    def run(self) -> int:
        drain = Drain(cast(Moving, self), cast(Membership, self), cast(Registry, self), shared_data=False)
        return asyncio.run(asyncio.wait_for(drain.run(0), 10))


def test_when_an_heir_goes_in_the_middle_another_one_takes_over() -> None:
    play = Play("s1", "s2", gone=("a-heir",))
    assert play.run() == 0
    assert play.moved == {"s1": "b-heir", "s2": "b-heir"}


def test_when_all_heirs_go_the_sandboxes_stay() -> None:
    play = Play("s1", "s2", gone=("a-heir", "b-heir"))
    assert (play.run(), play.moved) == (2, {})


def test_one_that_cannot_move_keeps_no_other_from_it() -> None:
    play = Play("s1", "s2", "s3", stubborn=("s2",))
    assert (play.run(), set(play.moved)) == (1, {"s1", "s3"})
