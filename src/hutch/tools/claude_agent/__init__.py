"""Sandboxes for the Claude Agent SDK: its tools act in a sandbox, and its own are kept off this machine.

    from hutch.tools.claude_agent import sandbox_options

    query(prompt="…", options=sandbox_options(client.for_thread(user_id="ada", thread_id="t1")))

Needs the extra `claude-agent`.
"""

from __future__ import annotations

try:
    from hutch.tools.claude_agent.guard import host_guard
    from hutch.tools.claude_agent.options import sandbox_options, sandbox_server
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "hutch.tools.claude_agent needs the Claude Agent SDK: pip install 'hutch[claude-agent]'"
    ) from missing

__all__ = ["host_guard", "sandbox_options", "sandbox_server"]
