"""Commands that try to outlive their end, and what the guest does about it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hutch.providers.guest.connection import open_connection
from tests.guest_rig import Kept, RigMachine, needs_bubblewrap, request, rig, run

pytestmark = needs_bubblewrap

DODGES = {
    "background": "sleep 1000 & echo up",
    "setsid": "setsid sleep 1000 & echo up",
    "nohup": "nohup sleep 1000 >/dev/null 2>&1 & echo up",
    "double fork": "( ( setsid sleep 1000 & ) & ); echo up",
    "stopped": "sleep 1000 & kill -STOP $!; echo up",
    "stopped group": "set -m; sh -c 'kill -STOP 0' & sleep 0.1; echo up",
    "ignores signals": "(trap '' TERM INT HUP QUIT USR1; while :; do sleep 1000; done) & echo up",
    "closed output": "(exec >&- 2>&- <&-; sleep 1000) & echo up",
    "output elsewhere": "exec > >(cat); echo up; sleep 1000 &",
    "chain": 'sh -c \'sh -c "sh -c \\"sleep 1000 & sleep 1000\\" & sleep 1000" & sleep 0.05\'; echo up',
    "new parent": "python3 -c 'import os, time\nfor _ in range(40):\n  if os.fork(): os._exit(0)\ntime.sleep(1000)' & "
    "sleep 0.2; echo up",
    "threads": "python3 -c 'import threading,subprocess,time\n"
    'for _ in range(5): threading.Thread(target=subprocess.run, args=(["sleep","1000"],)).start()\' & '
    "sleep 0.3; echo up",
    "many": "for i in $(seq 150); do sleep 1000 & done; echo up",
}

STORM = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid() if os.fork() == 0 else None
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(0.01)
            if os.fork() == 0:
                time.sleep(0.02)
            os._exit(0)
    except OSError:
        time.sleep(0.001)
    time.sleep(0.002)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


async def emptied(machine: RigMachine) -> None:
    for _ in range(1000):
        if not machine.processes():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"still there: {machine.processes()}")


@pytest.mark.parametrize("dodge", sorted(DODGES))
def test_nothing_outlives_its_command(dodge: str) -> None:
    async def work() -> None:
        async with rig() as machine:
            ended, kept = await machine.bash(DODGES[dodge])
            assert ended.exit_code == 0
            assert kept.stdout == "up\n"
            if dodge != "stopped group":  # whose orphans the kernel wakes with a hangup: they end by themselves
                assert ended.killed, "survivors are listed"
            assert machine.processes() == []
            assert (await machine.bash("echo next"))[1].stdout == "next\n"

    run(work())


@pytest.mark.parametrize("dodge", sorted(DODGES))
def test_nothing_outlives_a_kill(dodge: str) -> None:
    async def work() -> None:
        async with rig() as machine:
            sink = Kept()
            process = await machine.spawn(request(f"{DODGES[dodge]}\nsleep 1000; true"), sink)
            while "up" not in sink.stdout:
                await asyncio.sleep(0.01)
            await process.kill(grace=5)
            ended = await process.wait()
            assert (ended.exit_code, ended.signal, ended.lost) == (137, signal.SIGKILL, False)
            assert machine.processes() == []

    run(work())


def test_a_tree_that_forks_all_the_time_is_killed() -> None:
    async def work() -> None:
        async with rig() as machine:
            (machine.workspace / "storm.py").write_text(STORM)
            process = await machine.spawn(request("for i in 1 2 3; do python3 storm.py & done; wait"), Kept())
            await asyncio.sleep(0.7)
            assert len(machine.processes()) > 3
            await process.kill(grace=10)
            assert not (await process.wait()).lost
            assert machine.processes() == []

    run(work())


@pytest.mark.parametrize("victims", ["$PPID", "-1", "$PPID $$"])
def test_a_command_that_kills_its_handler_is_killed_with_all_it_started(victims: str) -> None:
    async def work() -> None:
        async with rig() as machine:
            script = f"setsid sleep 1000 & echo up; (sleep 0.05; kill -9 {victims}) & sleep 1000; true"
            ended, kept = await machine.bash(script)
            assert (ended.exit_code, ended.signal, ended.lost) == (137, signal.SIGKILL, False)
            assert kept.stdout == "up\n"
            await emptied(machine)
            assert (await machine.bash("exit 3"))[0].exit_code == 3

    run(work())


def test_a_stopped_handler_goes_on() -> None:
    async def work() -> None:
        async with rig() as machine:
            ended, _ = await machine.bash("kill -STOP $PPID; exit 4")
            assert ended.exit_code == 4

    run(work())


def test_a_storm_left_by_a_killed_handler_ends() -> None:
    async def work() -> None:
        async with rig() as machine:
            (machine.workspace / "storm.py").write_text(STORM)
            script = "python3 storm.py & python3 storm.py & sleep 0.3; kill -9 $PPID; sleep 1000"
            ended, _ = await machine.bash(script)
            assert ended.exit_code == 137
            await emptied(machine)

    run(work())


def test_init_and_handlers_cannot_be_looked_into() -> None:
    async def work() -> None:
        async with rig() as machine:
            script = """for pid in 1 $PPID; do
                for what in environ mem fd/0 cwd root exe maps; do
                    { head -c 1 /proc/$pid/$what || readlink /proc/$pid/$what; } >/dev/null 2>&1 && echo open $pid $what
                done; done; kill -TERM 1; kill -9 1; echo alive; true"""
            _, kept = await machine.bash(script)
            assert kept.stdout == "alive\n"
            assert machine.alive

    run(work())


def test_a_dead_host_connection_kills_the_tree() -> None:
    async def work() -> None:
        async with rig() as machine:
            process = await machine.spawn(request(DODGES["ignores signals"] + "; sleep 1000"), Kept())
            process._connection.close()
            await emptied(machine)
            process.abandon()

    run(work())


def test_a_flood_of_connections_and_floods_of_handlers_pass() -> None:
    async def work() -> None:
        async with rig() as machine:
            held = await asyncio.gather(*(open_connection(machine.socket_path) for _ in range(200)))
            assert (await machine.bash("echo hi"))[1].stdout == "hi\n"
            for one in held:
                one.close()
            for _ in range(20):
                for one in await asyncio.gather(*(open_connection(machine.socket_path) for _ in range(20))):
                    one.close()
            assert (await machine.bash("echo hi"))[1].stdout == "hi\n"
            machine.drop_idle()
            for _ in range(1000):
                if len(_handlers(machine)) == 1:
                    return
                await asyncio.sleep(0.005)
            raise AssertionError("handlers were left behind")

    run(work())


def _handlers(machine: RigMachine) -> list[str]:
    """The init is one of them."""
    found = []
    for name in os.listdir("/proc"):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
            inside = os.stat(f"/proc/{name}/ns/pid").st_ino == _pid_namespace(machine)
        except OSError:
            continue
        if name.isdigit() and line.startswith(b"/opt/hutch-guest") and inside:
            found.append(name)
    return found


def _pid_namespace(machine: RigMachine) -> int:
    children = Path(f"/proc/{machine.running.pid}/task/{machine.running.pid}/children").read_text().split()
    return os.stat(f"/proc/{children[0] if children else machine.running.pid}/ns/pid").st_ino


def test_a_command_that_kills_its_handler_at_once_was_killed() -> None:
    """However early it is: also before its handler could say that it had started."""

    async def work() -> None:
        async with rig() as machine:
            for _ in range(40):
                ended, _ = await machine.bash("kill -9 -1; kill -9 $PPID; sleep 5")
                assert ended.exit_code == 137
                ended, _ = await machine.bash("exit 3")
                assert ended.exit_code == 3

    run(work())
