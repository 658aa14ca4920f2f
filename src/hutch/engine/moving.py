"""A sandbox moves to another worker with its files.

The files travel as a tar archive that is written and read inside of the two sandboxes: what a hostile one puts into its
files is never unpacked by the host. The row changes hands by compare-and-set when all has arrived; until then the old
worker has the sandbox, and a move that breaks off has changed nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import BinaryIO

from hutch.engine.live import LiveSandbox
from hutch.engine.ownership import try_lock
from hutch.engine.sandboxes import Sandboxes, expired, make_folder
from hutch.engine.steps import moved
from hutch.model.errors import InvalidRequest, SandboxUnavailable
from hutch.model.location import Location
from hutch.model.process import StreamName
from hutch.model.session import WORKSPACE_DIR
from hutch.providers.base import Machine, Provider, SpawnRequest
from hutch.store.locations import Locations
from hutch.store.records import SandboxRecord
from hutch.store.store import Store

PIECE = 256 * 1024
OF_ONE_FILE = 2048  # bytes that an archive needs for a file beside what is in it, long names included
_ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
# Numbers, not names: the owner is the sandbox's own user on both sides. Holes stay holes.
_PACK = ("/usr/bin/tar", "--create", "--sparse", "--numeric-owner", "--file=-", "--directory", WORKSPACE_DIR, ".")
# What its owner may not read, nobody in there may: he gets the right to, rather than to lose all that is beside it.
_OPEN_UP = ("/usr/bin/chmod", "--recursive", "--silent", "u+rX", WORKSPACE_DIR)
_UNPACK = (
    "/usr/bin/tar",
    "--extract",
    "--preserve-permissions",
    "--no-same-owner",
    "--file=-",
    "--directory",
    WORKSPACE_DIR,
)
_CHANGED = 1  # tar's exit code when a file grew while it was read

# Brings an archive to the new worker, which takes the sandbox over. Raises: HutchError.
Carry = Callable[[Location, BinaryIO], Awaitable[None]]

log = logging.getLogger(__name__)


class Moving:
    def __init__(self, *, sandboxes: Sandboxes, store: Store, locations: Locations, provider: Provider) -> None:
        self._sandboxes = sandboxes
        self._store = store
        self._locations = locations
        self._provider = provider

    async def ours(self) -> list[Location]:
        """What would have to go for this worker to be empty. Raises: StoreUnavailable."""
        found = await self._store.sandboxes(("creating", "running", "stopped"))
        return [location_of(record) for record in found if not record.pooled]

    def idle(self, sandbox_id: str) -> bool:
        live = self._sandboxes.live.get(sandbox_id)
        return live is None or not (live.busy or any(live.running_processes()))

    # -- away

    async def give(self, sandbox_id: str, worker_id: str) -> None:
        """To a worker that sees the same files. Raises: HutchError; then it is as it was."""
        async with self._resting(sandbox_id) as live:
            if await self._locations.move(location_of(live.record), worker_id):
                await self._sandboxes.forget(live, keep_files=True)

    async def send(self, sandbox_id: str, carry: Carry) -> None:
        """To a worker elsewhere. Raises: HutchError; then it is as it was."""
        async with self._resting(sandbox_id) as live:
            with tempfile.TemporaryFile(dir=live.spec.folder, prefix="archive-") as archive:
                await self._pack(live, archive)
                archive.seek(0)
                await carry(location_of(live.record), archive)
            now = await self._locations.sandbox(sandbox_id)
            if now is not None and now.worker_id != self._store.worker_id:
                await self._sandboxes.forget(live, keep_files=False)

    @contextlib.asynccontextmanager
    async def _resting(self, sandbox_id: str) -> AsyncIterator[LiveSandbox]:
        """Its machine is stopped and its folder locked meanwhile; calls learn that it moves."""
        record = await self._store.sandbox(sandbox_id)
        if record is None:
            raise expired()
        self._sandboxes.check_ours(record)
        live = self._sandboxes.adopt(record)
        self._sandboxes.moving.add(live.sandbox_id)
        try:
            await self._sandboxes.stop(live)
            async with live.waking:
                if live.lock is None:
                    live.lock = try_lock(live.spec.folder)
                if live.lock is None or live.machine is not None:
                    raise SandboxUnavailable("Somebody uses this sandbox; it cannot move now.")
                try:
                    yield live
                finally:
                    if live.lock is not None:
                        live.lock.release()
                        live.lock = None
        finally:
            self._sandboxes.moving.discard(live.sandbox_id)

    async def _pack(self, live: LiveSandbox, archive: BinaryIO) -> None:
        limits = live.template.limits
        most = limits.workspace_bytes * 2 + limits.workspace_files * OF_ONE_FILE
        async with self._machine(live) as machine:
            code = await _packed(machine, _Archive(archive, most))
            if code not in (0, _CHANGED, None):
                process = await machine.spawn(SpawnRequest(argv=_OPEN_UP, env=_ENV, cwd="/"), _Said())
                await process.wait()
                archive.seek(0)
                archive.truncate()
                code = await _packed(machine, _Archive(archive, most))
        if code not in (0, _CHANGED):
            raise SandboxUnavailable(
                f"The files of sandbox {live.sandbox_id} cannot be packed (tar ended with {code})."
            )

    # -- here

    async def receive(self, location: Location, archive: AsyncIterator[bytes]) -> None:
        """Take over a sandbox that another worker has, with its files. One that breaks off leaves nothing.

        Raises: InvalidRequest, SandboxMoved, SandboxUnavailable, WallMissing, StoreUnavailable.
        """
        record = await self._store.sandbox(location.sandbox_id)
        if record is None or location != location_of(record) or record.worker_id == self._store.worker_id:
            raise InvalidRequest("That sandbox is not where it was said to be. Look again.")
        live = self._sandboxes.unlisted(record)
        await self._clear(live)
        live.lock = await asyncio.to_thread(make_folder, live.spec.folder)
        try:
            try:
                await self._unpack(live, archive)
            except BaseException:
                await asyncio.shield(self._provider.destroy(live.spec))
                raise
            # What breaks off here may have been written all the same: then these files are the only ones there will be.
            if not await self._locations.move(location, self._store.worker_id):
                await asyncio.shield(self._provider.destroy(live.spec))
                raise moved(record)
        finally:
            live.lock.release()

    async def _clear(self, live: LiveSandbox) -> None:
        """What an earlier try left of a sandbox that is another's. Raises: SandboxUnavailable."""
        lock = try_lock(live.spec.folder)
        if lock is not None:
            try:
                await self._provider.destroy(live.spec)
            finally:
                lock.release()

    async def _unpack(self, live: LiveSandbox, archive: AsyncIterator[bytes]) -> None:
        async with self._machine(live) as machine:
            said = _Said()
            process = await machine.spawn(SpawnRequest(argv=_UNPACK, env=_ENV, cwd="/", stdin=True), said)
            try:
                async for piece in archive:
                    await process.write(piece)
            except BaseException:
                await process.kill()
                raise
            await process.close_input()
            code = (await process.wait()).exit_code
            if code != 0:
                raise SandboxUnavailable(
                    f"The files cannot be unpacked here: {said.text() or f'tar ended with {code}'}."
                )

    @contextlib.asynccontextmanager
    async def _machine(self, live: LiveSandbox) -> AsyncIterator[Machine]:
        machine = await self._provider.start(replace(live.spec, strict=False))  # the strict one has no tar
        try:
            yield machine
        finally:
            await machine.stop()


async def _packed(machine: Machine, sink: _Archive) -> int | None:
    """The exit code of tar; None when its archive could not be kept."""
    process = await machine.spawn(SpawnRequest(argv=_PACK, env=_ENV, cwd="/"), sink)
    ended = asyncio.ensure_future(process.wait())
    full = asyncio.ensure_future(sink.failed.wait())
    await asyncio.wait({ended, full}, return_when=asyncio.FIRST_COMPLETED)
    full.cancel()
    if sink.failed.is_set():
        await process.kill()
    code = (await ended).exit_code
    return None if sink.failed.is_set() else code


def location_of(record: SandboxRecord) -> Location:
    return Location(record.sandbox_id, record.tenant, record.state, record.worker_id, record.fence)


class _Archive:
    """Writes stdout to a file, up to a size that no honest archive reaches."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._left = most
        self.failed = asyncio.Event()

    def feed(self, stream: StreamName, data: bytes) -> bool:
        if stream == "stdout" and not self.failed.is_set():
            self._left -= len(data)
            try:
                if self._left < 0:
                    raise OSError("too large")
                self._file.write(data)
            except OSError as error:
                log.warning("archive_failed reason=%s", error)
                self.failed.set()
        return not self.failed.is_set()


class _Said:
    """The beginning of what a program says."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, stream: StreamName, data: bytes) -> bool:
        self._data = (self._data + data)[:500]
        return True

    def text(self) -> str:
        return ascii(self._data.decode("utf-8", "replace").strip())[1:-1]
