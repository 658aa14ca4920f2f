"""Code tools of a session: a living Python, and programs that run once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from hutch.model.limits import MIB
from hutch.tools.answers import cut
from hutch.tools.workspace import Workspace, finished

MAX_IMAGE = 4 * MIB  # characters of base64
_LESS = "Print less, or write to a file and read it with file_read."


class CodeTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        workspace.on_reset(self._reset)

    async def python_execute(
        self, code: Annotated[str, "Python code"], timeout: Annotated[float, "Seconds"] = 30
    ) -> str:
        """Run Python in this session's interpreter: variables, imports and functions stay for the next call."""
        return await self.run(code, timeout, None)

    async def run(self, code: str, timeout: float, context: str | None) -> str:
        result = await self._workspace.client.code.run(code, timeout=timeout, context=context)
        texts = [result["stdout"], result["stderr"]]
        images: list[str] = []
        for output in result["outputs"]:
            image = _image(output["data"])
            (images if image else texts).append(image or _shown(output["data"]))
        if result["timed_out"]:
            texts.append(f"ERROR: timed_out: interrupted after {timeout:g} s. Variables are kept.")
        elif result["error"] is not None:
            error = result["error"]
            texts.append(f"ERROR: {error['name']}: {error['value']}\n{error['traceback']}")
        if result["state_lost"]:
            texts.append("[the interpreter ended; its variables are gone]")
        elif result["context_restarted"]:
            texts.append("[this was a new interpreter: variables of earlier calls are gone]")
        text = cut("\n".join(part.rstrip("\n") for part in texts if part), _LESS)
        return "\n".join([text, *images] if text else images) or "(no output)"

    async def _reset(self) -> None:
        code = self._workspace.client.code
        for context in await code.contexts():
            await code.close_context(context["context_id"])

    async def python_exec(self, code: Annotated[str, "Python code"]) -> str:
        """Run Python in a process of its own, in /workspace; nothing is kept but files."""
        result = await self._workspace.feed("python3 -c", code, None)
        return finished(result, _LESS) or "(no output)"

    async def javascript_execute(
        self, code: Annotated[str, "JavaScript for Node; print with console.log"], timeout: float = 30
    ) -> str:
        """Run JavaScript in Node, in a process of its own, in /workspace; nothing is kept but files."""
        result = await self._workspace.feed("node -e", code, timeout)
        return finished(result, _LESS) or "(no output)"


def _image(data: Mapping[str, Any]) -> str | None:
    """A data URL. It is never cut: half an image is none."""
    for kind in ("image/png", "image/jpeg"):
        if kind in data and len(data[kind]) <= MAX_IMAGE:
            return f"[IMAGE]\ndata:{kind};base64,{''.join(data[kind].split())}"
    return None


def _shown(data: Mapping[str, Any]) -> str:
    for kind in ("text/markdown", "text/plain", "text/html", "application/json", "image/svg+xml"):
        if kind in data:
            return str(data[kind])
    return f"[shown as {', '.join(sorted(data))}]"
