"""Tools that run programs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hutch.model.process import ProcessInfo, StreamName
from hutch.tools.mcp import texts
from hutch.tools.mcp.calls import Call

Command = Annotated[str, Field(min_length=1, description="bash text, e.g. `ls -la | head` or several lines.")]
Cwd = Annotated[str | None, Field(description="Folder to run in, below /workspace. Default: /workspace.")]
Env = Annotated[dict[str, str] | None, Field(description="Environment variables for this command.")]
ProcessId = Annotated[str, Field(min_length=1, description="As execute, process_start or process_list told it.")]
SIGNALS = {"INT": 2, "TERM": 15, "HUP": 1, "USR1": 10, "USR2": 12}


async def execute(
    call: Call,
    command: Command,
    timeout: Annotated[
        float | None, Field(gt=0, description="Seconds until it is ended with all it started. Default: 30.")
    ] = None,
    cwd: Cwd = None,
    env: Env = None,
    stdin: Annotated[str | None, Field(description="Text for its standard input.")] = None,
) -> str:
    """Run a bash command in this conversation's Linux sandbox and wait for its end.

    Files in /workspace stay for the whole conversation; each command starts in a shell of its own (no `cd` or variable
    of an earlier one). What it leaves running is ended with it: use process_start for servers and long jobs. Returns
    what it printed, its exit code and time; of very long output beginning and end, and how to read the rest.
    """
    feed = None if call.progress is None else call.progress.feed
    ran = call.client.execute(
        command,
        timeout,
        cwd=cwd,
        env=env,
        stdin=None if stdin is None else stdin.encode(),
        on_stdout=feed,
        on_stderr=feed,
    )
    if call.progress is None:
        return texts.outcome(await ran)
    async with call.progress.telling(timeout):
        result = await ran
    return texts.outcome(result)


async def process_start(
    call: Call,
    command: Command,
    cwd: Cwd = None,
    env: Env = None,
    stdin: Annotated[bool, Field(description="Keep its input open for process_input.")] = False,
) -> str:
    """Start a program in the background (a server, a long job) and return at once with its process id.

    It runs until it ends, process_kill, or the sandbox goes. process_output reads what it prints.
    """
    started = await call.client.start(command, cwd=cwd, env=env, stdin=stdin)
    return f'{started["process_id"]} runs. process_output(process_id="{started["process_id"]}") reads what it prints.'


async def process_list(call: Call) -> str:
    """The background programs of this sandbox: those that run, and the last that ended."""
    found = await call.client.processes()
    return texts.cut_lines([_row(one) for one in found], "processes", "end some") or "No processes."


def _row(one: ProcessInfo) -> str:
    state = "running" if one["status"] == "running" else f"ended with {one['exit_code']}"
    printed = f"stdout {one['stdout_bytes']} B  stderr {one['stderr_bytes']} B"
    return f"{one['process_id']}  {state}  {printed}  {one['command']!r:.200}"


async def process_output(
    call: Call,
    process_id: ProcessId,
    stream: StreamName = "stdout",
    offset: Annotated[int, Field(ge=0, description="Byte to read from; the last answer told where to go on.")] = 0,
    max_bytes: Annotated[int, Field(ge=1, le=texts.SHOWN_BYTES)] = texts.SHOWN_BYTES,
) -> str:
    """Read what a program printed, running or ended, from any offset: for long output page by page."""
    found = await call.client.logs(process_id, stream=stream, offset=offset, max_bytes=max_bytes)
    return texts.chunk(found)


async def process_wait(
    call: Call,
    process_id: ProcessId,
    timeout: Annotated[float, Field(gt=0, le=3600, description="Seconds to wait at most.")] = 30.0,
) -> str:
    """Wait for the end of a background program and return what came of it, or that it still runs."""
    result = await call.client.wait(process_id, timeout)
    return f"{process_id} still runs." if result is None else texts.outcome(result)


async def process_input(
    call: Call,
    process_id: ProcessId,
    text: Annotated[str, Field(description="Sent as it is: a line needs its \\n.")] = "",
    close: Annotated[bool, Field(description="End its input after that.")] = False,
) -> str:
    """Type into a background program that was started with stdin=true."""
    if text:
        await call.client.send_input(process_id, text)
    if close:
        await call.client.close_input(process_id)
    return "sent" if text else "closed" if close else "nothing to send"


async def process_kill(
    call: Call,
    process_id: ProcessId,
    signal: Annotated[
        Literal["KILL", "TERM", "INT", "HUP", "USR1", "USR2"], Field(description="KILL cannot be refused.")
    ] = "KILL",
) -> str:
    """End a program with all it started, or send it another signal."""
    if signal == "KILL":
        await call.client.kill(process_id)
        return f"{process_id} was ended."
    await call.client.signal(process_id, SIGNALS[signal])
    return f"{process_id} was sent SIG{signal}."
