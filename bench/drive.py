"""Figures of drives: one of a hundred thousand files beside one of a hundred."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from functools import partial
from pathlib import Path

from bench.plan import Field
from bench.table import Bound, Reading, Row
from bench.timing import Contestant, race
from hutch import SandboxClient
from hutch.model.principal import LOCAL_TENANT
from hutch.store.database import Connection, open_database
from hutch.store.drive import changes
from hutch.store.drive.records import NewContent
from hutch.store.drive.store import DriveStore

FEW = 100
STEP = 500  # files in one transaction
IN_FOLDER = 50
WORDS = [f"word{number}" for number in range(5_000)]


def rows(field: Field) -> list[Row]:
    client, many = field.free.client, field.plan.drive_files
    asyncio.run(fill(field.folder / "free" / "hutch.db", {"few": FEW, "many": many}))
    indexed = _index(client)
    chance = random.Random(1)

    def read(user: str, files: int) -> None:
        if len(client.drive_of(user).read_file(path_of(chance.randrange(files)))) < 100:
            raise RuntimeError("a file is not what it was")

    def ls(user: str, files: int) -> None:
        if len(client.drive_of(user).ls(path_of(chance.randrange(files)).rpartition("/")[0])) != IN_FOLDER:
            raise RuntimeError("a folder is not what it was")

    def search(user: str, files: int) -> None:
        if not client.drive_of(user).search(" ".join(chance.sample(WORDS, 2)), limit=10)["by"] == "words":
            raise RuntimeError("words were not searched")

    deeds = {"read of a 1 KB file": read, "ls of a folder": ls, "search by two words": search}
    contestants = [
        Contestant(f"{user} {name}", partial(deed, user, files), 5)
        for name, deed in deeds.items()
        for user, files in (("few", FEW), ("many", many))
    ]
    results = race(contestants, rounds=field.plan.rounds // 2, seconds=field.plan.seconds)
    found = [
        Row(
            f"drive: {name} among {many:,} files, p50",
            results[f"many {name}"].reading(),
            None if deed is search else Bound("times", 3),
            reference_name=f"among {FEW}",
            reference=results[f"few {name}"].reading(),
        )
        for name, deed in deeds.items()
    ]
    return [*found, Row(f"drive: files indexed a second, of {many:,}", indexed)]


def path_of(number: int) -> str:
    return f"/data/{number // IN_FOLDER // 100}/{number // IN_FOLDER}/file-{number}.txt"


async def fill(file: Path, users: dict[str, int]) -> None:
    """By transactions of many files: what is measured is a full drive, not how it was filled."""
    database = await open_database(file)
    chance = random.Random(0)
    try:
        store = DriveStore(database)
        for user, files in users.items():
            owner = await store.ensure_owner(LOCAL_TENANT, user)
            for first in range(0, files, STEP):
                numbers = range(first, min(files, first + STEP))
                texts = {number: " ".join(chance.choices(WORDS, k=120)).encode() for number in numbers}

                def work(connection: Connection, texts: dict[int, bytes] = texts, owner: int = owner) -> None:
                    for number, text in texts.items():
                        content = NewContent(len(text), hashlib.sha256(text).hexdigest(), inline=(text,))
                        changes.store(connection, owner, path_of(number), content, changes.Terms())

                await database.write(work)
    finally:
        await database.aclose()


def _index(client: SandboxClient) -> Reading:
    """Until nothing is left to be indexed."""
    began, left, files = time.monotonic(), "not indexed", client.drive_of("many").usage()["files"]
    while "not indexed" in left:
        left = client.drive_of("many").search(WORDS[0])["note"] or ""
    return Reading(files / (time.monotonic() - began), "/s")
