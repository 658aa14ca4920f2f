"""Sandboxes for the OpenAI Agents SDK: a client for `SandboxAgent`, an executor for `ShellTool`.

    from hutch.tools.openai_agents import HutchSandboxClient

    RunConfig(sandbox=SandboxRunConfig(client=HutchSandboxClient()))

Needs the extra `openai-agents`.
"""

from __future__ import annotations

try:
    from hutch.tools.openai_agents.client import HutchSandboxClient, HutchSandboxOptions
    from hutch.tools.openai_agents.session import HutchSandboxSession, HutchSandboxState
    from hutch.tools.openai_agents.shell import shell_executor
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "hutch.tools.openai_agents needs the OpenAI Agents SDK: pip install 'hutch[openai-agents]'"
    ) from missing

__all__ = [
    "HutchSandboxClient",
    "HutchSandboxOptions",
    "HutchSandboxSession",
    "HutchSandboxState",
    "shell_executor",
]
