"""Crowds: many users of one client, several processes at one data folder, forks. Everybody gets their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hutch import AsyncSandboxClient, SandboxClient
from hutch.engine.homes import HOMES
from hutch.settings import read_settings
from tests.hostile.bad_luck_stage import client, data_folder

ROOT = Path(__file__).parents[2]
HANG = 100
CALLS = 20


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """What it printed; it must have ended well."""
    try:
        out, err = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    return out


@pytest.mark.serial
def test_fifty_threads_and_fifty_tasks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_POOL_SIZE", "128")
    with data_folder() as folder:
        monkeypatch.setenv("HUTCH_DATA_DIR", str(folder))
        sync, tasks = SandboxClient(), AsyncSandboxClient()  # two faces of one engine
        right: list[bool] = []
        barrier = threading.Barrier(51)

        def one_thread(number: int) -> None:
            sync.get_or_create_session(f"user{number}", f"thread{number}")
            barrier.wait(HANG)
            for call in range(CALLS):
                said = sync.execute(f"echo thread{number}-{call} | tee -a mine; wc -l < mine", timeout=60)
                right.append(said["stdout"].split() == [f"thread{number}-{call}", str(call + 1)])

        async def one_task(number: int) -> None:
            await tasks.get_or_create_session(f"user{number}", f"task{number}")
            for call in range(CALLS):
                said = await tasks.execute(f"echo task{number}-{call} | tee -a mine; wc -l < mine", timeout=60)
                right.append(said["stdout"].split() == [f"task{number}-{call}", str(call + 1)])

        async def all_tasks() -> None:
            await asyncio.to_thread(barrier.wait, HANG)
            await asyncio.gather(*(one_task(number) for number in range(50)))

        with ThreadPoolExecutor(51) as pool:
            threads = [pool.submit(one_thread, number) for number in range(50)]
            loop = pool.submit(asyncio.run, all_tasks())
            for work in [*threads, loop]:
                work.result(HANG)
        assert (right.count(True), len(right)) == (100 * CALLS, 100 * CALLS)
        sessions = sync.sessions()
        assert len(sessions) == len({one["thread_id"] for one in sessions}) == 100
        assert len(list((folder / "sandboxes").iterdir())) == 100
        HOMES.get(read_settings()).close()


USER = """
import sys
from hutch import SandboxClient
folder, name = sys.argv[1:]
client = SandboxClient(policy="open", data_dir=folder)
sys.stdin.readline()
for number in range(20):
    client.get_or_create_session("u", f"t{number % 4}")
    result = client.execute(f"echo {name}-{number} | tee -a all")
    assert result["stdout"] == f"{name}-{number}\\n", result
print("done")
sys.stdin.readline()
"""


def test_two_processes_at_one_data_folder_share_threads() -> None:
    with data_folder() as folder:
        pair = []
        for name in ("one", "two"):
            script = USER.replace("sys.stdin.readline()", "input()")
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(folder), name],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            pair.append(process)
        try:
            for process in pair:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            for process in pair:
                assert process.stdout is not None
                assert process.stdout.readline() == "done\n", process.communicate(timeout=HANG)
            assert len(list((folder / "sandboxes").iterdir())) == 4  # one sandbox for each thread
            for process in pair:
                assert process.communicate("end\n", timeout=HANG)[1] == ""
        finally:
            for process in pair:
                process.kill()
        lines = []
        for number in range(4):
            lines += client(folder, f"t{number}").execute("cat all")["stdout"].split()
        assert sorted(lines) == sorted(f"{name}-{number}" for name in ("one", "two") for number in range(20))


FORK = """
import os, sys
from hutch import SandboxClient
folder, when = sys.argv[1:]
client = SandboxClient(policy="open", data_dir=folder)
if when == "after use":
    client.get_or_create_session("u", "parent")
    client.execute("echo parent > a")

def use(name):
    client.get_or_create_session("u", name)
    client.execute(f"echo {name} > a")
    assert client.execute("cat a")["stdout"] == name + "\\n"
    if when == "after use":
        assert client.for_thread("u", "parent").execute("cat a")["stdout"] == "parent\\n"

children = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            use(f"child{number}")
            from hutch.engine.homes import HOMES
            HOMES.close()
            code = 0
        finally:
            os._exit(code)
    children.append(pid)
use("parent")
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
assert client.execute("cat a")["stdout"] == "parent\\n"
print(len(client.sessions()))
"""


@pytest.mark.parametrize("when", ["before use", "after use"])
def test_forked_children_work_beside_their_parent(when: str) -> None:
    with data_folder() as folder:
        assert finish(start(FORK, str(folder), when)) == "5\n"
        assert client(folder, "child0").execute("cat a")["stdout"] == "child0\n"


POOL = """
import sys
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
from hutch import SandboxClient

def work(number):
    client = SandboxClient(policy="open", data_dir=sys.argv[1])
    client.get_or_create_session("u", f"t{number}")
    return client.execute(f"echo {number}")["stdout"]

if __name__ == "__main__":
    with ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as pool:
        print(sorted(pool.map(work, range(12)), key=int))
"""


def test_workers_of_a_process_pool() -> None:
    with data_folder() as folder:
        said = finish(start(POOL, str(folder)))
        assert said == f"{[f'{number}' + chr(10) for number in range(12)]}\n"
