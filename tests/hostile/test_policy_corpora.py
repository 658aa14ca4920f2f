"""Every command of the corpora gets the verdict it should."""

from __future__ import annotations

import subprocess

import pytest

from hutch.policy import OPEN, STRICT, judge
from tests.hostile import policy_corpora as corpora

pytestmark = pytest.mark.once

HOSTILE = [(row.number, text) for row in corpora.hostile() for text in row.spellings]
MISSES = [(row.number, text, reason) for row in corpora.hostile() for text, reason in row.misses]


@pytest.mark.parametrize("command", corpora.ordinary())
def test_ordinary_work_runs(command: str) -> None:
    verdict = judge(command, STRICT)
    assert verdict.allowed, f"{verdict.word}: {verdict.reason}"
    assert judge(command, OPEN).allowed


@pytest.mark.parametrize(("number", "command"), HOSTILE)
def test_hostile_spellings_are_refused(number: int, command: str) -> None:
    verdict = judge(command, STRICT)
    assert not verdict.allowed
    assert verdict.reason
    assert verdict.allowed_names == STRICT.names


@pytest.mark.parametrize(("number", "command", "reason"), MISSES)
def test_known_misses_are_still_missed(number: int, command: str, reason: str) -> None:
    """When one of these is caught some day, it belongs among the spellings."""
    assert judge(command, STRICT).allowed
    assert reason


def test_the_corpora_are_large_enough_and_cover_every_class() -> None:
    assert len(set(corpora.ordinary())) == len(corpora.ordinary()) >= 170
    assert len({text for _, text in HOSTILE}) >= 170
    assert [row.number for row in corpora.hostile()] == list(range(1, 10))
    assert all(len(row.spellings) >= 15 for row in corpora.hostile())


def test_ordinary_commands_are_bash() -> None:
    held_out = corpora.held_out()
    for command in (*corpora.ordinary(), *held_out.ordinary):
        parsed = subprocess.run(["bash", "-n", "-c", command], capture_output=True, timeout=30, check=False)
        assert (parsed.returncode, parsed.stderr) == (0, b""), command


def test_what_it_was_not_made_from_is_judged_as_well() -> None:
    held_out = corpora.held_out()
    missed = [command for command in held_out.hostile if judge(command, STRICT).allowed]
    nagged = [command for command in held_out.ordinary if not judge(command, STRICT).allowed]
    assert len(missed) <= 0.05 * len(held_out.hostile), missed
    assert len(nagged) <= 0.05 * len(held_out.ordinary), nagged
