"""File tools of the direct toolkit: absolute paths anywhere in the sandbox, whose walls are the limit."""

from __future__ import annotations

import base64
import binascii
import posixpath
from typing import Annotated, Literal

from hutch.model.errors import InvalidRequest, LimitExceeded, NotSupported, SandboxFileNotFound
from hutch.model.limits import MIB
from hutch.model.process import ExecResult
from hutch.tools.answers import cut
from hutch.tools.globbing import matcher
from hutch.tools.session_files import Encoding, decoded, page
from hutch.tools.workspace import Workspace

PATH = "Absolute path in the sandbox, or relative to /workspace"
SUDO = "Refused: a sandbox has no privileges to gain"
MAX_READ = 6 * MIB  # as base64 it fits into a result
SortBy = Literal["name", "size", "modified", "type"]
_MOST_DEPTH = 20
_KEYS = {"name": 3, "size": 1, "modified": 2, "type": 0}


class DirectFiles:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def file_read(
        self,
        file: Annotated[str, PATH],
        start_line: Annotated[int | None, "First line, counted from 0"] = None,
        end_line: Annotated[int | None, "Line to stop before"] = None,
        sudo: Annotated[bool, SUDO] = False,
    ) -> str:
        """Read a text file, or some of its lines."""
        _no_sudo(sudo)
        lines = (await self._text(file)).splitlines(keepends=True)
        start = start_line or 0
        if start < 0 or (end_line is not None and end_line < start):
            raise InvalidRequest("Lines count from 0, and end_line lies behind start_line.")
        return cut("".join(lines[start:end_line]), "Read on with start_line and end_line.") or "(nothing there)"

    async def file_write(
        self,
        file: Annotated[str, PATH],
        content: Annotated[str, "The text, or base64 of the bytes"],
        encoding: Encoding = "utf-8",
        append: Annotated[bool, "Add to the end instead of replacing the file"] = False,
        sudo: Annotated[bool, SUDO] = False,
    ) -> str:
        """Write a file; folders on the way are made."""
        _no_sudo(sudo)
        data = decoded(content, encoding)
        await self._write(file, data, append)
        return f"Wrote {len(data):,} bytes to {_whole(file)}"

    async def file_edit(
        self,
        file: Annotated[str, PATH],
        old_str: Annotated[str, "Text to replace"],
        new_str: Annotated[str, "Text to put there"],
        replace_all: Annotated[bool, "Everywhere, not only where it is the only one"] = False,
        sudo: Annotated[bool, SUDO] = False,
    ) -> str:
        """Replace text in a file."""
        _no_sudo(sudo)
        async with self._workspace.edits:
            text = await self._text(file)
            found = text.count(old_str) if old_str else 0
            if not found or (found > 1 and not replace_all):
                raise InvalidRequest(f"old_str is in {file!r} {found} times. Copy it exactly, or set replace_all.")
            await self._write(file, text.replace(old_str, new_str).encode(), append=False)
        return f"Replaced {found} in {_whole(file)}"

    async def file_list(
        self,
        path: Annotated[str, PATH] = ".",
        recursive: bool = False,
        show_hidden: bool = False,
        max_depth: Annotated[int | None, "Of folders, when recursive"] = None,
        sort_by: SortBy = "name",
    ) -> str:
        """List a folder: names, with / after folders, and sizes."""
        depth = min(max_depth or _MOST_DEPTH, _MOST_DEPTH) if recursive else 1
        entries = await self._entries(path, depth, "" if show_hidden else r"-not -path '*/.*'")
        entries.sort(key=lambda entry: (entry[_KEYS[sort_by]], entry[3]), reverse=sort_by in ("size", "modified"))
        lines = [f"{name}/" if kind == "d" else f"{name}  {size:,} bytes" for kind, size, _, name in entries]
        return page(f"{len(lines)} entries in {_whole(path)}", lines)

    async def file_find(
        self, glob: Annotated[str, "Like *.py or src/**/*.md"], path: Annotated[str, PATH] = "."
    ) -> str:
        """Find files by a pattern of their names."""
        matches = matcher(glob)
        names = sorted(name for *_, name in await self._entries(path, _MOST_DEPTH, "") if matches(name))
        return page(f"{len(names)} found", [posixpath.join(_whole(path), name) for name in names])

    async def file_search(
        self,
        file: Annotated[str, PATH],
        regex: Annotated[str, "Perl-compatible regular expression"],
        sudo: Annotated[bool, SUDO] = False,
    ) -> str:
        """Find the lines of one file that match."""
        _no_sudo(sudo)
        result = await self._run('grep -nP -e "$REGEX" -- "$FILE"', file, REGEX=regex, fails_from=2)
        lines = result["stdout"].splitlines()
        return page(f"{len(lines)} matches in {_whole(file)}", [f"L{line.replace(':', ': ', 1)}" for line in lines])

    async def file_download(self, path: Annotated[str, PATH]) -> str:
        """The whole content of a file: text as it is, anything else as base64 after a marker."""
        data = await self._bytes(path)
        try:
            return cut(data.decode(), "Read it with file_read and start_line.")
        except UnicodeDecodeError:
            return f"[BASE64]\n{base64.b64encode(data).decode()}"

    async def _text(self, file: str) -> str:
        data = await self._bytes(file)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{file!r} is no UTF-8 text: file_download gives its bytes.") from error

    async def _bytes(self, file: str) -> bytes:
        script = 'size=$(stat -L -c %s -- "$FILE") || exit 1\n[ "$size" -le "$MOST" ] || exit 3\nbase64 -w0 -- "$FILE"'
        result = await self._run(script, file, MOST=str(MAX_READ), fails_from=4)
        if result["exit_code"] == 3:
            raise LimitExceeded(f"{file!r} is larger than {MAX_READ // MIB} MiB: use head, tail or sed by shell_exec.")
        if result["exit_code"] != 0:
            raise SandboxFileNotFound(result["stderr"].strip()[-500:] or f"{file!r} cannot be read.")
        try:
            return base64.b64decode(result["stdout"], validate=True)
        except binascii.Error as error:
            raise InvalidRequest(f"{file!r} could not be read whole.") from error

    async def _write(self, file: str, data: bytes, append: bool) -> None:
        script = f'mkdir -p -- "$(dirname -- "$FILE")" && cat {">>" if append else ">"} "$FILE"'
        await self._run(script, file, stdin=data)

    async def _entries(self, path: str, depth: int, filters: str) -> list[tuple[str, int, float, str]]:
        script = f'cd -- "$FILE" && find . -mindepth 1 -maxdepth {depth} {filters} -printf "%y\\t%s\\t%T@\\t%P\\0"'
        result = await self._run(script, path, fails_from=2)
        rows = [row.split("\t", 3) for row in result["stdout"].split("\0") if row.count("\t") >= 3]
        if result["exit_code"] != 0 and not rows:
            raise SandboxFileNotFound(result["stderr"].strip()[-500:] or f"{path!r} cannot be read.")
        try:
            return [(kind, int(size), float(changed), name) for kind, size, changed, name in rows]
        except ValueError as error:
            raise InvalidRequest(f"{path!r} could not be listed.") from error

    async def _run(
        self, script: str, file: str, *, stdin: bytes | None = None, fails_from: int = 1, **env: str
    ) -> ExecResult:
        result = await self._workspace.run(script, stdin=stdin, env={"FILE": _whole(file), **env})
        if result["exit_code"] >= fails_from:
            raise InvalidRequest(result["stderr"].strip()[-500:] or f"It failed with exit code {result['exit_code']}.")
        return result


def _no_sudo(sudo: bool) -> None:
    if sudo:
        raise NotSupported("A sandbox has no privileges to gain: leave sudo out.")


def _whole(path: str) -> str:
    if not path or "\0" in path:
        raise InvalidRequest(f"{path!r:.200} is no path.")
    return posixpath.join("/workspace", path)
