"""The tools, resources and prompts that the official conformance suite wants to find, behind our transport."""

from __future__ import annotations

import asyncio
import base64
import json
import warnings
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    AudioContent,
    CallToolResult,
    Completion,
    EmbeddedResource,
    ImageContent,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)

from hutch.tools.mcp.calls import Reach

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
IMAGE = ImageContent(type="image", data=PNG, mime_type="image/png")
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": [{"const": f"v{n}", "title": f"Choice {n}"} for n in (1, 2)]}},
}
Ctx = Context[Any, Any]


def fixture(reach: Reach) -> MCPServer[Any]:
    schema = Tool.from_function(_named, name="json_schema_2020_12_tool", structured_output=False)
    schema.parameters = SCHEMA
    server: MCPServer[Any] = MCPServer(name="fixture", version="1", tools=[schema])
    for work in (
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_tool_with_logging,
        test_error_handling,
        test_tool_with_progress,
        test_sampling,
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
    ):
        server.add_tool(work, structured_output=False)
    _resources(server)
    _prompts(server)
    return server


def _named(name: str = "") -> str:
    """Takes a name."""
    return name


def _resource(uri: str, text: str, media: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, text=text, mime_type=media))


async def test_simple_text() -> CallToolResult:
    """A text."""
    return CallToolResult(content=[TextContent(type="text", text="This is a simple text response for testing.")])


async def test_image_content() -> CallToolResult:
    """An image."""
    return CallToolResult(content=[IMAGE])


async def test_audio_content() -> CallToolResult:
    """A sound."""
    return CallToolResult(content=[AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


async def test_embedded_resource() -> CallToolResult:
    """A resource."""
    return CallToolResult(content=[_resource("test://embedded-resource", "This is an embedded resource content.")])


async def test_multiple_content_types() -> CallToolResult:
    """Text, image and resource."""
    data = json.dumps({"test": "data", "value": 123})
    mixed = _resource("test://mixed-content-resource", data, "application/json")
    return CallToolResult(content=[TextContent(type="text", text="Multiple content types test:"), IMAGE, mixed])


async def test_tool_with_logging(ctx: Ctx) -> str:
    """Logs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.log("info", text)
            await asyncio.sleep(0.05)
    return "logged"


async def test_error_handling() -> str:
    """Fails."""
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(ctx: Ctx) -> str:
    """Tells how far it is."""
    for amount in (0, 50, 100):
        await ctx.report_progress(amount, 100)
        await asyncio.sleep(0.05)
    return "done"


async def test_sampling(prompt: str, ctx: Ctx) -> str:
    """Asks the client's model."""
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        answer = await ctx.session.create_message([asked], max_tokens=100, related_request_id=ctx.request_id)
    assert isinstance(answer.content, TextContent)
    return f"LLM response: {answer.content.text}"


async def _asked(ctx: Ctx, message: str, properties: dict[str, Any], required: list[str]) -> str:
    schema = {"type": "object", "properties": properties, "required": required}
    answer = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return f"action={answer.action}, content={json.dumps(answer.content)}"


async def test_elicitation(message: str, ctx: Ctx) -> str:
    """Asks the user."""
    properties = {name: {"type": "string", "description": f"User's {name}"} for name in ("username", "email")}
    return f"User response: {await _asked(ctx, message, properties, ['username', 'email'])}"


async def test_elicitation_sep1034_defaults(ctx: Ctx) -> str:
    """Asks with defaults."""
    return f"Elicitation completed: {await _asked(ctx, 'Defaults', DEFAULTS, [])}"


async def test_elicitation_sep1330_enums(ctx: Ctx) -> str:
    """Asks with choices."""
    return f"Elicitation completed: {await _asked(ctx, 'Choices', ENUMS, [])}"


def _resources(server: MCPServer[Any]) -> None:
    @server.resource("test://static-text", description="A text.", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", description="An image.", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data", description="By number.", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def _prompts(server: MCPServer[Any]) -> None:
    @server.prompt(description="A text.")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="With arguments.")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="With a resource.")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803 - its name is prescribed
        resource = _resource(resourceUri, "Embedded resource content for testing.")
        return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]

    @server.prompt(description="With an image.")
    def test_prompt_with_image() -> list[UserMessage]:
        return [UserMessage(IMAGE), UserMessage("Please analyze the image above.")]

    @server.completion()  # type: ignore[no-untyped-call]  # as it comes
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=["paris", "park", "party"], total=3, has_more=False)
