"""Where and with what environment the commands of a sandbox run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hutch.engine.paths import workspace_path
from hutch.engine.sandboxes import Sandboxes
from hutch.model.errors import InvalidRequest, PathRejected
from hutch.model.session import WORKSPACE_DIR

MAX_ENV_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Context:
    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

    async def set(self, tenant: str, sandbox_id: str, *, cwd: str | None, env: Mapping[str, str] | None) -> None:
        """Set what is not None; it stays until it is set again, across restarts.

        Raises: PathRejected, SandboxFileNotFound, InvalidRequest, SessionExpiredError.
        """
        if env is not None:
            check_env(env)
        live = await self._sandboxes.find(tenant, sandbox_id)
        live.touch()
        if cwd is not None:
            path = workspace_path(cwd, allow_root=True)
            found = await (await self._sandboxes.machine(live)).stat(path)
            if found["kind"] != "directory":
                raise PathRejected(f"{cwd!r} is not a folder.", path=cwd)
            cwd = WORKSPACE_DIR if path == "." else f"{WORKSPACE_DIR}/{path}"
        await self._sandboxes.set_context(live, cwd=cwd, env=env)


def check_env(env: Mapping[str, str]) -> None:
    """Raises: InvalidRequest."""
    size = 0
    for name, value in env.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise InvalidRequest(f"{name!r:.80} cannot be the name of a variable: letters, digits and _ only.")
        if not isinstance(value, str) or "\0" in value:
            raise InvalidRequest(f"The value of variable {name} must be a text without NUL characters.")
        size += len(name) + len(value.encode("utf-8", "surrogateescape")) + 2
    if size > MAX_ENV_BYTES:
        raise InvalidRequest(f"The environment holds {size} bytes, at most {MAX_ENV_BYTES} are possible.")
