"""Where the programs are that go into a sandbox or start one. Built by guest/build.py, shipped in the wheel."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from hutch.model.errors import SandboxUnavailable

GUEST_NAME = "hutch-guest"
LAUNCH_NAME = "hutch-launch"
WARM_NAME = "hutch-warm.so"
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def guest_binary() -> Path:
    """PID 1 of a sandbox. Raises: SandboxUnavailable."""
    return _binary(GUEST_NAME)


def launch_binary() -> Path:
    """What prepares a sandbox's folders before bubblewrap starts. Raises: SandboxUnavailable."""
    return _binary(LAUNCH_NAME)


def warm_library() -> Path:
    """What lets a sandbox's bash be started ahead of its command. Raises: SandboxUnavailable."""
    return _binary(WARM_NAME)


def _binary(name: str) -> Path:
    machine = _MACHINES.get(platform.machine().lower())
    if machine is None:
        here = platform.machine()
        raise SandboxUnavailable(f"Hutch has no {name} for this processor ({here}): use x86_64 or aarch64.")
    path = Path(__file__).parent / "bin" / machine / name
    if not os.access(path, os.X_OK):
        raise SandboxUnavailable(
            f"{name} is missing at {path}. In a checkout run `python guest/build.py` (needs `pip install ziglang`); "
            "an installed package holds it: install it again."
        )
    return path
