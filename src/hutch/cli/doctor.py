"""`hutch doctor`: whether sandboxes can be had here, how their walls stand, and what to do where they do not."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from hutch.cli import options, show
from hutch.cli.endings import FAILED
from hutch.cli.place import Place


def doctor(
    run: Annotated[bool, typer.Option("--run", help="Also run checks in a real sandbox.")] = False,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Look at walls, limits, programs, settings and the data folder.

    Exits with 1 when a wall that is needed is down, when something else keeps sandboxes from starting, or when a check
    of --run failed. Of a server, its machine is looked at; what is set here is not shown then.
    """
    from hutch.cli.diagnosis import diagnose, diagnosis_of_server
    from hutch.cli.selftest import Outcome, self_test

    diagnosis = asyncio.run(diagnose()) if place.server_if_known() is None else diagnosis_of_server(place)
    outcomes: list[Outcome] = self_test(place) if run else []
    if as_json:
        document = diagnosis.document()
        if run:
            document["self_test"] = [outcome.document() for outcome in outcomes]
        show.document(document)
    else:
        from hutch.cli.doctor_page import print_diagnosis, print_outcomes, print_verdict

        print_diagnosis(diagnosis)
        if run:
            print_outcomes(outcomes)
        print_verdict(diagnosis, outcomes)
    if not diagnosis.healthy or any(not outcome.passed for outcome in outcomes):
        raise typer.Exit(FAILED)
