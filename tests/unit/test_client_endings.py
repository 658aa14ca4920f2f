"""Ends of programs: Ctrl-C, fork, exit with sessions open. Each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANG = 60

PREFACE = """
import asyncio, logging, os, signal, sys, threading, time
from pathlib import Path
# That this machine is slow is no complaint of the program's.
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing"))

from hutch import AsyncSandboxClient, ClientClosed, SandboxClient, SandboxUnavailable
from hutch.engine.assemble import assemble
from hutch.engine.homes import HOMES, EngineHome
from hutch.testing.fake_provider import FakeProvider
from tests.unit.engine_stage import settings
FOLDER = Path(sys.argv[1])
PROVIDERS = []

async def make(wanted):
    # One provider for each engine: a forked child has nothing of its parent's but the data folder.
    PROVIDERS.append(FakeProvider())
    return await assemble(wanted, PROVIDERS[-1])

HOMES.use(EngineHome(settings(FOLDER), make))
client = SandboxClient(policy="open", data_dir=FOLDER)
def running():
    return sum(len(machine.running()) for one in PROVIDERS for machine in one.world.machines.values())
"""


def start(folder: Path, text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PREFACE + textwrap.dedent(text), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, text: str) -> str:
    """What it printed; it must end by itself, with 0 and without a word of complaint."""
    with start(folder, text) as process:
        try:
            out, err = process.communicate(timeout=HANG)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    return out


def interrupt(folder: Path, text: str) -> tuple[str, str]:
    """Sends Ctrl-C once it has printed `ready`."""
    with start(folder, text) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            return process.communicate(timeout=HANG)
        finally:
            process.kill()


def test_a_program_that_leaves_its_session_open_ends_cleanly(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        client.get_or_create_session("u", "t")
        print(client.execute("echo hi")["stdout"], end="")
        client.start("sleep 60")
        """,
    )
    assert out == "hi\n"
    assert len(list((tmp_path / "sandboxes").iterdir())) == 1  # the session lives on in its files


def test_a_client_that_was_never_used_costs_no_end(tmp_path: Path) -> None:
    assert run(tmp_path, "print(client.mode, threading.active_count())") == "local 1\n"


def test_a_program_that_ends_in_the_middle_of_a_stream_ends_cleanly(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        client.get_or_create_session("u", "t")
        items = client.stream("echo hi; sleep 60")
        next(items)
        """,
    )


def test_a_program_that_ends_with_an_error_ends(tmp_path: Path) -> None:
    with start(tmp_path, 'client.get_or_create_session("u", "t"); client.start("sleep 60"); 1 / 0') as process:
        _, err = process.communicate(timeout=HANG)
    assert process.returncode == 1
    assert err.strip().endswith("ZeroDivisionError: division by zero")


def test_daemon_threads_in_mid_call_do_not_hold_up_the_end(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        def work():
            try:
                client.for_thread("u", "t").execute("sleep 60", timeout=60)
            except (ClientClosed, SandboxUnavailable):
                pass
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        """,
    )


@pytest.mark.parametrize(
    "call",
    [
        'client.execute("sleep 50 & sleep 60", timeout=60)',
        'client.execute("echo ready; sleep 60", timeout=60, on_stdout=lambda _: None)',
        'client.execute("sleep 60", timeout=60, stdin=b"x" * 10)',
        '[event for event in client.stream("sleep 60", timeout=60)]',
        'client.wait(client.start("sleep 60")["process_id"])',
    ],
)
def test_ctrl_c_in_a_sync_call_ends_the_command(tmp_path: Path, call: str) -> None:
    out, err = interrupt(
        tmp_path,
        f"""
        client.get_or_create_session("u", "t")
        print("ready", flush=True)
        try:
            {call}
        except KeyboardInterrupt:
            for one in client.processes():
                client.kill(one["process_id"])
            print("interrupted", running(), client.execute("echo on")["stdout"], end="")
        """,
    )
    assert (out, err) == ("interrupted 0 on\n", "")


def test_ctrl_c_in_an_async_program_ends_the_command(tmp_path: Path) -> None:
    out, err = interrupt(
        tmp_path,
        """
        async def main():
            client = AsyncSandboxClient(policy="open", data_dir=FOLDER)
            await client.get_or_create_session("u", "t")
            print("ready", flush=True)
            await client.execute("sleep 60", timeout=60)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", running())
        """,
    )
    assert (out, err) == ("interrupted 0\n", "")


FORKS = """
def in_child(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    deadline = time.monotonic() + 40
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "hung"
        time.sleep(0.01)
"""


def test_a_fork_before_the_first_use(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        FORKS
        + textwrap.dedent(
            """
        def child():
            client.get_or_create_session("u", "child")
            print(client.execute("echo child")["stdout"], end="")
            HOMES.close()
        print(in_child(child))
        client.get_or_create_session("u", "parent")
        print(client.execute("echo parent")["stdout"], end="")
        """
        ),
    )
    assert out == "child\n0\nparent\n"


@pytest.mark.filterwarnings("ignore")
def test_a_fork_after_use_has_an_engine_of_its_own(tmp_path: Path) -> None:
    """Python itself warns of forks beside threads since 3.12; programs do it all the same."""
    out = run(
        tmp_path,
        "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"
        + FORKS
        + textwrap.dedent(
            """
        client.get_or_create_session("u", "parent")
        client.execute("echo kept > a")
        def child():
            client.get_or_create_session("u", "child")
            print(client.execute("echo child")["stdout"], len(PROVIDERS), end="")
            HOMES.close()
            print()
        print(in_child(child))
        print(client.execute("cat a")["stdout"], end="")
        print(in_child(lambda: None))
        print(client.execute("cat a")["stdout"], end="")
        """
        ),
    )
    assert out == "child\n 2\n0\nkept\n0\nkept\n"
