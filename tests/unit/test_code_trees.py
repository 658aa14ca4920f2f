"""The tree of packages that code needs: its name, and what is said when it cannot be had."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from hutch.engine.interpreter.trees import Trees
from hutch.model.errors import InterpreterMissing, NotSupported
from hutch.providers.bubblewrap.plan import bubblewrap_arguments, steps
from tests.unit.test_walls_plan import BLUE

pytestmark = pytest.mark.once


def test_without_an_index_the_error_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(tmp_path)), ("PIP_CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(name, value)
    trees = Trees(tmp_path / "data" / "trees")
    (tmp_path / "data").mkdir()
    assert re.search("hutch trees build", trees.gap() or "")
    with pytest.raises(InterpreterMissing, match="hutch trees build") as failed:
        asyncio.run(trees.ready())
    assert list((tmp_path / "data").glob(".tree-*")) == []
    assert list((tmp_path / "data" / "trees").iterdir()) == []
    monkeypatch.setattr(trees, "build", lambda: pytest.fail("a network that is away is not asked at every call"))
    with pytest.raises(InterpreterMissing) as again:
        asyncio.run(trees.ready())
    assert again.value.message == failed.value.message


def test_a_machine_without_python_says_so(tmp_path: Path) -> None:
    trees = Trees(tmp_path / "trees", python=tmp_path / "python3")
    assert "python3" in (trees.gap() or "")
    with pytest.raises(NotSupported):
        asyncio.run(trees.ready())


def test_the_pins_have_hashes_and_no_addresses() -> None:
    text = (Path(__file__).parents[2] / "src/hutch/engine/interpreter/requirements.txt").read_text()
    assert "ipykernel==" in text
    assert "://" not in text
    pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert all(line.endswith("\\") and "==" in line for line in pins)


def test_trees_are_read_only_and_named_to_nobody() -> None:
    from dataclasses import replace

    blue = replace(BLUE, strict=False, trees=Path("/data/trees"))
    told = " ".join(bubblewrap_arguments(blue))
    assert "--ro-bind /sys/trees /opt/hutch" in told
    mounts = [step for step in steps(blue) if step[0] == "mount" and step[2].endswith("/trees")]
    assert [(step[3], int(step[4]) & 1) for step in mounts] == [("overlay", 1)]
    assert not any("/data" in word for step in mounts for word in step)
