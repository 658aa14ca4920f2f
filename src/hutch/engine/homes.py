"""The one engine that a process has for a data folder, started at first use on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hutch.engine.assemble import Engine, assemble
from hutch.engine.loop import LoopThread, close_items
from hutch.settings import Settings

T = TypeVar("T")


class EngineHome:
    """The engine of one data folder in this process, started at first use on a thread of its own."""

    def __init__(self, settings: Settings, make: Callable[[Settings], Coroutine[Any, Any, Engine]] = assemble) -> None:
        self.settings = settings
        self.thread = LoopThread("hutch-engine")
        self._make = make
        self._starting: asyncio.Task[Engine] | None = None
        self._engine: Engine | None = None
        self.closed = False

    async def do(self, act: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Run `act` on the engine's loop, from any loop."""
        if not self.thread.inside():
            return await self.thread.call(self.do, act)
        return await act(self._engine or await self._started())

    async def each(self, items: Callable[[Engine], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Walk an engine's iterator from any loop."""

        async def begin(engine: Engine) -> AsyncIterator[T]:
            return items(engine)

        iterator = await self.do(begin)
        walk = iterator if self.thread.inside() else self.thread.iterate(iterator)
        try:
            async for item in walk:
                yield item
        finally:
            await close_items(walk)

    async def _started(self) -> Engine:
        if self._starting is None or (self._starting.done() and not _succeeded(self._starting)):
            self._starting = asyncio.create_task(self._make(self.settings))
        # Shielded: the first caller may give up while others wait for the same start.
        self._engine = await asyncio.shield(self._starting)
        return self._engine

    def close(self) -> None:
        """End the engine and its thread."""
        if self.closed:
            return
        self.closed = True

        async def end() -> None:
            if self._starting is not None:
                await asyncio.wait({self._starting})
                if _succeeded(self._starting):
                    await self._starting.result().aclose()

        try:
            if self._starting is not None:
                self.thread.run(end())
        finally:
            self.thread.stop()

    def forget_after_fork(self) -> object:
        """In a forked child: what runs is the parent's. Returns what must not be collected here."""
        relics = (self._engine, self._starting, self.thread.forget_after_fork())
        if self._engine is not None:
            self._engine.sandboxes.forget_after_fork()
        self._engine = self._starting = None
        return relics


def _succeeded(task: asyncio.Task[Engine]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


class _Homes:
    """One engine for each data folder of this process; a forked child starts its own at its first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._homes: dict[Path, EngineHome] = {}
        self._hooked = False
        self._relics: list[object] = []  # of the parent, in a forked child

    def get(self, settings: Settings) -> EngineHome:
        key = settings.data_dir.absolute()
        with self._lock:
            home = self._homes.get(key)
            if home is None or home.closed:
                home = self._homes[key] = EngineHome(settings)
                self._hook()
            return home

    def use(self, home: EngineHome) -> None:
        """Let this process use `home` for its data folder: an engine that was put together in another way."""
        with self._lock:
            self._homes[home.settings.data_dir.absolute()] = home
            self._hook()

    def _hook(self) -> None:
        if not self._hooked:
            self._hooked = True
            import concurrent.futures.thread  # noqa: F401 - registers its end before ours, which so comes first

            # Not `atexit`: by then the threads that the store and file calls use may start no more work.
            threading._register_atexit(self.close)  # type: ignore[attr-defined]  # used by concurrent.futures too
            os.register_at_fork(after_in_child=self._after_fork)

    def close(self) -> None:
        with self._lock:
            homes, self._homes = list(self._homes.values()), {}
        for home in homes:
            home.close()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._relics += [home.forget_after_fork() for home in self._homes.values()]


# The one module-level instance there is: two engines on one data folder in one process would fight over its sandboxes.
HOMES = _Homes()
