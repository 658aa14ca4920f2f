"""Calls that outlive or end with their connection, and calls that must not be made twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

from hutch.model.errors import HutchError, IdempotencyConflict, InvalidRequest

T = TypeVar("T")

REMEMBERED_SECONDS = 600.0
REMEMBERED_AT_MOST = 2_000  # for a tenant
REMEMBERED_BYTES = 64 * 1024 * 1024  # for a tenant
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
    asked: bytes  # a digest of the request; another one must not come with the same key
    task: asyncio.Task[Any]
    size: int = 0  # about, of its outcome in memory
    timer: asyncio.TimerHandle | None = None


class Calls:
    """Each (tenant, key) is carried out once; whoever asks again gets the same outcome, for ten minutes.

    What a tenant has too many of, or too large ones, pushes out the oldest of its own, never another's.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, _Call]] = {}  # the oldest first

    async def once(self, tenant: str, key: str, request: object, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """A caller who hangs up does not end the work: that is what the key is for.

        Raises: IdempotencyConflict, InvalidRequest, and what `work` raises.
        """
        if not 0 < len(key) <= LONGEST_KEY:
            raise InvalidRequest(f"An Idempotency-Key has 1 to {LONGEST_KEY} characters.")
        asked = hashlib.sha256(repr(request).encode("utf-8", "surrogatepass")).digest()
        calls = self._tenants.setdefault(tenant, {})
        call = calls.get(key)
        if call is None:
            call = calls[key] = _Call(asked, asyncio.create_task(work()))
            call.task.add_done_callback(lambda _: self._ended(tenant, key, call))
        elif call.asked != asked:
            raise IdempotencyConflict("That Idempotency-Key came with another request before. Use a new one.")
        outcome: T = await asyncio.shield(call.task)
        return outcome

    def _ended(self, tenant: str, key: str, call: _Call) -> None:
        """What may be tried again was not done."""
        error = None if call.task.cancelled() else call.task.exception()
        if call.task.cancelled() or (error is not None and not (isinstance(error, HutchError) and not error.retryable)):
            return self._forget(tenant, key, call)
        call.size = len(key) + (0 if error is not None else _size(call.task.result()))
        call.timer = asyncio.get_running_loop().call_later(REMEMBERED_SECONDS, self._forget, tenant, key, call)
        ended = [(name, one) for name, one in self._tenants.get(tenant, {}).items() if one.task.done()]
        spare, room = len(ended) - REMEMBERED_AT_MOST, REMEMBERED_BYTES - sum(one.size for _, one in ended)
        for number, (name, one) in enumerate(ended):
            if number >= spare and room >= 0:
                return
            room += one.size
            self._forget(tenant, name, one)

    def _forget(self, tenant: str, key: str, call: _Call) -> None:
        calls = self._tenants.get(tenant, {})
        if calls.get(key) is call:
            del calls[key]
            if call.timer is not None:
                call.timer.cancel()  # it holds the outcome
            if not calls:
                del self._tenants[tenant]


def _size(outcome: object) -> int:
    """About as many bytes as it takes: all that can be large is text in flat results."""
    values = outcome.values() if isinstance(outcome, dict) else outcome if isinstance(outcome, tuple) else (outcome,)
    return 1000 + sum(len(value) for value in values if isinstance(value, str | bytes))
