"""The MCP servers of a session.

A server that is a program runs inside the sandbox: it does what a model tells it, so it gets the rights of the model's
sandbox, and none of this machine's. A server with an address is reached from here: whoever configured it chose it, and
its headers are secrets that must not enter the sandbox. Models can name configured servers only. See decision 0088.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hutch.model.errors import HutchError, InvalidRequest, NotSupported, PortMisbehaved
from hutch.model.limits import MIB
from hutch.tools.workspace import Workspace

if TYPE_CHECKING:
    from mcp import Client

START_SECONDS = 60.0
MAX_MESSAGE = 16 * MIB
_FIELDS = {"command", "args", "env", "url", "headers"}


@dataclass(frozen=True, slots=True)
class McpServer:
    """Either a program of the sandbox, or an address."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def read_servers(configured: Mapping[str, Mapping[str, Any]] | None) -> dict[str, McpServer]:
    """The usual form: {"name": {"command": …, "args": […], "env": {…}}} or {"name": {"url": …, "headers": {…}}}.

    Raises: InvalidRequest.
    """
    return {name: _read(name, entry) for name, entry in (configured or {}).items()}


def _read(name: str, entry: Mapping[str, Any]) -> McpServer:
    unknown = set(entry) - _FIELDS - {"type", "transport"}
    if unknown or ("command" in entry) == ("url" in entry):
        raise InvalidRequest(
            f"MCP server {name!r} needs either command (with args, env) or url (with headers)"
            + (f"; {', '.join(sorted(unknown))} is not known." if unknown else ".")
        )
    command, arguments, url = entry.get("command"), entry.get("args", []), entry.get("url")
    texts = [command or url, *arguments, *entry.get("env", {}).values(), *entry.get("headers", {}).values()]
    if isinstance(arguments, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(
            f"MCP server {name!r}: command and url are texts, args a list of texts, env and headers too."
        )
    if url is not None:
        return McpServer(url=url, headers=dict(entry.get("headers", {})))
    return McpServer(command=(str(command), *arguments), env=dict(entry.get("env", {})))


@dataclass(eq=False)
class _Link:
    ready: asyncio.Future[Client]
    ended: asyncio.Event  # the server has gone: the next call makes a new connection
    task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self.ended.is_set() or self.task is None or self.task.done()


class McpServers:
    """Connections, each made at its first use and kept. Each lives in a task of its own, as its library wants it."""

    def __init__(self, workspace: Workspace, servers: Mapping[str, McpServer]) -> None:
        self.servers = servers
        self._workspace = workspace
        self._links: dict[str, _Link] = {}
        workspace.on_reset(self.close)

    async def client(self, name: str) -> Client:
        """Raises: InvalidRequest, NotSupported, PortMisbehaved."""
        if name not in self.servers:
            there = ", ".join(sorted(self.servers)) or "none; SandboxSession.create(mcp_servers=…) configures them"
            raise InvalidRequest(f"There is no MCP server {name!r:.100}. Configured: {there}.")
        link = self._links.get(name)
        if link is None or link.over:
            link = self._links[name] = _Link(asyncio.get_running_loop().create_future(), asyncio.Event())
            link.task = asyncio.create_task(self._live(name, link.ready, link.ended))
        try:
            async with asyncio.timeout(START_SECONDS):
                return await asyncio.shield(link.ready)
        except TimeoutError as error:
            raise PortMisbehaved(f"MCP server {name!r} did not answer within {START_SECONDS:g} s.") from error

    async def close(self) -> None:
        tasks = [link.task for link in self._links.values() if link.task is not None]
        self._links = {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _live(self, name: str, ready: asyncio.Future[Client], ended: asyncio.Event) -> None:
        try:
            from mcp import Client
        except ImportError:
            ready.set_exception(NotSupported("MCP needs the package mcp: pip install 'hutch[mcp]'."))
            return
        try:
            async with self._connection(name, ended) as transport, Client(transport) as client:
                ready.set_result(client)
                await ended.wait()
        except HutchError as error:
            _fail(ready, error)
        except Exception as error:  # noqa: BLE001  # whatever the library raises, in groups, is told as one thing
            _fail(ready, PortMisbehaved(f"MCP server {name!r} could not be used: {_innermost(error)!r:.500}"))

    def _connection(self, name: str, ended: asyncio.Event) -> contextlib.AbstractAsyncContextManager[Any]:
        server = self.servers[name]
        return self._program(name, server, ended) if server.url is None else _address(server.url, server.headers)

    @contextlib.asynccontextmanager
    async def _program(self, name: str, server: McpServer, ended: asyncio.Event) -> AsyncIterator[Any]:
        """The streams of a program in the sandbox. Raises: HutchError."""
        client = self._workspace.client
        started = await client.start(shlex.join(server.command), env=server.env, stdin=True, tag=f"mcp:{name}"[:64])
        try:
            yield _streams(self._workspace, name, started["process_id"], ended)
        finally:
            with contextlib.suppress(HutchError):
                await client.kill(started["process_id"])


@contextlib.asynccontextmanager
async def _address(url: str, headers: Mapping[str, str]) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(headers=dict(headers), timeout=httpx2.Timeout(30, read=300)) as http:
        yield streamable_http_client(url, http_client=http)


@contextlib.asynccontextmanager
async def _streams(
    workspace: Workspace, name: str, process_id: str, ended: asyncio.Event
) -> AsyncIterator[tuple[Any, Any]]:
    """One JSON message a line, both ways, as the library's streams."""
    import anyio
    from mcp.shared.message import SessionMessage

    into, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, out_of = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        try:
            async with into:
                async for line in _lines(workspace, name, process_id):
                    await into.send(_message(line))
        finally:
            ended.set()

    async def write() -> None:
        async with out_of:
            async for message in out_of:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await workspace.client.send_input(process_id, text + "\n")

    async with anyio.create_task_group() as group, received, sent:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield received, sent
        finally:
            group.cancel_scope.cancel()


async def _lines(workspace: Workspace, name: str, process_id: str) -> AsyncIterator[bytes]:
    """Raises: PortMisbehaved for a line without end."""
    rest = b""
    async for event in workspace.client.attach(process_id):
        if event["type"] != "stdout":
            continue
        *lines, rest = (rest + event["data"]).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > MAX_MESSAGE:
            raise PortMisbehaved(f"MCP server {name!r} sent a message of more than {MAX_MESSAGE // MIB} MiB.")


def _message(line: bytes) -> Any:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


def _fail(ready: asyncio.Future[Client], error: HutchError) -> None:
    if not ready.done():
        ready.set_exception(error)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
