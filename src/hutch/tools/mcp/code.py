"""Tools that run Python in an interpreter that keeps its state."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from mcp_types import ContentBlock, ImageContent, TextContent
from pydantic import Field

from hutch.model.code import CODE_TIMEOUT, DEFAULT_CONTEXT, CodeEvent, CodeResult
from hutch.tools.mcp import texts
from hutch.tools.mcp.calls import Call
from hutch.tools.mcp.content import IMAGES, MAX_CONTENT_BYTES

MOST_IMAGES = 10
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


async def code_run(
    call: Call,
    code: Annotated[str, Field(min_length=1, description="Python, as in a notebook's cell.")],
    timeout: Annotated[float, Field(gt=0, description="Seconds until it is interrupted.")] = CODE_TIMEOUT,
) -> list[ContentBlock]:
    """Run Python in this conversation's interpreter, as in a notebook.

    Variables, imports and functions stay from call to call. Returns what it printed, the value of its last line, and
    images it showed.
    """

    def heard(event: CodeEvent) -> None:
        if call.progress is not None and event["text"]:
            call.progress.feed(event["text"])

    if call.progress is None:
        return shown(await call.client.code.run(code, timeout=timeout))
    async with call.progress.telling(timeout):
        result = await call.client.code.run(code, timeout=timeout, on_output=heard)
    return shown(result)


async def code_restart(call: Call) -> str:
    """Start this conversation's Python anew: what earlier code defined is forgotten, files stay."""
    await call.client.code.restart_context(DEFAULT_CONTEXT)
    return "Python was started anew."


def shown(result: CodeResult) -> list[ContentBlock]:
    """Text, cut to what a model may have, then images."""
    parts = [result["stdout"].rstrip("\n")]
    if result["stderr"]:
        parts.append("[stderr]\n" + result["stderr"].rstrip("\n"))
    parts += [_text(one["data"]) for one in result["outputs"]]
    if result["error"] is not None:
        parts.append(_COLOURS.sub("", result["error"]["traceback"]))
    parts.append(f"[{'; '.join(_how(result))}]")
    text = texts.cut_middle("\n".join(part for part in parts if part), "print less, or write it to a file")
    images = list(_images(one["data"] for one in result["outputs"]))
    return [TextContent(type="text", text=text), *images[:MOST_IMAGES]]


def _how(result: CodeResult) -> list[str]:
    said = ["failed" if result["error"] is not None else "ok", f"{result['execution_time_ms']} ms"]
    if result["timed_out"]:
        said.append("timed out: it was interrupted; what it defined stays")
    if result["limit"]:
        said.append(f"limit hit: {result['limit']}")
    if result["truncated"]:
        said.append("there was more output than is kept")
    if result["state_lost"]:
        said.append("the interpreter ended: what was defined is gone")
    elif result["context_restarted"]:
        said.append("a new interpreter: what earlier code defined was gone")
    return said


def _text(data: dict[str, Any]) -> str:
    found = data.get("text/markdown") or data.get("text/plain") or ""
    return found if isinstance(found, str) else str(found)


def _images(outputs: Iterable[dict[str, Any]]) -> Iterable[ImageContent]:
    for data in outputs:
        for media in IMAGES & data.keys():
            if isinstance(data[media], str) and len(data[media]) < MAX_CONTENT_BYTES * 4 // 3:
                yield ImageContent(type="image", data="".join(data[media].split()), mime_type=media)
