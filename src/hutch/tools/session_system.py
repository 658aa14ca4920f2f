"""Tools about the session itself: its environment, its processes, how it stands."""

from __future__ import annotations

import re
from typing import Annotated

from hutch.model.errors import HutchError, InvalidRequest
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.answers import cut
from hutch.tools.session_shell import MERGED
from hutch.tools.workspace import Workspace

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Everything that runs in the sandbox, as /proc tells it: ps need not be installed.
_PROCESSES = r"""
for folder in /proc/[0-9]*; do
  [ "$folder" != "/proc/$$" ] && read -r name < "$folder/comm" && mapfile -d '' -t words < "$folder/cmdline" || continue
  line="${words[*]}"
  printf '%s %s\n' "${folder#/proc/}" "${line//$'\n'/ }"
done 2>/dev/null
"""


class SystemTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def env_get(self, name: Annotated[str, "Of the variable"]) -> str:
        """The value of an environment variable, as commands see it."""
        result = await self._workspace.run('printenv -- "$NAME_ASKED"', env={"NAME_ASKED": _checked(name)})
        if result["exit_code"] != 0:
            raise InvalidRequest(f"{name} is not set. env_set sets it.")
        return result["stdout"].removesuffix("\n")

    async def env_set(self, name: Annotated[str, "Of the variable"], value: str) -> str:
        """Set an environment variable for all later commands of this session."""
        _checked(name)
        async with self._workspace.edits:
            env = {**self._workspace.env, name: value}
            await self._workspace.client.set_env(env)
            self._workspace.env = env
        return f"Set {name}"

    async def process_list(self) -> str:
        """The processes of the sandbox: those that tools started, with the id they are known by, and all others."""
        started = await self._workspace.client.processes()
        known = [
            f"{process['process_id']}  pid {process['pid']}  since {process['started_at']}  "
            f"{process['tag'] or ''} {' '.join(process['command'].removeprefix(MERGED).split())[:120]}"
            for process in started
            if process["status"] == "running"
        ]
        found = await self._workspace.run(_PROCESSES)
        lines = [" ".join(line.split())[:200] for line in found["stdout"].splitlines()]
        text = "\n".join([f"{len(known)} started by tools:", *known, f"{len(lines)} in all (pid, command):", *lines])
        return cut(text, "Use shell_exec to look for one.")

    async def workspace_info(self) -> str:
        """Where this session works, and how long it stays."""
        info = await self._workspace.client.info()
        return "\n".join(
            [
                f"session_id: {self._workspace.session_id}",
                f"workspace_path: {WORKSPACE_DIR}",
                f"template: {info['template']}",
                f"created_at: {info['created_at']}",
                f"expires_at: {info['expires_at']} (later with each call)",
            ]
        )

    async def workspace_health(self) -> str:
        """Whether the sandbox answers."""
        if await healthy(self._workspace):
            return "healthy"
        return "ERROR: sandbox_unavailable: the sandbox is not responding"


async def healthy(workspace: Workspace) -> bool:
    try:
        return (await workspace.run(":", timeout=10))["exit_code"] == 0
    except HutchError:
        return False


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise InvalidRequest(f"{name!r:.100} is no name of a variable.")
    return name
