"""The MCP server itself, whatever it is reached by."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, Resource, ResourceTemplate, Tool
from pydantic import ValidationError
from pydantic.networks import AnyUrl

from hutch.model.errors import InvalidRequest
from hutch.tools.mcp import resources, specs
from hutch.tools.mcp.calls import Reach, Request

INSTRUCTIONS = """\
Each conversation has a Linux sandbox of its own. Run programs with execute; files in /workspace stay for the whole \
conversation. Servers and long jobs: process_start. Python that keeps its variables: code_run. Files worth keeping \
beyond the conversation go to the user's drive (drive_save, drive_write); drive_place brings files of the drive into \
the sandbox. The sandbox has no network unless its owner allowed hosts. Failures read `ERROR: <code>: what to do`."""
SHOWN_PROBLEMS = 5
_REQUEST: ContextVar[Request] = ContextVar("hutch_mcp_request")


class HutchMcp(MCPServer[Any]):
    """Tools and resources over the conversations that `reach` finds."""

    def __init__(self, reach: Reach) -> None:
        super().__init__(
            name="hutch",
            title="Hutch sandboxes",
            instructions=INSTRUCTIONS,
            version=importlib.import_module("hutch").__version__,
            tools=[specs.made(spec, reach) for spec in specs.ALL],
            subscriptions=False,
            middleware=[_remembering],
        )
        self._reach = reach

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Arguments that do not fit are told in our words."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                return specs.refused(_misfit(error.__cause__))
            raise

    async def list_tools(self) -> list[Tool]:
        """Those that the caller's key allows."""
        found = await super().list_tools()
        return found if self._reach.may_use(_REQUEST.get()) else [tool for tool in found if _only_reads(tool)]

    async def list_resources(self) -> list[Resource]:
        return await resources.listed(self._reach, _REQUEST.get())

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        return resources.TEMPLATES

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents]:
        return await resources.read(self._reach, _REQUEST.get(), str(uri))


async def _remembering(ctx: Request, call_next: CallNext) -> HandlerResult:
    _REQUEST.set(ctx)
    return await call_next(ctx)


def _only_reads(tool: Tool) -> bool:
    return tool.annotations is not None and bool(tool.annotations.read_only_hint)


def _misfit(error: ValidationError) -> InvalidRequest:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:SHOWN_PROBLEMS])
    return InvalidRequest(f"The arguments are not as they should be: {said}.")
