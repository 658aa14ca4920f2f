from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from hutch.cli.verbs import build_app
from scripts import generate_cli_page


def test_the_page_is_fresh_and_names_every_verb_and_option() -> None:
    page = generate_cli_page.PAGE.read_text()
    assert page == generate_cli_page.markdown()
    app: Any = typer.main.get_command(build_app())
    for name, verb in generate_cli_page._verbs(app):
        assert f"## {name}\n" in page
        assert verb.help
        for option in verb.params:
            assert option.help, (name, option.name)
            assert option.param_type_name == "argument" or all(f"`{one}" in page for one in option.opts)


def test_a_stale_page_is_found_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_cli_page, "PAGE", tmp_path / "docs" / "cli.md")
    assert generate_cli_page.main(["--check"]) == 1
    assert generate_cli_page.main([]) == 0
    assert generate_cli_page.main(["--check"]) == 0
    assert generate_cli_page.main(["--chekc"]) == 2
