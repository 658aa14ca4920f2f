"""Figures of beginnings: a sandbox's whole life, and a program's first command."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.hutch_side import ALWAYS, QUOTA_OFF
from bench.plan import Field
from bench.references import ECHO
from bench.table import Absent, Bound, Row
from bench.timing import Contestant, Samples, race

_HUTCH = f"""
from hutch import SandboxClient
client = SandboxClient()
client.get_or_create_session(user_id="bench", thread_id="first")
print(client.execute({ECHO!r})["stdout"], end="", flush=True)
client.close_session()
"""
_BARE = f"""
import subprocess
print(subprocess.run(["bash", "-c", {ECHO!r}], capture_output=True, text=True).stdout, end="", flush=True)
"""


def whole_life(field: Field) -> list[Row]:
    contestants = [
        Contestant("hutch", field.free.whole_life, 4),
        Contestant("quota", field.limited.whole_life, 4),
    ]
    if not isinstance(field.docker, Absent):
        contestants.append(Contestant("docker", field.docker.whole_life, 1))
    results = race(contestants, rounds=field.plan.rounds // 2, seconds=field.plan.seconds, warm_up=1)
    docker = field.docker if isinstance(field.docker, Absent) else results["docker"].reading()
    steps = [Samples(list(taken)) for taken in zip(*(field.free.life_in_steps() for _ in range(20)), strict=True)]
    made, command, closed = (step.percentile(50) for step in steps)
    return [
        Row(
            "create, first command, remove; p50",
            results["hutch"].reading(),
            Bound("faster", 15, 30),
            "Docker by the SDK",
            docker,
            results["quota"].reading(),
            note=f"made in {made:.1f} ms, command in {command:.1f} ms, closed in {closed:.1f} ms",
        )
    ]


def first_command(field: Field) -> list[Row]:
    """From the start of a fresh Python to the first output of a command."""
    environment = {**os.environ, **ALWAYS, **QUOTA_OFF, "HUTCH_DATA_DIR": str(field.folder / "first")}
    hutch, bare = Samples(), Samples()
    _first_output(_HUTCH, environment)  # makes the data folder, as the first run on a machine does
    for _ in range(field.plan.starts):
        hutch.milliseconds.append(_first_output(_HUTCH, environment))
        bare.milliseconds.append(_first_output(_BARE, environment))
    return [
        Row(
            "fresh Python, import hutch, first command",
            hutch.reading(),
            reference_name="fresh Python, subprocess.run",
            reference=bare.reading(),
        )
    ]


def _first_output(program: str, environment: dict[str, str]) -> float:
    """Milliseconds until the program shows its command's output."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = (time.perf_counter() - started) * 1000
    if line != b"hi\n" or process.returncode != 0:
        raise RuntimeError(f"a fresh program printed {line!r} and ended with {process.returncode}")
    return taken
