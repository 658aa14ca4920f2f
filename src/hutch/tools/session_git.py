"""Git tools of a session."""

from __future__ import annotations

from typing import Annotated

from hutch.tools.answers import cut
from hutch.tools.egress import no_hosts
from hutch.tools.session_files import FILE
from hutch.tools.workspace import Workspace

AUTHOR = ("Agent", "agent@sandbox.invalid")  # of commits where git has not been told who commits
_MORE = "Use shell_exec with git for less."


class GitTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def git_clone(
        self,
        url: str,
        path: Annotated[str | None, "Folder to make; default: the repository's name"] = None,
        branch: str | None = None,
    ) -> str:
        """Clone a repository into the workspace."""
        git = self._workspace.client.git
        target = None if path is None else self._workspace.path(path)
        async with no_hosts(self._workspace, url):
            await git.clone(url, target, branch=branch)
        return f"Cloned {url} to {target or 'a folder of its name'} in /workspace"

    async def git_commit(self, message: str, path: Annotated[str, FILE] = ".") -> str:
        """Commit all changes of a repository, new files included."""
        git, where = self._workspace.client.git, self._workspace.path(path)
        await git.add(["."], where)
        known = (await git.config("user.email", path=where))["value"]
        author, email = (None, None) if known else AUTHOR
        done = await git.commit(message, author=author, email=email, path=where)
        return f"Committed {done['sha']}"

    async def git_push(
        self,
        remote: str = "origin",
        branch: Annotated[str | None, "Default: the current one"] = None,
        path: Annotated[str, FILE] = ".",
    ) -> str:
        """Push the commits of a repository."""
        git, where = self._workspace.client.git, self._workspace.path(path)
        urls = [known["url"] for known in await git.remotes(where) if known["name"] == remote]
        async with no_hosts(self._workspace, urls[0] if urls else remote):
            await git.push(remote, branch, where)
        return f"Pushed to {remote}"

    async def git_status(self, path: Annotated[str, FILE] = ".") -> str:
        """The branch of a repository, and what has changed in it."""
        status = await self._workspace.client.git.status(self._workspace.path(path))
        ahead = f", {status['ahead']} ahead, {status['behind']} behind" if status["ahead"] or status["behind"] else ""
        lines = [f"{file['index']}{file['worktree']} {file['path']}" for file in status["files"]]
        return cut("\n".join([f"on {status['branch']}{ahead}", *(lines or ["clean"])]), _MORE)
