"""Calls that outlive or end with their connection, and calls that must not be made twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

from hutch.model.errors import HutchError, IdempotencyConflict, InvalidRequest

T = TypeVar("T")

REMEMBERED_SECONDS = 600.0
REMEMBERED_AT_MOST = 2_000
LONGEST_KEY = 255


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`, which is cancelled when the caller hangs up first. Raises: ClientDisconnect."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hung_up(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def passing_on(
    work: Callable[[Receive, Send], Coroutine[Any, Any, None]], receive: Receive, send: Send, *, body: bool
) -> None:
    """`work`, which reads a request (with a `body` or without) and answers it; ended when the caller hangs up between
    the two. Raises: ClientDisconnect."""
    asked, answered = asyncio.Event(), asyncio.Event()
    if not body:
        asked.set()

    async def reading() -> Message:
        message = await receive()
        if not message.get("more_body"):
            asked.set()
        return message

    async def answering(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            answered.set()
        await send(message)

    async def listening() -> Message:
        await asked.wait()
        message = await receive()
        if answered.is_set():  # the end of the answer is the end of listening, and no hanging up
            await asyncio.Event().wait()
        return message

    await unless_gone(listening, work(reading, answering))


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True)
class _Call:
    request: object  # what was asked for; another request must not come with the same key
    task: asyncio.Task[Any]
    until: float


class Calls:
    """Each (tenant, key) is carried out once; whoever asks again gets the same outcome, for ten minutes."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], _Call] = {}

    async def once(self, tenant: str, key: str, request: object, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """A caller who hangs up does not end the work: that is what the key is for.

        Raises: IdempotencyConflict, InvalidRequest, and what `work` raises.
        """
        if not 0 < len(key) <= LONGEST_KEY:
            raise InvalidRequest(f"An Idempotency-Key has 1 to {LONGEST_KEY} characters.")
        call = self._calls.get((tenant, key))
        if call is None:
            self._forget()
            call = _Call(request, asyncio.create_task(work()), time.monotonic() + REMEMBERED_SECONDS)
            self._calls[tenant, key] = call
            call.task.add_done_callback(lambda task: self._ended((tenant, key), task))
        elif call.request != request:
            raise IdempotencyConflict("That Idempotency-Key came with another request before. Use a new one.")
        outcome: T = await asyncio.shield(call.task)
        return outcome

    def _ended(self, name: tuple[str, str], task: asyncio.Task[Any]) -> None:
        """What may be tried again was not done."""
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or (error is not None and not (isinstance(error, HutchError) and not error.retryable)):
            self._calls.pop(name, None)

    def _forget(self) -> None:
        now = time.monotonic()
        over = [name for name, call in self._calls.items() if call.task.done() and call.until < now]
        spare = len(self._calls) - len(over) - REMEMBERED_AT_MOST + 1
        ended = (name for name, call in self._calls.items() if call.task.done() and name not in over)
        for name in [*over, *(name for name, _ in zip(ended, range(spare), strict=False))]:
            del self._calls[name]
