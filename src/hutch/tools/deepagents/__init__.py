"""Backends for deepagents: commands and files in a sandbox, and files in a user's drive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hutch.tools.deepagents.drive import HutchDrive
    from hutch.tools.deepagents.sandbox import ARTIFACTS_ROOT, HutchSandbox

__all__ = ["ARTIFACTS_ROOT", "HutchDrive", "HutchSandbox"]

_HOMES = {"ARTIFACTS_ROOT": "sandbox", "HutchDrive": "drive", "HutchSandbox": "sandbox"}


def __getattr__(name: str) -> Any:
    """Load a name at its first use: each needs deepagents (`pip install "hutch[deepagents]"`)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
