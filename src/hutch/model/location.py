"""Where a sandbox is among the workers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from hutch.model.session import SandboxState


@dataclass(frozen=True, slots=True)
class Location:
    sandbox_id: str
    tenant: str
    state: SandboxState
    worker_id: str
    fence: int  # grows whenever another worker gets it
