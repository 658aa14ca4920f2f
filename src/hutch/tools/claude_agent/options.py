"""`ClaudeAgentOptions` for an agent that works in a sandbox."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    McpSdkServerConfig,
    SdkMcpTool,
    ToolAnnotations,
    create_sdk_mcp_server,
)

from hutch.client.async_client import AsyncSandboxClient
from hutch.tools.answers import MODEL_BYTES
from hutch.tools.claude_agent.guard import host_guard
from hutch.tools.claude_agent.sandbox_tools import SandboxTools

# The CLI puts larger results into a file of this machine, where the agent may not look.
RESULT_CHARACTERS = 2 * MODEL_BYTES


def sandbox_server(client: AsyncSandboxClient, name: str = "sandbox") -> McpSdkServerConfig:
    """An MCP server in this process, whose tools act in the sandbox of `client`.

    Args:
        client: a handle bound to a conversation (`client.for_thread(…)`): each user gets a server of their own.
        name: of the server; its tools are `mcp__<name>__execute` and so on.
    """
    tools = [
        SdkMcpTool(
            one.name, one.description, one.schema, one.run, ToolAnnotations(maxResultSizeChars=RESULT_CHARACTERS)
        )
        for one in SandboxTools(client).table()
    ]
    return create_sdk_mcp_server(name, tools=tools)


def sandbox_options(
    client: AsyncSandboxClient, options: ClaudeAgentOptions | None = None, *, name: str = "sandbox"
) -> ClaudeAgentOptions:
    """`options` with the sandbox's tools, allowed without asking, and the guard before the CLI's own.

    What `options` leaves open is closed: the CLI offers none of its own tools (`tools=[]`), loads no settings of this
    machine and no MCP servers but those given.
    """
    given = options if options is not None else ClaudeAgentOptions()
    if not isinstance(given.mcp_servers, dict):
        raise TypeError("sandbox_options needs mcp_servers as a dict; a file of them cannot be added to.")
    servers: dict[str, Any] = {**given.mcp_servers, name: sandbox_server(client, name)}
    hooks = dict(given.hooks or {})
    hooks["PreToolUse"] = [host_guard(name), *hooks.get("PreToolUse", [])]
    return replace(
        given,
        tools=[] if given.tools is None else given.tools,
        allowed_tools=[*given.allowed_tools, f"mcp__{name}"],
        mcp_servers=servers,
        strict_mcp_config=True,
        setting_sources=[] if given.setting_sources is None else given.setting_sources,
        hooks=hooks,
    )
