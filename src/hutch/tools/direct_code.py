"""Tools of the direct toolkit for code, for the browser's size, for searching, and about the sandbox."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Literal

from hutch.model.errors import InvalidRequest, NotSupported
from hutch.tools.answers import cut
from hutch.tools.session_code import CodeTools
from hutch.tools.session_system import healthy
from hutch.tools.workspace import NOT_FOUND, Workspace, finished, missing

Language = Literal["python", "javascript", "bash"]
_LESS = "Print less, or write to a file."
MAX_PACKAGES = 50
_PACKAGES = {
    "python": "import importlib.metadata as m\n"
    "print('\\n'.join(sorted({f\"{d.metadata['Name']} {d.version}\" for d in m.distributions()})))",
}
_GREP = r"""
set -- grep -rPI --exclude-dir=.git
[ "$MODE" = content ] && set -- "$@" -nH ${BEFORE:+-B "$BEFORE"} ${AFTER:+-A "$AFTER"}
[ "$MODE" = count ] && set -- "$@" -c
[ "$MODE" = files_with_matches ] && set -- "$@" -l
"$@" ${IGNORE_CASE:+-i} ${GLOB:+--include="$GLOB"} ${TYPE:+--include="*.$TYPE"} -e "$PATTERN" -- "$WHERE" |
  if [ "$MODE" = count ]; then grep -v ':0$'; else cat; fi | head -n "$MOST"
exit ${PIPESTATUS[0]}
"""


class DirectCode:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._code = CodeTools(workspace)
        self._contexts: dict[str, str] = {}

    async def jupyter_execute(
        self,
        code: Annotated[str, "Python code"],
        timeout: Annotated[float, "Seconds"] = 30,
        kernel_name: Annotated[str, "Only python3: the sandbox's own"] = "python3",
        session_id: Annotated[str | None, "Each keeps variables of its own"] = None,
    ) -> str:
        """Run Python in an interpreter whose variables stay for the next call."""
        if kernel_name not in ("python3", "python"):
            raise NotSupported(f"There is no kernel {kernel_name!r:.50}, only python3.")
        if session_id is not None and session_id not in self._contexts:
            made = await self._workspace.client.code.create_context()
            self._contexts[session_id] = made["context_id"]
        return await self._code.run(code, timeout, self._contexts.get(session_id or ""))

    async def nodejs_execute(
        self,
        code: Annotated[str, "JavaScript"],
        timeout: Annotated[float, "Seconds"] = 30,
        stdin: Annotated[str | None, "Input of the program"] = None,
        files: Annotated[dict[str, str] | None, "Texts to store beside it, by name"] = None,
    ) -> str:
        """Run JavaScript in Node, in a folder of its own."""
        folder = f".node/{secrets.token_hex(6)}"
        for name, text in {"main.js": code, **(files or {})}.items():
            path = self._workspace.path(f"{folder}/{name}")
            if not path.startswith(f"/workspace/{folder}/"):
                raise InvalidRequest(f"{name!r:.100} is no name for a file beside the program.")
            await self._workspace.client.files.write(path, text)
        try:
            command, feed = "node main.js", None if stdin is None else stdin.encode()
            result = await self._workspace.run(command, stdin=feed, timeout=timeout, cwd=f"/workspace/{folder}")
        finally:
            await self._workspace.client.files.remove(folder, recursive=True)
        if result["exit_code"] == NOT_FOUND:
            raise missing("node")
        return finished(result, _LESS) or "(no output)"

    async def code_execute(self, language: Language, code: str, timeout: float = 30) -> str:
        """Run code in a process of its own; nothing is kept but files."""
        program = {"python": "python3 -c", "javascript": "node -e", "bash": "bash -c"}[language]
        return finished(await self._workspace.feed(program, code, timeout), _LESS) or "(no output)"


class DirectSystem:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def grep(
        self,
        pattern: Annotated[str, "Perl-compatible regular expression"],
        path: str = ".",
        output_mode: Literal["files_with_matches", "content", "count"] = "content",
        glob: Annotated[str | None, "Only files whose names match"] = None,
        file_type: Annotated[str | None, "Only files with this ending, like py"] = None,
        case_insensitive: bool = False,
        context_before: int | None = None,
        context_after: int | None = None,
        max_results: int = 50,
    ) -> str:
        """Search the text of files."""
        env = {
            "PATTERN": pattern,
            "WHERE": path,
            "MODE": output_mode,
            "GLOB": glob or "",
            "TYPE": file_type or "",
            "IGNORE_CASE": "yes" if case_insensitive else "",
            "BEFORE": str(max(0, context_before)) if context_before else "",
            "AFTER": str(max(0, context_after)) if context_after else "",
            "MOST": str(max(1, max_results)),
        }
        result = await self._workspace.run(_GREP, env=env)
        if result["exit_code"] > 1 and not result["stdout"]:
            raise InvalidRequest(f"The search failed: {result['stderr'].strip()[-500:]}")
        return cut(result["stdout"], "Narrow the search.") or "No matches"

    async def sandbox_context(self) -> str:
        """The sandbox's home folder and system."""
        result = await self._workspace.run(
            'echo "home_dir: $HOME"; echo "system: $(uname -a)"; head -3 /etc/os-release'
        )
        return finished(result, _LESS)

    async def sandbox_packages(self, language: Literal["python", "nodejs"]) -> str:
        """The packages that are installed, the first 50."""
        if language == "python":
            result = await self._workspace.feed("python3 -c", _PACKAGES["python"], None)
            lines = result["stdout"].splitlines()
        else:
            result = await self._workspace.run("npm ls --global --depth=0 --json")
            if result["exit_code"] == NOT_FOUND:
                raise missing("npm")
            lines = _node_packages(result["stdout"])
        more = [f"… and {len(lines) - MAX_PACKAGES} more"] if len(lines) > MAX_PACKAGES else []
        return "\n".join([*lines[:MAX_PACKAGES], *more]) or "No packages"

    async def sandbox_health(self) -> str:
        """Whether the sandbox answers."""
        return "healthy" if await healthy(self._workspace) else "ERROR: sandbox_unavailable: it is not responding"


def _node_packages(text: str) -> list[str]:
    try:
        found = json.loads(text).get("dependencies", {})
        return sorted(f"{name} {package.get('version', '')}" for name, package in found.items())
    except (ValueError, AttributeError) as error:
        raise InvalidRequest("npm did not list its packages.") from error
