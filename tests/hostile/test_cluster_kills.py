"""kill -9 of worker, coordinator, Redis and PostgreSQL, again and again, under load, by a seeded die.

Storage is shared, so that every acknowledged upload must still be there in the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hutch import SandboxClient
from hutch.cluster.registry import ALIVE_SECONDS
from hutch.model.errors import ERRORS, HutchError
from tests.cluster_rig import Cluster, Member, running_cluster
from tests.hostile.bad_luck_stage import cgroups_of, mounts_below, processes_naming, until_gone

SEED = 20
ROUNDS = 20
LOADERS = 4
WELL_SECONDS = 60.0
VICTIMS = ("worker", "coordinator", "redis", "postgres")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(slots=True)
class Load:
    """One caller: uploads, reads back, runs commands, and remembers what was acknowledged."""

    number: int
    clients: list[SandboxClient]  # one for each coordinator
    over: threading.Event
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])  # path -> sha256
    outcomes: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])

    def handle(self, turn: int) -> SandboxClient:
        return self.clients[turn % len(self.clients)].for_thread("u", f"load{self.number}")

    def run(self) -> None:
        chance = random.Random(SEED * 1000 + self.number)
        for turn in itertools.count():
            if self.over.is_set():
                return
            try:
                self._turn(turn, chance)
                self.outcomes["ok"] += 1
            except HutchError as error:
                # Every call ends in a result, or in a code that says whether to try again.
                self.outcomes[error.code] += 1
                if error.code not in ERRORS or not error.retryable:
                    self.broken.append(f"{error.code}: {error}")
                time.sleep(0.05)
            except Exception as error:
                self.broken.append(repr(error))

    def _turn(self, turn: int, chance: random.Random) -> None:
        handle = self.handle(turn)
        name = f"f{turn % 40}"
        data = chance.randbytes(chance.choice((10, 5_000, 300_000)))
        self.acknowledged.pop(name, None)  # while it is under way, the old and the new one are both right
        handle.files.write(name, data)
        self.acknowledged[name] = hashlib.sha256(data).hexdigest()
        result = handle.execute(f"sha256sum < {name}", timeout=20)
        if result["exit_code"] == 0 and result["stdout"].split()[0] != self.acknowledged[name]:
            self.broken.append(f"{name} holds something else: {result}")


def strike(cluster: Cluster, victim: str, chance: random.Random) -> str:
    """Kill one, let it lie for a moment, start it again."""
    lying = chance.uniform(0, 1.5)
    match victim:
        case "redis":
            cluster.redis.stop()
            time.sleep(lying)
            cluster.redis.start()
        case "postgres":
            cluster.postgres.kill()
            time.sleep(lying)
            cluster.postgres.start()
        case _:
            prefix = "w" if victim == "worker" else "c"
            member = chance.choice(sorted((one for one in cluster.members if one.name[0] == prefix), key=_name))
            member.kill()
            # Now and then long enough to be taken for dead.
            time.sleep(lying + (ALIVE_SECONDS * 1.5 if victim == "worker" and chance.random() < 0.3 else 0))
            (cluster.worker if prefix == "w" else cluster.coordinator)(member.name)
            return member.name
    return victim


def _name(member: Member) -> str:
    return member.name


def test_nothing_that_was_acknowledged_is_lost_and_nothing_is_left_behind(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    shared = tmp_path / "shared"
    variables = {"HUTCH_SHARED_DATA": "1", "HUTCH_DATA_DIR": str(shared), "POOL_SIZE": "2", "MIN_POOL_SIZE": "1"}
    with running_cluster(folder, **variables) as cluster:
        coordinators = [cluster.coordinator(name) for name in ("c1", "c2")]
        for name in ("w1", "w2"):
            cluster.worker(name)
        cluster.ready(coordinators[0], "w1", "w2")
        key = cluster.key()
        over = threading.Event()
        loads = []
        for number in range(LOADERS):
            clients = [
                SandboxClient(mode="remote", server_url=one.url, api_key=key, policy="open", template="open")
                for one in coordinators
            ]
            loads.append(Load(number, clients, over))
        threads = [threading.Thread(target=load.run) for load in loads]
        for thread in threads:
            thread.start()
        struck: list[str] = []
        try:
            chance = random.Random(SEED)
            for number in range(ROUNDS):
                time.sleep(chance.uniform(0.3, 1.5))
                struck.append(strike(cluster, VICTIMS[number % len(VICTIMS)], chance))
        finally:
            over.set()
            for thread in threads:
                thread.join(WELL_SECONDS)
        assert not any(thread.is_alive() for thread in threads), "a call hangs"
        for one in coordinators:
            cluster.ready(one, "w1", "w2")  # all are well again without a hand
        print(struck, *(load.outcomes for load in loads))
        assert [load.broken for load in loads] == [[]] * LOADERS
        assert all(load.outcomes["ok"] > ROUNDS for load in loads)
        for load in loads:
            _everything_is_there(load)
        sandboxes = [path.name for path in (shared / "sandboxes").iterdir()]
        for load in loads:
            load.handle(0).close_session()
        for member in cluster.members:
            member.end()
        assert not list((shared / "sandboxes").iterdir()), "folders are left"
    assert until_gone(processes_naming(str(tmp_path))) == []
    assert mounts_below(tmp_path) == []
    assert cgroups_of(sandboxes) == []


def _everything_is_there(load: Load) -> None:
    deadline = time.monotonic() + WELL_SECONDS
    while True:
        with contextlib.suppress(HutchError):
            found = {name: hashlib.sha256(load.handle(0).files.read(name)).hexdigest() for name in load.acknowledged}
            assert found == load.acknowledged
            return
        assert time.monotonic() < deadline, "it does not answer again"
        time.sleep(0.2)
