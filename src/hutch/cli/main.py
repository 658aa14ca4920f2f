"""The program `hutch`: its start, and what becomes of its errors."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Sequence

from hutch.cli import show
from hutch.cli.endings import (
    OUTPUT_CLOSED,
    UNAVAILABLE,
    Ending,
    OutputClosed,
    exit_code,
    interruptible,
    open_missing_descriptors,
)
from hutch.model.errors import HutchError

TRACEBACK = "--traceback"


def main(arguments: Sequence[str] | None = None) -> int:
    open_missing_descriptors()
    given = list(sys.argv[1:] if arguments is None else arguments)
    with interruptible() as ending, warnings.catch_warnings():
        warnings.showwarning = _warning_shower(ending)
        try:
            try:
                code = _run(given)
            finally:
                _close_engines()
        except BaseException as error:  # noqa: BLE001 - users get a line, not a traceback
            if ending.exit_code is not None:
                return ending.exit_code
            return _failed(error, given)
        return code if ending.exit_code is None else ending.exit_code


def _failed(error: BaseException, given: list[str]) -> int:
    if isinstance(error, OutputClosed):
        return OUTPUT_CLOSED
    if isinstance(error, HutchError):
        show.failure(error)
        return exit_code(error)
    return _unexpected(error, given)


def _run(given: list[str]) -> int:
    from hutch.cli.quick import exec_request  # now, when signals are heeded already

    request = exec_request(given)
    if request is not None:
        from hutch.cli.exec import execute

        return execute(request)
    import typer

    from hutch.cli.verbs import build_app

    try:
        typer.main.get_command(build_app()).main(args=given, prog_name="hutch")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0
    return 0


def _close_engines() -> None:
    """Before Python ends, and while signals are still heeded; nothing is loaded for it."""
    wiring = sys.modules.get("hutch.engine.homes")
    if wiring is not None:
        wiring.HOMES.close()


def _unexpected(error: BaseException, given: list[str]) -> int:
    wanted = given[:1] == [TRACEBACK]
    if wanted:
        traceback.print_exception(error)
    show.note(f"internal: {type(error).__name__}: {show.visible(str(error))}")
    if not wanted:
        show.note(f"hint: this is a fault of Hutch; hutch {TRACEBACK} … shows where it came from")
    return UNAVAILABLE


def _warning_shower(ending: Ending) -> Callable[..., None]:
    def show_warning(message: Warning | str, *rest: object, **more: object) -> None:
        if ending.signum is None:  # else it is about what the signal left half done
            show.note(f"warning: {message}")  # for people: no file, no line

    return show_warning
