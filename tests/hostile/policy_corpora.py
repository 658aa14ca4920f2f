"""The corpora of the command policy, read once for tests and benchmarks."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "corpora"


@dataclass(frozen=True)
class HostileClass:
    number: int
    name: str
    spellings: tuple[str, ...]
    misses: tuple[tuple[str, str], ...]  # text, reason


@dataclass(frozen=True)
class HeldOut:
    ordinary: tuple[str, ...]
    hostile: tuple[str, ...]


def _read(name: str) -> dict[str, object]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def _texts(value: object) -> tuple[str, ...]:
    assert isinstance(value, list)
    return tuple(str(text) for text in value)


def ordinary() -> tuple[str, ...]:
    return _texts(_read("ordinary.toml")["commands"])


def hostile() -> tuple[HostileClass, ...]:
    classes = _read("hostile.toml")["class"]
    assert isinstance(classes, list)
    return tuple(
        HostileClass(
            row["number"],
            row["name"],
            _texts(row["spellings"]),
            tuple((miss["text"], miss["reason"]) for miss in row.get("misses", [])),
        )
        for row in classes
    )


def held_out() -> HeldOut:
    data = _read("held_out.toml")
    return HeldOut(_texts(data["ordinary"]), _texts(data["hostile"]))
