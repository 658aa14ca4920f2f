"""Figures of files: one megabyte in and out, and a list of a thousand."""

from __future__ import annotations

import os
from functools import partial

from bench.plan import Field
from bench.table import Absent, Bound, Row
from bench.timing import Contestant, race

MEGABYTE = 1_000_000
FILES = 1000


def transfers(field: Field) -> list[Row]:
    data = os.urandom(MEGABYTE)
    source, target = field.folder / "up.bin", field.folder / "down.bin"
    source.write_bytes(data)
    contestants = []
    for name, side in (("hutch", field.free), ("quota", field.limited)):
        side.upload(source)
        side.download(target)
        if target.read_bytes() != data:
            raise RuntimeError("what came back is not what was sent")
        contestants.append(Contestant(f"{name} up", partial(side.upload, source), 5))
        contestants.append(Contestant(f"{name} down", partial(side.download, target), 5))
    docker = field.docker
    if not isinstance(docker, Absent):
        contestants.append(Contestant("docker up", partial(docker.upload, data), 1))
        contestants.append(Contestant("docker down", docker.download, 1))
    results = race(contestants, rounds=field.plan.rounds // 2, seconds=field.plan.seconds / 2)
    return [
        Row(
            f"1 MB {word}, p50",
            results[f"hutch {key}"].reading(),
            Bound("faster", 20),
            "docker cp by the SDK",
            docker if isinstance(docker, Absent) else results[f"docker {key}"].reading(),
            results[f"quota {key}"].reading(),
        )
        for key, word in (("up", "upload"), ("down", "download"))
    ]


def listing(field: Field) -> list[Row]:
    full = field.free.fill(FILES)
    contestants = [Contestant("hutch", full.list_files, 3)]
    docker = field.docker
    if not isinstance(docker, Absent):
        docker.execute(f"mkdir -p /full && cd /full && for ((n = 0; n < {FILES}; n++)); do echo $n > file-$n; done")
        contestants.append(Contestant("docker", lambda: docker.execute("ls -lt /full"), 1))
    results = race(contestants, rounds=field.plan.rounds // 2, seconds=field.plan.seconds / 3)
    return [
        Row(
            f"list of {FILES:,} files, p50",
            results["hutch"].reading(),
            reference_name="ls -lt by docker exec",
            reference=docker if isinstance(docker, Absent) else results["docker"].reading(),
        )
    ]
