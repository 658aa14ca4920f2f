"""`hutch trees`: the packages that sandboxes see beside the system's own."""

from __future__ import annotations

import typer

from hutch.cli import show


def build_app() -> typer.Typer:
    app = typer.Typer(help="Packages for sandboxes.", no_args_is_help=True, rich_markup_mode=None)
    app.callback()(lambda: None)
    app.command("build")(build)
    return app


def build() -> None:
    """Install what code.run needs, once, below the data folder. pip fetches it from the index it is set up for.

    Without this the first code that runs does the same, and waits for it.
    """
    from hutch.engine.interpreter.trees import Trees, trees_folder
    from hutch.settings import read_settings

    folder = trees_folder(read_settings().data_dir)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    show.line(str(folder / Trees(folder).build()))
