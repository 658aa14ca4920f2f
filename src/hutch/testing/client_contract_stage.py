"""The stage of the client contract: how its tests run, and the sync client behind the face of the async one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar, cast

from hutch.client.async_bash_tool import AsyncBashTool
from hutch.client.async_batch import AsyncBatchSandboxClient
from hutch.client.async_client import AsyncSandboxClient
from hutch.client.sync_client import BashTool, BatchSandboxClient, SandboxClient

HANG = 60.0  # a test that takes so long hangs; each takes well under two seconds where it works

Kind = TypeVar("Kind", AsyncSandboxClient, AsyncBatchSandboxClient, AsyncBashTool)
Make = Callable[..., Any]  # of a kind and its options

SYNC_OF: dict[type, type] = {
    AsyncSandboxClient: SandboxClient,
    AsyncBatchSandboxClient: BatchSandboxClient,
    AsyncBashTool: BashTool,
}
_RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}


class Stage:
    """Clients of one transport, and a folder on this machine to load from and to."""

    def __init__(self, make: Make, folder: Path) -> None:
        self._make = make
        self._made: list[Any] = []
        self.folder = folder

    def a(self, kind: type[Kind], **options: Any) -> Kind:
        made = self._make(kind, **options)
        self._made.append(made)
        return cast(Kind, made)

    async def close(self) -> None:
        for made in self._made:
            await made.aclose()

    def client(self, **options: Any) -> AsyncSandboxClient:
        """By default with policy `open`, so that commands may sleep."""
        return self.a(AsyncSandboxClient, **{"policy": "open", **options})

    async def bound(self, thread: str = "t", **options: Any) -> AsyncSandboxClient:
        client = self.client(**options)
        await client.get_or_create_session("u", thread)
        return client


Body = Callable[[Any, Stage], Awaitable[None]]


def staged(body: Body) -> Callable[[ClientContractStage, Path], None]:
    """Turns `async def test_x(self, stage)` into a test pytest can run."""

    def run(self: ClientContractStage, tmp_path: Path) -> None:
        async def play() -> None:
            local = tmp_path / "local"
            local.mkdir()
            async with asyncio.timeout(HANG):
                with self.clients(tmp_path / "data") as make:
                    stage = Stage(make, local)
                    try:
                        await body(self, stage)
                    finally:
                        await stage.close()

        asyncio.run(play())

    # Not functools.wraps: pytest would follow it to the arguments of `body`.
    run.__name__, run.__doc__, run.__qualname__ = body.__name__, body.__doc__, body.__qualname__
    run.__module__ = body.__module__
    return run


class ClientContractStage:
    """Base of the contract's parts. A subclass gives `clients`."""

    def clients(self, folder: Path) -> AbstractContextManager[Make]:
        """Yields a function that makes a client of a kind (an async class) with options, on this transport."""
        raise NotImplementedError("a subclass of ClientContract gives clients")


def over_sync(target: Any) -> Any:
    """A sync object behind the face of its async original: calls are awaited, iterators are async."""
    return _Face(target)


class _Face:
    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "_target", target)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, _RENAMED.get(name, name))
        if hasattr(found, "_core"):  # an area of the client, such as `files`
            return over_sync(found)
        return _call(found) if inspect.ismethod(found) else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    async def __aenter__(self) -> _Face:
        self._target.__enter__()
        return self

    async def __aexit__(self, *details: Any) -> None:
        self._target.__exit__(*details)


def _call(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same call with an async result; iterators and plain answers are told apart by the method's own type."""
    returns = str(inspect.signature(method).return_annotation)
    if returns.startswith("Iterator"):
        return lambda *args, **kwargs: _items(method(*args, **kwargs))
    if method.__name__ in ("for_thread", "drive_of"):
        return lambda *args, **kwargs: over_sync(method(*args, **kwargs))

    async def run(*args: Any, **kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        return over_sync(answer) if returns in ("Shell", "Connection") else answer

    return run


async def _items(items: Iterator[Any]) -> AsyncIterator[Any]:
    try:
        for item in items:
            yield item
    finally:
        getattr(items, "close", lambda: None)()
