"""Shell tools of a session: commands, background processes, a terminal."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Annotated

from hutch.client.async_shell import AsyncShell
from hutch.model.errors import InvalidRequest, ProcessEnded, ProcessNotFound
from hutch.model.process import LogChunk, ProcessInfo
from hutch.tools.answers import MODEL_BYTES, head_bytes, noted
from hutch.tools.long_output import ends
from hutch.tools.workspace import Workspace, ending

MERGED = "exec 2>&1\n"  # errors stand where they were printed
TAG = "shell"
SESSION = "Process id that shell_exec told; default: the last one"
MAX_WAIT = 600.0
MAX_TERMINALS = 8
_SETTLED = 0.4  # seconds without output after which a terminal's answer counts as whole
_ANSWER_SECONDS = 10.0
_POLL = 0.05
# Colours and cursor movements. No repetition within a repetition: text of a sandbox goes through it.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_=>]|[\x00-\x08\x0b-\x1a\x7f]"
)


class ShellTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._client = workspace.client
        self._last: str | None = None
        self._started: list[str] = []
        self._terminals: dict[str, _Terminal] = {}
        workspace.on_reset(self._reset)

    async def shell_exec(
        self,
        command: Annotated[str, "Bash command; it starts in /workspace, in a shell of its own"],
        timeout: Annotated[float | None, "Seconds until it is ended"] = None,
        background: Annotated[bool, "Return at once and let it run, as for servers"] = False,
    ) -> str:
        """Run a bash command. Folders and variables do not carry over: use `cd folder && …`, and env_set."""
        return await (self.start(command, timeout) if background else self.run(command, timeout))

    async def run(self, command: str, timeout: float | None, cwd: str | None = None) -> str:
        result = await self._workspace.run(MERGED + command, timeout=timeout, cwd=cwd)
        self._last = result["process_id"]
        how = "[SUCCESS]" if result["exit_code"] == 0 else ending(result)
        remedy = f'Read them with shell_view(session="{self._last}", offset={head_bytes(MODEL_BYTES)}).'
        printed = noted(await ends(self._client, result, "stdout", MODEL_BYTES), remedy)
        return f"{how}\n{printed}".rstrip("\n")

    async def start(self, command: str, timeout: float | None, cwd: str | None = None) -> str:
        started = await self._client.start(MERGED + command, stdin=True, timeout=timeout, tag=TAG, cwd=cwd)
        self._last = started["process_id"]
        self._started.append(self._last)
        return (
            f"[STARTED] session {self._last}. shell_view shows its output, shell_write types into it, "
            "shell_wait waits for its end, shell_kill ends it."
        )

    async def shell_view(
        self,
        session: Annotated[str | None, SESSION] = None,
        offset: Annotated[int | None, "Byte to read from; default: the last part"] = None,
    ) -> str:
        """Show what a command printed so far."""
        process_id = self._process(session)
        if offset is not None and offset < 0:
            raise InvalidRequest("offset counts bytes from 0.")
        status = _status(await self._find(process_id))
        return f"{status}\n{await self._printed(process_id, offset)}".rstrip("\n")

    async def shell_write(
        self,
        input: Annotated[str, "Text to type"],
        press_enter: Annotated[bool, "End the line"] = True,
        session: Annotated[str | None, SESSION] = None,
    ) -> str:
        """Type into a command that runs in the background."""
        process_id = self._process(session)
        text = input + ("\n" if press_enter else "")
        await self._client.send_input(process_id, text)
        return f"Sent {len(text.encode()):,} bytes to {process_id}"

    async def shell_wait(
        self, seconds: Annotated[float, "How long at most"] = 30, session: Annotated[str | None, SESSION] = None
    ) -> str:
        """Wait for the end of a background command, and show its output."""
        if not 0 <= seconds <= MAX_WAIT:
            raise InvalidRequest(f"seconds must be 0 to {MAX_WAIT:g}: wait again for more.")
        process_id = self._process(session)
        result = await self._client.wait(process_id, seconds)
        if result is None:
            return f"[RUNNING] still after {seconds:g} s\n{await self._printed(process_id, None)}".rstrip("\n")
        how = "[SUCCESS]" if result["exit_code"] == 0 else ending(result)
        return f"{how}\n{await self._printed(process_id, None)}".rstrip("\n")

    async def shell_kill(self, session: Annotated[str | None, SESSION] = None) -> str:
        """End a background command and all it started."""
        process_id = self._process(session)
        await self._client.kill(process_id)
        return f"Ended {process_id}"

    async def shell_interactive(
        self,
        input: Annotated[str, "A line to type; \\x03 is Ctrl-C"],
        session: Annotated[str, "Name of the terminal; each is a living shell"] = "main",
    ) -> str:
        """Type a line into a terminal whose shell lives on: folders, variables and programs stay. Shows its answer."""
        terminal = self._terminals.get(session)
        if terminal is None:
            terminal = await self._open(session)
        try:
            return await terminal.say(input)
        except (ProcessEnded, ProcessNotFound):
            terminal = await self._open(session)
            return "[the shell had ended; this is a new one]\n" + await terminal.say(input)

    async def _open(self, name: str) -> _Terminal:
        if len(self._terminals) >= MAX_TERMINALS and name not in self._terminals:
            raise InvalidRequest(f"There are {MAX_TERMINALS} terminals already: {', '.join(self._terminals)}. Use one.")
        terminal = _Terminal(self._workspace, await self._client.open_shell(columns=200, cwd="/workspace"))
        self._terminals[name] = terminal
        await terminal.say("")
        return terminal

    def _process(self, session: str | None) -> str:
        found = session or self._last
        if found is None:
            raise InvalidRequest("Nothing was started yet: call shell_exec first.")
        return found

    async def _find(self, process_id: str) -> ProcessInfo | None:
        found = [process for process in await self._client.processes() if process["process_id"] == process_id]
        return found[0] if found else None

    async def _printed(self, process_id: str, offset: int | None) -> str:
        if offset is None:
            total = (await self._client.logs(process_id, max_bytes=1))["total_bytes"]
            offset = max(0, total - MODEL_BYTES)
        chunk = await self._client.logs(process_id, offset=offset, max_bytes=MODEL_BYTES)
        return _told(process_id, chunk)

    async def _reset(self) -> None:
        started, terminals = self._started, list(self._terminals.values())
        self._started, self._terminals, self._last = [], {}, None
        for process_id in [*started, *(terminal.shell.process_id for terminal in terminals)]:
            try:
                await self._client.kill(process_id)
            except ProcessNotFound:
                pass


class _Terminal:
    """A living shell on a terminal; one line at a time."""

    def __init__(self, workspace: Workspace, shell: AsyncShell) -> None:
        self._client = workspace.client
        self.shell = shell
        self._seen = 0
        self._turn = asyncio.Lock()

    async def say(self, line: str) -> str:
        async with self._turn:
            if line:
                await self.shell.send(line if line.endswith(("\x03", "\x04", "\n")) else line + "\n")
            return await self._answer()

    async def _answer(self) -> str:
        """What comes until nothing comes for a while."""
        begun = last = time.monotonic()
        start, seen = self._seen, self._seen
        while (now := time.monotonic()) - begun < _ANSWER_SECONDS and (now - last < _SETTLED or seen == start):
            chunk = await self._client.logs(self.shell.process_id, offset=seen, max_bytes=MODEL_BYTES)
            if chunk["next_offset"] > seen:
                seen, last = chunk["next_offset"], now
            elif chunk["complete"]:
                break
            await asyncio.sleep(_POLL)
        self._seen = seen
        chunk = await self._client.logs(
            self.shell.process_id, offset=max(start, seen - MODEL_BYTES), max_bytes=MODEL_BYTES
        )
        ended = "\n[the shell has ended]" if chunk["complete"] else ""
        return _ESCAPES.sub("", chunk["text"]).replace("\r\n", "\n") + ended


def _status(process: ProcessInfo | None) -> str:
    if process is None or process["status"] == "exited":
        return f"[ENDED (exit {process['exit_code']})]" if process else "[ENDED]"
    return "[RUNNING]"


def _told(process_id: str, chunk: LogChunk) -> str:
    before = f"[from byte {chunk['offset']:,}]\n" if chunk["offset"] else ""
    left = chunk["total_bytes"] - chunk["next_offset"]
    after = (
        f'\n[{left:,} more bytes: shell_view(session="{process_id}", offset={chunk["next_offset"]})]' if left else ""
    )
    return f"{before}{chunk['text']}{after}"
