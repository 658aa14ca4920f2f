"""`hutch code` and `hutch trees`, as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli_stage import Hutch
from tests.tree_rig import SHARED, with_trees

pytestmark = pytest.mark.once


def test_code_prints_shows_fails_and_runs_out_of_time(tmp_path: Path) -> None:
    hutch = Hutch(with_trees(tmp_path / "data"))
    built = hutch.run("trees", "build")
    assert (SHARED / Path(built.stdout.decode().strip()).name / "lib").is_dir()
    done = hutch.run("code", "print('out'); 6 * 7")
    assert (done.returncode, done.stdout) == (0, b"out\n42\n"), done.stderr
    failed = hutch.run("code", given=b"1 / 0")
    assert failed.returncode == 1
    assert b"ZeroDivisionError" in failed.stderr
    late = hutch.run("code", "--timeout", "1", "--json", "while True: pass")
    assert late.returncode == 124
    assert json.loads(late.stdout)["timed_out"]
    assert hutch.threads() == []
