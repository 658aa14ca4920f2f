"""A thread with an event loop: what an engine lives on, and what plain code waits for.

Machines, pipes and sockets belong to one event loop. Callers come from other threads and other loops, so an engine has
a loop of its own on a daemon thread, reached through `call` (from a coroutine) or `run` (from plain code).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from hutch.model.errors import ClientClosed

P = ParamSpec("P")
T = TypeVar("T")


DETECTOR = "blockbuster.blockbuster"


class LoopThread:
    """Starts at its first use, and anew in a forked child, where no thread of the parent runs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = False
        self._watched = True  # by a detector of blocking calls, should one come
        self._process_id = os.getpid()
        self._relics: list[object] = []  # of the parent, in a forked child
        self._last: list[asyncio.Task[None]] = []  # kept, or the loop might lose it

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def inside(self) -> bool:
        return threading.current_thread() is self._thread

    def submit(
        self, coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None = None
    ) -> tuple[Future[T], Callable[[], None]]:
        """Start `coroutine` on the loop. Returns its future and a function that cancels it there.

        Raises: ClientClosed after `stop`.
        """
        if self._process_id != os.getpid():
            self._relics.append(self.forget_after_fork())
        with self._lock:
            if self._ended:
                coroutine.close()
                raise closed()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._main, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
                self._watched = True
            if self._watched and DETECTOR in sys.modules:
                self._watched = False
                self._loop.call_soon_threadsafe(_may_block)
            return _begin(self._loop, coroutine, context)

    def forget_after_fork(self) -> object:
        """In a forked child: the next use starts a new loop. Returns the old one.

        The old loop shares its kernel side with the parent's, so nothing of it may be closed or collected here.
        """
        relics = (self._loop, self._thread)
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._process_id = os.getpid()
        return relics

    def run(self, coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> T:
        """Run from plain code and wait. Ctrl-C cancels the task and waits for it to clean up."""
        future, cancel = self.submit(coroutine, context)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                cancel()
                _wait_quietly(future)
            raise

    def run_relaying(
        self,
        make: Callable[[Callable[[Callable[..., Any]], Callable[..., None]]], Coroutine[Any, Any, T]],
        context: contextvars.Context,
    ) -> T:
        """Like `run`, for a coroutine that calls back: `make` gets a function that moves a callback to this thread.

        Callbacks run here, in order, while we wait. An exception in one of them cancels the task and is raised.
        """
        calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()

        def relay(callback: Callable[..., Any]) -> Callable[..., None]:
            return lambda *args: calls.put(lambda: callback(*args))

        future, cancel = self.submit(make(relay), context)
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                call()
            return future.result()
        except BaseException:
            if not future.done():
                cancel()
                _wait_quietly(future)
            raise

    async def call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `function(...)` on the engine's loop from a coroutine on any loop.

        Cancelling waits until the engine has cleaned up; cancelling once more leaves it to that alone.
        """
        if self.inside():
            return await function(*args, **kwargs)
        future, cancel = self.submit(function(*args, **kwargs))
        waiting = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            cancel()
            try:
                await asyncio.wait({waiting})
            except asyncio.CancelledError:
                waiting.cancel()
                raise
            waiting.exception()  # seen, and of no interest to anybody
            raise

    async def iterate(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Walk an engine iterator from a coroutine on any loop, closing it there."""
        try:
            while True:
                try:
                    yield await self.call(next_item, items)
                except EndOfItems:
                    return
        finally:
            await self.call(close_items, items)

    def stop(self) -> None:
        """End the loop and its thread. Tasks still on it are cancelled first; who waits for one gets ClientClosed."""
        with self._lock:
            loop, thread, first = self._loop, self._thread, not self._ended
            self._ended = True
        if loop is None or thread is None or not first:
            return

        async def cancel_all() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await loop.shutdown_asyncgens()
            await loop.shutdown_default_executor()

        _begin(loop, cancel_all(), None)[0].result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def let_go(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last` on the loop, if it ever began, then end it. Waits for nothing and takes no lock: the garbage
        collector may call it, in any thread and in the middle of anything.
        """
        loop, first = self._loop, not self._ended
        self._ended = True
        if loop is None or not first or self._process_id != os.getpid():
            return

        async def end() -> None:
            try:
                await last()
            finally:
                loop.stop()

        with contextlib.suppress(RuntimeError):  # closed already
            loop.call_soon_threadsafe(lambda: self._last.append(loop.create_task(end())))


def _may_block() -> None:
    """Tell the detector that `langgraph dev` arms that this thread is no server's: its loop may open a file."""
    skipped = getattr(sys.modules[DETECTOR], "_skip", None)
    if skipped is not None:
        skipped.value = True  # of this thread only


def _begin(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None
) -> tuple[Future[T], Callable[[], None]]:
    future: Future[T] = Future()
    tasks: list[asyncio.Task[T]] = []

    def done(task: asyncio.Task[T]) -> None:
        error = closed() if task.cancelled() else task.exception()
        if not future.set_running_or_notify_cancel():
            return  # nobody waits any more
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def begin() -> None:
        task = loop.create_task(coroutine, context=context)
        tasks.append(task)
        task.add_done_callback(done)

    def cancel() -> None:
        loop.call_soon_threadsafe(lambda: tasks[0].cancel() if tasks else None)

    loop.call_soon_threadsafe(begin)
    return future, cancel


def closed() -> ClientClosed:
    return ClientClosed("This process is ending, and its sandboxes with it; no call can be made any more.")


class EndOfItems(Exception):
    """StopAsyncIteration may not leave a task, so the end of an iterator crosses loops as this."""


async def next_item(items: AsyncIterator[T]) -> T:
    try:
        return await items.__anext__()
    except StopAsyncIteration:
        raise EndOfItems from None


async def close_items(items: AsyncIterator[Any]) -> None:
    """Run the clean-up of an iterator that is not walked to its end."""
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


@contextlib.asynccontextmanager
async def closing_items(items: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """`async for` over them within; they are closed at the end, however it comes."""
    try:
        yield items
    finally:
        await close_items(items)


def _wait_quietly(future: Future[Any]) -> None:
    """Wait for a cancelled task to finish its cleaning up; its outcome no longer matters to anybody."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    done.wait()
