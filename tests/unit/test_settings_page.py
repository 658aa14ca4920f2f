from __future__ import annotations

from pathlib import Path

import pytest

from hutch.settings.declarations import declarations
from hutch.settings.reading import REFUSED
from hutch.settings.serving import ServerSettings
from scripts import generate_docs


def test_the_page_names_every_variable() -> None:
    page = generate_docs.settings_markdown()
    for declared in [*declarations().values(), *declarations(ServerSettings).values()]:
        assert all(f"`{name}`" in page for name in declared.names)
        assert declared.meaning in page
    assert all(f"`{name}`" in page for name in REFUSED)


def test_a_stale_page_is_found_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate_docs, "ROOT", tmp_path)
    assert generate_docs.main(["--check"]) == 1
    assert "docs/reference/settings.md is stale" in capsys.readouterr().err
    assert generate_docs.main([]) == 0
    assert generate_docs.main(["--check"]) == 0
    assert generate_docs.main(["--chekc"]) == 2
