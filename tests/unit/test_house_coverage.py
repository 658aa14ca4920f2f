"""Each class of the checklist has a test that exists, a later issue, or (four of them) a sentence of the docs."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
IDS = {
    "identity": [f"E{number}" for number in range(1, 13)],
    "leaks": [f"L{number}" for number in range(1, 7)],
    "files": [*(f"F{number}" for number in range(1, 12)), "A1"],
    "resources": [f"R{number}" for number in range(1, 9)],
    "network": [f"N{number}" for number in range(1, 12)],
    "control": [f"C{number}" for number in range(1, 8)],
    "policy": [f"B5.{number}" for number in range(1, 10)],
}
MAY_BE_A_SENTENCE = {"L5", "L6", "E6", "E9"}
DONE = {"identity", "leaks", "files", "resources", "network", "policy"}
COVERAGE = tomllib.loads((TESTS / "hostile/coverage.toml").read_text())
ENTRIES = [
    (kind, name, entry) for kind, names in COVERAGE.items() for name, entries in names.items() for entry in entries
]


def test_every_class_is_there() -> None:
    assert {kind: list(names) for kind, names in COVERAGE.items()} == IDS
    assert all(entries for names in COVERAGE.values() for entries in names.values())


@pytest.mark.parametrize(("kind", "name", "entry"), ENTRIES)
def test_what_an_entry_names_exists(kind: str, name: str, entry: str) -> None:
    if entry.startswith("later: "):
        assert kind not in DONE or name in ("A1", "R8")
    elif entry.startswith("sentence: "):
        assert name in MAY_BE_A_SENTENCE
        model = " ".join((ROOT / "docs/threat-model.md").read_text().split())
        assert entry.removeprefix("sentence: ") in model
    else:
        file, test = entry.split("::")
        tree = ast.parse((TESTS / file).read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
