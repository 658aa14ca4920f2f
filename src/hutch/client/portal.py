"""How the sync client runs the async one: on its loop's thread, in a copy of the caller's context.

What the coroutine bound (see `binding.py`) is carried back into the caller's context, as if it had run here.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

from hutch.client.binding import BINDINGS
from hutch.engine.loop import EndOfItems, LoopThread, close_items, closing_items, next_item
from hutch.model.errors import ClientClosed

__all__ = ["LoopThread", "Portal", "closing_items"]  # tools have no other way to the engine's loops

P = ParamSpec("P")
T = TypeVar("T")


class Portal:
    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    def run(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `method` and wait. Ctrl-C cancels it and waits for it to clean up."""
        context = contextvars.copy_context()
        try:
            return self._thread.run(method(*args, **kwargs), context)
        finally:
            _carry_back(context)

    def run_relaying(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a method that takes callbacks by keyword: they run here, in the caller's thread."""
        callbacks = {name: value for name, value in kwargs.items() if callable(value)}
        if not callbacks:
            return self.run(method, *args, **kwargs)
        context = contextvars.copy_context()

        def make(relay: Callable[[Callable[..., Any]], Callable[..., None]]) -> Coroutine[Any, Any, T]:
            relayed: Any = {**kwargs, **{name: relay(callback) for name, callback in callbacks.items()}}
            return method(*args, **relayed)

        try:
            return self._thread.run_relaying(make, context)
        finally:
            _carry_back(context)

    def iterate(self, method: Callable[P, AsyncIterator[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Walk an async iterator, from whatever thread; leaving the loop closes it on its own.

        The session is that of whoever asked for the iterator, not of whoever walks it.
        """
        context = contextvars.copy_context()
        return self._walk(context.run(method, *args, **kwargs), context)

    def _walk(self, items: AsyncIterator[T], context: contextvars.Context) -> Iterator[T]:
        try:
            while True:
                try:
                    yield self._thread.run(next_item(items), context)
                except EndOfItems:
                    return
        finally:
            with contextlib.suppress(ClientClosed):  # the program is ending: its engine has closed all there was
                self._thread.run(close_items(items), context)


def _carry_back(context: contextvars.Context) -> None:
    bound = context.get(BINDINGS)
    if bound is not None and bound is not BINDINGS.get():
        BINDINGS.set(bound)
