"""A real server on loopback: uvicorn with our app over an engine, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from starlette.types import ASGIApp

from hutch.engine.assemble import Engine, assemble
from hutch.model.principal import LOCAL_TENANT, Scope
from hutch.providers.base import Provider
from hutch.server.app import create_app
from hutch.server.listen import bind, make_server, serving
from hutch.server.preview.app import preview_app
from hutch.server.services import ServerOptions
from hutch.settings import Settings
from hutch.tools.mcp.http import McpHttp

T = TypeVar("T")
Wrap = Callable[[ASGIApp], ASGIApp]
START_SECONDS = 30


@dataclass(slots=True)
class Served:
    """A running server, its engine, and the loop they live on."""

    url: str
    key: str  # of an admin of the tenant `local`
    engine: Engine
    loop: asyncio.AbstractEventLoop
    previews: int  # their port on 127.0.0.1

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the server's loop do something."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(START_SECONDS)

    def new_key(self, tenant: str = LOCAL_TENANT, scope: Scope = "use") -> str:
        return self.run(self.engine.keys.create("test", tenant, scope))[0].text


@asynccontextmanager
async def _running(
    settings: Settings, provider: Provider | None, options: ServerOptions, mcp: McpHttp | None, wrap: Wrap
) -> AsyncIterator[Served]:
    engine = await assemble(settings, provider)
    listener, previews = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
    preview_port = int(previews.getsockname()[1])
    options = replace(options, preview_url=options.preview_url or f"http://localhost:{preview_port}")
    beside = {} if mcp is None else {"/mcp": mcp.mount}
    server = make_server(wrap(create_app(engine, options, beside)), drain_seconds=5)
    other = make_server(preview_app(engine, options), drain_seconds=1)
    try:
        async with (
            contextlib.nullcontext() if mcp is None else mcp.running(),
            serving(server, listener),
            serving(other, previews),
        ):
            key = (await engine.keys.create("test", LOCAL_TENANT, "admin"))[0].text
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            yield Served(url, key, engine, asyncio.get_running_loop(), preview_port)
            server.force_exit = other.force_exit = True
    finally:
        await engine.aclose()


@contextmanager
def served(
    settings: Settings,
    provider: Provider | None = None,
    options: ServerOptions | None = None,
    mcp: Callable[[], McpHttp] | None = None,
    wrap: Wrap = lambda app: app,
) -> Iterator[Served]:
    ready: list[Served] = []
    failed: list[BaseException] = []
    begun, over = threading.Event(), threading.Event()

    async def live() -> None:
        async with _running(settings, provider, options or ServerOptions(), mcp and mcp(), wrap) as made:
            ready.append(made)
            begun.set()
            await asyncio.to_thread(over.wait)

    def main() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            failed.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=main, name="test-server")
    thread.start()
    try:
        begun.wait(START_SECONDS)
        if failed:
            raise failed[0]
        yield ready[0]
    finally:
        over.set()
        thread.join(START_SECONDS)
    if failed:
        raise failed[0]
