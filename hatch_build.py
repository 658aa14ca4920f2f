"""Build hook: compiles the guest's programs and ships them, so that a wheel of Hutch needs no compiler.

The wheel holds static binaries of one architecture. `HUTCH_BUILD_MACHINE=aarch64` builds for another one than this
machine's: the compiler comes from PyPI and builds for both.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BIN = Path("src/hutch/providers/guest/bin")
# Static binaries run under any C library; the tags say so to installers that look for the one or the other.
TAGS = {
    "x86_64": "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64",
    "aarch64": "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64",
}


class GuestBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        machine = os.environ.get("HUTCH_BUILD_MACHINE") or platform.machine()
        if machine not in TAGS:
            raise SystemExit(f"Hutch's guest is built for {' and '.join(TAGS)}, not for {machine}.")
        root = Path(self.root)
        for binary in _guest_builder(root).build(root / BIN / machine, machine):
            shipped_as = f"hutch/providers/guest/bin/{machine}/{binary.name}"
            if version != "editable":
                build_data["force_include"][str(binary)] = shipped_as
        build_data["pure_python"] = False
        build_data["tag"] = TAGS[machine]


def _guest_builder(root: Path) -> ModuleType:
    """`guest/build.py`, which is no part of the package: it knows how the guest is compiled."""
    source = root / "guest" / "build.py"
    spec = importlib.util.spec_from_file_location("hutch_guest_build", source)
    if spec is None or spec.loader is None or not source.is_file():
        raise SystemExit(f"{source} is missing: this is not a whole source tree of Hutch.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
