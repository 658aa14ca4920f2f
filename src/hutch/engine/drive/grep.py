"""Looking through the lines of many files: a page of files at a time, so that memory stays flat."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from hutch.engine.drive.drive import Drive
from hutch.engine.drive.matchers import Matcher, PlainMatcher, RegexMatcher
from hutch.engine.drive.patterns import file_matcher
from hutch.model.drive import MATCHES_AT_MOST, DriveMatch, DriveMatches, drive_path
from hutch.model.errors import InvalidRequest
from hutch.store.drive.records import CHUNK_BYTES, FileRecord
from hutch.store.drive.store import DriveStore

GREP_SECONDS = 30.0  # then the answer is what was found so far, and says that it is not all
LINE_CHARACTERS = 2_000  # shown of a line
PATTERN_CHARACTERS = 1_000
_BATCH_FILES = 64
_BATCH_BYTES = 2 * 1024 * 1024
_LONGEST_LINE = 4 * CHUNK_BYTES  # a longer one is looked through in parts


@dataclass(frozen=True, slots=True)
class Wanted:
    pattern: str
    regex: bool = False
    ignore_case: bool = False
    glob: str | None = None
    max_matches: int = 1_000

    def check(self) -> None:
        """Raises: InvalidRequest."""
        if not isinstance(self.pattern, str) or not 0 < len(self.pattern) <= PATTERN_CHARACTERS:
            raise InvalidRequest(f"A pattern is a text of 1 to {PATTERN_CHARACTERS} characters.")
        if "\n" in self.pattern:
            raise InvalidRequest("grep looks at lines: a pattern holds no line break.")
        most = self.max_matches
        if isinstance(most, bool) or not isinstance(most, int) or not 0 < most <= MATCHES_AT_MOST:
            raise InvalidRequest(f"max_matches is from 1 to {MATCHES_AT_MOST}.")


class Grep:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive

    async def grep(self, tenant: str, user_id: str, wanted: Wanted, path: str = "/") -> DriveMatches:
        """Lines of text files, by path. Raises: InvalidRequest, PathRejected, DriveFileNotFound, LimitExceeded."""
        wanted.check()
        clean, owner = drive_path(path, folder=True), await self._drive.owner(tenant, user_id)
        fits = file_matcher(wanted.glob, clean) if wanted.glob is not None else lambda _: True
        if owner is None:
            return {"matches": [], "truncated": False}
        async with _matcher(wanted) as matcher:
            search = _Search(self._drive.store, matcher, wanted.max_matches)
            async for batch in _batches(self._files(tenant, user_id, owner, clean)):
                await search.look([record for record in batch if fits(record.path)])
                if search.full:
                    break
        return {"matches": search.found, "truncated": search.full}

    async def _files(self, tenant: str, user_id: str, owner: int, path: str) -> AsyncIterator[FileRecord]:
        """Raises: DriveFileNotFound."""
        kind = (await self._drive.stat(tenant, user_id, path))["kind"]
        if kind == "file":
            yield await self._drive.record(tenant, user_id, path)
            return
        async for record in self._drive.walk(owner, path):
            yield record


@contextlib.asynccontextmanager
async def _matcher(wanted: Wanted) -> AsyncIterator[Matcher]:
    if not wanted.regex:
        yield PlainMatcher(wanted.pattern, ignore_case=wanted.ignore_case)
        return
    opened = RegexMatcher.open(wanted.pattern, ignore_case=wanted.ignore_case, most=wanted.max_matches + 1)
    async with opened as matcher:
        yield matcher


async def _batches(records: AsyncIterator[FileRecord]) -> AsyncIterator[list[FileRecord]]:
    batch: list[FileRecord] = []
    size = 0
    async for record in records:
        batch.append(record)
        size += min(record.size_bytes, CHUNK_BYTES)
        if len(batch) == _BATCH_FILES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass(slots=True)
class _Search:
    store: DriveStore
    matcher: Matcher
    most: int
    found: list[DriveMatch] = field(default_factory=list[DriveMatch])
    full: bool = False
    until: float = field(default_factory=lambda: time.monotonic() + GREP_SECONDS)

    async def look(self, records: list[FileRecord]) -> None:
        heads = {row[0]: row for row in await self.store.heads([record.file_id for record in records])}
        small: list[tuple[str, bytes]] = []
        for record in records:
            _, content_id, head = heads.get(record.file_id, (0, 0, b""))
            if not head or b"\0" in head:  # empty, replaced meanwhile, or no text
                continue
            if record.size_bytes <= len(head):
                small.append((record.path, head))
                continue
            await self._blocks(small)
            small = []
            await self._long(record, content_id, head)
            if self.full:
                return
        await self._blocks(small)

    async def _blocks(self, blocks: list[tuple[str, bytes]], first_line: int = 0) -> None:
        if not blocks or self.full:
            return
        answers = await self.matcher.lines([block for _, block in blocks], self.most + 1)
        for (path, block), numbers in zip(blocks, answers, strict=True):
            lines = block.split(b"\n") if numbers else []
            for number in numbers:
                if len(self.found) >= self.most:
                    self.full = True
                    return
                text = lines[number].decode("utf-8", "replace").removesuffix("\r")[:LINE_CHARACTERS]
                self.found.append({"path": path, "line": first_line + number + 1, "text": text})
        self.full = self.full or time.monotonic() > self.until

    async def _long(self, record: FileRecord, content_id: int, head: bytes) -> None:
        """Block by block, each ending where a line does."""
        rest, number, lines = head, 1, 0
        while not self.full:
            chunks = await self.store.chunks(content_id, number, 4)
            number += len(chunks)
            rest += b"".join(chunks)
            end = rest.rfind(b"\n") + 1
            if not chunks or (not end and len(rest) > _LONGEST_LINE):
                end = len(rest)
            if end:
                await self._blocks([(record.path, rest[:end].removesuffix(b"\n"))], lines)
                lines += rest.count(b"\n", 0, end)
                rest = rest[end:]
            if not chunks:
                return
