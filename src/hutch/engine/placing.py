"""Files of a drive, or from elsewhere, into a sandbox and back, within the engine: nothing crosses a wire twice."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from hutch.engine.drive.drive import Drive
from hutch.engine.files import Files, WriteRequest
from hutch.engine.gauge import file_too_large
from hutch.engine.live import LiveSandbox, Placed
from hutch.engine.parcel import Parcel, parcel_of, several
from hutch.engine.paths import workspace_path
from hutch.engine.sandboxes import Sandboxes
from hutch.model.drive import DriveFile, PlacedFile, drive_path, name_of
from hutch.model.errors import DriveFileNotFound, FileConflict, PathRejected, SandboxFileNotFound
from hutch.model.session import WORKSPACE_DIR
from hutch.providers.base import Machine
from hutch.store.drive.records import FileRecord

KNOWN_AT_MOST = 10_000  # remembered of one sandbox


class Placing:
    def __init__(self, drive: Drive, files: Files, sandboxes: Sandboxes) -> None:
        self._drive = drive
        self._files = files
        self._sandboxes = sandboxes

    async def place(self, tenant: str, sandbox_id: str, user_id: str, paths: Sequence[str]) -> list[PlacedFile]:
        """All are looked at before any is sent.

        Raises: DriveFileNotFound, LimitExceeded, PathRejected, FileConflict, InvalidRequest, SessionExpiredError.
        """
        clean = list(dict.fromkeys(drive_path(path) for path in several(paths)))
        records = [await self._record(tenant, user_id, path) for path in clean]
        targets = targets_of(clean)
        live, machine = await self._machine(tenant, sandbox_id)
        await self._check_room(live, machine, targets, [record.size_bytes for record in records])
        placed = []
        for record, target in zip(records, targets, strict=True):
            origin = f"drive:{record.file_id}:{record.version}:{record.sha256}"
            sent = not await _is_there(live, machine, target, origin)
            if sent:
                data = self._drive.read(tenant, user_id, record.path, version=record.version)
                await self._send(tenant, live, machine, target, record.size_bytes, data, origin)
            placed.append(_placed(record.path, target, record.size_bytes, sent=sent))
        return placed

    async def place_bytes(self, tenant: str, sandbox_id: str, files: Sequence[tuple[str, bytes]]) -> list[PlacedFile]:
        """Raises: LimitExceeded, PathRejected, FileConflict, InvalidRequest, SessionExpiredError."""
        return await self.place_parcel(tenant, sandbox_id, parcel_of(several(files)))

    async def place_parcel(self, tenant: str, sandbox_id: str, parcel: Parcel) -> list[PlacedFile]:
        """The same, as the bytes come over a network."""
        try:
            several(parcel.files)
            paths = _given_paths([one.name for one in parcel.files])
            targets = targets_of(paths)
            live, machine = await self._machine(tenant, sandbox_id)
            await self._check_room(live, machine, targets, [one.size for one in parcel.files])
            placed = []
            for path, target, one in zip(paths, targets, parcel.files, strict=True):
                origin = f"bytes:{one.sha256}"
                sent = not await _is_there(live, machine, target, origin)
                data = parcel.next_file(one)
                if sent:
                    await self._send(tenant, live, machine, target, one.size, data, origin)
                else:
                    async for _ in data:
                        pass
                placed.append(_placed(path, target, one.size, sent=sent))
            return placed
        finally:
            await parcel.aclose()

    async def save(self, tenant: str, sandbox_id: str, user_id: str, filename: str, path: str) -> DriveFile:
        """Raises: SandboxFileNotFound, PathRejected, LimitExceeded, FileConflict, SessionExpiredError."""
        drive_path(path)
        return await self._drive.write(tenant, user_id, path, self._files.read(tenant, sandbox_id, filename))

    async def _record(self, tenant: str, user_id: str, path: str) -> FileRecord:
        try:
            return await self._drive.record(tenant, user_id, path)
        except DriveFileNotFound as error:
            raise DriveFileNotFound(f"{error.message} Nothing was sent.", **error.details) from None

    async def _machine(self, tenant: str, sandbox_id: str) -> tuple[LiveSandbox, Machine]:
        live = await self._sandboxes.find(tenant, sandbox_id)
        live.touch()
        return live, await self._sandboxes.machine(live)

    async def _check_room(
        self, live: LiveSandbox, machine: Machine, targets: Sequence[str], sizes: Sequence[int]
    ) -> None:
        """Raises: LimitExceeded, PathRejected."""
        most = live.template.limits.file_bytes
        for size in sizes:
            if most and size > most:
                raise file_too_large(most, size)
        needed = new = 0
        for target, size in zip(targets, sizes, strict=True):
            try:
                present = await machine.stat(target)
            except SandboxFileNotFound:
                needed, new = needed + size, new + 1
                continue
            if present["kind"] == "directory":
                raise PathRejected(f"{target!r} is a folder of the sandbox; a file cannot take its place.", path=target)
            needed += max(0, size - present["size_bytes"])
        await live.gauge.room_for_all(machine, needed, new)

    async def _send(
        self,
        tenant: str,
        live: LiveSandbox,
        machine: Machine,
        target: str,
        size: int,
        data: AsyncIterator[bytes],
        origin: str,
    ) -> None:
        await self._files.write(tenant, live.sandbox_id, WriteRequest(target, size), data)
        live.placed.pop(target, None)
        with contextlib.suppress(SandboxFileNotFound):
            identity = await machine.identity(target)
            if identity is not None:
                if len(live.placed) >= KNOWN_AT_MOST:
                    live.placed.clear()
                live.placed[target] = Placed(origin, identity)


def targets_of(paths: Sequence[str]) -> list[str]:
    """Where clean paths of a drive come to lie below the workspace: names, or whole paths where names are shared.

    Raises: FileConflict when one would have to be a file and another one's folder.
    """
    names = Counter(name_of(path) for path in paths)
    targets = [path[1:] if names[name_of(path)] > 1 else name_of(path) for path in paths]
    taken = set(targets)
    for target in targets:
        parts = target.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in taken:
                raise FileConflict(
                    f"{target!r} and {'/'.join(parts[:end])!r} cannot both be placed: one is the other's folder.",
                    path=target,
                )
    return targets


async def _is_there(live: LiveSandbox, machine: Machine, target: str, origin: str) -> bool:
    known = live.placed.get(target)
    if known is None or known.origin != origin:
        return False
    try:
        return await machine.identity(target) == known.identity
    except (SandboxFileNotFound, PathRejected):
        return False


def _given_paths(names: Sequence[str]) -> list[str]:
    """Names from elsewhere, as clean paths. Raises: PathRejected, FileConflict."""
    clean = []
    for name in names:
        if not isinstance(name, str):
            raise PathRejected(f"A path must be a string, not {type(name).__name__}.")
        clean.append("/" + workspace_path(name.lstrip("/")))
    if len(set(clean)) != len(clean):
        raise FileConflict("Two of the files have the same path.")
    return clean


def _placed(path: str, target: str, size: int, *, sent: bool) -> PlacedFile:
    return {
        "drive_path": path,
        "path": f"{WORKSPACE_DIR}/{target}",
        "name": name_of("/" + target),
        "size_bytes": size,
        "sent": sent,
    }
