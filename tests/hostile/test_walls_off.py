"""Each wall's test proves something only if it fails without the wall."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hutch.model.wall import WALLS
from hutch.providers.bubblewrap.cgroups import discover
from hutch.providers.bubblewrap.doctor import landlock_version
from tests.hostile.walls_rig import AS_ROOT, WALL_OFF

EACH = Path(__file__).with_name("test_walls_each.py")
# What an ordinary user can neither build without (namespaces need that one) nor look at from outside.
ROOT_ONLY = {"user_namespace", "host_uid", "no_descriptors"}


@pytest.mark.parametrize("wall", [wall.name for wall in WALLS])
def test_a_walls_test_fails_without_the_wall(wall: str) -> None:
    if wall in ROOT_ONLY and not AS_ROOT:
        pytest.skip("only root can take this wall down, or see that it is")
    if wall == "cgroup_limits" and discover(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup").read_text()).missing:
        pytest.skip("this user has no writable cgroups here")
    if wall == "landlock" and landlock_version() == 0:
        pytest.skip("this kernel has no Landlock")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{EACH}::test_wall_{wall}"]
    environment = {**os.environ, WALL_OFF: wall, "PYTHONPATH": os.pathsep.join(sys.path)}
    checkout = EACH.parent.parent.parent
    run = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 1, run.stdout[-3000:] + run.stderr[-1000:]
    assert "AssertionError" in run.stdout or "\nE       assert " in run.stdout, run.stdout[-3000:]
