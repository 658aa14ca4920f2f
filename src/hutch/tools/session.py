"""`SandboxSession`: a sandbox for one conversation, and the 36 tools that act in it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.by_settings import Place, client_at, place_by_settings
from hutch.model.errors import InvalidRequest
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.mcp_servers import McpServers, read_servers
from hutch.tools.session_browser import BrowserTools
from hutch.tools.session_code import CodeTools
from hutch.tools.session_files import FileTools, SearchTools
from hutch.tools.session_git import GitTools
from hutch.tools.session_mcp import McpTools
from hutch.tools.session_shell import ShellTools
from hutch.tools.session_system import SystemTools, healthy
from hutch.tools.session_web import WebTools
from hutch.tools.workspace import Workspace, answering, resolve_path

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

TEMPLATE = "open"
USER = "sandbox-session"
Act = Callable[..., Awaitable[str]]


class SandboxSession:
    """A sandbox with a name. Whoever names it again, while it has not expired, finds the same files.

    `async with SandboxSession.create(session_id="chat_123") as session:` makes it ready; leaving ends what runs in it
    and keeps its files until it has been idle long enough. It belongs to the event loop that opened it.
    """

    def __init__(
        self,
        session_id: str | None = None,
        base_url: str | None = None,
        timeout: float = 60,
        *,
        client: AsyncSandboxClient | None = None,
        api_key: str | None = None,
        user_id: str = USER,
        egress: Sequence[Any] | None = None,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """See `create`. Raises: InvalidRequest, SettingsInvalid."""
        if not timeout > 0:
            raise InvalidRequest(f"timeout must be more than 0 seconds, not {timeout!r}.")
        self.session_id = session_id if session_id is not None else f"session_{secrets.token_hex(4)}"
        self.base_url = base_url
        self.initialized = False
        self._own = client is None
        self._client = client or _client(base_url, api_key)
        self._egress = egress
        self.workspace = Workspace(self._client, user_id, self.session_id, timeout)
        self.mcp = McpServers(self.workspace, read_servers(mcp_servers))
        self._tools: list[StructuredTool] | None = None

    @classmethod
    def create(
        cls,
        session_id: str | None = None,
        base_url: str | None = None,
        timeout: float = 60,
        **options: Any,
    ) -> _Creating:
        """A session that is ready once awaited, or entered: `async with SandboxSession.create(…) as session:`.

        Args:
            session_id: its name; without one it gets a new one.
            base_url: a server; None uses the one that settings name, or runs the sandbox in this process.
            timeout: seconds that a command may take if a call does not say otherwise.
            client: an `AsyncSandboxClient` to use instead; its template must be `open`.
            api_key: key for the server.
            user_id: whose session it is; another user cannot join it.
            egress: rules for the hosts that it may reach, like [{"host": "example.com"}]; none by default.
            mcp_servers: {"name": {"command": …, "args": […]}} runs in the sandbox, {"name": {"url": …}} is reached
                from here.

        Raises: InvalidRequest, SettingsInvalid; once awaited also what the sandbox's start raises.
        """
        return _Creating(cls(session_id, base_url, timeout, **options))

    async def initialize(self) -> None:
        """Find or make the sandbox. Doing it twice is doing it once. Raises: HutchError."""
        if self.initialized:
            return
        await self.workspace.open()
        if self._egress is not None:
            await self.client.egress.set(self._egress)
        self.initialized = True

    async def cleanup(self) -> None:
        """End what runs in it. Files stay until the sandbox has been idle long enough, or `delete`."""
        self.initialized = False
        await self.workspace.close()
        if self._own:
            await self._client.aclose()

    async def delete(self) -> None:
        """End it with all its files."""
        client = self.workspace.client
        await self.workspace.close()
        await client.close_session()
        await self.cleanup()

    @property
    def client(self) -> AsyncSandboxClient:
        """The client, bound to this session: for what no tool does."""
        return self.workspace.client

    @property
    def workspace_path(self) -> str:
        """Raises: RuntimeError before initialisation."""
        self._ready()
        return WORKSPACE_DIR

    @property
    def shell_session_id(self) -> str:
        """Raises: RuntimeError before initialisation."""
        self._ready()
        return f"{self.session_id}_shell"

    @property
    def jupyter_session_id(self) -> str:
        """Raises: RuntimeError before initialisation."""
        self._ready()
        return f"{self.session_id}_jupyter"

    def resolve_path(self, path: str) -> str:
        """`path`, relative or absolute, as an absolute one in the workspace.

        Raises: RuntimeError before initialisation, ValueError for one that leads out.
        """
        self._ready()
        return resolve_path(path)

    def get_info(self) -> dict[str, Any]:
        """What is known of the session, without asking it."""
        found = self.workspace.info
        return {
            "session_id": self.session_id,
            "workspace_path": WORKSPACE_DIR if self.initialized else None,
            "shell_session_id": f"{self.session_id}_shell" if self.initialized else None,
            "jupyter_session_id": f"{self.session_id}_jupyter" if self.initialized else None,
            "initialized": self.initialized,
            "created_at": found["created_at"] if found else None,
            "base_url": self.base_url,
        }

    async def health_check(self) -> bool:
        """Whether the sandbox answers. Never raises for one that does not."""
        return self.initialized and await healthy(self.workspace)

    def get_tools(self) -> list[StructuredTool]:
        """The 36 tools, for LangChain. Raises: RuntimeError before initialisation."""
        self._ready()
        if self._tools is None:
            from hutch.tools.arguments import tool_of

            self._tools = [tool_of(act, answering(self.workspace, act)) for act in self.functions()]
        return list(self._tools)

    def functions(self) -> list[Act]:
        """The tools as plain coroutine functions, which raise; in the order of `get_tools`."""
        workspace = self.workspace
        files, shell, code, browser = (
            FileTools(workspace),
            ShellTools(workspace),
            CodeTools(workspace),
            BrowserTools(workspace),
        )
        search, git, web, system = (
            SearchTools(workspace, files),
            GitTools(workspace),
            WebTools(workspace),
            SystemTools(workspace),
        )
        mcp = McpTools(workspace, self.mcp)
        return [
            *(files.file_read, files.file_write, files.file_edit, files.file_list, files.file_find, files.file_search),
            *(shell.shell_exec, shell.shell_view, shell.shell_write, shell.shell_wait, shell.shell_kill),
            *(code.python_execute, code.javascript_execute),
            *(browser.browser_info, browser.browser_screenshot, browser.browser_action),
            *(mcp.mcp_list_servers, mcp.mcp_list_tools, mcp.mcp_execute),
            *(search.grep, search.glob, system.workspace_info, system.workspace_health),
            *(files.file_delete, shell.shell_interactive),
            *(git.git_clone, git.git_commit, git.git_push, git.git_status),
            *(code.python_exec, web.pip_install, web.http_request, browser.browser_open),
            *(system.env_get, system.env_set, system.process_list),
        ]

    def _ready(self) -> None:
        if not self.initialized:
            raise RuntimeError("The session is not initialised: await session.initialize(), or use async with.")

    async def __aenter__(self) -> SandboxSession:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup()


class _Creating:
    """What `create` returns: awaiting or entering it initialises the session."""

    def __init__(self, session: SandboxSession) -> None:
        self._session = session

    def __await__(self) -> Generator[Any, None, SandboxSession]:
        return self._session.__aenter__().__await__()

    async def __aenter__(self) -> SandboxSession:
        return await self._session.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, trace)


def _client(base_url: str | None, api_key: str | None) -> AsyncSandboxClient:
    place = place_by_settings() if base_url is None else Place(base_url, "")
    return client_at(place, template=TEMPLATE, api_key=api_key)
