"""A client of an API that is served in this very process: calls go to the app itself, over no socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

import anyio
import httpcore

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.http import Http
from hutch.model.principal import COUNTED

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
ADDRESS = "http://localhost"  # nothing listens there: it only fills the place of one


def client_in(app: App, api_key: str, template: str) -> AsyncSandboxClient:
    """A client with that key, on whose calls `app` acts as on any other's, but for counting them."""
    client = AsyncSandboxClient("remote", ADDRESS, api_key=api_key, template=template)
    transport = client._transport
    assert isinstance(transport, Http)
    transport.goes_to(AppConnections(app))
    return client


class AppConnections:
    """Stands where a client has connections to a server elsewhere."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._exchanges: set[asyncio.Task[None]] = set()

    async def send(self, request: httpcore.Request) -> httpcore.Response:
        """The beginning of the answer, which is to be closed. Raises: httpcore.RemoteProtocolError."""
        exchange = _Exchange(request)
        task = asyncio.create_task(exchange.run(self._app))
        self._exchanges.add(task)  # or the loop might lose it
        task.add_done_callback(self._exchanges.discard)
        try:
            status, headers = await asyncio.shield(exchange.begun)
        except BaseException:
            exchange.hang_up()
            await asyncio.wait({task})  # so that what it began has ended, too
            raise
        return httpcore.Response(status, headers=headers, content=_Body(exchange, task))

    async def aclose(self) -> None:
        for task in self._exchanges:
            task.cancel()


class _Exchange:
    """One request and its answer, as the app sees them."""

    def __init__(self, request: httpcore.Request) -> None:
        assert isinstance(request.stream, AsyncIterable)
        self.begun: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
        self.complete = False
        self._scope = _scope(request)
        self._asked = aiter(request.stream)
        self._all_asked = False
        self._gone = asyncio.Event()
        # Without room for a piece: an answer is made as fast as it is read.
        self._out, self._in = anyio.create_memory_object_stream[bytes](0)

    async def run(self, app: App) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except ConnectionError:  # how an app breaks an answer off
            pass
        finally:
            if not self.begun.done():
                self.begun.set_exception(httpcore.RemoteProtocolError("there is no answer"))
                self.begun.exception()  # nobody may be there to be told
            self._out.close()

    def hang_up(self) -> None:
        self._gone.set()
        self._in.close()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Raises: httpcore.RemoteProtocolError when the answer breaks off."""
        async with self._in:
            async for piece in self._in:
                yield piece
        if not self.complete:
            raise httpcore.RemoteProtocolError("the answer broke off")

    async def _receive(self) -> Message:
        if not self._all_asked and not self._gone.is_set():
            async for piece in self._asked:
                return {"type": "http.request", "body": piece, "more_body": True}
            self._all_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """What is sent to somebody who left is dropped, as servers do it."""
        if message["type"] == "http.response.start" and not self.begun.done():
            self.begun.set_result((message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body":
            try:
                if message.get("body"):
                    await self._out.send(message["body"])
            except anyio.BrokenResourceError:
                pass
            if not message.get("more_body"):
                self.complete = True
                self._out.close()


class _Body:
    def __init__(self, exchange: _Exchange, task: asyncio.Task[None]) -> None:
        self._exchange = exchange
        self._task = task

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._exchange.pieces()

    async def aclose(self) -> None:
        self._exchange.hang_up()
        await asyncio.wait({self._task})


def _scope(request: httpcore.Request) -> Message:
    path, _, query = request.url.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method.decode(),
        "scheme": "http",
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers],
        "client": None,
        "server": ("localhost", 80),
        COUNTED: True,
    }
