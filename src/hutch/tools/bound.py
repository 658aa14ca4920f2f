"""The tools of one conversation as plain functions, for code that is no agent: `bind` for plain code, `abind` for
coroutines. They raise what went wrong, but for commands, whose results say it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, TypeVar

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import InvalidRequest
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.bash import BashTools
from hutch.tools.holder import get_async_client

P = ParamSpec("P")
T = TypeVar("T")


class AsyncBound(NamedTuple):
    """Coroutine functions; `_asdict()` gives them by name."""

    read_file: Callable[..., Coroutine[Any, Any, str]]
    write_file: Callable[..., Coroutine[Any, Any, str]]
    edit_file: Callable[..., Coroutine[Any, Any, int]]
    ls: Callable[..., Coroutine[Any, Any, list[str]]]
    glob: Callable[..., Coroutine[Any, Any, list[str]]]
    grep: Callable[..., Coroutine[Any, Any, list[dict[str, Any]]]]
    delete: Callable[..., Coroutine[Any, Any, None]]
    execute_bash_command: Callable[..., Coroutine[Any, Any, dict[str, Any]]]
    download_sandbox_file: Callable[..., Coroutine[Any, Any, dict[str, Any]]]
    end_conversation: Callable[..., Coroutine[Any, Any, None]]


class Bound(NamedTuple):
    """Plain functions; `_asdict()` gives them by name."""

    read_file: Callable[..., str]
    write_file: Callable[..., str]
    edit_file: Callable[..., int]
    ls: Callable[..., list[str]]
    glob: Callable[..., list[str]]
    grep: Callable[..., list[dict[str, Any]]]
    delete: Callable[..., None]
    execute_bash_command: Callable[..., dict[str, Any]]
    download_sandbox_file: Callable[..., dict[str, Any]]
    end_conversation: Callable[..., None]


class _Conversation:
    """What both forms are made of. Files are those of the user's drive."""

    def __init__(self, client: AsyncSandboxClient, user_id: str, thread_id: str) -> None:
        for name, value in (("user_id", user_id), ("thread_id", thread_id)):
            if not isinstance(value, str) or not value:
                raise InvalidRequest(f"{name} must be a text that is not empty.")
        self._client = client.for_thread(user_id, thread_id)
        self._tools = BashTools(client)
        self._who = (user_id, thread_id)

    async def read_file(self, path: str) -> str:
        """The text of a file of the drive. Raises: HutchError."""
        return await self._client.drive.read_text(path)

    async def write_file(self, path: str, content: str | bytes) -> str:
        """Store a file in the drive; its path. Raises: HutchError."""
        return (await self._client.drive.write_file(path, content))["path"]

    async def edit_file(self, path: str, old: str, new: str, replace_all: bool = False) -> int:
        """Replace text in a file of the drive; how many times. Raises: HutchError."""
        return (await self._client.drive.edit_file(path, old, new, replace_all=replace_all))["replacements"]

    async def ls(self, path: str = "/", recursive: bool = False) -> list[str]:
        """Paths in a folder of the drive; those of folders end in a slash. Raises: HutchError."""
        entries = await self._client.drive.ls(path, recursive=recursive)
        return [entry["path"] + ("/" if entry["kind"] == "directory" else "") for entry in entries]

    async def glob(self, pattern: str, path: str = "/") -> list[str]:
        """Paths of the drive that match. Raises: HutchError."""
        return [entry["path"] for entry in await self._client.drive.glob(pattern, path)]

    async def grep(self, pattern: str, path: str = "/", **options: Any) -> list[dict[str, Any]]:
        """Lines of the drive's files that match: `path`, `line`, `text`. Raises: HutchError."""
        return [dict(match) for match in (await self._client.drive.grep(pattern, path, **options))["matches"]]

    async def delete(self, path: str, recursive: bool = False) -> None:
        """Delete a file of the drive. Raises: HutchError."""
        await self._client.drive.delete(path, recursive=recursive)

    async def execute_bash_command(
        self, command: str, file_paths: list[str] | str | None = None, working_dir: str = WORKSPACE_DIR
    ) -> dict[str, Any]:
        """Run a command in the sandbox, with files of the drive brought there first."""
        return await self._tools.run(*self._who, command, file_paths, working_dir)

    async def download_sandbox_file(self, filename: str, save_path: str) -> dict[str, Any]:
        """Save a file of the sandbox in the drive."""
        return await self._tools.save(*self._who, filename, save_path)

    async def end_conversation(self) -> None:
        """Delete the sandbox with its files; the drive stays."""
        await self._client.close_session()


def abind(user_id: str, thread_id: str, client: AsyncSandboxClient | None = None) -> AsyncBound:
    """The tools of one conversation as coroutine functions. Raises: InvalidRequest, SettingsInvalid."""
    tools = _Conversation(client or get_async_client(), user_id, thread_id)
    return AsyncBound(*(getattr(tools, name) for name in AsyncBound._fields))


def bind(user_id: str, thread_id: str, client: AsyncSandboxClient | None = None) -> Bound:
    """The tools of one conversation as plain functions. Raises: InvalidRequest, SettingsInvalid."""
    client = client or get_async_client()
    tools = _Conversation(client, user_id, thread_id)

    def plain(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.loop_thread.run(function(*args, **kwargs))

        return call

    return Bound(*(plain(getattr(tools, name)) for name in Bound._fields))
