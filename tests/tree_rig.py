"""The packages that code needs, installed once for a checkout and shown to every data folder of the tests."""

from __future__ import annotations

from pathlib import Path

from hutch.engine.interpreter.trees import Trees

SHARED = Path(__file__).resolve().parents[1] / ".pytest_cache" / "hutch" / "trees"


def with_trees(data: Path) -> Path:
    """`data`, made if need be, with the trees in it."""
    SHARED.parent.mkdir(parents=True, exist_ok=True)
    Trees(SHARED).build()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (data / "trees").exists():
        (data / "trees").symlink_to(SHARED)
    return data
