"""`shell_executor`: lets the SDK's `ShellTool` run its commands in a sandbox instead of on the host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agents import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import HutchError
from hutch.tools.answers import told
from hutch.tools.long_output import shortened

CANNOT_RUN = 126


def shell_executor(
    client: AsyncSandboxClient, *, timeout: float = 60.0
) -> Callable[[ShellCommandRequest], Awaitable[ShellResult]]:
    """For `ShellTool(executor=shell_executor(client.for_thread(user_id, thread_id)))`.

    Args:
        client: a handle bound to a conversation; an unbound one acts on the session of the running task.
        timeout: seconds for a command when the model names none.
    """

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        seconds = action.timeout_ms / 1000 if action.timeout_ms is not None else timeout
        outputs = []
        for command in action.commands:
            outputs.append(await _run(client, command, seconds))
            if outputs[-1].outcome.type == "timeout":
                break  # what follows may rest on what was not done
        return ShellResult(output=outputs, max_output_length=action.max_output_length)

    return execute


async def _run(client: AsyncSandboxClient, command: str, seconds: float) -> ShellCommandOutput:
    try:
        result = await client.execute(command, timeout=seconds, leftovers="keep")
    except HutchError as error:
        refused = ShellCallOutcome(type="exit", exit_code=CANNOT_RUN)
        return ShellCommandOutput(stderr=told(error), outcome=refused, command=command)
    outcome = ShellCallOutcome(type="exit", exit_code=result["exit_code"])
    if result["timed_out"]:
        outcome = ShellCallOutcome(type="timeout")
    return ShellCommandOutput(**await shortened(client, result), outcome=outcome, command=command)
