"""Hutch gives AI agents computers of their own, on your machine.

from hutch import SandboxClient

client = SandboxClient()
client.get_or_create_session(user_id="me", thread_id="a-conversation")
print(client.execute("echo hello")["stdout"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hutch.client.async_bash_tool import AsyncBashTool
    from hutch.client.async_batch import AsyncBatchSandboxClient
    from hutch.client.async_client import AsyncSandboxClient
    from hutch.client.sync_client import BashTool, BatchSandboxClient, SandboxClient
    from hutch.model.egress import HostRule
    from hutch.model.errors import (
        ClientClosed,
        CommandRejected,
        ContextNotFound,
        DriveFileNotFound,
        FileConflict,
        Forbidden,
        GitFailed,
        HutchError,
        IdempotencyConflict,
        InterpreterMissing,
        InvalidRequest,
        LimitExceeded,
        MethodNotAllowed,
        NoActiveSession,
        NotSupported,
        PathRejected,
        PoolExhausted,
        PortMisbehaved,
        PortUnreachable,
        ProcessEnded,
        ProcessNotFound,
        RateLimited,
        RequestTooLarge,
        RouteNotFound,
        SandboxFileNotFound,
        SandboxMoved,
        SandboxNotFound,
        SandboxUnavailable,
        ServerUnreachable,
        SessionExpiredError,
        SettingsInvalid,
        StoreUnavailable,
        ThreadOwnedByOther,
        Unauthorized,
        WallMissing,
        WorkerLost,
    )
    from hutch.tools.direct import create_sandbox_tools
    from hutch.tools.session import SandboxSession

__version__ = "0.1.0.dev0"

__all__ = [
    "AsyncBashTool",
    "AsyncBatchSandboxClient",
    "AsyncSandboxClient",
    "BashTool",
    "BatchSandboxClient",
    "ClientClosed",
    "CommandRejected",
    "ContextNotFound",
    "DriveFileNotFound",
    "FileConflict",
    "Forbidden",
    "GitFailed",
    "HostRule",
    "HutchError",
    "IdempotencyConflict",
    "InterpreterMissing",
    "InvalidRequest",
    "LimitExceeded",
    "MethodNotAllowed",
    "NoActiveSession",
    "NotSupported",
    "PathRejected",
    "PoolExhausted",
    "PortMisbehaved",
    "PortUnreachable",
    "ProcessEnded",
    "ProcessNotFound",
    "RateLimited",
    "RequestTooLarge",
    "RouteNotFound",
    "SandboxClient",
    "SandboxFileNotFound",
    "SandboxMoved",
    "SandboxNotFound",
    "SandboxSession",
    "SandboxUnavailable",
    "ServerUnreachable",
    "SessionExpiredError",
    "SettingsInvalid",
    "StoreUnavailable",
    "ThreadOwnedByOther",
    "Unauthorized",
    "WallMissing",
    "WorkerLost",
    "create_sandbox_tools",
]

_HOMES = {
    "AsyncBashTool": "hutch.client.async_bash_tool",
    "AsyncBatchSandboxClient": "hutch.client.async_batch",
    "AsyncSandboxClient": "hutch.client.async_client",
    "BashTool": "hutch.client.sync_client",
    "BatchSandboxClient": "hutch.client.sync_client",
    "HostRule": "hutch.model.egress",
    "SandboxClient": "hutch.client.sync_client",
    "SandboxSession": "hutch.tools.session",
    "create_sandbox_tools": "hutch.tools.direct",
}


def __getattr__(name: str) -> Any:
    """Load a name at its first use, so that `import hutch` costs next to nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'hutch' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES.get(name, "hutch.model.errors")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
