"""Tools that reach the MCP servers of a session."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from hutch.model.errors import HutchError, InvalidRequest, PortMisbehaved
from hutch.tools.answers import cut
from hutch.tools.mcp_servers import McpServers
from hutch.tools.workspace import Workspace

_LESS = "Ask the server for less."


class McpTools:
    def __init__(self, workspace: Workspace, servers: McpServers) -> None:
        self._timeout = workspace.timeout
        self._servers = servers

    async def mcp_list_servers(self) -> str:
        """The MCP servers of this session."""
        return "\n".join(sorted(self._servers.servers)) or "No MCP servers are configured for this session."

    async def mcp_list_tools(self, server_name: str) -> str:
        """The tools of an MCP server, with their arguments."""
        client = await self._servers.client(server_name)
        found = await self._asked(server_name, client.list_tools())
        lines = [f"{tool.name}: {tool.description or ''}\n  arguments: {tool.input_schema}" for tool in found.tools]
        return cut("\n".join(lines), _LESS) or "The server has no tools."

    async def mcp_execute(
        self,
        server_name: str,
        tool_name: str,
        arguments: Annotated[dict[str, Any] | None, "Of the tool"] = None,
    ) -> str:
        """Call a tool of an MCP server."""
        client = await self._servers.client(server_name)
        result = await self._asked(server_name, client.call_tool(tool_name, arguments or {}))
        text = cut("\n".join(_shown(content) for content in result.content), _LESS) or "(no output)"
        if result.is_error:
            raise InvalidRequest(f"{tool_name} failed: {text}")
        return text

    async def _asked(self, name: str, call: Any) -> Any:
        """Raises: PortMisbehaved, InvalidRequest."""
        from mcp import MCPError

        try:
            async with asyncio.timeout(self._timeout):
                return await call
        except MCPError as error:
            if "closed" in str(error):  # the library has no class of its own for it
                raise PortMisbehaved(f"MCP server {name!r} ended. The next call starts it again.") from error
            raise InvalidRequest(f"MCP server {name!r} refused: {str(error)[:1000]}") from error
        except TimeoutError as error:
            raise PortMisbehaved(f"MCP server {name!r} did not answer within {self._timeout:g} s.") from error
        except HutchError:
            raise
        except Exception as error:  # whatever the library makes of a server that went away
            raise PortMisbehaved(f"MCP server {name!r} broke off: {error!r:.300}") from error


def _shown(content: Any) -> str:
    if content.type == "text":
        return str(content.text)
    if content.type == "image":
        return f"[IMAGE]\ndata:{content.mime_type};base64,{content.data}"
    return f"[{content.type}]"
