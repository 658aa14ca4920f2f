"""The checks of scripts/check.d find what they are for, in small repositories made for the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).resolve().parents[2] / "scripts/check.d"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "parent" / "checkout"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts/size_exceptions.toml").write_text("")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


def judged(repository: Path, check: str, **environment: str) -> tuple[int, str]:
    subprocess.run(["git", "add", "--all"], cwd=repository, check=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [CHECKS / check],
        cwd=repository,
        env=os.environ | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_registry_this_machine_uses_may_not_be_named(repository: Path) -> None:
    (repository / "notes.txt").write_text("packages come from packages.example.test\n")
    code, said = judged(repository, "no-addresses", PIP_INDEX_URL="https://someone:secret@packages.example.test/simple")
    assert code == 1
    assert "notes.txt:1" in said
    assert "secret" not in said


@pytest.mark.parametrize("line", ["see {top}/README.md", "cd {top}", "made in {parent}/elsewhere"])
def test_a_path_of_this_machine_may_not_be_named(repository: Path, line: str) -> None:
    (repository / "notes.txt").write_text(line.format(top=repository, parent=repository.parent) + "\n")
    code, said = judged(repository, "no-addresses")
    assert code == 1
    assert "notes.txt:1" in said


def test_other_addresses_and_paths_are_fine(repository: Path) -> None:
    (repository / "notes.txt").write_text("https://example.org/a and /workspace/file and /usr/bin/jq\n")
    assert judged(repository, "no-addresses") == (0, "")


def test_long_files_and_functions_want_a_reason(repository: Path) -> None:
    (repository / "long.py").write_text("x = 1\n" * 401)
    (repository / "deep.py").write_text("def deep() -> None:\n" + "    print()\n" * 60)
    (repository / "fine.py").write_text("x = 1\n" * 400)
    code, said = judged(repository, "sizes")
    assert code == 1
    assert "long.py: 401 lines" in said
    assert "deep.py::deep: 61 lines" in said
    assert "fine.py" not in said


def test_a_reason_is_accepted_and_one_too_many_is_not(repository: Path) -> None:
    (repository / "long.py").write_text("x = 1\n" * 401)
    reasons = repository / "scripts/size_exceptions.toml"
    reasons.write_text('"long.py" = "one table"\n')
    assert judged(repository, "sizes") == (0, "")
    (repository / "long.py").write_text("x = 1\n")
    code, said = judged(repository, "sizes")
    assert code == 1
    assert "needs none" in said
