"""What git answers, read. Pure; all of it comes from a sandbox, so nothing is taken for granted."""

from __future__ import annotations

from collections.abc import Iterator

from hutch.model.git import GitBranch, GitFile, GitLogEntry, GitRemote, GitStatus

LOG_FORMAT = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%B%x00"
LOG_FIELDS = 6
BRANCH_FORMAT = "%(HEAD)%00%(refname:short)%00%(objectname)%00%(upstream:short)"


def status(text: str) -> GitStatus:
    """Of `status --porcelain=v2 --branch -z`."""
    found: GitStatus = {
        "branch": None, "commit": None, "upstream": None, "ahead": 0, "behind": 0, "files": [], "clean": True,
    }  # fmt: skip
    items = iter(text.split("\0"))
    for item in items:
        if item.startswith("# "):
            _header(found, item[2:])
        elif file := _file(item, items):
            found["files"].append(file)
    found["clean"] = not found["files"]
    return found


def _header(found: GitStatus, line: str) -> None:
    name, _, value = line.partition(" ")
    if name == "branch.oid":
        found["commit"] = None if value == "(initial)" else value
    elif name == "branch.head":
        found["branch"] = None if value == "(detached)" else value
    elif name == "branch.upstream":
        found["upstream"] = value
    elif name == "branch.ab":
        ahead, _, behind = value.partition(" ")
        found["ahead"], found["behind"] = _count(ahead), _count(behind)


def _count(text: str) -> int:
    digits = text.lstrip("+-")
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def _file(item: str, rest: Iterator[str]) -> GitFile | None:
    kind, _, line = item.partition(" ")
    if kind == "?":
        return {"path": line, "index": "?", "worktree": "?", "renamed_from": None}
    fields = {"1": 7, "2": 8, "u": 9}.get(kind)  # before the name
    if fields is None:
        return None
    parts = line.split(" ", fields)
    if len(parts) != fields + 1 or len(parts[0]) != 2:
        return None
    letters = parts[0].replace(".", " ")
    before = next(rest, "") if kind == "2" else None
    return {"path": parts[-1], "index": letters[0], "worktree": letters[1], "renamed_from": before}


def log(text: str) -> list[GitLogEntry]:
    parts = text.split("\0")
    found: list[GitLogEntry] = []
    for at in range(0, len(parts) - LOG_FIELDS, LOG_FIELDS):
        sha, parents, author, email, date, message = parts[at : at + LOG_FIELDS]
        found.append(
            {
                "sha": sha.strip(),
                "parents": parents.split(),
                "author": author,
                "email": email,
                "date": date,
                "message": message.rstrip("\n"),
            }
        )
    return found


def branches(text: str) -> list[GitBranch]:
    found: list[GitBranch] = []
    for line in text.splitlines():
        head, *fields = line.split("\0")
        if len(fields) == 3 and not fields[0].startswith("("):
            name, commit, upstream = fields
            found.append({"name": name, "commit": commit, "current": head == "*", "upstream": upstream or None})
    return found


def remotes(text: str) -> list[GitRemote]:
    """Of `config --null --get-regexp ^remote\\..*\\.url$`."""
    found: list[GitRemote] = []
    for item in text.split("\0"):
        key, marked, url = item.partition("\n")
        if marked:
            found.append({"name": key.removeprefix("remote.").removesuffix(".url"), "url": url})
    return found
