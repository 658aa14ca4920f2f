"""What agents hold: tools over the client, for LangChain and for plain Python.

Names load at their first use: LangChain is needed only by those that make its tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

    from hutch.tools.bash import BashTools
    from hutch.tools.bound import AsyncBound, Bound, abind, bind
    from hutch.tools.direct import SandboxToolkit, create_sandbox_tools
    from hutch.tools.exceptions import (
        SandboxConnectionError,
        SandboxError,
        SandboxExecutionError,
        SandboxNotRunningError,
        SandboxTimeoutError,
    )
    from hutch.tools.holder import end_conversation, get_sandbox_client
    from hutch.tools.prompt import system_prompt
    from hutch.tools.session import SandboxSession
    from hutch.tools.sources import BackendFiles, DriveFiles, StoreFiles

    execute_bash_command: StructuredTool
    download_sandbox_file: StructuredTool

__all__ = [
    "AsyncBound",
    "BackendFiles",
    "BashTools",
    "Bound",
    "DriveFiles",
    "SandboxConnectionError",
    "SandboxError",
    "SandboxExecutionError",
    "SandboxNotRunningError",
    "SandboxSession",
    "SandboxTimeoutError",
    "SandboxToolkit",
    "StoreFiles",
    "abind",
    "bind",
    "create_sandbox_tools",
    "download_sandbox_file",
    "end_conversation",
    "execute_bash_command",
    "get_sandbox_client",
    "system_prompt",
]

_HOMES = {
    "AsyncBound": "bound",
    "BackendFiles": "sources",
    "BashTools": "bash",
    "Bound": "bound",
    "DriveFiles": "sources",
    "SandboxConnectionError": "exceptions",
    "SandboxError": "exceptions",
    "SandboxExecutionError": "exceptions",
    "SandboxNotRunningError": "exceptions",
    "SandboxSession": "session",
    "SandboxTimeoutError": "exceptions",
    "SandboxToolkit": "direct",
    "StoreFiles": "sources",
    "abind": "bound",
    "bind": "bound",
    "create_sandbox_tools": "direct",
    "end_conversation": "holder",
    "get_sandbox_client": "holder",
    "system_prompt": "prompt",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("execute_bash_command", "download_sandbox_file"):
        from hutch.tools.bash import standard_tools

        return standard_tools()[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'hutch.tools' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hutch.tools.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
