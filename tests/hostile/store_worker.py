"""Another process at the same store; run by the tests as `python store_worker.py VERB DATABASE …`, the database a path
or a URL. Answers are lines of JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from hutch.model.errors import HutchError
from hutch.store.database import Connection, open_database
from hutch.store.records import SandboxRecord, SessionRecord
from hutch.store.statements import insert_sandbox
from hutch.store.store import Store


def sandbox(sandbox_id: str, *, detail: str = "") -> SandboxRecord:
    now = time.time()
    return SandboxRecord(
        sandbox_id,
        "acme",
        "bash",
        "fake",
        "creating",
        None,
        "/workspace",
        {"D": detail},
        now,
        now,
        now,
        "remove",
        60.0,
        False,
    )


def session(sandbox_id: str, thread_id: str) -> SessionRecord:
    return SessionRecord(f"session-{sandbox_id}", "acme", thread_id, "ann", sandbox_id, time.time(), 60.0, False)


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


async def race(place: Path | str, gate: str, threads: str) -> None:
    """Binds `threads` threads, all at once, as soon as the gate opens."""
    store = await Store.open(place)
    say(ready=True)
    while not os.path.exists(gate):
        await asyncio.sleep(0.001)
    names = [f"t{number}" for number in range(int(threads))]
    ids = {name: f"sb{os.getpid()}{name}" for name in names}
    bound = await asyncio.gather(*(store.bind_session(session(ids[name], name), sandbox(ids[name])) for name in names))
    say(bound={one.session.thread_id: one.sandbox.sandbox_id for one in bound}, made=sum(one.created for one in bound))
    await store.aclose()


async def hang(place: Path | str) -> None:
    """Writes, and then stays in the transaction until killed."""

    def work(connection: Connection) -> None:
        for number in range(500):
            insert_sandbox(connection, sandbox(f"half{number}", detail="x" * 5000), "created")
        say(inside=True)
        time.sleep(600)

    await (await open_database(place)).write(work)


async def write(path: Path) -> None:
    """Binds one thread after the other and says so, until killed."""
    store = await Store.open(path)
    number = 0
    while True:
        name = f"{os.getpid()}-{number}"
        await store.bind_session(session(name, name), sandbox(name))
        say(written=name)
        number += 1


async def fill(path: Path) -> None:
    """Writes until the disk is full, then makes room and writes again."""
    store = await Store.open(path)
    written = 0
    try:
        while written < 100_000:
            await store.add_sandbox(sandbox(f"sb{written}", detail="x" * 2000))
            written += 1
    except HutchError as error:
        say(written=written, code=error.code, cause=error.details["cause"], remedy=error.details["remedy"])
    say(readable=len(await store.sandboxes()))
    (path.parent / "ballast").unlink()
    await store.add_sandbox(sandbox("after"))
    say(after=len(await store.sandboxes()))
    await store.aclose()


async def use(path: Path) -> None:
    """Opens, writes, closes; says how it went."""
    try:
        store = await Store.open(path, busy_seconds=0.3)
        try:
            await store.add_sandbox(sandbox(f"sb{time.time_ns()}"))
        finally:
            await store.aclose()
        say(ok=True)
    except HutchError as error:
        say(code=error.code, message=error.message, cause=error.details["cause"], remedy=error.details["remedy"])


async def use_full_disk(path: Path) -> None:
    (path.parent / "ballast").write_bytes(b"x" * 64 * 1024)
    await fill(path)


async def use_mount_gone_read_only(path: Path) -> None:
    await use(path)
    remount = await asyncio.create_subprocess_exec("mount", "-o", "remount,bind,ro", str(path.parent))
    assert await remount.wait() == 0
    await use(path)


VERBS = {one.__name__: one for one in (race, hang, write, use, use_full_disk, use_mount_gone_read_only)}

if __name__ == "__main__":
    verb: Any = VERBS[sys.argv[1]]
    target: Path | str = sys.argv[2] if sys.argv[2].startswith("postgresql:") else Path(sys.argv[2])
    asyncio.run(verb(target, *sys.argv[3:]))
