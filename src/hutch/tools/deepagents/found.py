"""What a search found: names that fit a pattern, lines that grep printed. Pure."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from deepagents.backends.protocol import FileInfo, GlobResult, GrepMatch, GrepResult
from deepagents.backends.utils import compile_grep_include_glob

from hutch.model.errors import InvalidRequest
from hutch.model.files import FileInfo as SandboxFile
from hutch.model.session import WORKSPACE_DIR

Fits = Callable[[str], bool]
MATCHES_AT_MOST = 10_000
LINKS_AT_MOST = 40


def absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join(WORKSPACE_DIR, path))


def relative(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def shown(entry: SandboxFile) -> FileInfo:
    return FileInfo(
        path=absolute(entry["path"]),
        is_dir=entry["kind"] == "directory",
        size=entry["size_bytes"],
        modified_at=entry["modified"],
    )


def fitting(pattern: str) -> Fits:
    """Whether a path, relative to where the search begins, is meant. Raises: InvalidRequest."""
    try:
        return compile_grep_include_glob(pattern)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def globbed(entries: Sequence[SandboxFile], root: str, fits: Fits) -> GlobResult:
    """Regular files below `root` that fit, and links to such files. Paths are absolute."""
    known = {absolute(entry["path"]): entry for entry in entries}
    return capped(
        [
            shown(known[path])
            for path in sorted(known)
            if fits(relative(path, root)) and _leads_to_file(path, root, known)
        ]
    )


def capped(matches: list[FileInfo]) -> GlobResult:
    result = GlobResult(matches=matches[:MATCHES_AT_MOST], truncated=len(matches) > MATCHES_AT_MOST)
    if result.truncated and hasattr(result, "truncation_reason"):  # since deepagents 0.7.10
        result.truncation_reason = "budget"
    return result


def _leads_to_file(path: str, root: str, known: Mapping[str, SandboxFile]) -> bool:
    """Whether it is a regular file, or a link to one below `root`."""
    for _ in range(LINKS_AT_MOST):
        entry = known.get(path)
        if entry is None or entry["kind"] != "symlink":
            return entry is not None and entry["kind"] == "file"
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry["target"] or ""))
        if not path.startswith(root.rstrip("/") + "/"):
            return False
    return False


def searched(entries: Iterable[SandboxFile], root: str, fits: Fits, excluded: frozenset[str]) -> list[str]:
    """The files that a grep with a glob reads."""
    files = (absolute(entry["path"]) for entry in entries if entry["kind"] == "file")
    return sorted(
        path for path in files if fits(name := relative(path, root)) and excluded.isdisjoint(name.split("/")[:-1])
    )


def grep_command(pattern: str, root: str, excluded: Sequence[str], most: int | None, *, names_from_input: bool) -> str:
    """GNU grep, for a literal text: `name NUL line : text` for each match, and one more than `most` if there are more.

    With `names_from_input` the files are what its input names, not what lies below `root`.
    """
    wanted = f"-e {shlex.quote(pattern)} --"
    if names_from_input:
        grep = f"xargs -0 -r grep -HnFZI {wanted}"
    else:
        skipped = " ".join(f"--exclude-dir={shlex.quote(name)}" for name in excluded)
        grep = f"grep -rHnFZI {skipped} {wanted} {shlex.quote(root)}"
    return grep if most is None else f"{grep} | head -n {most + 1}; exit ${{PIPESTATUS[0]}}"


def grepped(output: str, most: int | None, *, cut: bool) -> GrepResult:
    """What it printed, as matches; a name may hold anything but NUL. `cut`: the output is not all there was."""
    matches: list[GrepMatch] = []
    start = 0
    while (end_of_name := output.find("\0", start)) >= 0:
        end_of_number = output.find(":", end_of_name)
        end = output.find("\n", end_of_number)
        if end_of_number < 0 or (end < 0 and cut):
            break
        end = len(output) if end < 0 else end
        number = output[end_of_name + 1 : end_of_number]
        if not number.isdecimal():
            break
        matches.append(
            GrepMatch(path=output[start:end_of_name], line=int(number), text=output[end_of_number + 1 : end])
        )
        start = end + 1
    more = most is not None and len(matches) > most
    return GrepResult(matches=matches[:most] if more else matches, truncated=more or cut)
