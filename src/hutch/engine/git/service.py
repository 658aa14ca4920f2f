"""git in a sandbox: one order, one answer. The sandbox's own git does the work, as a command of the sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hutch.engine.git import reading
from hutch.engine.git.words import (
    ALWAYS,
    LONGEST_WORD,
    MOST_ENTRIES,
    READING,
    address,
    folder_of,
    key,
    message,
    number,
    paths,
    secret_environment,
    word,
)
from hutch.engine.processes import Processes, folder_in_sandbox
from hutch.engine.sandboxes import Sandboxes
from hutch.model.errors import GitFailed, InvalidRequest, NotSupported, SandboxFileNotFound
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
    GitOrder,
    Init,
    Log,
    Pull,
    Push,
    Remotes,
    Reset,
    Restore,
    Status,
)
from hutch.model.process import ExecResult, ProcessSpec

SECONDS = 60.0
NETWORK_SECONDS = 300.0
SHOWN_ERROR = 10_000
NOT_SET = 1  # what `git config --get` and its like answer


@dataclass(frozen=True, slots=True)
class _Repository:
    """Where one order is carried out."""

    git: Git
    tenant: str
    sandbox_id: str
    path: str

    async def ask(
        self,
        *words: str,
        fine: Sequence[int] = (0,),
        seconds: float | None = None,
        credentials: Credentials | None = None,
        url: str = "",
    ) -> ExecResult:
        """Raises: GitFailed, NotSupported, InvalidRequest, SandboxFileNotFound, SandboxUnavailable."""
        secret = {} if credentials is None else secret_environment(credentials, url)
        wanted = seconds if seconds is not None else self.git.at_most(SECONDS)
        spec = ProcessSpec(argv=("git", *words), env={**ALWAYS, **secret}, cwd=self.path, timeout=wanted)
        result = await self.git.execute(self.tenant, self.sandbox_id, spec)
        if result["exit_code"] not in fine or result["limit"] not in (None, "output"):
            raise _failed(words, result, "" if credentials is None else credentials.password)
        return result

    async def text(self, *words: str, fine: Sequence[int] = (0,)) -> str:
        """All of an answer. Raises: as `ask`."""
        result = await self.ask(*READING, *words, fine=fine)
        if result["truncated"]:
            raise GitFailed(f"git {words[0]} has more to say than fits a result.", exit_code=0, stderr="")
        return result["stdout"]


class Git:
    def __init__(self, sandboxes: Sandboxes, processes: Processes, max_timeout: float) -> None:
        self._sandboxes = sandboxes
        self._processes = processes
        self._max_timeout = max_timeout

    def at_most(self, seconds: float) -> float:
        return min(seconds, self._max_timeout)

    async def do(self, tenant: str, sandbox_id: str, order: GitOrder) -> Any:
        """The answer that belongs to the order (see `model/git.py`).

        Raises: GitFailed, InvalidRequest, NotSupported, SandboxFileNotFound (no such folder), SessionExpiredError,
            SandboxUnavailable.
        """
        live = await self._sandboxes.find(tenant, sandbox_id)
        if live.template.strict:
            raise NotSupported(f'A sandbox of template {live.template.name} has no git. Use template "open".')
        at = "." if isinstance(order, Clone | Init) else order.path
        return await _carry_out(_Repository(self, tenant, sandbox_id, folder_in_sandbox(at)), order)

    async def execute(self, tenant: str, sandbox_id: str, spec: ProcessSpec) -> ExecResult:
        """Raises: NotSupported where there is no git."""
        try:
            return await self._processes.execute(tenant, sandbox_id, spec)
        except SandboxFileNotFound as error:
            if error.details.get("path") == "git":
                raise NotSupported("git is not installed on the machine that runs the sandboxes.") from error
            raise


async def _carry_out(here: _Repository, order: GitOrder) -> Any:
    match order:
        case Clone() | Push() | Pull():
            return await _over_network(here, order)
        case Init():
            await here.ask("init", f"--initial-branch={word(order.branch, 'branch')}", "--", word(order.path, "path"))
            return {"path": folder_in_sandbox(order.path)}
        case Status() | Branches() | Log() | Diff() | Remotes():
            return await _read(here, order)
        case Add():
            return _done(await here.ask("add", "--", *paths(order.paths)))
        case Commit():
            return await _commit(here, order)
        case CreateBranch() | Checkout() | DeleteBranch():
            return _done(await here.ask(*_of_branch(order)))
        case AddRemote():
            return await _add_remote(here, order)
        case Reset() | Restore():
            return _done(await here.ask(*_back(order)))
        case Config():
            return await _config(here, order)


async def _read(here: _Repository, order: Status | Branches | Log | Diff | Remotes) -> Any:
    match order:
        case Status():
            return reading.status(await here.text("status", "--porcelain=v2", "--branch", "-z"))
        case Branches():
            return reading.branches(await here.text("for-each-ref", f"--format={reading.BRANCH_FORMAT}", "refs/heads"))
        case Log():
            most = number(order.limit, "limit", MOST_ENTRIES)
            limits = (f"--max-count={most}", f"--format={reading.LOG_FORMAT}", "--no-show-signature")
            return reading.log(await here.text("log", *limits, "--"))
        case Remotes():
            await here.text("rev-parse", "--git-dir")  # outside of a repository the other one would just find none
            found = await here.text("config", "--null", "--get-regexp", r"^remote\..*\.url$", fine=(0, NOT_SET))
            return reading.remotes(found)
        case Diff():
            words = ["diff", "--no-color", "--no-ext-diff", "--no-textconv", *(["--cached"] if order.staged else [])]
            result = await here.ask(*READING, *words, "--", *paths(order.paths, needed=False))
            return {"text": result["stdout"], "truncated": result["truncated"]}


async def _over_network(here: _Repository, order: Clone | Push | Pull) -> Any:
    seconds = order.timeout if order.timeout is not None else here.git.at_most(NETWORK_SECONDS)
    if isinstance(order, Clone):
        url, found = address(order.url)
        target = folder_of(url) if order.path is None else word(order.path, "path")
        words = ["clone", "--quiet"]
        words += [] if order.branch is None else [f"--branch={word(order.branch, 'branch')}"]
        depth = number(order.depth, "depth", 2**31 - 1)
        words += [] if depth is None else [f"--depth={depth}"]
        await here.ask(*words, "--", url, target, seconds=seconds, credentials=order.credentials or found, url=url)
        return {"path": folder_in_sandbox(target)}
    remote = word(order.remote, "remote")
    url = ""
    if order.credentials is not None:
        url = (await here.text("remote", "get-url", *(["--push"] if isinstance(order, Push) else []), remote)).strip()
    if isinstance(order, Push):
        words = ["push", "--porcelain", *(["--set-upstream"] if order.set_upstream else [])]
        refs = [word(order.branch, "branch") if order.branch is not None else "HEAD"]
    else:
        words = ["pull", "--quiet", "--ff"]
        refs = [] if order.branch is None else [word(order.branch, "branch")]
    done = await here.ask(*words, remote, *refs, seconds=seconds, credentials=order.credentials, url=url)
    return _done(done)


async def _commit(here: _Repository, order: Commit) -> Any:
    who: list[str] = []
    for name, value in (("user.name", order.author), ("user.email", order.email)):
        who += [] if value is None else ["-c", f"{name}={word(value, name)}"]
    flags = [*(["--all"] if order.all else []), *(["--allow-empty"] if order.allow_empty else [])]
    await here.ask(*who, "commit", "--quiet", f"--message={message(order.message)}", *flags)
    return {"sha": (await here.text("rev-parse", "HEAD")).strip()}


def _of_branch(order: CreateBranch | Checkout | DeleteBranch) -> list[str]:
    name = word(order.name, "name")
    if isinstance(order, Checkout):
        return ["checkout", "--quiet", name, "--"]
    if isinstance(order, DeleteBranch):
        return ["branch", "-D" if order.force else "-d", "--", name]
    start = [] if order.start is None else [word(order.start, "start")]
    return ["checkout", "--quiet", "-b", name, *start, "--"] if order.checkout else ["branch", "--", name, *start]


async def _add_remote(here: _Repository, order: AddRemote) -> Any:
    url, secret = address(order.url)
    if secret is not None:
        raise InvalidRequest("url holds a password, which would be written down: give it to push and pull instead.")
    name = word(order.name, "name")
    if order.overwrite and any(one["name"] == name for one in await _read(here, Remotes(order.path))):
        return _done(await here.ask("remote", "set-url", "--", name, url))
    return _done(await here.ask("remote", "add", "--", name, url))


def _back(order: Reset | Restore) -> list[str]:
    if isinstance(order, Restore):
        source = [] if order.source is None else [f"--source={word(order.source, 'source')}"]
        return ["restore", *(["--staged"] if order.staged else []), *source, "--", *paths(order.paths)]
    target = word(order.target, "target")
    if order.paths:
        if order.mode != "mixed":
            raise InvalidRequest("With paths, reset is mixed: files stay as they are. Use restore for files.")
        return ["reset", "--quiet", target, "--", *paths(order.paths)]
    if order.mode not in ("soft", "mixed", "hard"):
        raise InvalidRequest(f"mode must be soft, mixed or hard, not {order.mode!r:.40}.")
    return ["reset", "--quiet", f"--{order.mode}", target, "--"]


async def _config(here: _Repository, order: Config) -> Any:
    name = key(order.key)
    if order.value is None:
        result = await here.ask("config", "--null", "--get", name, fine=(0, NOT_SET))
        return {"key": name, "value": result["stdout"].rstrip("\0") if result["exit_code"] == 0 else None}
    value = order.value
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST_WORD or value.startswith("-"):
        raise InvalidRequest("value must be a text that does not begin with '-'.")
    await here.ask("config", "--local", name, value)
    return {"key": name, "value": value}


def _done(result: ExecResult) -> Mapping[str, str]:
    return {"message": (result["stdout"] + result["stderr"]).strip()[:SHOWN_ERROR]}


def _failed(words: Sequence[str], result: ExecResult, secret: str) -> GitFailed:
    said = (result["stderr"].strip() or result["stdout"].strip())[-SHOWN_ERROR:]
    said = said.replace(secret, "***") if len(secret) > 3 else said
    verb = next((one for one in words if not one.startswith("-") and "=" not in one), "")
    if result["timed_out"]:
        why = "did not end in time"
    elif result["limit"] is not None:
        why = f"passed the limit {result['limit']!r}"
    else:
        why = f"failed with exit code {result['exit_code']}"
    return GitFailed(
        f"git {verb} {why}" + (f": {said:.2000}" if said else "."),
        exit_code=result["exit_code"],
        stderr=said,
        timed_out=result["timed_out"],
    )
