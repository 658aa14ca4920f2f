"""File tools of a session."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from hutch.model.errors import InvalidRequest
from hutch.model.files import FileInfo
from hutch.model.limits import MIB
from hutch.tools.answers import cut
from hutch.tools.globbing import matcher
from hutch.tools.workspace import Workspace

FILE = "Path relative to /workspace, or absolute below it"
MAX_TEXT_BYTES = 16 * MIB  # of a file that is read as text
MAX_LISTED = 1000
Encoding = Literal["utf-8", "base64"]
_NARROW = "Narrow the call."
_GREP = r"""
cd /workspace
if command -v rg >/dev/null; then
  set -- rg -nH --no-heading --color=never --hidden --no-ignore -g '!.git' ${GLOB:+-g "$GLOB"}
else
  set -- grep -rnPIH --exclude-dir=.git ${GLOB:+--include="$GLOB"}
fi
"$@" -m 50 ${IGNORE_CASE:+-i} ${CONTEXT:+-C "$CONTEXT"} -e "$PATTERN" -- "$WHERE" | sed 's|^\./||'
exit ${PIPESTATUS[0]}
"""


class FileTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._files = workspace.client.files

    async def file_read(
        self,
        file: Annotated[str, FILE],
        start_line: Annotated[int | None, "First line, counted from 0"] = None,
        end_line: Annotated[int | None, "Line to stop before"] = None,
    ) -> str:
        """Read a text file, or some of its lines."""
        text = await self.text_of(file)
        if start_line is None and end_line is None:
            return cut(text, "Read on with start_line and end_line.") or "(the file is empty)"
        start, end = start_line or 0, end_line
        if start < 0 or (end is not None and end < start):
            raise InvalidRequest(f"There are no lines {start} to {end}: lines count from 0, and end_line lies behind.")
        lines = text.splitlines(keepends=True)
        if start >= len(lines):
            raise InvalidRequest(f"{file!r} has {len(lines)} lines; line {start} is behind its end.")
        return cut("".join(lines[start:end]), "Read fewer lines at once.")

    async def file_write(
        self,
        file: Annotated[str, FILE],
        content: Annotated[str, "The text, or base64 of the bytes"],
        encoding: Encoding = "utf-8",
        append: Annotated[bool, "Add to the end instead of replacing the file"] = False,
    ) -> str:
        """Write a file; folders on the way are made."""
        data = decoded(content, encoding)
        path = self._workspace.path(file)
        if append:
            await self._append(path, data)
        else:
            await self._files.write(path, data)
        return f"{'Added' if append else 'Wrote'} {len(data):,} bytes {'to' if append else 'as'} {path}"

    async def _append(self, path: str, data: bytes) -> None:
        script = 'mkdir -p -- "$(dirname -- "$FILE")" && cat >> "$FILE"'
        result = await self._workspace.run(script, stdin=data, env={"FILE": path})
        if result["exit_code"] != 0:
            raise InvalidRequest(
                f"Could not add to {path!r}: {(result['stderr'] or str(result['limit'])).strip():.500}"
            )

    async def file_edit(
        self,
        file: Annotated[str, FILE],
        old_str: Annotated[str, "Text to replace; it must be there exactly once"],
        new_str: Annotated[str, "Text to put there"],
    ) -> str:
        """Replace a piece of a text file."""
        async with self._workspace.edits:
            text = await self.text_of(file)
            found = text.count(old_str) if old_str else 0
            if not old_str:
                raise InvalidRequest("old_str is empty: use file_write to write a file.")
            if not found:
                raise InvalidRequest(f"old_str is not in {file!r}. Read the file and copy the text exactly.")
            if found > 1:
                raise InvalidRequest(f"old_str is in {file!r} {found} times. Give more of the text around it.")
            await self._files.write(self._workspace.path(file), text.replace(old_str, new_str))
        return f"Replaced 1 occurrence in {self._workspace.path(file)}"

    async def file_list(
        self, path: Annotated[str, FILE] = ".", recursive: bool = False, show_hidden: bool = False
    ) -> str:
        """List a folder: names, with / after folders, and sizes."""
        found = await self._files.list(self._workspace.path(path), recursive=recursive)
        base = self._workspace.relative(path)
        names = [(_inside(base, info["path"]), info) for info in found]
        shown = [(name, info) for name, info in names if show_hidden or not _hidden(name)]
        lines = [_listed(name, info) for name, info in sorted(shown, key=lambda pair: pair[0])]
        return page(f"{len(lines)} entries in {self._workspace.path(path)}", lines)

    async def file_find(
        self,
        glob: Annotated[str, "Like *.py or src/**/*.md; a pattern without / matches names at any depth"],
        path: Annotated[str, FILE] = ".",
    ) -> str:
        """Find files by a pattern of their names."""
        return await self.found(glob, path)

    async def file_search(
        self, file: Annotated[str, FILE], regex: Annotated[str, "Perl-compatible regular expression"]
    ) -> str:
        """Find the lines of one file that match."""
        await self._files.stat(self._workspace.path(file))
        script = 'grep -nP -e "$REGEX" -- "$FILE"'
        result = await self._workspace.run(script, env={"REGEX": regex, "FILE": self._workspace.path(file)})
        if result["exit_code"] > 1:
            raise InvalidRequest(f"The search failed: {result['stderr'].strip():.500}")
        lines = [f"L{number}: {text}" for number, _, text in (line.partition(":") for line in _lines(result["stdout"]))]
        return page(f"{len(lines)} matches in {self._workspace.path(file)}", lines)

    async def file_delete(self, file: Annotated[str, FILE]) -> str:
        """Delete a file, or a folder with all that is in it."""
        path = self._workspace.path(file)
        info = await self._files.stat(path)
        await self._files.remove(path, recursive=info["kind"] == "directory")
        return f"Deleted {path}"

    async def text_of(self, file: str) -> str:
        """Raises: SandboxFileNotFound, InvalidRequest when it is no text."""
        path = self._workspace.path(file)
        info = await self._files.stat(path)
        if info["kind"] == "directory":
            raise InvalidRequest(f"{path} is a folder: use file_list.")
        if info["size_bytes"] > MAX_TEXT_BYTES:
            size = f"{info['size_bytes']:,} bytes"
            raise InvalidRequest(f"{path} has {size}, too many to read as text: use grep, or sed -n by shell_exec.")
        data = await self._files.read(path)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"{path} is no UTF-8 text (byte {error.start} of {len(data):,}). For another encoding convert it, like "
                f"iconv -f latin1 {path}; for binary data use shell_exec with file, xxd or python3."
            ) from error

    async def found(self, pattern: str, path: str) -> str:
        base = self._workspace.relative(path)
        matches = matcher(pattern)
        names = [info["path"] for info in await self._files.list(self._workspace.path(path), recursive=True)]
        lines = sorted(name for name in names if matches(_inside(base, name)))
        return page(f"{len(lines)} found", lines)


class SearchTools:
    def __init__(self, workspace: Workspace, files: FileTools) -> None:
        self._workspace = workspace
        self._file_tools = files

    async def grep(
        self,
        pattern: Annotated[str, "Regular expression"],
        path: Annotated[str, FILE] = ".",
        file_glob: Annotated[str | None, "Only files whose names match, like *.py"] = None,
        case_insensitive: bool = False,
        context: Annotated[int | None, "Lines to show around each match"] = None,
    ) -> str:
        """Search the text of files; paths and line numbers come with each match, at most 50 matches for a file."""
        env = {
            "PATTERN": pattern,
            "WHERE": self._workspace.relative(path),
            "GLOB": file_glob or "",
            "IGNORE_CASE": "yes" if case_insensitive else "",
            "CONTEXT": str(max(0, context)) if context else "",
        }
        result = await self._workspace.run(_GREP, env=env)
        if result["exit_code"] > 1 and not result["stdout"]:
            raise InvalidRequest(f"The search failed: {result['stderr'].strip():.500}")
        return cut(result["stdout"], "Narrow the search.") or "No matches"

    async def glob(self, pattern: Annotated[str, "Like **/*.py"], path: Annotated[str, FILE] = ".") -> str:
        """Find files by a pattern of their paths."""
        return await self._file_tools.found(pattern, path)


def decoded(content: str, encoding: str) -> bytes:
    if encoding == "utf-8":
        return content.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(f"content is no base64: {error}.") from error


def _lines(text: str) -> list[str]:
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []


def _inside(base: str, path: str) -> str:
    return path if base == "." else path.removeprefix(base + "/")


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _listed(name: str, info: FileInfo) -> str:
    if info["kind"] == "directory":
        return f"{name}/"
    return f"{name} -> {info['target']}" if info["kind"] == "symlink" else f"{name}  {info['size_bytes']:,} bytes"


def page(header: str, lines: list[str]) -> str:
    more = [f"… and {len(lines) - MAX_LISTED} more. {_NARROW}"] if len(lines) > MAX_LISTED else []
    return cut("\n".join([header, *lines[:MAX_LISTED], *more]), _NARROW)
