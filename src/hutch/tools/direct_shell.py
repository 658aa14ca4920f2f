"""Shell tools of the direct toolkit: the caller names its sessions."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated

from hutch.model.errors import InvalidRequest
from hutch.tools.session_shell import ShellTools
from hutch.tools.workspace import Workspace

SESSION = "Name of a session; each holds one command at a time"
MAX_SESSIONS = 32


class DirectShell:
    """Each session is what the other tools call a shell of their own; what a name has never named is made."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._sessions: dict[str, ShellTools] = {}

    async def shell_exec(
        self,
        command: Annotated[str, "Bash command"],
        session_id: Annotated[str | None, SESSION] = None,
        exec_dir: Annotated[str | None, "Folder to run in"] = None,
        async_mode: Annotated[bool, "Return at once and let it run"] = False,
        timeout: Annotated[float | None, "Seconds until it is ended"] = None,
    ) -> str:
        """Run a bash command."""
        name = session_id or f"shell_{secrets.token_hex(4)}"
        if name not in self._sessions and len(self._sessions) >= MAX_SESSIONS:
            raise InvalidRequest(f"There are {MAX_SESSIONS} sessions; use one of them.")
        shell = self._sessions.setdefault(name, ShellTools(self._workspace))
        answer = await (shell.start if async_mode else shell.run)(command, timeout, exec_dir)
        return f"{answer}\n[session_id: {name}]"

    async def shell_view(self, session_id: Annotated[str, SESSION]) -> str:
        """Show what the command of a session printed so far."""
        return await self._shell(session_id).shell_view()

    async def shell_write(self, session_id: Annotated[str, SESSION], input: str, press_enter: bool = True) -> str:
        """Type into the command of a session."""
        return await self._shell(session_id).shell_write(input, press_enter)

    async def shell_wait(self, session_id: Annotated[str, SESSION], seconds: float = 30) -> str:
        """Wait for the end of a session's command, and show its output."""
        return await self._shell(session_id).shell_wait(seconds)

    async def shell_kill(self, session_id: Annotated[str, SESSION]) -> str:
        """End the command of a session."""
        return await self._shell(session_id).shell_kill()

    async def shell_sessions(self) -> str:
        """The sessions there are, and whether their commands run."""
        views = await asyncio.gather(*(shell.shell_view() for shell in self._sessions.values()))
        lines = [f"{name}  {view.splitlines()[0]}" for name, view in zip(self._sessions, views, strict=True)]
        return "\n".join(lines) or "No sessions"

    def _shell(self, session_id: str) -> ShellTools:
        if session_id not in self._sessions:
            raise InvalidRequest(f"There is no session {session_id!r:.100}; shell_exec makes one.")
        return self._sessions[session_id]
