"""Keeps the indexes of words and meanings, off the way of writes.

What is to be done stands in the files' own rows, so work that a killed process left is found by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from hutch.engine.drive.embedding import BATCH, Embedder, EmbeddingFailed
from hutch.engine.drive.texts import passages, text_of
from hutch.model.errors import ClientClosed, HutchError
from hutch.store.drive.indexing import Due
from hutch.store.drive.passages import Passage
from hutch.store.drive.store import DriveStore

WORDS_STEP = 64  # files
MEANING_STEP = 8
LOOK_SECONDS = 300.0  # between two looks for what other processes left
AGAIN_SECONDS = 30.0  # until an embedder that failed is asked again
CLOSE_SECONDS = 2.0  # that an end waits for a step under way
CATCH_UP_SECONDS = 2.0  # that a question waits for what was written just before it
_COUNTED = 1_000

log = logging.getLogger(__name__)


class Indexer:
    def __init__(self, store: DriveStore, embedder: Embedder | None = None) -> None:
        self._store = store
        self.embedder = embedder
        self.trouble: str | None = None  # why meanings are not compared now, where there is an embedder
        self._known_model: str | None = None
        self._able: str | None = None  # the model that the database was found able to serve
        self._wanted = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def use(self, embedder: Embedder) -> None:
        if self.embedder is None or self.embedder.model != embedder.model:
            self.embedder, self.trouble, self._able = embedder, None, None
            self.kick()

    def kick(self) -> None:
        """There may be something to do."""
        self._wanted.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """A step that was begun is ended first, if that is soon: what it claimed, nobody else does for a while."""
        self._closing = True
        self._wanted.set()
        if self._task is not None and not self._task.done():
            _, late = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
            if late:
                self._task.cancel()
                await asyncio.wait({self._task})

    async def caught_up(self, owner: int) -> int:
        """How many files of a user are still not indexed, after a short wait for them."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        pause = 0.005
        while left := await self._left(owner):
            if time.monotonic() > deadline:
                return left
            self.kick()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.1)
        return 0

    async def _left(self, owner: int) -> int:
        left = await self._store.waiting("words", owner, _COUNTED)
        if self.embedder is not None and self.trouble is None and self._able == self.embedder.model:
            left = max(left, await self._store.waiting("meaning", owner, _COUNTED))
        return left

    async def ready(self) -> Embedder | None:
        """The embedder, where meanings can be compared; else `trouble` says why not."""
        embedder = self.embedder
        if embedder is None:
            return None
        if self._able != embedder.model:
            why = await self._store.no_meaning()
            if why is not None:
                self.trouble = why
                return None
            while await self._store.forget_other_models(embedder.model):
                pass
            self._able, self.trouble = embedder.model, None
        return embedder

    async def _run(self) -> None:
        while not self._closing:
            self._wanted.clear()
            try:
                for step in (self._words, self._meaning, self._clear):
                    while not self._closing and await step():
                        pass
            except ClientClosed:
                return
            except HutchError as error:
                log.warning("drive_index_waits code=%s reason=%s", error.code, error)
                await asyncio.sleep(1)
                self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wanted.wait()

    async def _words(self) -> bool:
        if not await self._store.any_due("words"):
            return False
        due = await self._store.claim("words", WORDS_STEP)
        # A few at a time: heads are up to 256 KiB each.
        for start in range(0, len(due), 8):
            some = due[start : start + 8]
            heads = await self._heads(some)
            await self._store.put_words([(one, heads.get(one.file_id)) for one in some])
        return bool(due)

    async def _heads(self, due: list[Due]) -> dict[int, str | None]:
        rows = await self._store.heads([one.file_id for one in due if one.live])
        return {file_id: text_of(head) for file_id, _, head in rows}

    async def _meaning(self) -> bool:
        embedder = await self.ready()
        if embedder is None or not await self._store.any_due("meaning"):
            return False
        due = await self._store.claim("meaning", MEANING_STEP)
        heads = await self._heads(due)
        try:
            for one in due:
                text = heads.get(one.file_id) or ""
                await self._store.put_passages(one, embedder.model, await _embedded(embedder, text))
            self.trouble = None
        except EmbeddingFailed as error:
            self.trouble = str(error)
            log.warning("drive_embedding_failed reason=%s", error)
            await self._store.postpone(due, time.time() + AGAIN_SECONDS)
            asyncio.get_running_loop().call_later(AGAIN_SECONDS + 1, self._wanted.set)
            return False
        return bool(due)

    async def _clear(self) -> bool:
        return await self._store.clear_some(time.time())


async def _embedded(embedder: Embedder, text: str) -> list[Passage]:
    """Raises: EmbeddingFailed."""
    spans = passages(text)
    found: list[Passage] = []
    for start in range(0, len(spans), BATCH):
        some = spans[start : start + BATCH]
        vectors = await embedder.documents([text[span.starts : span.ends] for span in some])
        found += [Passage(span.starts, span.ends, vector) for span, vector in zip(some, vectors, strict=True)]
    return found
