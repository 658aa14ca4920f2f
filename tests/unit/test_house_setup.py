"""scripts/setup.bash: which Python is taken, and what a user reads when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("bash", "cat", "env", "grep", "sed", "mktemp", "rm", "tail")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of programs that is the whole PATH: only what setup.bash itself needs is there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found, name
        # A script, not a link: a test that writes over it must not reach the program itself.
        program(programs, name, f'exec {found} "$@"')
    return programs


def program(place: Path, name: str, body: str) -> None:
    path = place / name
    path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
    path.chmod(0o755)


def source(place: Path, code: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'. "{ROOT}/scripts/setup.bash"; {code}'],
        env={"PATH": str(place), "LANG": "C", **environment},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def as_ordinary_user(place: Path) -> None:
    program(place, "id", "echo 1000")


def as_root(place: Path) -> None:
    program(place, "id", "echo 0")


REAL_PYTHON = f'exec "{os.path.realpath(sys.executable)}" "$@"'


def test_a_shim_that_does_not_run_is_passed_over(place: Path) -> None:
    program(place, "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    program(place, "python3.11", REAL_PYTHON)
    code, said = source(place, "choose_python; echo $PYTHON_CHOSEN")
    assert (code, said.strip()) == (0, os.path.realpath(sys.executable))


def test_the_python_asked_for_wins(place: Path) -> None:
    program(place, "python3.13", "exit 1")
    program(place, "mine", REAL_PYTHON)
    code, said = source(place, "choose_python; echo $PYTHON_CHOSEN", PYTHON=str(place / "mine"))
    assert (code, said.strip()) == (0, os.path.realpath(sys.executable))


def test_a_python_asked_for_that_is_too_old_is_an_error_that_names_it(place: Path) -> None:
    program(place, "old", "exit 1")
    code, said = source(place, "choose_python", PYTHON=str(place / "old"))
    assert code == 1
    assert f"PYTHON={place}/old" in said
    assert "3.11" in said


def test_a_missing_package_is_named_with_the_command_that_brings_it(place: Path) -> None:
    as_ordinary_user(place)
    program(place, "apt-get", "exit 1")
    code, said = source(place, "need_system surely-missing -- nice-to-have")
    assert code == 1
    assert "surely-missing" in said
    assert "sudo apt-get update && sudo apt-get install -y --no-install-recommends surely-missing nice-to-have" in said


def test_a_package_that_would_be_nice_is_mentioned_and_left(place: Path) -> None:
    as_ordinary_user(place)
    code, said = source(place, "need_system bash -- nice-to-have; echo went on")
    assert code == 0
    assert "nice-to-have" in said
    assert "went on" in said


def test_nothing_is_asked_of_apt_when_nothing_is_missing(place: Path) -> None:
    program(place, "apt-get", "echo apt was asked; exit 1")
    assert source(place, "need_system bash -- cat") == (0, "")


def test_package_lists_are_fetched_only_when_needed(place: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program(place, "id", "echo 0")
    program(
        place,
        "apt-get",
        f'echo "$*" >> "{log}"; case "$*" in *install*) [ -e "{log}.updated" ] ;; *) : > "{log}.updated" ;; esac',
    )
    code, said = source(place, "need_system surely-missing")
    assert code == 0, said
    verbs = [line.split("Timeout=120 ")[1].split()[0] for line in log.read_text().splitlines()]
    assert verbs == ["install", "update", "install"]


@pytest.mark.parametrize("script", ["run", "check", "lock"])
def test_a_wrong_argument_is_refused_with_a_hint(script: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / script, "--nonsense"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert script in done.stderr


def test_every_script_is_executable_and_parses() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix == ""]
    assert {path.name for path in scripts} >= {"run", "test", "check", "bench", "lock"}
    for path in (*scripts, ROOT / ".ci/run"):
        assert os.access(path, os.X_OK), path
        assert subprocess.run(["bash", "-n", path], timeout=60, check=False).returncode == 0, path
