"""The direct toolkit: tools over one sandbox that all who use it share, with absolute paths and sessions by name.

For one conversation `SandboxSession` is the better choice: nobody else is in its sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from hutch.tools.direct_browser import DirectBrowser
from hutch.tools.direct_code import DirectCode, DirectSystem
from hutch.tools.direct_files import DirectFiles
from hutch.tools.direct_shell import DirectShell
from hutch.tools.session import SandboxSession
from hutch.tools.session_mcp import McpTools
from hutch.tools.workspace import answering

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

SHARED = "sandbox-tools"
Act = Callable[..., Awaitable[str]]


class SandboxToolkit:
    """Its sandbox is found or made at the first call of a tool.

    Args:
        base_url: a server; None uses the one that settings name, or runs the sandbox in this process.
        timeout: seconds that a command may take if a call does not say otherwise.
        options: as for `SandboxSession.create`.
    """

    def __init__(self, base_url: str | None = None, timeout: float = 60, **options: Any) -> None:
        """Raises: InvalidRequest, SettingsInvalid."""
        self.session = SandboxSession(options.pop("session_id", SHARED), base_url, timeout, **options)
        self._opening = asyncio.Lock()

    def get_tools(self) -> list[StructuredTool]:
        """For LangChain."""
        from hutch.tools.arguments import tool_of

        return [tool_of(act, self._opened(answering(self.session.workspace, act))) for act in self.functions()]

    async def aclose(self) -> None:
        """End what runs in the sandbox; its files stay until it has been idle long enough."""
        await self.session.cleanup()

    def _opened(self, act: Act) -> Act:
        async def opened(**arguments: Any) -> str:
            async with self._opening:
                failure = await answering(self.session.workspace, self._open)()
            return failure or await act(**arguments)

        return opened

    async def _open(self) -> str:
        await self.session.initialize()
        return ""

    def functions(self) -> list[Act]:
        workspace = self.session.workspace
        files, shell, code = DirectFiles(workspace), DirectShell(workspace), DirectCode(workspace)
        browser, system, mcp = DirectBrowser(workspace), DirectSystem(workspace), McpTools(workspace, self.session.mcp)
        return [
            *(files.file_read, files.file_write, files.file_edit, files.file_list, files.file_find, files.file_search),
            files.file_download,
            *(shell.shell_exec, shell.shell_view, shell.shell_write, shell.shell_wait, shell.shell_kill),
            shell.shell_sessions,
            *(code.jupyter_execute, code.nodejs_execute, code.code_execute),
            *(browser.browser_info, browser.browser_screenshot, browser.browser_action, browser.browser_config),
            *(mcp.mcp_list_servers, mcp.mcp_list_tools, mcp.mcp_execute),
            *(system.grep, system.sandbox_context, system.sandbox_packages, system.sandbox_health),
        ]


def create_sandbox_tools(base_url: str | None = None, timeout: float = 60, **options: Any) -> list[StructuredTool]:
    """The tools of a `SandboxToolkit`. Raises: InvalidRequest, SettingsInvalid."""
    return SandboxToolkit(base_url, timeout, **options).get_tools()
