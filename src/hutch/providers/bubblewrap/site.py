"""What is known of this host, found out once: bubblewrap, cgroups, layers, filters; and which walls can stand."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from hutch.model.errors import InvalidRequest, WallMissing
from hutch.model.wall import WALLS
from hutch.providers.base import MachineSpec
from hutch.providers.bubblewrap import cgroup_files
from hutch.providers.bubblewrap.cgroups import Discovery, discover
from hutch.providers.bubblewrap.host import Bubblewrap, find_bubblewrap, masked_files, merged_links
from hutch.providers.bubblewrap.launcher import Launcher
from hutch.providers.bubblewrap.layers import Layer, Layers
from hutch.providers.bubblewrap.plan import Blueprint
from hutch.providers.bubblewrap.seccomp import Filters
from hutch.providers.guest.binaries import guest_binary, launch_binary, warm_library

CGROUP_ROOT = Path("/sys/fs/cgroup")
LAYER_SECONDS = 30.0  # how long a layer counts as fresh before the host's programs are looked at again
NEEDS = {wall.name: wall.need for wall in WALLS}
SHELL = Path("/usr/bin/bash")


class Site:
    """Thread-safe where it must be: starts run in worker threads."""

    def __init__(self, data: Path, allow_missing: frozenset[str], off: frozenset[str], bubblewrap: Path | None) -> None:
        self.data = data
        self.allow_missing = allow_missing
        self.off = off
        self.tolerated: dict[str, str] = {}  # wall -> why it is down
        self.launcher = Launcher(launch_binary(), inherit_environment="clean_environment" in off)
        self.filters = Filters(data / "prepared")
        self.discovery = self._discover()
        self._layers = Layers(data / "layers", guest=guest_binary(), warm=warm_library(), shell=SHELL)
        self._given = bubblewrap
        self._found: Bubblewrap | None = None
        self._fresh: dict[bool, tuple[float, Layer]] = {}
        self._no_overlay: dict[int, str] = {}  # device -> why a workspace on it cannot be an overlay
        self._lock = threading.Lock()

    def _discover(self) -> Discovery:
        if "cgroup_limits" in self.off:
            return Discovery(gap="switched off")
        try:
            return discover(CGROUP_ROOT, Path("/proc/self/cgroup").read_text())
        except OSError as failure:
            return Discovery(gap=f"/proc/self/cgroup cannot be read: {failure.strerror}")

    def bubblewrap(self) -> Bubblewrap:
        """Raises: SandboxUnavailable."""
        if self._found is None:
            self._found = find_bubblewrap(self._given, notes=self.data / "prepared")
        return self._found

    def layer(self, *, strict: bool) -> Layer:
        """Raises: WallMissing, SandboxUnavailable."""
        with self._lock:
            known = self._fresh.get(strict)
            if known is None or time.monotonic() - known[0] > LAYER_SECONDS or not known[1].folder.is_dir():
                known = self._fresh[strict] = (time.monotonic(), self._layers.get(strict=strict))
            return known[1]

    def walls(self, *, strict: bool) -> frozenset[str]:
        """The walls to build for a sandbox."""
        return frozenset(
            name
            for name, need in NEEDS.items()
            if name not in self.off and name not in self.tolerated and (strict or need != "strict")
        )

    def overlay_gap(self, folder: Path) -> str | None:
        """Why a workspace here cannot be an overlay, as far as was found out."""
        return self._no_overlay.get(folder.stat().st_dev)

    def do_without(self, failure: WallMissing, folder: Path) -> bool:
        """Whether a start may be tried again without the walls that could not be built."""
        walls = [str(wall) for wall in failure.details.get("walls", ())]
        if walls == ["hidden_paths"] and self.overlay_gap(folder) is None:
            self._no_overlay[folder.stat().st_dev] = failure.message
            return True
        if walls == ["cgroup_limits"] and self.discovery.bases:
            self.discovery = Discovery(gap=failure.message)
            return True
        new = [wall for wall in walls if wall not in self.tolerated and wall not in self.off]
        if not new or not all(wall in self.allow_missing for wall in new):
            return False
        self.tolerated.update(dict.fromkeys(new, failure.message))
        return True

    def blueprint(self, spec: MachineSpec, cgroups: cgroup_files.MachineCgroups) -> Blueprint:
        """Raises: InvalidRequest, WallMissing, SandboxUnavailable."""
        layer = self.layer(strict=spec.strict)
        as_root = os.geteuid() == 0
        if as_root and spec.host_uid is None:
            raise InvalidRequest("As root every sandbox needs a host uid of its own: ask `allocate_uid`.")
        if spec.strict and spec.trees is not None:
            raise InvalidRequest("A strict sandbox sees the allowed programs, and no trees.")
        if not as_root and spec.host_uid is not None:
            raise InvalidRequest("Only root can give a sandbox a host uid.")
        walls = self.walls(strict=spec.strict)
        uid, gid = os.geteuid(), os.getegid()
        if spec.host_uid is not None and "host_uid" in walls:
            uid = gid = spec.host_uid
        return Blueprint(
            folder=spec.folder,
            layer=layer.folder,
            landlock_paths=layer.landlock_paths,
            limits=spec.limits,
            strict=spec.strict,
            bubblewrap=self.bubblewrap().path,
            uid=uid,
            gid=gid,
            as_root=as_root,
            walls=walls,
            overlay=self.overlay_gap(spec.folder) is None,
            cgroup=cgroups.born_in,
            cgroup_files=cgroups.join_files,
            merged=merged_links(),
            masked=masked_files(),
            trees=spec.trees,
        )

    def close(self) -> None:
        self.launcher.close()
        cgroup_files.remove_if_empty(self.discovery)
