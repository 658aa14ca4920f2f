"""Server-sent events from an engine's iterator: kept alive while nothing happens, closed when nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from hutch.engine.loop import close_items
from hutch.model.errors import HutchError
from hutch.model.wire import SSE_KEEPALIVE, pack_error, sse
from hutch.server.answers import internal
from hutch.server.streamed import Streamed

KEEPALIVE_SECONDS = 10.0
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def event_stream(events: AsyncIterator[bytes], close: Callable[[], Awaitable[None]] | None = None) -> Streamed:
    """`events` are packed ones; `close` runs at the end, however it came."""

    async def end() -> None:
        try:
            await close_items(events)
        finally:
            if close is not None:
                await close()

    return Streamed(_kept_alive(events), end, media_type="text/event-stream", headers=HEADERS)


async def _kept_alive(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    waiting: asyncio.Task[bytes] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({waiting}, timeout=KEEPALIVE_SECONDS)
            if not done:
                yield SSE_KEEPALIVE  # a listener that is gone is noticed by writing to it
                continue
            finished, waiting = waiting, None
            try:
                yield finished.result()
            except StopAsyncIteration:
                return
            except HutchError as error:
                yield sse("error", pack_error(error))
                return
            except Exception as error:  # noqa: BLE001 - the answer has begun: only an event can still say it
                yield sse("error", pack_error(internal(error)))
                return
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
