"""Where limits can go, judged over recorded file trees: version 2, version 1, both, none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hutch.model.template import BASH, OPEN
from hutch.providers.bubblewrap.cgroup_files import MachineCgroups, remove_if_empty
from hutch.providers.bubblewrap.cgroups import counter, discover, grown, limit_files

ALL = "cpuset cpu io memory hugetlb pids rdma misc"


def v2(root: Path, path: str, *, controllers: str = ALL, subtree: str = "", procs: str = "") -> Path:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers + "\n")
    (folder / "cgroup.subtree_control").write_text(subtree + "\n")
    (folder / "cgroup.procs").write_text(procs)
    return folder


def v1(root: Path, controller: str, path: str = "") -> Path:
    folder = root / controller / path
    folder.mkdir(parents=True, exist_ok=True)
    for place in {root / controller, folder}:
        (place / "cgroup.procs").write_text("1\n")
        (place / "tasks").write_text("1\n")
    names = {"memory": "memory.limit_in_bytes", "cpu": "cpu.cfs_quota_us", "cpu,cpuacct": "cpu.cfs_quota_us"}
    if controller in names:
        (folder / names[controller]).write_text("0\n")
    return folder


@pytest.fixture
def deny(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Paths that this user may not write to, whoever runs the test."""
    denied: set[Path] = set()

    def access(path: object, mode: int) -> bool:
        return not any(Path(str(path)).is_relative_to(folder) for folder in denied) and Path(str(path)).exists()

    monkeypatch.setattr(os, "access", access)
    return denied


def test_a_delegated_cgroup_of_version_2(tmp_path: Path) -> None:
    v2(tmp_path, "", subtree="cpu memory pids")
    base = v2(tmp_path, "system.slice/hutch.service", subtree="cpu memory pids")
    v2(tmp_path, "system.slice/hutch.service/server", procs="77\n", controllers="cpu memory pids")
    found = discover(tmp_path, "0::/system.slice/hutch.service/server\n")
    assert found.version == 2
    assert dict(found.bases) == dict.fromkeys(("memory", "cpu", "pids"), base)
    assert (found.enable, found.missing, found.gap) == ((), (), "")


def test_controllers_are_switched_on_where_that_is_possible(tmp_path: Path) -> None:
    v2(tmp_path, "", subtree="cpu memory pids")
    slice_ = v2(tmp_path, "user.slice", controllers="cpu memory pids", subtree="memory pids")
    v2(tmp_path, "user.slice/session.scope", controllers="memory pids", procs="77\n")
    found = discover(tmp_path, "0::/user.slice/session.scope\n")
    assert set(found.bases.values()) == {slice_}
    assert found.enable == ((slice_ / "cgroup.subtree_control", "+cpu"),)


def test_the_root_of_version_2_may_hold_processes(tmp_path: Path) -> None:
    v2(tmp_path, "", procs="1\n77\n")
    found = discover(tmp_path, "0::/\n")
    assert set(found.bases.values()) == {tmp_path}
    assert found.enable == ((tmp_path / "cgroup.subtree_control", "+memory +cpu +pids"),)


def test_an_ordinary_session_without_delegation(tmp_path: Path, deny: set[Path]) -> None:
    v2(tmp_path, "", subtree="cpu memory pids")
    v2(tmp_path, "user.slice/user-1000.slice/session-3.scope", procs="77\n")
    deny.add(tmp_path)
    found = discover(tmp_path, "0::/user.slice/user-1000.slice/session-3.scope\n")
    assert found.version == 0
    assert found.missing == ("memory", "cpu", "pids")
    assert "Delegate=yes" in found.gap


def test_it_never_climbs_past_what_it_may_write(tmp_path: Path, deny: set[Path]) -> None:
    """A writable cgroup above a forbidden one is of no use: no process can be moved there."""
    v2(tmp_path, "", subtree="cpu memory pids")
    v2(tmp_path, "a", subtree="cpu memory pids")
    deny.add(v2(tmp_path, "a/b", procs="77\n"))
    assert discover(tmp_path, "0::/a/b\n").version == 0


def test_some_controllers_only(tmp_path: Path) -> None:
    base = v2(tmp_path, "user@1000.service", controllers="memory pids", subtree="memory pids")
    v2(tmp_path, "", subtree="memory pids", procs="")
    found = discover(tmp_path, "0::/user@1000.service\n")
    assert dict(found.bases) == {"memory": base, "pids": base}
    assert found.missing == ("cpu",)
    assert "cpu" in found.gap


def test_version_1_in_folders_of_its_own(tmp_path: Path) -> None:
    bases = {name: v1(tmp_path, name, "server") for name in ("memory", "cpu", "pids")}
    found = discover(tmp_path, "9:pids:/server\n4:memory:/server\n1:cpu:/server\n0::/\n")
    assert (found.version, dict(found.bases), found.gap) == (1, bases, "")


def test_version_1_with_cpu_and_cpuacct_together(tmp_path: Path) -> None:
    for name in ("memory", "cpu,cpuacct", "pids"):
        v1(tmp_path, name)
    found = discover(tmp_path, "5:cpu,cpuacct:/\n4:memory:/\n3:pids:/\n")
    assert found.bases["cpu"] == tmp_path / "cpu,cpuacct"


def test_version_1_in_a_container_that_shows_its_own_part(tmp_path: Path) -> None:
    for name in ("memory", "cpu", "pids"):
        v1(tmp_path, name)
    found = discover(tmp_path, "".join(f"1:{name}:/docker/0123\n" for name in ("memory", "cpu", "pids")))
    assert found.bases["memory"] == tmp_path / "memory"


def test_the_hybrid_takes_its_limits_from_version_1(tmp_path: Path) -> None:
    for name in ("memory", "cpu", "pids"):
        v1(tmp_path, name)
    v2(tmp_path, "unified", controllers="hugetlb")
    found = discover(tmp_path, "4:memory:/\n3:pids:/\n1:cpu:/\n0::/\n")
    assert (found.version, found.missing) == (1, ())


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert discover(tmp_path, "").version == 0
    assert discover(tmp_path / "nowhere", "0::/\n").missing == ("memory", "cpu", "pids")


def test_what_is_written_for_each_limit() -> None:
    limits = replace(BASH.limits, memory_bytes=1000, cpu_percent=25, pids=7)
    assert limit_files(2, "memory", limits)[0] == ("memory.max", "1000", True)
    assert ("memory.swap.max", "0", False) in limit_files(2, "memory", limits)
    assert limit_files(2, "cpu", limits) == (("cpu.max", "10000 40000", True),)
    assert limit_files(2, "pids", limits) == (("pids.max", "7", True),)
    assert limit_files(1, "memory", limits)[0] == ("memory.limit_in_bytes", "1000", True)
    assert limit_files(1, "cpu", limits)[-1] == ("cpu.cfs_quota_us", "10000", True)
    assert limit_files(2, "cpu", replace(OPEN.limits, cpu_percent=0)) == ()


def test_a_machines_cgroup_is_made_limited_and_counted(tmp_path: Path) -> None:
    v2(tmp_path, "", subtree="cpu memory pids")
    base = v2(tmp_path, "base", subtree="cpu memory pids")
    found = discover(tmp_path, "0::/base\n")
    made = MachineCgroups(found, "sbtest")
    folder = base / "hutch" / "sbtest"
    folder.mkdir(parents=True)
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (folder / "memory.swap.max").write_text("max\n")
    (folder / "pids.events").write_text("max 0\n")
    made.make(found, BASH.limits)
    assert (folder / "memory.max").read_text() == str(BASH.limits.memory_bytes)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert not (folder / "memory.oom.group").exists()  # an old kernel: what is not needed may be missing
    assert made.born_in == folder
    assert made.join_files == ()
    before = made.read()
    assert before == {"memory": 1, "pids": 0}
    (folder / "pids.events").write_text("max 4\n")
    assert grown(before, made.read()) == "pids"
    made.close()
    remove_if_empty(found)
    assert folder.exists()


@pytest.mark.parametrize(
    ("content", "value"), [(b"oom_kill 3\n", 3), (b"oom 1\noom_kill 12", 12), (b"", 0), (b"oom_kill x\n", 0)]
)
def test_counters_are_read_from_lines(content: bytes, value: int) -> None:
    assert counter(content, "oom_kill") == value
