"""`client.git`: repositories in the workspace, by the sandbox's own git. Needs template `open`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, cast

from hutch.client.transport_git import GitTransport
from hutch.model.errors import InvalidRequest
from hutch.model.git import (
    Add,
    AddRemote,
    Branches,
    Checkout,
    Clone,
    Commit,
    Config,
    CreateBranch,
    Credentials,
    DeleteBranch,
    Diff,
    GitBranch,
    GitCommit,
    GitConfigValue,
    GitDiff,
    GitDone,
    GitLogEntry,
    GitRemote,
    GitRepository,
    GitStatus,
    Init,
    Log,
    Pull,
    Push,
    Remotes,
    Reset,
    Restore,
    Status,
)


class AsyncGit:
    """`path` is the repository's folder, relative to /workspace. Every call raises GitFailed when git refuses, and
    InvalidRequest for what git would take for an option."""

    def __init__(self, transport: GitTransport, sandbox: Callable[[], Awaitable[str]]) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def clone(
        self,
        url: str,
        path: str | None = None,
        *,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        timeout: float | None = None,
    ) -> GitRepository:
        """Copy a repository into the workspace.

        Args:
            path: the folder to make; default: the last part of the address.
            username, password: for addresses over HTTP; they are used for this call and kept nowhere.
            timeout: seconds (default 300).

        Raises: GitFailed, InvalidRequest, NotSupported (no git, or a strict sandbox).
        """
        order = Clone(url, path, branch, depth, _credentials(username, password), timeout)
        return cast(GitRepository, await self._transport.do(await self._sandbox(), order))

    async def init(self, path: str = ".", *, branch: str = "main") -> GitRepository:
        """Make an empty repository."""
        return cast(GitRepository, await self._transport.do(await self._sandbox(), Init(path, branch)))

    async def status(self, path: str = ".") -> GitStatus:
        """What changed, and how far the branch is from the one it follows."""
        return cast(GitStatus, await self._transport.do(await self._sandbox(), Status(path)))

    async def add(self, paths: Sequence[str] | str, path: str = ".") -> GitDone:
        """Take files into the next commit. Names are taken as they are, without patterns."""
        return cast(GitDone, await self._transport.do(await self._sandbox(), Add(_listed(paths), path)))

    async def commit(
        self,
        message: str,
        *,
        author: str | None = None,
        email: str | None = None,
        all: bool = False,
        allow_empty: bool = False,
        path: str = ".",
    ) -> GitCommit:
        """Commit what was added, or with `all` every change of files that git knows."""
        order = Commit(message, author, email, all, allow_empty, path)
        return cast(GitCommit, await self._transport.do(await self._sandbox(), order))

    async def push(
        self,
        remote: str = "origin",
        branch: str | None = None,
        path: str = ".",
        *,
        set_upstream: bool = False,
        username: str | None = None,
        password: str | None = None,
        timeout: float | None = None,
    ) -> GitDone:
        """Bring a branch (default: the one checked out) to a remote. Credentials as for `clone`."""
        order = Push(remote, branch, set_upstream, path, _credentials(username, password), timeout)
        return cast(GitDone, await self._transport.do(await self._sandbox(), order))

    async def pull(
        self,
        remote: str = "origin",
        branch: str | None = None,
        path: str = ".",
        *,
        username: str | None = None,
        password: str | None = None,
        timeout: float | None = None,
    ) -> GitDone:
        """Fetch from a remote and merge. Credentials as for `clone`."""
        order = Pull(remote, branch, path, _credentials(username, password), timeout)
        return cast(GitDone, await self._transport.do(await self._sandbox(), order))

    async def branches(self, path: str = ".") -> list[GitBranch]:
        """Local branches that have a commit."""
        return cast(list[GitBranch], await self._transport.do(await self._sandbox(), Branches(path)))

    async def create_branch(
        self, name: str, *, start: str | None = None, checkout: bool = False, path: str = "."
    ) -> GitDone:
        """A branch at `start` (default: here)."""
        order = CreateBranch(name, start, checkout, path)
        return cast(GitDone, await self._transport.do(await self._sandbox(), order))

    async def checkout(self, name: str, path: str = ".") -> GitDone:
        """Go to a branch, or a commit."""
        return cast(GitDone, await self._transport.do(await self._sandbox(), Checkout(name, path)))

    async def delete_branch(self, name: str, *, force: bool = False, path: str = ".") -> GitDone:
        """Remove a branch; with `force` also one whose commits are nowhere else."""
        return cast(GitDone, await self._transport.do(await self._sandbox(), DeleteBranch(name, force, path)))

    async def log(self, path: str = ".", limit: int = 20) -> list[GitLogEntry]:
        """The last commits, newest first."""
        return cast(list[GitLogEntry], await self._transport.do(await self._sandbox(), Log(path, limit)))

    async def diff(self, path: str = ".", *, staged: bool = False, paths: Sequence[str] | str = ()) -> GitDiff:
        """Changes not yet added; with `staged` those that were. The first 10 MiB of them."""
        return cast(GitDiff, await self._transport.do(await self._sandbox(), Diff(path, staged, _listed(paths))))

    async def remotes(self, path: str = ".") -> list[GitRemote]:
        """Where the repository comes from and goes to."""
        return cast(list[GitRemote], await self._transport.do(await self._sandbox(), Remotes(path)))

    async def add_remote(self, name: str, url: str, *, overwrite: bool = False, path: str = ".") -> GitDone:
        """Name an address. One with a password in it is refused: it would be written down."""
        order = AddRemote(name, url, overwrite, path)
        return cast(GitDone, await self._transport.do(await self._sandbox(), order))

    async def reset(
        self,
        mode: Literal["soft", "mixed", "hard"] = "mixed",
        target: str = "HEAD",
        *,
        paths: Sequence[str] | str = (),
        path: str = ".",
    ) -> GitDone:
        """Take the branch (or, with `paths`, what was added of these) back to `target`."""
        order = Reset(mode, target, _listed(paths), path)
        return cast(GitDone, await self._transport.do(await self._sandbox(), order))

    async def restore(
        self, paths: Sequence[str] | str, *, staged: bool = False, source: str | None = None, path: str = "."
    ) -> GitDone:
        """Put files back as they were; with `staged` what the next commit holds of them."""
        order = Restore(_listed(paths), staged, source, path)
        return cast(GitDone, await self._transport.do(await self._sandbox(), order))

    async def config(self, key: str, value: str | None = None, *, path: str = ".") -> GitConfigValue:
        """Read a value of the configuration, or set it for this repository."""
        return cast(GitConfigValue, await self._transport.do(await self._sandbox(), Config(key, value, path)))


def _listed(paths: Sequence[str] | str) -> tuple[str, ...]:
    return (paths,) if isinstance(paths, str) else tuple(paths)


def _credentials(username: str | None, password: str | None) -> Credentials | None:
    """Raises: InvalidRequest."""
    if password is None:
        if username is not None:
            raise InvalidRequest("username comes with a password.")
        return None
    return Credentials(username or "git", password)
