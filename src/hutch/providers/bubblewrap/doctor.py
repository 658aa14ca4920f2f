"""What `doctor` says of the bubblewrap provider: a strict sandbox is started and looked at."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
from pathlib import Path

from hutch.model.errors import HutchError
from hutch.model.ids import new_sandbox_id
from hutch.model.process import StreamName
from hutch.model.template import BASH, STRICT_PROGRAMS
from hutch.model.wall import WALLS, WallReport, WallState
from hutch.providers.base import Machine, MachineSpec, Provider, ProviderReport, SpawnRequest
from hutch.providers.bubblewrap import workspace
from hutch.providers.bubblewrap.layers import missing_programs
from hutch.providers.bubblewrap.machine import BubblewrapMachine
from hutch.providers.bubblewrap.probe import COMMAND, NAMESPACE_OF, Finding, Host, judge
from hutch.providers.bubblewrap.site import Site

PROBE_SECONDS = 30.0
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_VERSION_FLAG = 1
REMEDIES = {
    "landlock": "Use Linux 5.13 or newer with landlock in the boot parameter lsm=.",
    "hidden_paths": "Put the data folder on a file system that can carry an overlay (ext4, xfs, btrfs, tmpfs).",
}


class _Collected:
    """An output sink that keeps what a probe prints."""

    def __init__(self) -> None:
        self.data = b""

    def feed(self, stream: StreamName, data: bytes) -> bool:
        self.data += data
        return True


async def examine(provider: Provider, site: Site) -> ProviderReport:
    findings: dict[str, Finding] = {}
    notes: list[str] = []
    usable = True
    sandbox_id = new_sandbox_id()
    folder = site.data / "probes" / sandbox_id
    spec = MachineSpec(sandbox_id, folder, BASH.limits, True, provider.allocate_uid(frozenset()))
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            machine = await provider.start(spec)
            findings = await _look(machine, site, spec)
    except HutchError as failure:
        usable = False
        notes.append(failure.message)
        named = failure.details.get("walls", ())
        findings = {str(wall): Finding(False, failure.message) for wall in named}
    except TimeoutError:
        usable = False
        notes.append(f"A sandbox does not start within {PROBE_SECONDS:.0f} seconds.")
    finally:
        await _clear(provider, spec, notes)
    walls = tuple(_wall(wall.name, findings, site) for wall in WALLS)
    down = [report.name for report in walls if report.state == "down" and _need(report.name) != "best_effort"]
    return ProviderReport(
        provider=provider.name,
        usable=usable and not down,
        walls=walls,
        limits=limit_notes(site),
        missing_programs=missing_programs(Path("/usr")),
        versions=_versions(site),
        notes=tuple(notes),
    )


async def _clear(provider: Provider, spec: MachineSpec, notes: list[str]) -> None:
    try:
        await provider.destroy(spec)
        spec.folder.parent.rmdir()
    except HutchError as failure:
        notes.append(failure.message)
    except OSError:
        pass  # another doctor is at work


async def _look(machine: Machine, site: Site, spec: MachineSpec) -> dict[str, Finding]:
    sink = _Collected()
    env = {"PATH": "/usr/bin:/bin"}
    process = await machine.spawn(SpawnRequest((None, "-c", COMMAND), env, "/workspace"), sink)
    await process.wait()
    host = Host(
        namespaces={name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACE_OF.values()},
        secret_paths=(str(site.data), spec.sandbox_id),
        allowed_programs=frozenset(STRICT_PROGRAMS),
    )
    findings = judge(sink.data.decode(errors="replace"), host)
    findings["host_uid"] = _host_uid(machine, spec)
    # These cannot be seen from inside; a start in which one of them cannot be built fails.
    for wall in ("disable_userns", "keyring", "memfd"):
        findings[wall] = Finding(True, "built at every start, or there is no start")
    missing = site.discovery.missing
    findings["cgroup_limits"] = Finding(
        not missing, f"cgroup v{site.discovery.version}" if not missing else site.discovery.gap
    )
    version = landlock_version()
    findings["landlock"] = Finding(version > 0, f"version {version}" if version else "not in this kernel")
    gap = site.overlay_gap(spec.folder)
    if gap:
        findings["hidden_paths"] = Finding(False, gap)
    return findings


def _host_uid(machine: Machine, spec: MachineSpec) -> Finding:
    if spec.host_uid is None:
        return Finding(True, "not needed: the server is not root")
    assert isinstance(machine, BubblewrapMachine)
    status = Path(f"/proc/{machine.init.pid}/status").read_text(errors="replace")
    uids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    return Finding(set(uids) == {str(spec.host_uid)}, f"host uid {uids[0]}")


def _need(name: str) -> str:
    return next(wall.need for wall in WALLS if wall.name == name)


def _wall(name: str, findings: dict[str, Finding], site: Site) -> WallReport:
    if name in site.off:
        return WallReport(name, "off", "switched off by a test")
    if name in site.tolerated:
        return WallReport(name, "tolerated", site.tolerated[name])
    finding = findings.get(name)
    if finding is None:
        return WallReport(name, "down", "not known: no sandbox could be started to look at it")
    state: WallState = "up" if finding.up else "down"
    remedy = "" if finding.up or name not in REMEDIES else f" {REMEDIES[name]}"
    return WallReport(name, state, finding.detail + remedy)


def limit_notes(site: Site) -> dict[str, str]:
    """Limit -> how it is held here, or what is missing."""
    bases, version = site.discovery.bases, site.discovery.version
    cgroup = f"cgroup v{version}"
    gap = site.discovery.gap
    return {
        "memory": cgroup if "memory" in bases else f"address space of each process only ({gap})",
        "cpu": cgroup if "cpu" in bases else f"not held ({gap})",
        "pids": cgroup if "pids" in bases else f"RLIMIT_NPROC in the sandbox's user namespace ({gap})",
        "file_size": "RLIMIT_FSIZE",
        "workspace": f"sampled while a command runs, in {workspace.FILES}/",
        "files": f"sampled while a command runs, in {workspace.FILES}/",
        "output": "counted while it is read",
    }


def landlock_version() -> int:
    """0 when the kernel has none."""
    library = ctypes.CDLL(None, use_errno=True)
    return max(int(library.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION_FLAG)), 0)


def _versions(site: Site) -> dict[str, str]:
    found = {"kernel": platform.release(), "python": platform.python_version()}
    try:
        bubblewrap = site.bubblewrap()
        found["bubblewrap"] = f"{bubblewrap.version} ({bubblewrap.origin}: {bubblewrap.path})"
    except HutchError as failure:
        found["bubblewrap"] = failure.message
    return found
