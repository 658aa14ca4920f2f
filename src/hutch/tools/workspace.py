"""What the tools of one session share: its sandbox, its environment, and how failures are told."""

from __future__ import annotations

import asyncio
import functools
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import (
    CommandRejected,
    HutchError,
    InvalidRequest,
    NotSupported,
    PathRejected,
    SessionExpiredError,
)
from hutch.model.process import ExecResult
from hutch.model.session import WORKSPACE_DIR, SessionInfo
from hutch.tools.answers import cut, error_text, told

NOT_FOUND = 127  # bash's exit code for a program that is not there
Reset = Callable[[], Awaitable[None]]


class Workspace:
    """One sandbox for one session; everything that tools start in it is ended by `close`."""

    def __init__(self, client: AsyncSandboxClient, user_id: str, session_id: str, timeout: float) -> None:
        self.client = client.for_thread(user_id, session_id)
        self.user_id, self.session_id, self.timeout = user_id, session_id, timeout
        self.info: SessionInfo | None = None
        self.env: dict[str, str] = {}
        self.edits = asyncio.Lock()  # of files and of the environment: read, change, write
        self._resets: list[Reset] = []

    async def open(self) -> SessionInfo:
        """Find or make the sandbox. Raises: HutchError."""
        self.info = await self.client.get_or_create_session(self.user_id, self.session_id)
        return self.info

    def on_reset(self, reset: Reset) -> None:
        """Called when the session ends, or its sandbox is a new one: let go of what lived in it."""
        self._resets.append(reset)

    async def close(self) -> None:
        """End what was started. Files stay."""
        for reset in self._resets:
            try:
                await reset()
            except HutchError:
                pass  # it went with its sandbox, or goes with it

    async def renew(self) -> None:
        """After the sandbox expired: a new, empty one. Raises: HutchError."""
        await self.close()
        self.env.clear()
        await self.open()

    def path(self, path: str) -> str:
        """`path` as an absolute one below /workspace. Raises: PathRejected."""
        return resolve_path(path)

    def relative(self, path: str) -> str:
        return posixpath.relpath(self.path(path), WORKSPACE_DIR)

    async def run(
        self,
        command: str,
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
    ) -> ExecResult:
        """Raises: HutchError."""
        seconds = self.timeout if timeout is None else timeout
        return await self.client.execute(command, seconds, auto_retry=False, stdin=stdin, env=env, cwd=cwd)

    async def feed(self, program: str, text: str, timeout: float | None) -> ExecResult:
        """Run `program`, which finds `text` as its last argument, with an empty input.

        Raises: NotSupported when it is not there, InvalidRequest when the text is too long for an argument.
        """
        script = f'text=$(cat; echo .); exec {program} "${{text%.}}" </dev/null'
        result = await self.run(script, stdin=text.encode("utf-8", "replace"), timeout=timeout)
        if result["exit_code"] == NOT_FOUND:
            raise missing(program.partition(" ")[0])
        if result["exit_code"] == 126 and "too long" in result["stderr"]:
            raise InvalidRequest("The code is longer than 128 KB: store it with file_write and run the file.")
        return result


def resolve_path(path: str) -> str:
    """`path`, relative to /workspace or absolute, as an absolute one below it. Links are the sandbox's to follow.

    Raises: PathRejected (a ValueError) when it leads out.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise PathRejected(f"{path!r:.200} is no path.")
    whole = posixpath.normpath(posixpath.join(WORKSPACE_DIR, path))
    if whole.startswith("//"):
        whole = whole[1:]
    if whole != WORKSPACE_DIR and not whole.startswith(WORKSPACE_DIR + "/"):
        raise PathRejected(f"{path!r:.200} lies outside {WORKSPACE_DIR}; use a path below it.", path=path[:200])
    return whole


def missing(program: str) -> NotSupported:
    return NotSupported(
        f"{program} is not installed on the machine that runs this sandbox. Its administrator can install it; "
        "until then use another way."
    )


def finished(result: ExecResult, remedy: str) -> str:
    """What a command printed, and how it ended where that was not well."""
    output = result["stdout"] + result["stderr"]
    return cut(output, remedy) + ("" if result["exit_code"] == 0 else f"\n{ending(result)}")


def ending(result: ExecResult) -> str:
    if result["timed_out"]:
        return "[FAILED (exit 124): the time was up; it was ended. Use a longer timeout, or run it in the background]"
    limit = f", limit {result['limit']} was hit" if result["limit"] else ""
    return f"[FAILED (exit {result['exit_code']}{limit})]"


def answering(workspace: Workspace, act: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """`act`, with its failures told as text."""

    @functools.wraps(act)
    async def answer(**arguments: Any) -> str:
        try:
            return await act(**arguments)
        except SessionExpiredError:
            return await _start_over(workspace)
        except CommandRejected as error:
            hint = error.details.get("hint")
            return told(error) if not hint or hint in str(error) else error_text(error.code, f"{error} {hint}")
        except HutchError as error:
            return told(error)

    return answer


async def _start_over(workspace: Workspace) -> str:
    try:
        await workspace.renew()
    except HutchError as error:
        return told(error)
    return error_text(
        SessionExpiredError.code,
        "The sandbox had expired, with all its files and processes. A new, empty one is ready: make the files again, "
        "then repeat this call.",
    )
