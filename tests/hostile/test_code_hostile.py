"""Code that means harm to its interpreter, to the bridge before it, or to the host that listens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

import hutch.engine.assemble as wiring
from hutch import SandboxClient
from hutch.engine.interpreter import service
from hutch.model.code import CodeResult
from hutch.model.errors import LimitExceeded, SandboxUnavailable
from hutch.model.limits import MIB
from hutch.model.template import OPEN
from tests.client_rig import client_of, memory_mib
from tests.tree_rig import with_trees

pytestmark = pytest.mark.once

T = TypeVar("T")
SMALL = replace(OPEN, limits=replace(OPEN.limits, memory_bytes=400 * MIB, pids=250, workspace_bytes=20 * MIB))
# Speaks in the bridge's place: its standard output is one of these descriptors.
TO_THE_HOST = """
import json, os
bridge = os.getppid()
def lines(*said):
    for number in range(1, 40):
        try:
            if os.readlink(f'/proc/{bridge}/fd/{number}').startswith('pipe:'):
                with open(f'/proc/{bridge}/fd/{number}', 'wb', buffering=0) as to:
                    for one in said:
                        to.write(one if isinstance(one, bytes) else json.dumps(one).encode() + b'\\n')
        except OSError:
            pass
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "OPEN", SMALL)
        with client_of(with_trees(tmp_path_factory.mktemp("code") / "data")) as made:
            yield made


@pytest.fixture(autouse=True)
def _works_afterwards(client: SandboxClient) -> Iterator[None]:
    """Whatever was done, the next code runs."""
    yield
    soon(lambda: client.code.run("0"))  # may be the one that is told of the end of the one before
    after = client.code.run("6 * 7")
    assert after["outputs"][0]["data"] == {"text/plain": "42"}
    assert not after["context_restarted"]


def soon(call: Callable[[], T]) -> T:
    """What may be tried again is: the machine itself may have been ended."""
    for _ in range(40):
        try:
            return call()
        except SandboxUnavailable:
            time.sleep(0.25)
    return call()


def died(result: CodeResult) -> bool:
    return result["state_lost"] and result["error"] is not None and result["error"]["name"] == "InterpreterDied"


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(3)",
        "import os; os.abort()",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.kill(os.getppid(), 9)",
        "import ctypes; ctypes.string_at(0)",
    ],
)
def test_an_interpreter_that_ends_is_reported_and_the_next_one_is_new(client: SandboxClient, code: str) -> None:
    client.code.run("mine = 1")
    assert died(client.code.run(code))
    after = client.code.run("'mine' in globals()")
    assert after["context_restarted"]
    assert after["outputs"][0]["data"] == {"text/plain": "False"}


@pytest.mark.parametrize(
    "code",
    [
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "sum(range(10 ** 11))",
        "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); time.sleep(60)",
    ],
)
def test_who_ignores_the_interrupt_is_killed(client: SandboxClient, code: str) -> None:
    result = client.code.run(code, timeout=0.5)
    assert result["timed_out"]
    assert died(result)


def test_a_flood_is_cut_and_costs_the_host_little(client: SandboxClient) -> None:
    before = memory_mib()
    result = client.code.run("while True: print('x' * 100_000)", timeout=2.0)
    assert result["timed_out"]
    assert not result["state_lost"]
    assert result["truncated"]
    assert len(result["stdout"]) <= 10 * MIB
    result = client.code.run("import sys\nwhile True: print('y', flush=True); print('z', file=sys.stderr)", timeout=2.0)
    assert result["timed_out"]
    assert memory_mib() - before < 250


def test_what_is_shown_is_bounded(client: SandboxClient) -> None:
    big = client.code.run("display({'text/plain': 'small', 'text/html': 'h' * 30_000_000}, raw=True)")
    assert big["truncated"]
    assert sum(len(text) for one in big["outputs"] for text in one["data"].values()) <= 10 * MIB
    many = client.code.run("for n in range(3000): display(n)", timeout=30)
    assert len(many["outputs"]) <= 1000
    deep = "x = []\nfor n in range(900): x = [x]\ndisplay({'application/json': x, 'text/plain': 'deep'}, raw=True)"
    assert client.code.run(deep)["error"] is None
    odd = "display({'application/json': float('inf'), 'a' * 5000: 'b'}, raw=True)"
    assert not client.code.run(odd)["state_lost"]


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('\u00e9' * 400_000)",
        "raise ValueError('\U0001f600' * 400_000)",
        "display({'text/plain': 'x' * 31_000_000}, raw=True); raise ValueError('after all there was room for')",
    ],
)
def test_an_error_is_told_however_large_it_is_and_whatever_came_before(client: SandboxClient, code: str) -> None:
    error = client.code.run(code)["error"]
    assert error is not None
    assert error["name"] == "ValueError"


def test_forged_lines_reach_only_the_forgers_own_result(client: SandboxClient) -> None:
    client.code.run(TO_THE_HOST)
    forged = client.code.run(
        "lines({'type': 'stdout', 'text': 'forged'}, {'type': 'nothing'}, [1], b'{' * 100, b'\\xff\\n',"
        " b'[' * 300_000 + b'\\n',"
        " {'type': 'result'}, {'type': 'error', 'name': 'n', 'value': 1, 'traceback': []}); print('real')"
    )
    assert "real" in forged["stdout"]
    assert not forged["state_lost"]
    done = "lines({'type': 'done', 'id': 'x', 'count': 10 ** 30, 'lost': False}); import time; time.sleep(0.3)"
    done += "; print('end')"
    assert client.code.run(done)["stdout"] == "end\n"
    dead = client.code.run("lines({'type': 'dead', 'code': 0}); import time; time.sleep(60)")
    assert died(dead)


@pytest.mark.parametrize("line", ["b'x' * 1_000_000", 'b\'{"type": "ready"}\\n\' * 50_000'])
def test_who_floods_the_host_in_the_bridges_place_is_ended(client: SandboxClient, line: str) -> None:
    before = memory_mib()
    client.code.run(TO_THE_HOST)
    assert died(client.code.run(f"while True: lines({line})", timeout=30))
    assert memory_mib() - before < 150


def test_what_is_said_between_two_runs_is_dropped_and_a_flood_of_it_ends_the_speaker(client: SandboxClient) -> None:
    client.code.run(TO_THE_HOST)
    late = (
        "import threading, time\ndef say(): time.sleep(0.3); print('late'); lines({'type': 'stdout', 'text': 'late'})"
    )
    client.code.run(late + "\nthreading.Thread(target=say).start()")
    time.sleep(0.8)
    assert client.code.run("print('now')")["stdout"] == "now\n"
    client.code.run("threading.Thread(target=lambda: [lines(b'x' * 100_000) for _ in range(1000)]).start()")
    time.sleep(1.0)
    assert client.code.run("1")["context_restarted"]


def test_a_fork_bomb_is_bounded(client: SandboxClient) -> None:
    result = client.code.run("import os\nwhile True:\n try: os.fork()\n except OSError: pass", timeout=1.5)
    assert result["timed_out"] or result["state_lost"]
    assert soon(lambda: client.execute("echo well"))["stdout"] == "well\n"


def test_the_limits_of_the_sandbox_hold_for_code(client: SandboxClient) -> None:
    result = client.code.run("held = []\nwhile True: held.append(bytearray(10_000_000))", timeout=30)
    assert died(result) or (result["error"] is not None and result["error"]["name"] == "MemoryError")
    assert not result["timed_out"]
    result = client.code.run(
        "for n in range(9): open(f'big{n}', 'wb').write(bytes(5_000_000))\nimport time; time.sleep(20)"
    )
    assert died(result)
    assert result["limit"] == "workspace"
    client.execute("rm big*")


def test_contexts_are_counted(client: SandboxClient) -> None:
    client.code.run("1")
    made: list[str] = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LimitExceeded) as refused:
        patch.setattr(service, "MOST_CONTEXTS", 3)
        for _ in range(8):
            made.append(client.code.create_context()["context_id"])
    assert refused.value.details["maximum"] == 3
    assert len(made) == 2
    for one in made:
        client.code.close_context(one)
