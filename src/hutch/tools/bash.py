"""The bash tool: a command in the conversation's sandbox, with the files it needs brought there first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import HutchError, InvalidRequest, SessionExpiredError
from hutch.model.process import ExecResult
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.holder import get_async_client
from hutch.tools.long_output import shortened
from hutch.tools.sources import FileSource, source_of

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

COMMAND_SHOWN = 200  # characters of a failed command


class BashTools:
    """The two tools of an agent whose files lie elsewhere than in its sandbox.

    Args:
        client: whose sandboxes; default is the process's own client.
        files: where file paths lead: None for the user's drive, a deepagents backend, or a LangGraph `BaseStore`.
        timeout: seconds a command may take; default is the template's.
    """

    def __init__(
        self, client: AsyncSandboxClient | None = None, files: Any = None, timeout: float | None = None
    ) -> None:
        self._client = client
        self._files: FileSource = source_of(files)
        self._timeout = timeout

    def get_tools(self) -> list[StructuredTool]:
        """For LangChain: the user and the thread come from the runtime's context."""
        from hutch.tools.arguments import tool_of

        return [tool_of(self.execute_bash_command), tool_of(self.download_sandbox_file)]

    async def execute_bash_command(
        self,
        command: Annotated[str, "Bash command to execute"],
        file_paths: Annotated[
            list[str] | None,
            'File paths of the virtual filesystem to put into the sandbox first, like ["/data-exports/a.json"]',
        ] = None,
        working_dir: Annotated[str, "Folder to run in, /workspace or below it"] = WORKSPACE_DIR,
        runtime: Any = None,
    ) -> dict[str, Any]:
        """Execute a bash command in this conversation's sandbox, whose files stay from one command to the next.

        Files named in file_paths are brought from the virtual filesystem to /workspace/<filename> before the command
        runs; do not paste their content into the command. uploaded_files in the result names them below /workspace.
        A result with status "error" has exit_code and stderr, or the reason in error.
        """
        who = _caller(runtime)
        if isinstance(who, str):
            return {"status": "error", "error": who}
        return await self.run(*who, command, file_paths, working_dir)

    async def download_sandbox_file(
        self,
        filename: Annotated[str, "File in the sandbox, relative to /workspace"],
        save_path: Annotated[str, "Where to save it in the virtual filesystem, like /data-exports/results.csv"],
        runtime: Any = None,
    ) -> dict[str, Any]:
        """Save a file of the sandbox in the virtual filesystem. For large results; small ones are in stdout anyway."""
        who = _caller(runtime)
        if isinstance(who, str):
            return {"status": "error", "error": who}
        return await self.save(*who, filename, save_path)

    async def run(
        self, user_id: str, thread_id: str, command: str, file_paths: Any = None, working_dir: str = WORKSPACE_DIR
    ) -> dict[str, Any]:
        """The same for a user and a thread."""
        try:
            return await self._run(user_id, thread_id, command, _paths(file_paths), working_dir)
        except HutchError as error:
            return {**_failed(error), "command": str(command)[:COMMAND_SHOWN]}

    async def save(self, user_id: str, thread_id: str, filename: str, save_path: str) -> dict[str, Any]:
        try:
            size = await self._files.save(self._of(user_id, thread_id), filename, save_path)
        except HutchError as error:
            return {"status": "error", "error": str(error), "code": error.code}
        return {"status": "downloaded", "path": save_path, "size_bytes": size}

    async def _run(
        self, user_id: str, thread_id: str, command: str, paths: Sequence[str], working_dir: str
    ) -> dict[str, Any]:
        client = self._of(user_id, thread_id)
        try:
            return await self._once(client, command, paths, working_dir)
        except SessionExpiredError:
            # It expired between the look-up and the command. A new one needs the files again, so all is done anew.
            result = await self._once(self._of(user_id, thread_id), command, paths, working_dir)
            return {**result, "session_recreated": True, "files_kept": False}

    async def _once(
        self, client: AsyncSandboxClient, command: str, paths: Sequence[str], working_dir: str
    ) -> dict[str, Any]:
        assert client.user_id is not None
        assert client.thread_id is not None
        session = await client.get_or_create_session(client.user_id, client.thread_id)
        uploaded = await self._files.place(client, paths) if paths else []
        result = await client.execute(command, self._timeout, auto_retry=False, cwd=working_dir)
        return {
            **_fields(result),
            **await shortened(client, result),
            "uploaded_files": uploaded,
            "session_status": session["status"],
        }

    def _of(self, user_id: str, thread_id: str) -> AsyncSandboxClient:
        return (self._client or get_async_client()).for_thread(user_id, thread_id)


@lru_cache(maxsize=1)
def standard_tools() -> Mapping[str, StructuredTool]:
    """Those over the process's own client and the drive. They hold nothing, so one of each is enough."""
    return {tool.name: tool for tool in BashTools().get_tools()}


def _caller(runtime: Any) -> tuple[str, str] | str:
    """User and thread, or what is missing."""
    if runtime is None:
        return "Runtime context not provided"
    context = getattr(runtime, "context", None)
    configurable = (getattr(runtime, "config", None) or {}).get("configurable") or {}
    user_id = _value(context, "user_id") or configurable.get("user_id")
    thread_id = _value(context, "thread_id") or _value(context, "session_id") or configurable.get("thread_id")
    if not thread_id:
        return "No thread_id in context"
    if not user_id:
        return "No user_id in context"
    return str(user_id), str(thread_id)


def _value(context: Any, name: str) -> Any:
    return context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)


def _paths(given: Any) -> list[str]:
    """Raises: InvalidRequest."""
    paths = [given] if isinstance(given, str) else list(given or ())
    if not all(isinstance(path, str) and path for path in paths):
        raise InvalidRequest(f"file_paths must be a list of paths, not {given!r:.200}.")
    return paths


def _fields(result: ExecResult) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "status": "success" if result["exit_code"] == 0 else "error",
        "exit_code": result["exit_code"],
        "return_code": result["exit_code"],
        "execution_time_ms": result["execution_time_ms"],
    }
    # Said only when there is something to say: a model reads every word.
    said: Mapping[str, Any] = {
        "timed_out": result["timed_out"],
        "limit": result["limit"],
        "killed_processes": [process["name"] for process in result["killed_processes"]],
    }
    return {**fields, **{name: value for name, value in said.items() if value}}


def _failed(error: HutchError) -> dict[str, Any]:
    return {
        "status": "error",
        "error": str(error),
        "code": error.code,
        "exit_code": -1,
        "return_code": -1,
        "stdout": "",
        "stderr": "",
        "execution_time_ms": 0,
        "uploaded_files": [],
    }
