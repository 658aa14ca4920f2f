"""git in a sandbox: what may be asked of it, and what it answers. Paths are relative to the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

RestoreFrom = Literal["worktree", "staged"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """For one call over HTTP. They reach git by its environment, and stay nowhere."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Clone:
    url: str
    path: str | None = None  # None: the last part of the address
    branch: str | None = None
    depth: int | None = None
    credentials: Credentials | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Init:
    path: str = "."
    branch: str = "main"


@dataclass(frozen=True, slots=True)
class Status:
    path: str = "."


@dataclass(frozen=True, slots=True)
class Add:
    paths: tuple[str, ...]
    path: str = "."


@dataclass(frozen=True, slots=True)
class Commit:
    message: str
    author: str | None = None
    email: str | None = None
    all: bool = False
    allow_empty: bool = False
    path: str = "."


@dataclass(frozen=True, slots=True)
class Push:
    remote: str = "origin"
    branch: str | None = None  # None: the one that is checked out
    set_upstream: bool = False
    path: str = "."
    credentials: Credentials | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Pull:
    remote: str = "origin"
    branch: str | None = None
    path: str = "."
    credentials: Credentials | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Branches:
    path: str = "."


@dataclass(frozen=True, slots=True)
class CreateBranch:
    name: str
    start: str | None = None
    checkout: bool = False
    path: str = "."


@dataclass(frozen=True, slots=True)
class Checkout:
    name: str  # a branch, or a commit
    path: str = "."


@dataclass(frozen=True, slots=True)
class DeleteBranch:
    name: str
    force: bool = False
    path: str = "."


@dataclass(frozen=True, slots=True)
class Log:
    path: str = "."
    limit: int = 20


@dataclass(frozen=True, slots=True)
class Diff:
    path: str = "."
    staged: bool = False
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remotes:
    path: str = "."


@dataclass(frozen=True, slots=True)
class AddRemote:
    name: str
    url: str
    overwrite: bool = False
    path: str = "."


@dataclass(frozen=True, slots=True)
class Reset:
    mode: Literal["soft", "mixed", "hard"] = "mixed"
    target: str = "HEAD"
    paths: tuple[str, ...] = ()  # only these are taken out of the next commit
    path: str = "."


@dataclass(frozen=True, slots=True)
class Restore:
    paths: tuple[str, ...]
    staged: bool = False  # the next commit's content, instead of the files
    source: str | None = None
    path: str = "."


@dataclass(frozen=True, slots=True)
class Config:
    """One value of the repository's own configuration: read, or set."""

    key: str
    value: str | None = None
    path: str = "."


GitOrder = (
    Clone | Init | Status | Add | Commit | Push | Pull | Branches | CreateBranch | Checkout | DeleteBranch | Log | Diff
    | Remotes | AddRemote | Reset | Restore | Config
)  # fmt: skip


class GitRepository(TypedDict):
    path: str  # absolute, in the sandbox


class GitFile(TypedDict):
    path: str
    index: str  # git's letter for what the next commit holds, such as M, A, D, R, U; "?" untracked, " " unchanged
    worktree: str  # the same for the file itself
    renamed_from: str | None


class GitStatus(TypedDict):
    branch: str | None  # None: no branch is checked out
    commit: str | None  # None: there is none yet
    upstream: str | None
    ahead: int
    behind: int
    files: list[GitFile]
    clean: bool


class GitCommit(TypedDict):
    sha: str


class GitDone(TypedDict):
    message: str  # what git had to say


class GitBranch(TypedDict):
    name: str
    commit: str
    current: bool
    upstream: str | None


class GitLogEntry(TypedDict):
    sha: str
    parents: list[str]
    author: str
    email: str
    date: str  # ISO 8601
    message: str


class GitDiff(TypedDict):
    text: str
    truncated: bool


class GitRemote(TypedDict):
    name: str
    url: str


class GitConfigValue(TypedDict):
    key: str
    value: str | None  # None: not set


# The name of each order in addresses.
GIT_VERBS: Mapping[str, type[GitOrder]] = {
    "clone": Clone,
    "init": Init,
    "status": Status,
    "add": Add,
    "commit": Commit,
    "push": Push,
    "pull": Pull,
    "branches": Branches,
    "create-branch": CreateBranch,
    "checkout": Checkout,
    "delete-branch": DeleteBranch,
    "log": Log,
    "diff": Diff,
    "remotes": Remotes,
    "add-remote": AddRemote,
    "reset": Reset,
    "restore": Restore,
    "config": Config,
}
