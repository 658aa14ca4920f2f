"""Makes deploy/seccomp-worker.json: what a container engine filters for a worker that runs without root's rights.

It is the Moby project's default profile for a container without capabilities, and the few calls that build walls. The
conditions of that project's format are resolved here: what Kubernetes hands to its nodes does not know them.
`--check` says whether the file is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / "src/hutch/providers/bubblewrap/data/moby-seccomp-default.json"
MADE = ROOT / "deploy/seccomp-worker.json"
MACHINES = {"SCMP_ARCH_X86_64": "amd64", "SCMP_ARCH_AARCH64": "arm64"}
# Each was left out once with a real engine: no sandbox started without it (tests/acceptance/test_deploy_image.py).
# What they do is bounded by the namespaces that they are called in: the worker holds no capability in the host's.
FOR_WALLS = ("clone", "keyctl", "mount", "pivot_root", "sethostname", "umount2", "unshare")


def profile() -> dict[str, Any]:
    default = json.loads(DEFAULT.read_text())
    rules = [_plain(rule) for rule in default["syscalls"] if _applies(rule)]
    return {
        "defaultAction": default["defaultAction"],
        "defaultErrnoRet": default["defaultErrnoRet"],
        "architectures": list(MACHINES),
        "syscalls": [*rules, {"names": list(FOR_WALLS), "action": "SCMP_ACT_ALLOW"}],
    }


def _applies(rule: dict[str, Any]) -> bool:
    """To a container without capabilities, on one of our machines, with any kernel that has overlays for users."""
    wants, spares = rule.get("includes", {}), rule.get("excludes", {})
    if wants.get("caps") or set(rule["names"]) == {"clone"}:  # which is allowed as a whole, below
        return False
    ours = set(MACHINES.values())
    return bool(ours & set(wants.get("arches", ours))) and not ours <= set(spares.get("arches", ()))


def _plain(rule: dict[str, Any]) -> dict[str, Any]:
    return {key: rule[key] for key in ("names", "action", "errnoRet", "args") if rule.get(key) is not None}


def main(arguments: list[str]) -> int:
    wanted = json.dumps(profile(), indent=1) + "\n"
    if "--check" in arguments:
        if not MADE.exists() or MADE.read_text() != wanted:
            print(f"{MADE.relative_to(ROOT)} is stale: run scripts/generate_worker_seccomp.py")
            return 1
        return 0
    MADE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
