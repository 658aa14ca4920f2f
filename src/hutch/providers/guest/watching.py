"""Watching files of a sandbox: the guest sets the watches, this side reads the kernel's events."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Literal, Protocol

from hutch.model.errors import LimitExceeded, SandboxUnavailable
from hutch.model.files import FileEvent
from hutch.providers.guest import inotify, protocol
from hutch.providers.guest.connection import Connection, GuestGone, close_all
from hutch.providers.guest.failures import file_error
from hutch.providers.guest.listing import below
from hutch.providers.guest.protocol import Entry, Kind, Op

WATCH_SECONDS = 30.0
MAX_FOLDERS = 8192
MAX_ENTRIES = 200_000
_READ_BYTES = 65_536
_EventKind = Literal["created", "modified", "removed", "moved_from", "moved_to", "overflow"]
_KINDS: dict[int, _EventKind] = {
    inotify.IN_CREATE: "created",
    inotify.IN_MODIFY: "modified",
    inotify.IN_DELETE: "removed",
    inotify.IN_MOVED_FROM: "moved_from",
    inotify.IN_MOVED_TO: "moved_to",
}


class WatchedMachine(Protocol):
    """What a watch needs of its machine."""

    async def take_connection(self) -> Connection: ...

    async def entries(self, path: str, *, recursive: bool, max_entries: int) -> tuple[Sequence[Entry], bool]: ...


async def watch_folder(machine: WatchedMachine, path: str, *, recursive: bool) -> AsyncIterator[FileEvent]:
    """Events below `path` until the caller stops, or the watched folder is gone.

    Raises: SandboxFileNotFound, PathRejected, LimitExceeded (too many folders), SandboxUnavailable (the machine ended).
    """
    connection = await machine.take_connection()
    watch = _Watch(machine, connection, recursive=recursive)
    try:
        await watch.add(path)
        if recursive:
            await watch.add_below(path)
        while True:
            for event in await watch.next_events():
                yield event
            if watch.ended:
                return
    finally:
        watch.close()


class _Watch:
    """The inotify descriptor, and which folder each of its watches stands for."""

    def __init__(self, machine: WatchedMachine, connection: Connection, *, recursive: bool) -> None:
        self.ended = False
        self._machine = machine
        self._connection = connection
        self._recursive = recursive
        self._descriptor = -1
        self._paths: dict[int, str] = {}
        self._root = -1

    def close(self) -> None:
        self._connection.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def add(self, path: str) -> None:
        if len(self._paths) >= MAX_FOLDERS:
            raise LimitExceeded(f"A watch covers at most {MAX_FOLDERS:,} folders.", limit="files", maximum=MAX_FOLDERS)
        try:
            self._connection.send(protocol.pack_request(Op.WATCH, payload=protocol.pack_path(path)))
            data, descriptors = await self._connection.receive(seconds=WATCH_SECONDS)
        except GuestGone:
            raise SandboxUnavailable("The watch ended: the sandbox's init hung up.") from None
        try:
            answer = protocol.unpack_answer(data)
            if answer.kind is Kind.ERROR:
                raise file_error(answer.error, path)
            number = protocol.unpack_watch(answer.payload)
            if self._descriptor < 0:
                self._take_descriptor(descriptors)
                self._root = number
        finally:
            close_all(descriptors)
        self._paths[number] = path

    def _take_descriptor(self, descriptors: list[int]) -> None:
        """Reading anything else could block the event loop, so the guest's word is not enough."""
        if len(descriptors) != 1 or os.readlink(f"/proc/self/fd/{descriptors[0]}") != "anon_inode:inotify":
            raise protocol.malformed("watch descriptor")
        self._descriptor = descriptors.pop()
        os.set_blocking(self._descriptor, False)

    async def add_below(self, path: str) -> list[Entry]:
        """Watch every folder below `path`, and tell what is there, by its path below `path`.

        Each folder is listed after its watch was set: what comes into it later is an event, and nothing falls between.
        """
        found = await self._listed(path)
        for entry in found:  # grows as it is walked
            if not stat.S_ISDIR(entry.mode):
                continue
            try:
                await self.add(below(path, entry.path))
                inside = await self._listed(below(path, entry.path))
            except (FileNotFoundError, ValueError) as failure:
                if isinstance(failure, LimitExceeded):
                    raise
                continue  # gone since it was listed, or swapped for something that cannot be watched
            found += (one._replace(path=below(entry.path, one.path)) for one in inside[: MAX_ENTRIES - len(found)])
        return found

    async def _listed(self, path: str) -> list[Entry]:
        entries, _ = await self._machine.entries(path, recursive=False, max_entries=MAX_ENTRIES)
        return list(entries)

    async def next_events(self) -> list[FileEvent]:
        """At least one event, unless the watch ended."""
        while True:
            data = await self._read()
            events: list[FileEvent] = []
            for record in inotify.records(data):
                event = self._event(record)
                if event is None or (events and events[-1] == event):
                    continue  # the same change again: a large write makes hundreds of these
                events.append(event)
                if self._recursive and event["is_directory"] and event["kind"] in ("created", "moved_to"):
                    events += await self._new_folder(event["path"])
            if events or self.ended:
                return events

    async def _new_folder(self, path: str) -> list[FileEvent]:
        """Its watch comes after its first files: they are told from what is there."""
        try:
            await self.add(path)
            entries = await self.add_below(path)
        except (FileNotFoundError, ValueError) as failure:
            if isinstance(failure, LimitExceeded):
                raise
            return []  # gone again
        return [
            FileEvent(kind="created", path=below(path, entry.path), is_directory=stat.S_ISDIR(entry.mode))
            for entry in sorted(entries)
        ]

    def _event(self, record: inotify.Record) -> FileEvent | None:
        if record.mask & inotify.IN_Q_OVERFLOW:
            return FileEvent(kind="overflow", path="", is_directory=False)
        path = self._paths.get(record.watch)
        if path is None:
            return None
        if record.mask & (inotify.IN_IGNORED | inotify.IN_DELETE_SELF | inotify.IN_MOVE_SELF):
            return self._gone(record, path)
        kind = _KINDS.get(record.mask & 0xFFF)
        if kind is None:
            return None
        where = below(path, record.name) if record.name else path
        return FileEvent(kind=kind, path=where, is_directory=bool(record.mask & inotify.IN_ISDIR))

    def _gone(self, record: inotify.Record, path: str) -> FileEvent | None:
        """A watched folder went away. Its parent's watch tells of it, unless it is what was to be watched."""
        if record.mask & inotify.IN_IGNORED:
            del self._paths[record.watch]
        if record.watch != self._root or self.ended:
            return None
        self.ended = True
        return FileEvent(kind="removed", path=path, is_directory=False)

    async def _read(self) -> bytes:
        """The next events of the kernel. Raises: SandboxUnavailable when the machine ended."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                pass
            except OSError as failure:
                raise SandboxUnavailable("The watch on the sandbox's files broke.") from failure
            waiter: asyncio.Future[None] = loop.create_future()
            self._connection.on_readable = partial(_end, waiter)
            loop.add_reader(self._descriptor, _wake, waiter)
            try:
                await waiter
            finally:
                loop.remove_reader(self._descriptor)
                self._connection.on_readable = None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _end(waiter: asyncio.Future[None]) -> None:
    """Nothing is ever sent unasked on a watch's connection, so a readable one has ended."""
    if not waiter.done():
        waiter.set_exception(SandboxUnavailable("The watch ended: its sandbox has stopped."))
