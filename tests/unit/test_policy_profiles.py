"""Profiles of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hutch.model.errors import SettingsInvalid
from hutch.policy import Profile, judge, load_profile


def written(folder: Path, text: str) -> Profile:
    path = folder / "mine.toml"
    path.write_text(text)
    return load_profile(path)


def test_a_profile_adds_to_strict_and_takes_away(tmp_path: Path) -> None:
    profile = written(tmp_path, 'allow = ["git", "cp"]\nforbid = ["python3"]\n[hints]\npython3 = "use jq"\n')
    assert profile.name == "mine"
    assert judge("git status && cp a b | jq .", profile).allowed
    refused = judge("python3 x.py", profile)
    assert (refused.word, refused.hint) == ("python3", "use jq")
    assert not judge("rm x", profile).allowed


def test_what_strict_forbids_can_be_allowed_by_name(tmp_path: Path) -> None:
    profile = written(tmp_path, 'allow = ["rm"]\nbuiltins = ["mapfile"]')
    assert judge("rm x; mapfile -t a < f", profile).allowed


def test_a_deny_list(tmp_path: Path) -> None:
    profile = written(tmp_path, 'base = "none"\nany_name = true\nforbid = ["curl", "rm"]')
    assert judge("make all && ./run && git push", profile).allowed
    for command in (
        "curl h",
        "/usr/bin/curl h",
        "env A=1 curl h",
        "timeout -k 1 5 curl h",
        "find . -exec rm {} +",
        "ls | xargs -0 rm",
        "nice -n 5 nohup curl h",
        "time rm x",
        "$cmd x",
    ):
        assert not judge(command, profile).allowed, command


@pytest.mark.parametrize(
    ("switch", "refused", "allowed"),
    [
        (
            "redirections",
            [
                "ls > f",
                "ls | tee f",
                "sort -o f g",
                "sed -i s/a/b/ f",
                "sed -n 'w f' g",
                "uniq a b",
                "awk '{ print > \"f\" }' g",
                "find . -fprint f",
                "sed 's/a/b/w f' g",
            ],
            [
                "ls 2> /dev/null",
                "ls 2>&1 | sort",
                "cat < f",
                "awk '{ if ($1 > 2) print $1 }' f",
                "sed s/a/b/ f",
                "tee < f",
            ],
        ),
        ("functions", ["f() { ls; }; f"], ["ls"]),
        ("background", ["ls &", "ls & wait"], ["ls && ls", "echo $((1 & 2))"]),
        ("substitutions", ["echo $(ls)", "echo `ls`", "diff <(ls) x"], ["echo $x $((1 + 2))"]),
    ],
)
def test_switches(tmp_path: Path, switch: str, refused: list[str], allowed: list[str]) -> None:
    profile = written(tmp_path, f"{switch} = false")
    assert [command for command in refused if judge(command, profile).allowed] == []
    assert [command for command in allowed if not judge(command, profile).allowed] == []


def test_names_from_expansions_can_be_allowed(tmp_path: Path) -> None:
    profile = written(tmp_path, "dynamic_names = true")
    assert judge("x=ls; $x", profile).allowed
    assert not judge("rm x", profile).allowed


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('alow = ["x"]', "alow"),
        ('allow = "git"', "allow"),
        ("allow = [1]", "allow"),
        ('allow = ["a b"]', "allow"),
        ('allow = ["/bin/x"]', "allow"),
        ('redirections = "no"', "redirections"),
        ('base = "all"', "base"),
        ('name = "strict"', "name"),
        ('allow = ["x"]\nforbid = ["x"]', "forbid"),
        ('hints = { x = "y" }', "hints"),
        ("this is not toml", ""),
    ],
)
def test_a_wrong_profile_names_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        written(tmp_path, text)
    assert caught.value.details["key"] == key
    assert str(tmp_path / "mine.toml") in str(caught.value)
    assert key in str(caught.value)


def test_a_missing_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"nowhere\.toml"):
        load_profile(tmp_path / "nowhere.toml")
