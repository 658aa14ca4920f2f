"""Where the table goes: the terminal, and docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.table import HEADINGS, Row, cells, markdown

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_COLOURS = {"aim": "bold green", "must": "green", "missed": "bold red", "shown": "dim", "not judged": "yellow"}
_INTRODUCTION = """# Benchmarks

Made by `scripts/bench --write`; the figures below are of one run on one machine, all contestants in turns.

**Must** and **Aim** are what Hutch promises; `times` figures compare medians (p50). The verdict is taken at the limits
of the template `bash` with its CPU quota off; the same figure with the quota (25 % of a core) stands beside it: a tight
loop of commands uses the quota up and then waits for the kernel's next period. "shown" has no promise to it; "not
judged" lacks its reference on that machine.
"""


def machine_facts(docker_version: str) -> Mapping[str, str]:
    return {
        "Date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "Processor": f"{_processor()}, {os.cpu_count()} cores",
        "Memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "System": f"{_system()}, kernel {platform.release()}",
        "User": "root" if os.geteuid() == 0 else "an ordinary user",
        "Python": platform.python_version(),
        "Hutch": _hutch_version(),
        "Sandboxing": _bubblewrap_version(),
        "Docker": docker_version,
    }


def show(rows: Sequence[Row], facts: Mapping[str, str]) -> None:
    console = Console(width=None if os.isatty(1) else 200)
    table = Table(title="Hutch: promised and measured", show_lines=True)
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        *words, word = cells(row)
        table.add_row(*words, f"[{_COLOURS[word]}]{word}[/]")
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"{row.figure}: {row.note}", style="dim", highlight=False)
    console.print("; ".join(f"{name} {value}" for name, value in facts.items()), style="dim", highlight=False)


def write(rows: Sequence[Row], facts: Mapping[str, str], document: Path = DOCUMENT) -> None:
    lines = [f"| {name} | {value} |" for name, value in facts.items()]
    text = "\n".join([_INTRODUCTION, "| | |", "| --- | --- |", *lines, "", markdown(rows)])
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text(text)


def _hutch_version() -> str:
    try:
        return version("hutch")
    except PackageNotFoundError:
        return "from a checkout"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def _bubblewrap_version() -> str:
    program = shutil.which("bwrap")
    if program is None:
        return "not on PATH"
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
