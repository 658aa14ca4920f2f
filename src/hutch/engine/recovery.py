"""Clearing up after a process that ended without doing so, kill -9 included.

A free lock on a sandbox's folder means that nobody runs it. Its files are its session's and stay; all else goes.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from hutch.engine.ownership import try_lock
from hutch.engine.sandboxes import Sandboxes
from hutch.model.errors import HutchError
from hutch.model.limits import Limits
from hutch.providers.base import MachineSpec, Provider
from hutch.store.records import SandboxRecord
from hutch.store.store import Store

YOUNG_SECONDS = 60.0  # a sandbox that is being made has a row before it has a folder and a lock

log = logging.getLogger(__name__)


async def recover(
    store: Store, provider: Provider, sandboxes: Sandboxes, folder: Path, limits: Limits, *, shared_data: bool
) -> None:
    """Bring the data folder back to what its rows say. Sandboxes that other processes run are left alone.

    In a folder of our own, files of a sandbox that another worker has are what was left when it moved.
    """
    records = await store.sandboxes()
    leased = {bound.sandbox.sandbox_id for bound in await store.sessions()}  # later than the rows: none is overlooked
    for record in records:
        try:
            await _recover(record, sandboxes, leased=record.sandbox_id in leased)
        except HutchError as error:
            log.warning("recovery_failed sandbox=%s code=%s reason=%s", record.sandbox_id, error.code, error)
    known = await store.fences(of_all_workers=shared_data)
    for path in _unknown_folders(folder, set(known)):
        if path.name.startswith(".") and not _old(path):
            continue  # it may be about to get its lock, and its name
        lock = try_lock(path)
        if lock is None:
            continue
        try:
            if path.name not in await store.fences(of_all_workers=shared_data):  # now that nobody else holds it
                await provider.destroy(MachineSpec(path.name, path, limits, strict=False))
        finally:
            lock.release()


async def _recover(record: SandboxRecord, sandboxes: Sandboxes, *, leased: bool) -> None:
    now = time.time()
    over = record.deadline_at <= now and record.deadline_action == "remove"
    # Without a session nobody can reach it: its process died before it could bind one.
    ended = record.pooled or not leased or record.state in ("removing", "removed") or over
    if record.state == "stopped" and not ended:
        return
    live = sandboxes.adopt(record)
    if record.state == "creating" and now - record.created_at < YOUNG_SECONDS and not live.spec.folder.exists():
        sandboxes.live.pop(record.sandbox_id, None)
        return  # its folder, which appears with a lock on it, may be about to be made
    live.lock = try_lock(live.spec.folder)
    if live.lock is None and live.spec.folder.exists():
        sandboxes.live.pop(record.sandbox_id, None)  # another process runs it
        return
    if ended or not live.spec.folder.exists():
        await sandboxes.remove(live, "remove")
    else:
        await sandboxes.put_to_rest(live)


def _unknown_folders(folder: Path, known: set[str]) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name not in known)


def _old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > YOUNG_SECONDS
    except OSError:
        return False
