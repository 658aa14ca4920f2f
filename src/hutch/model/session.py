"""Sessions and sandboxes as users see them."""

from __future__ import annotations

from typing import Literal, TypedDict

WORKSPACE_DIR = "/workspace"

# creating: its machine is being started (the first time or again); stopped: only its files are left;
# removing: its end has begun and cannot be called off.
SandboxState = Literal["creating", "running", "stopped", "removing", "removed"]
DeadlineAction = Literal["stop", "remove"]  # of the machine; of the sandbox with its files


class SessionInfo(TypedDict):
    session_id: str
    thread_id: str
    user_id: str
    status: Literal["created", "existing"]
    workspace_dir: str
    created_at: str
    last_activity: str
    expires_at: str
    template: str


class SandboxInfo(TypedDict):
    sandbox_id: str
    session_id: str
    thread_id: str
    user_id: str
    template: str
    provider: str
    state: str
    cwd: str
    created_at: str
    last_activity: str
    expires_at: str
    processes: int
