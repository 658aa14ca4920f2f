"""Runs the race and prints the table. Exit code 1: a figure that must hold is missed, or Hutch could not run."""

from __future__ import annotations

import argparse
import atexit
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import (
    bash_tool,
    code,
    commands,
    crowd,
    deepagents_files,
    drive,
    egress,
    files,
    policy_rows,
    remote,
    report,
    starts,
)
from bench.docker_engine import EngineMissing, docker_engine
from bench.docker_side import DockerSide
from bench.hutch_side import QUOTA_OFF, QUOTA_ON, HutchSide
from bench.plan import FULL, QUICK, Field, Plan
from bench.references import bubblewrap_here
from bench.table import Absent, Row, missed
from hutch import HutchError

GROUPS: dict[str, Sequence[Callable[[Field], list[Row]]]] = {
    "commands": (commands.one_command,),
    "starts": (starts.whole_life, starts.first_command),
    "files": (files.transfers, files.listing),
    "deepagents": (deepagents_files.rows,),
    "drive": (drive.rows,),
    "tools": (bash_tool.against_heredocs,),
    "egress": (egress.requests,),
    "throughput": (commands.throughput,),
    "remote": (remote.rows,),
    "memory": (crowd.idle_memory,),
    "crowd": (crowd.many_live,),
    "policy": (policy_rows.rows,),
    "code": (code.rows,),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and a smaller crowd, under 90 seconds")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md, too")
    parser.add_argument("--no-docker", action="store_true", help="leave the Docker reference out")
    parser.add_argument("--only", choices=sorted(GROUPS), action="append", help="these groups only")
    options = parser.parse_args(arguments)
    chosen = options.only or list(GROUPS)
    if options.write and (options.only or options.quick):
        parser.error("--write wants the whole run: docs/benchmarks.md is one full run on one machine")
    started = time.monotonic()
    try:
        with docker(not options.no_docker) as engine, field(QUICK if options.quick else FULL, engine) as here:
            rows = [row for name in chosen for measure in GROUPS[name] for row in _told(name, measure, here)]
    except HutchError as error:
        print(f"Hutch could not run ({error.code}): {error}", file=sys.stderr)
        return 1
    facts = report.machine_facts(str(engine) if isinstance(engine, Absent) else engine.version)
    report.show(rows, facts)
    print(f"took {time.monotonic() - started:.0f} s")
    if options.write:
        report.write(rows, facts)
    return 1 if missed(rows) else 0


def _told(name: str, measure: Callable[[Field], list[Row]], here: Field) -> list[Row]:
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    return measure(here)


@contextmanager
def docker(wanted: bool) -> Iterator[DockerSide | Absent]:
    """The Docker reference, or why it is not here; that it is missing is no failure."""
    if not wanted:
        yield Absent("left out by --no-docker")
        return
    print("starting a private Docker engine …", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        side: DockerSide | Absent
        try:
            side = DockerSide(stack.enter_context(docker_engine()))
        except EngineMissing as missing:
            side = Absent(str(missing))
        yield side


@contextmanager
def field(plan: Plan, engine: DockerSide | Absent) -> Iterator[Field]:
    folder = Path(tempfile.mkdtemp(prefix="hutch-bench-"))
    # Hutch ends its engine at exit, in hooks that were registered later and so run earlier than this one.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    free, limited = HutchSide(folder / "free", QUOTA_OFF), HutchSide(folder / "limited", QUOTA_ON)
    try:
        yield Field(plan, folder, free, limited, engine, bubblewrap_here())
    finally:
        free.close()
        limited.close()


if __name__ == "__main__":
    sys.exit(main())
