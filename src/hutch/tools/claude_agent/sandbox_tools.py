"""What an agent of the Claude Agent SDK can do in its sandbox."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import FileConflict, HutchError, InvalidRequest
from hutch.model.process import ExecResult
from hutch.tools.answers import MODEL_BYTES, cut, told

Arguments = dict[str, Any]
Answer = dict[str, Any]
IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
IMAGE_BYTES = 3_500_000  # as base64 it must stay below what the model takes


@dataclass(frozen=True, slots=True)
class ToolRow:
    name: str
    description: str
    schema: dict[str, Any]
    run: Callable[[Arguments], Awaitable[Answer]]


class SandboxTools:
    def __init__(self, client: AsyncSandboxClient) -> None:
        self._client = client

    def table(self) -> list[ToolRow]:
        text, number, switch = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
        seconds = {"type": "number", "exclusiveMinimum": 0, "description": "until it is ended (default 120)"}
        rows = [
            ("execute", "Run a bash command in the sandbox, below /workspace.", self._execute,
             {"command": text, "timeout": seconds}, ["command"]),
            ("start_process", "Start a command that goes on in the background; answers with its process id.",
             self._start, {"command": text}, ["command"]),
            ("process_output", "Page through the output of a command or process, from an offset in bytes.",
             self._output, {"process_id": text, "offset": number, "stream": {"enum": ["stdout", "stderr"]}},
             ["process_id"]),
            ("stop_process", "End a process and all it started.", self._stop, {"process_id": text}, ["process_id"]),
            ("read_file", "Read a file of /workspace: text in pages of bytes, or an image.", self._read,
             {"path": text, "offset": number}, ["path"]),
            ("write_file", "Write a text file below /workspace, replacing what it held.", self._write,
             {"path": text, "content": text}, ["path", "content"]),
            ("edit_file", "Replace a text that occurs once in a file, or each with replace_all.", self._edit,
             {"path": text, "old": text, "new": text, "replace_all": switch}, ["path", "old", "new"]),
            ("list_files", "List a folder of /workspace.", self._list, {"path": text, "recursive": switch}, []),
        ]  # fmt: skip
        return [
            ToolRow(
                name,
                description,
                {"type": "object", "properties": given, "required": required, "additionalProperties": False},
                _answering(act),
            )
            for name, description, act, given, required in rows
        ]

    # -- commands

    async def _execute(self, given: Arguments) -> str:
        result = await self._client.execute(given["command"], timeout=given.get("timeout", 120), leftovers="keep")
        return _report(result)

    async def _start(self, given: Arguments) -> str:
        started = await self._client.start(given["command"])
        return f"process_id: {started['process_id']}"

    async def _output(self, given: Arguments) -> str:
        chunk = await self._client.logs(
            given["process_id"],
            stream=given.get("stream", "stdout"),
            offset=given.get("offset", 0),
            max_bytes=MODEL_BYTES,
        )
        end = "it has ended" if chunk["complete"] else f"go on at offset {chunk['next_offset']}"
        return f"{chunk['text']}\n[bytes {chunk['offset']}-{chunk['next_offset']} of {chunk['total_bytes']}; {end}]"

    async def _stop(self, given: Arguments) -> str:
        await self._client.kill(given["process_id"])
        return "stopped"

    # -- files

    async def _read(self, given: Arguments) -> str | Answer:
        path, offset = given["path"], given.get("offset", 0)
        size = (await self._client.files.stat(path))["size_bytes"]
        suffix = path[path.rfind(".") :].lower()
        if suffix in IMAGES and size <= IMAGE_BYTES:
            data = base64.b64encode(await self._client.files.read(path)).decode()
            return {"content": [{"type": "image", "data": data, "mimeType": IMAGES[suffix]}]}
        page = await self._client.files.read(path, offset=offset, length=MODEL_BYTES)
        text, used = _text_of(page, path, last=offset + len(page) >= size)
        if offset + used >= size:
            return text
        return f"{text}\n[bytes {offset}-{offset + used} of {size}; go on at offset {offset + used}]"

    async def _write(self, given: Arguments) -> str:
        stored = await self._client.files.write(given["path"], given["content"], mode=await self._mode(given["path"]))
        return f"wrote {stored['size_bytes']} bytes to {stored['path']}"

    async def _edit(self, given: Arguments) -> str:
        path, old = given["path"], given["old"]
        mode = await self._mode(path)
        try:
            text = (await self._client.files.read(path)).decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{path} is no text in UTF-8; edit it by a command.") from error
        found = text.count(old) if old else 0
        if found == 0 or (found > 1 and not given.get("replace_all", False)):
            raise FileConflict(
                f"The text occurs {found} times in {path}; nothing was changed. "
                + ("Read the file again." if found == 0 else "Give more of what stands around it, or replace_all.")
            )
        await self._client.files.write(path, text.replace(old, given["new"]), mode=mode)
        return f"replaced {found} in {path}"

    async def _list(self, given: Arguments) -> str:
        entries = await self._client.files.list(given.get("path", "."), recursive=given.get("recursive", False))
        lines = (f"{one['permissions']} {one['size_bytes']:>10} {one['path']}" for one in entries)
        return cut("\n".join(lines) or "(empty)", "List a folder of it.")

    async def _mode(self, path: str) -> int:
        """Of the file that is replaced: a script stays one."""
        try:
            shown = (await self._client.files.stat(path))["permissions"]
        except FileNotFoundError:
            return 0o644
        return sum(1 << (8 - place) for place, letter in enumerate(shown[1:10]) if letter != "-")


def _answering(act: Callable[[Arguments], Awaitable[str | Answer]]) -> Callable[[Arguments], Awaitable[Answer]]:
    """Failures are texts that a model can act on."""

    async def run(given: Arguments) -> Answer:
        try:
            said = await act(given)
        except HutchError as error:
            return {"content": [{"type": "text", "text": told(error)}], "is_error": True}
        return said if isinstance(said, dict) else {"content": [{"type": "text", "text": said}]}

    return run


def _report(result: ExecResult) -> str:
    more = f"process_output(process_id={result['process_id']!r}, offset=…) pages through it."
    parts = [cut(result["stdout"], more, MODEL_BYTES * 4 // 5)]
    if result["stderr"]:
        parts.append("[stderr]\n" + cut(result["stderr"], more, MODEL_BYTES // 5))
    if result["session_recreated"] and not result["files_kept"]:
        parts.append("[the sandbox had expired: this is a new one, without the former files]")
    if result["timed_out"]:
        parts.append("[timed out: the command was ended]")
    elif result["limit"] is not None:
        parts.append(f"[the command hit the limit '{result['limit']}' of its sandbox]")
    if result["exit_code"] != 0:
        parts.append(f"[exit code {result['exit_code']}]")
    return "\n".join(part for part in parts if part) or "(no output)"


def _text_of(page: bytes, path: str, *, last: bool) -> tuple[str, int]:
    """The text of a page and how many of its bytes that is: a character cut at its end is left to the next page.

    Raises: InvalidRequest.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(page, final=last)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidRequest(f"{path} is no text in UTF-8; look at it by a command, such as file or xxd.")
    return text, len(page) - len(decoder.getstate()[0])
