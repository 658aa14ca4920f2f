"""The two documents that agents' authors were given: their examples run as they are written, on the real provider.

The documents lie beside the checkout, not in it. Where they are absent their calls, in our own words, still run.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hutch.tools import abind, bind
from tests.client_rig import settings_of

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[2]
MISSION = ROOT.parent / "shared" / "mission"
NEW_FLOW = MISSION / "000_c19c0d1a2fc8e001.txt"
FIRST_FLOW = MISSION / "001_b84e72a0a364f7c4.txt"
AMOUNTS = [45.50, 67.00, 30.00]
EVENTS = [
    {"title": "Daily standup", "duration_minutes": 15},
    {"title": "1:1 with Ana", "duration_minutes": 45},
    {"title": "Review"},
]
REPORT = "Standups: 0.2 hours\n1-on-1s: 0.8 hours\nOther: 0.5 hours\n"


@pytest.fixture(scope="module")
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with settings_of(tmp_path_factory.mktemp("guides")):
        yield


@pytest.fixture
def world(_data_folder: None) -> dict[str, Any]:
    """The tools of one conversation, and what the examples leave undefined: mail, a calendar, data, a script."""
    return {
        **bind("user123", "conversation_abc")._asdict(),
        "json": json,
        "search_emails": lambda query: AMOUNTS,
        "extract_amount": lambda email: email,
        "list_calendar_events": lambda start, end: EVENTS,
        "receipts": [{"amount": amount} for amount in AMOUNTS],
        "data": {"values": [1, 2, 3]},
        "python_script": "import json, sys\nprint(sum(json.load(open(sys.argv[1]))['values']))\n",
    }


def lines(document: Path, first: int, last: int) -> str:
    if not document.is_file():
        pytest.skip("the document does not lie beside this checkout")
    return textwrap.dedent("\n".join(document.read_text(errors="replace").splitlines()[first - 1 : last]) + "\n")


def run(text: str, names: dict[str, Any]) -> None:
    exec(compile(text, "document", "exec"), names)


@pytest.mark.parametrize(("first", "last"), [(167, 176), (290, 301), (434, 442)])
def test_receipts_add_up(first: int, last: int, world: dict[str, Any]) -> None:
    run(lines(NEW_FLOW, first, last), world)
    result = world["result"]
    assert (result["exit_code"], result["stdout"], result["stderr"]) == (0, "142.5\n", "")
    assert result["uploaded_files"] == [re.search(r"/data-exports/(\w+\.json)", lines(NEW_FLOW, first, last))[1]]  # type: ignore[index]
    assert result["execution_time_ms"] >= 0
    if first == 167:
        assert world["read_file"]("/data-exports/total.txt") == "142.5\n"


def test_a_report_of_a_calendar(world: dict[str, Any]) -> None:
    run(lines(NEW_FLOW, 318, 352), world)
    assert world["result"]["stdout"] == REPORT
    assert world["read_file"]("/data-exports/meeting_report_2024.txt") == REPORT


def test_a_script_and_its_data(world: dict[str, Any]) -> None:
    run(lines(NEW_FLOW, 450, 457), world)
    assert (world["result"]["stdout"], world["result"]["uploaded_files"]) == ("6\n", ["data.json", "process.py"])


@pytest.mark.usefixtures("_data_folder")
def test_the_first_flow_as_coroutines() -> None:
    text = lines(FIRST_FLOW, 126, 133)
    names: dict[str, Any] = abind("user123", "conversation_abc")._asdict()
    code = compile(text, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def play() -> None:
        await eval(code, names)

    asyncio.run(play())
    assert names["result1"]["status"] == "success"
    assert (names["result2"]["status"], names["result2"]["stdout"].strip()) == ("success", "142")
    assert names["result2"]["return_code"] == 0


def test_the_calls_of_the_documents_in_our_words(world: dict[str, Any]) -> None:
    world["write_file"]("/data-exports/r.json", json.dumps(world["receipts"]))
    command = "jq '.[] | .amount' /workspace/r.json | awk '{sum += $1} END {print sum}' | tee /workspace/sum.txt"
    result = world["execute_bash_command"](command=command, file_paths=["/data-exports/r.json"])
    assert (result["stdout"], result["uploaded_files"]) == ("142.5\n", ["r.json"])
    saved = world["download_sandbox_file"]("sum.txt", "/data-exports/sum.txt")
    assert saved == {"status": "downloaded", "path": "/data-exports/sum.txt", "size_bytes": 6}
    assert world["read_file"]("/data-exports/sum.txt") == "142.5\n"


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("langchain_bash_tool", "exit code 0, sum 142.5, sent ['receipts.json']"),
        ("sandbox_session", "[SUCCESS]\nHello!"),
    ],
)
def test_an_example_runs(example: str, says: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / f"{example}.py"],
        env={**os.environ, "HUTCH_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert says in ran.stdout, ran.stderr
    assert ran.returncode == 0
