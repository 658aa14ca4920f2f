"""The tools there are, and how each is made known."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, ContentBlock, TextContent, ToolAnnotations

from hutch.model.errors import HutchError
from hutch.tools.mcp import code, commands, drive, files, texts
from hutch.tools.mcp.calls import Call, Reach, to_its_end
from hutch.tools.mcp.progress import Progress

NEW_SANDBOX = "[a new sandbox was made for this conversation; /workspace is empty]"


@dataclass(frozen=True, slots=True)
class Spec:
    work: Callable[..., Awaitable[str | Sequence[ContentBlock]]]
    title: str
    reads: bool = False  # changes nothing
    destroys: bool = False  # what it does may lose something
    repeats: bool = False  # doing it again changes nothing more
    of_user: bool = False  # needs a user, and no sandbox


SANDBOX = (
    Spec(commands.execute, "Run a command", destroys=True),
    Spec(commands.process_start, "Start a background process", destroys=True),
    Spec(commands.process_list, "List processes", reads=True),
    Spec(commands.process_output, "Read a process's output", reads=True),
    Spec(commands.process_wait, "Wait for a process", reads=True),
    Spec(commands.process_input, "Type into a process", destroys=True),
    Spec(commands.process_kill, "End a process", destroys=True, repeats=True),
    Spec(files.files_read, "Read a file", reads=True),
    Spec(files.files_write, "Write a file", destroys=True, repeats=True),
    Spec(files.files_edit, "Edit a file", destroys=True),
    Spec(files.files_list, "List files", reads=True),
    Spec(files.files_stat, "Look at a file's size and time", reads=True),
    Spec(files.files_mkdir, "Make a folder", repeats=True),
    Spec(files.files_move, "Move a file", destroys=True),
    Spec(files.files_remove, "Delete a file", destroys=True),
)
CODE = (
    Spec(code.code_run, "Run Python", destroys=True),
    Spec(code.code_restart, "Start Python anew", destroys=True, repeats=True),
)
DRIVE = (
    Spec(drive.drive_read, "Read a file of the drive", reads=True, of_user=True),
    Spec(drive.drive_write, "Write a file of the drive", repeats=True, of_user=True),
    Spec(drive.drive_edit, "Edit a file of the drive", of_user=True),
    Spec(drive.drive_list, "List the drive", reads=True, of_user=True),
    Spec(drive.drive_glob, "Find files of the drive by name", reads=True, of_user=True),
    Spec(drive.drive_grep, "Find lines in the drive", reads=True, of_user=True),
    Spec(drive.drive_search, "Search the drive", reads=True, of_user=True),
    Spec(drive.drive_move, "Move a file of the drive", destroys=True, of_user=True),
    Spec(drive.drive_delete, "Delete a file of the drive", destroys=True, of_user=True),
    Spec(drive.drive_versions, "List versions of a file of the drive", reads=True, of_user=True),
    Spec(drive.drive_undo, "Undo a change of the drive", of_user=True),
    Spec(drive.drive_place, "Copy from the drive to the sandbox", destroys=True, repeats=True),
    Spec(drive.drive_save, "Copy from the sandbox to the drive", repeats=True),
)
ALL = (*SANDBOX, *CODE, *DRIVE)


def made(spec: Spec, reach: Reach) -> Tool:
    """The tool as the protocol's library wants it: its schema is the signature of the function that does the work."""
    hints = get_type_hints(spec.work, include_extras=True)
    given = [one.replace(annotation=hints[one.name]) for one in inspect.signature(spec.work).parameters.values()][1:]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context)

    async def run(ctx: Context[Any, Any], **arguments: Any) -> CallToolResult:
        return await answered(spec, reach, ctx, arguments)

    run.__signature__ = inspect.Signature([context, *given], return_annotation=CallToolResult)  # type: ignore[attr-defined]  # as inspect reads it
    run.__annotations__ = {one.name: one.annotation for one in [context, *given]} | {"return": CallToolResult}
    tool = Tool.from_function(
        run,
        name=spec.work.__name__,
        title=spec.title,
        description=inspect.getdoc(spec.work),
        structured_output=False,
        annotations=ToolAnnotations(
            title=spec.title,
            read_only_hint=spec.reads,
            destructive_hint=spec.destroys,
            idempotent_hint=spec.reads or spec.repeats,
            open_world_hint=False,
        ),
    )
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"  # a misspelt argument is told, not dropped
    model.model_rebuild(force=True)
    tool.parameters = {**tool.parameters, "additionalProperties": False}
    return tool


async def answered(spec: Spec, reach: Reach, ctx: Context[Any, Any], arguments: dict[str, Any]) -> CallToolResult:
    """What came of a call: content, or one of our errors as a text."""
    request = ctx.request_context
    asked = request.meta is not None and request.meta.get("progress_token") is not None
    progress = Progress(ctx.report_progress) if asked else None

    async def work() -> CallToolResult:
        conversation = await (reach.owner(request) if spec.of_user else reach.conversation(request, makes=True))
        content = await spec.work(Call(conversation, progress), **arguments)
        blocks: list[ContentBlock] = [_text(content)] if isinstance(content, str) else list(content)
        if conversation.is_new and not spec.reads:
            blocks.append(_text(NEW_SANDBOX))
        return CallToolResult(content=blocks)

    try:
        return await to_its_end(work(), reach.gone(request))
    except HutchError as error:
        return refused(error)


def refused(error: HutchError) -> CallToolResult:
    return CallToolResult(content=[_text(texts.failure(error))], is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)
