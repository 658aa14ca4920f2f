"""The bash tool with a file of one megabyte, against what agents did before: the content pasted into heredocs."""

from __future__ import annotations

import secrets
from functools import partial
from itertools import count

from bench.hutch_side import HutchSide
from bench.plan import Field
from bench.table import Bound, Row
from bench.timing import Contestant, race
from hutch import SandboxClient

LINE = "0123456789abcde\n"
LINES = 1_000_000 // len(LINE)
PIECE = 7_000  # lines: more do not fit into one command
COUNTED = "wc -c < /workspace/data.txt"


class _ByTool:
    """Each turn a file is new, so that it is sent each time."""

    def __init__(self, side: HutchSide) -> None:
        self._tools = side.tools("bash-tool")
        self._numbers = count()

    def __call__(self) -> None:
        text = LINE * (LINES - 1) + f"{next(self._numbers):015}\n"
        self._tools.write_file("/data-exports/data.txt", text)
        _expect(self._tools.execute_bash_command(COUNTED, ["/data-exports/data.txt"])["stdout"])


def _by_heredocs(handle: SandboxClient) -> None:
    sign = ">"
    for start in range(0, LINES, PIECE):
        text = LINE * min(PIECE, LINES - start)
        handle.execute(f"cat {sign} /workspace/data.txt << 'EOF'\n{text}EOF\n")
        sign = ">>"
    _expect(handle.execute(COUNTED)["stdout"])


def _expect(printed: str) -> None:
    if printed.strip() != str(LINES * len(LINE)):
        raise RuntimeError(f"the file is not what was given: {printed!r} bytes")


def against_heredocs(field: Field) -> list[Row]:
    contestants = []
    for name, side in (("free", field.free), ("quota", field.limited)):
        contestants.append(Contestant(f"{name} tool", _ByTool(side), 3))
        handle = side.handle(f"heredocs-{secrets.token_hex(2)}")
        contestants.append(Contestant(f"{name} heredocs", partial(_by_heredocs, handle), 1))
    results = race(contestants, rounds=field.plan.rounds // 2, seconds=field.plan.seconds / 2)
    return [
        Row(
            "bash tool with a new file of 1 MB, p50",
            results["free tool"].reading(),
            Bound("faster", 2, 5),
            "the same in heredocs",
            results["free heredocs"].reading(),
            results["quota tool"].reading(),
        )
    ]
