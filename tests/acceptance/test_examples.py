"""The examples do what they show; those of agent frameworks are run in tests/suites/agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.example_rows import EXAMPLES, OF_AGENTS, OF_DEV, OF_OTHERS, run


def test_each_example_is_run_somewhere() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == OF_DEV.keys() | OF_AGENTS.keys() | OF_OTHERS.keys()
    for name, test in OF_OTHERS.items():
        assert name.removesuffix(".py") in (EXAMPLES.parent / test).read_text()


@pytest.mark.parametrize("name", sorted(OF_DEV))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    assert OF_DEV[name] in run(name, tmp_path / "data").splitlines()
