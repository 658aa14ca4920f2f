"""What users meet is documented: events, every verb, code and setting, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from hutch.lifecycle.sandbox import SandboxEvent
from hutch.model.errors import ERRORS, HutchError
from hutch.model.wall import WALLS, Wall
from hutch.settings.declarations import declarations

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def text(page: str) -> str:
    return (ROOT / page).read_text()


@pytest.mark.parametrize("event", get_args(SandboxEvent))
def test_every_event_is_explained(event: str) -> None:
    assert f"`{event}`" in text("docs/architecture.md")


def test_every_error_has_a_code_of_its_own_and_stands_on_its_page() -> None:
    classes = {cls for cls in _subclasses(HutchError) if cls.__module__ == "hutch.model.errors"} | {HutchError}
    assert set(ERRORS.values()) == classes
    assert len(ERRORS) == len(classes)
    assert all(f"`{code}`" in text("docs/reference/errors.md") for code in ERRORS)


def test_every_setting_stands_on_its_page() -> None:
    page = text("docs/reference/settings.md")
    assert all(f"`{name}`" in page for declared in declarations().values() for name in declared.names)


@pytest.mark.parametrize("wall", WALLS, ids=lambda wall: wall.name)
def test_every_wall_says_what_it_keeps_from_happening(wall: Wall) -> None:
    assert wall.keeps


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def _subclasses(cls: type[HutchError]) -> set[type[HutchError]]:
    return {one for child in cls.__subclasses__() for one in (child, *_subclasses(child))}
