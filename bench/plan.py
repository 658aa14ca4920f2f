"""How much is measured, and with whom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.docker_side import DockerSide
from bench.hutch_side import HutchSide
from bench.table import Absent


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    seconds: float  # at most, for one race
    starts: int  # of fresh programs
    throughput_seconds: float
    idle: int  # sandboxes whose memory is measured
    crowd: int  # sandboxes that live at once
    crowd_commands: int
    large_bytes: int  # of the file that goes up to a server and down again
    drive_files: int


FULL = Plan(
    rounds=60,
    seconds=30,
    starts=10,
    throughput_seconds=3,
    idle=100,
    crowd=1000,
    crowd_commands=2000,
    large_bytes=1_000_000_000,
    drive_files=100_000,
)
QUICK = Plan(
    rounds=8,
    seconds=6,
    starts=3,
    throughput_seconds=1,
    idle=30,
    crowd=100,
    crowd_commands=400,
    large_bytes=100_000_000,
    drive_files=5_000,
)


@dataclass(frozen=True, slots=True)
class Field:
    """Who runs. The verdict is taken without a CPU quota; the quota of the template stands beside it."""

    plan: Plan
    folder: Path
    free: HutchSide
    limited: HutchSide
    docker: DockerSide | Absent
    bubblewrap: Absent | None  # why it is not here
