"""Figures of deepagents' file tools: by the files of a sandbox, and by the scripts that deepagents would run in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from deepagents.backends.protocol import BackendProtocol

from bench.plan import Field
from bench.table import Bound, Row
from bench.timing import Contestant, race
from hutch import AsyncSandboxClient
from hutch.tools.deepagents import HutchSandbox
from hutch.tools.deepagents.shell_files import ShellFiles

FILES = 300
LINES = 2000
FILL = (
    f"mkdir src && for ((n = 0; n < {FILES}; n++)); do seq $n $((n + 40)) > src/part-$n.txt; done; "
    f"seq 1 {LINES} > log.txt; echo needle >> src/part-77.txt"
)
FASTER = Bound("faster", 2)


def rows(field: Field) -> list[Row]:
    client = AsyncSandboxClient(policy="open", data_dir=field.folder / "deepagents")
    handle = client.for_thread("bench", "deepagents")
    native, scripts = HutchSandbox(handle), ShellFiles(handle)
    if native.execute(FILL).exit_code != 0:
        raise RuntimeError("the workspace could not be filled")
    deeds: dict[str, Callable[[BackendProtocol], object]] = {
        "read, 100 lines": _read,
        f"ls, {FILES} files": _ls,
        f"grep, {FILES} files": _grep,
        f"glob, {FILES} files": _glob,
    }
    contestants = []
    for name, deed in deeds.items():
        contestants.append(Contestant(f"{name} native", partial(deed, native), 5))
        contestants.append(Contestant(f"{name} script", partial(deed, scripts), 2))
    results = race(contestants, rounds=field.plan.rounds // 3, seconds=field.plan.seconds)
    asyncio.run(handle.close_session())
    return [
        Row(
            f"deepagents {name}, p50",
            results[f"{name} native"].reading(),
            FASTER if not name.startswith("grep") else None,
            "BaseSandbox in the same sandbox",
            results[f"{name} script"].reading(),
        )
        for name in deeds
    ]


def _read(backend: BackendProtocol) -> None:
    result = backend.read("/workspace/log.txt", 1000, 100)
    if (result.start_line, result.total_lines, result.next_offset) != (1001, LINES, 1100):
        raise RuntimeError(f"reading went wrong: {result}")


def _ls(backend: BackendProtocol) -> None:
    if len(backend.ls("/workspace/src").entries or []) != FILES:
        raise RuntimeError("ls did not list them all")


def _grep(backend: BackendProtocol) -> None:
    found = backend.grep("needle", "/workspace").matches or []
    if [match["path"] for match in found] != ["/workspace/src/part-77.txt"]:
        raise RuntimeError(f"grep went wrong: {found}")


def _glob(backend: BackendProtocol) -> None:
    if len(backend.glob("part-*.txt", "/workspace").matches or []) != FILES:
        raise RuntimeError("glob did not find them all")
