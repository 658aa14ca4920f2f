"""What the launcher and bubblewrap are told, and the rules of the two filters: pure."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from hutch.model.errors import SandboxUnavailable, WallMissing
from hutch.model.template import BASH
from hutch.model.wall import WALLS
from hutch.providers.bubblewrap.failures import start_failure
from hutch.providers.bubblewrap.plan import Blueprint, bubblewrap_arguments, plan_words, steps
from hutch.providers.bubblewrap.probe import Host, judge
from hutch.providers.bubblewrap.seccomp import PROFILE, STRICT_CALLS, allow_rules, refuse_rules

BLUE = Blueprint(
    folder=Path("/data/sandboxes/sb1"),
    layer=Path("/data/layers/strict-1"),
    landlock_paths=("/usr/bin/jq",),
    limits=BASH.limits,
    strict=True,
    bubblewrap=Path("/usr/bin/bwrap"),
    uid=7,
    gid=7,
    as_root=True,
    walls=frozenset(wall.name for wall in WALLS),
    merged=(("usr/bin", "bin"),),
)


def without(wall: str) -> Blueprint:
    return replace(BLUE, walls=BLUE.walls - {wall})


def told(blue: Blueprint) -> tuple[object, ...]:
    return (*steps(blue), *bubblewrap_arguments(blue))


# Built elsewhere: by the descriptors that are passed, by the
# filter's rules, by the files of the cgroup, by bubblewrap unasked.
ELSEWHERE = {"clean_environment", "memfd", "cgroup_limits", "no_new_privs"}


@pytest.mark.parametrize("wall", [wall.name for wall in WALLS if wall.name not in ELSEWHERE])
def test_each_wall_is_something_that_is_told(wall: str) -> None:
    assert told(without(wall)) != told(BLUE)


def test_no_path_of_the_host_reaches_bubblewrap() -> None:
    assert [word for word in bubblewrap_arguments(BLUE) if "data" in word] == []
    assert all("/data" not in word for word in list(steps(BLUE))[-1])


def test_capabilities_go_only_after_the_stage_is_built() -> None:
    names = [step[0] for step in steps(BLUE)]
    assert names.index("setids") > max(place for place, name in enumerate(names) if name == "mount")
    assert names[-1] == "exec"


def test_an_ordinary_user_never_changes_its_ids() -> None:
    assert "setids" not in [step[0] for step in steps(replace(BLUE, as_root=False))]


def test_a_cgroup_to_be_born_in_comes_first() -> None:
    blue = replace(BLUE, cgroup=Path("/sys/fs/cgroup/hutch/sb1"))
    assert next(iter(steps(blue))) == ("into", "/sys/fs/cgroup/hutch/sb1")


def test_words_are_ended_by_nul() -> None:
    assert plan_words([("chdir", "/a b"), ("private",)]) == b"chdir\0/a b\0private\0"


def profile_rules(*, strict: bool) -> dict[str, list[int | None]]:
    profile = json.loads(resources.files("hutch.providers.bubblewrap").joinpath("data", PROFILE).read_bytes())
    found: dict[str, list[int | None]] = {}
    for rule in allow_rules(profile, machine="x86_64", strict=strict):
        found.setdefault(rule.call, []).append(rule.returns)
    return found


def test_what_needs_a_capability_is_not_allowed() -> None:
    rules = profile_rules(strict=False)
    for call in ("mount", "bpf", "setns", "unshare", "reboot", "perf_event_open", "init_module", "iopl", "keyctl"):
        assert call not in rules
    for call in ("read", "execve", "ptrace", "arch_prctl", "clone", "memfd_create"):
        assert rules[call] == [None] * len(rules[call])
    assert rules["clone3"] == [38]
    assert len(rules["socket"]) == 5


def test_strict_loses_memory_that_can_be_executed() -> None:
    assert not STRICT_CALLS & set(profile_rules(strict=True))


def test_terminal_requests_are_compared_by_their_low_half() -> None:
    assert {(rule.call, rule.arguments[0][2:]) for rule in refuse_rules()} == {
        ("ioctl", (0x5412, 0xFFFF_FFFF)),
        ("ioctl", (0x541C, 0xFFFF_FFFF)),
    }


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("hutch-launch: unshare 268566528: Operation not permitted", "user_namespace"),
        ("hutch-launch: write /proc/self/uid_map: Permission denied", "user_namespace"),
        ("bwrap: No permissions to create new namespace, likely because …", "user_namespace"),
        ("bwrap: Creating new namespace failed: Resource temporarily unavailable", "user_namespace"),
        ("hutch-launch: mount /sys/files: Invalid argument", "hidden_paths"),
        ("hutch-launch: keyring : Operation not permitted", "keyring"),
        ("hutch-launch: setids 1900000000: Operation not permitted", "host_uid"),
        ("bwrap: prctl(PR_SET_SECCOMP): Invalid argument", "seccomp"),
    ],
)
def test_a_failed_start_names_its_wall_and_the_remedy(text: str, wall: str) -> None:
    failure = start_failure(text)
    assert isinstance(failure, WallMissing)
    assert failure.details["walls"] == [wall]
    assert failure.details["remedy"]
    assert text.rpartition(":")[2].strip() in failure.message


def test_a_start_that_fails_without_a_known_cause_says_what_was_printed() -> None:
    failure = start_failure("bwrap: something else\n")
    assert type(failure) is SandboxUnavailable
    assert "something else" in failure.message


def test_a_probe_that_says_nothing_proves_nothing() -> None:
    host = Host(namespaces={}, secret_paths=(), allowed_programs=frozenset())
    findings = judge("", host)
    assert [name for name, finding in findings.items() if finding.up] == []
