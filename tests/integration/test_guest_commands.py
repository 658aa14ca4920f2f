"""Commands in a real sandbox through the real guest binary."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal

import pytest

from hutch.model.errors import (
    InvalidRequest,
    NotSupported,
    PathRejected,
    ProcessEnded,
    SandboxFileNotFound,
)
from hutch.model.process import ProcessExit
from hutch.providers.base import SpawnRequest
from tests.guest_rig import PATH, Kept, RigMachine, needs_bubblewrap, request, rig, run

pytestmark = needs_bubblewrap


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_output_status_and_environment() -> None:
    async def work() -> None:
        async with rig() as machine:
            ended, kept = await machine.bash('echo "$A"; pwd; echo err >&2; exit 3', env={"A": "ä\n!"}, cwd="/tmp")
            assert (ended.exit_code, ended.signal, ended.killed) == (3, None, ())
            assert kept.stdout == "ä\n!\n/tmp\n"
            assert kept.stderr == "err\n"
            assert ended.max_rss_bytes > 0

    run(work())


def test_the_shell_can_be_a_descriptor_and_is_still_called_bash() -> None:
    async def work() -> None:
        async with rig(shell_descriptor=True) as machine:
            ended, kept = await machine.bash('echo "$0 $BASH_VERSION" | cut -d. -f1; exit 4')
            assert ended.exit_code == 4
            assert kept.stdout == "bash 5\n"

    run(work())


def test_a_command_inherits_nothing_but_three_descriptors_and_default_signals() -> None:
    async def work() -> None:
        async with rig(shell_descriptor=True) as machine:
            script = "ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; cut -d' ' -f6 /proc/self/stat"
            _, kept = await machine.bash(f"{script}; echo $$; cat /proc/self/oom_score_adj")
            lines = kept.stdout.split("\n")
            assert lines[0] == "4"  # three and the folder that ls reads
            assert [line.split() for line in lines[1:3]] == [["SigBlk:", "0" * 16], ["SigIgn:", "0" * 16]]
            assert lines[3] == lines[4]  # its own session
            assert lines[5] == "500"

    run(work())


def test_programs_are_found_in_the_path_they_are_given() -> None:
    async def work() -> None:
        async with rig() as machine:
            for argv in (("true",), ("/bin/true",)):
                process = await machine.spawn(SpawnRequest(argv=argv, env={"PATH": PATH}, cwd=""), Kept())
                assert (await process.wait()).exit_code == 0
            with pytest.raises(SandboxFileNotFound, match="nosuch"):
                await machine.spawn(SpawnRequest(argv=("nosuch",), env={"PATH": PATH}, cwd=""), Kept())
            with pytest.raises(SandboxFileNotFound):
                await machine.spawn(SpawnRequest(argv=("true",), env={"PATH": "/nowhere:"}, cwd=""), Kept())
            with pytest.raises(SandboxFileNotFound, match="/none"):
                await machine.bash("true", cwd="/none")
            (machine.workspace / "plain").write_text("data")
            with pytest.raises(PathRejected):
                await machine.spawn(SpawnRequest(argv=("./plain",), env={}, cwd="/workspace"), Kept())
            with pytest.raises(InvalidRequest):
                await machine.spawn(SpawnRequest(argv=(), env={}, cwd=""), Kept())
            assert (await machine.bash("exit 5"))[0].exit_code == 5

    run(work())


def test_signals_end_a_command_as_128_plus_n() -> None:
    async def work() -> None:
        async with rig() as machine:
            process = await machine.spawn(
                request("trap 'echo got; exit 7' TERM; echo up; while :; do sleep 0.01; done"), Kept()
            )
            await asyncio.sleep(0.2)
            await process.signal(signal.SIGTERM, "process")
            assert (await process.wait()).exit_code == 7
            with pytest.raises(ProcessEnded):
                await process.signal(signal.SIGTERM, "process")
            process = await machine.spawn(request("sleep 100 | sleep 100"), Kept())
            await process.signal(signal.SIGUSR1, "group")
            ended = await process.wait()
            assert (ended.exit_code, ended.signal) == (138, signal.SIGUSR1)
            with pytest.raises(InvalidRequest):
                await process.signal(0, "tree")

    run(work())


def test_input_is_fed_and_closed() -> None:
    async def work() -> None:
        async with rig() as machine:
            sink = Kept()
            process = await machine.spawn(request("cat", stdin=True), sink)
            data = bytes(range(256)) * 4096
            await asyncio.gather(process.write(data), process.write(b"end"))
            await process.close_input()
            assert (await process.wait()).exit_code == 0
            assert bytes(sink.data["stdout"]) == data + b"end"
            with pytest.raises(ProcessEnded):
                await process.write(b"more")

    run(work())


def test_a_command_that_reads_nothing_does_not_hang_its_writer() -> None:
    async def work() -> None:
        async with rig() as machine:
            process = await machine.spawn(request("exec 0<&-; sleep 0.1", stdin=True), Kept())
            with pytest.raises(ProcessEnded):
                await process.write(b"x" * 1_000_000)
            assert (await process.wait()).exit_code == 0
            process = await machine.spawn(request("sleep 0.2", stdin=True), Kept())
            with pytest.raises(ProcessEnded):
                await process.write(b"x" * 1_000_000)

    run(work())


def test_stdin_is_empty_unless_asked_for() -> None:
    async def work() -> None:
        async with rig() as machine:
            ended, kept = await machine.bash("cat; read x; echo $?")
            assert ended.exit_code == 0
            assert kept.stdout == "1\n"

    run(work())


def test_what_is_about_to_finish_may() -> None:
    """A shell does not wait for its process substitutions, but whoever reads their output does."""

    async def work() -> None:
        async with rig() as machine:
            ended, kept = await machine.bash("exec > >(sleep 0.01; cat); seq 3 | tee >(sort -r > file)")
            assert (ended.exit_code, ended.killed) == (0, ())
            assert kept.stdout == "1\n2\n3\n"
            assert (machine.workspace / "file").read_text() == "3\n2\n1\n"

    run(work())


def test_a_terminal_echoes_resizes_and_ends() -> None:
    async def work() -> None:
        async with rig() as machine:
            sink = Kept()
            process = await machine.spawn(
                request("tty; stty size; read a; stty size; echo got $a", pty=(30, 100)), sink
            )
            await asyncio.sleep(0.2)
            await process.resize(40, 120)
            await process.write(b"word\n")
            assert (await process.wait()).exit_code == 0
            assert "/dev/pts/" in sink.stdout
            assert "30 100" in sink.stdout
            assert "40 120" in sink.stdout
            assert sink.stdout.endswith("got word\r\n")
            with pytest.raises(ProcessEnded):
                await process.write(b"x")
            plain = await machine.spawn(request("sleep 100"), Kept())
            with pytest.raises(NotSupported):
                await plain.resize(1, 1)
            await plain.kill()

    run(work())


def test_a_terminal_tells_everything_that_was_printed() -> None:
    async def work() -> None:
        async with rig() as machine:
            _, kept = await machine.bash("seq 20000", pty=(24, 80))
            assert kept.stdout.endswith("19999\r\n20000\r\n")
            assert kept.stdout.count("\n") == 20000

    run(work())


def test_limits_reach_the_command() -> None:
    async def work() -> None:
        async with rig() as machine:
            machine.limits_set = [(resource.RLIMIT_FSIZE, 4096, 4096), (resource.RLIMIT_NOFILE, 64, 64)]
            ended, kept = await machine.bash("ulimit -n; head -c 100000 /dev/zero > big")
            assert kept.stdout == "64\n"
            assert (ended.exit_code, ended.limit) == (128 + signal.SIGXFSZ, "file_size")
            assert (machine.workspace / "big").stat().st_size == 4096

    run(work())


def test_a_provider_sees_its_own_limits_being_hit() -> None:
    async def work() -> None:
        async with rig() as machine:
            seen: list[object] = []

            def limit_seen(mark: object, exit: ProcessExit) -> str:
                seen.append(mark)
                return "memory"

            machine.limit_mark = lambda: "before"  # type: ignore[method-assign]
            machine.limit_seen = limit_seen  # type: ignore[method-assign, assignment]
            ended, _ = await machine.bash("true")
            assert (ended.limit, seen) == ("memory", ["before"])

    run(work())


def test_many_at_once_do_not_mix() -> None:
    async def work() -> None:
        async with rig() as machine:

            async def one(number: int) -> bool:
                _, kept = await machine.bash(f"echo {number}; echo {number} >&2")
                return kept.stdout == kept.stderr == f"{number}\n"

            for start in range(0, 200, 40):
                assert all(await asyncio.gather(*(one(start + i) for i in range(40))))

    run(work())


def test_a_flood_nobody_keeps_is_read_slowly_and_killed_at_once() -> None:
    async def work() -> None:
        async with rig() as machine:
            sink = Kept(keeps=False)
            process = await machine.spawn(request("yes"), sink)
            await asyncio.sleep(0.5)
            await process.kill()
            ended = await process.wait()
            assert ended.signal == signal.SIGKILL
            assert 0 < sink.fed_bytes < 200_000_000  # unpaced it would be gigabytes
            assert machine.processes() == []

    run(work())


def test_large_output_arrives_whole() -> None:
    async def work() -> None:
        async with rig() as machine:
            ended, kept = await machine.bash("head -c 30000000 /dev/zero; head -c 3000000 /dev/zero >&2")
            assert ended.exit_code == 0
            assert [len(kept.data["stdout"]), len(kept.data["stderr"])] == [30_000_000, 3_000_000]

    run(work())


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.002, 0.05])
def test_cancelling_leaves_nothing_behind(after: float) -> None:
    async def work() -> None:
        async with rig() as machine:
            await machine.bash("true")
            before = descriptors()

            async def one() -> None:
                process = await machine.spawn(request("sleep 100 & sleep 100", stdin=True), Kept())
                await process.wait()

            for _ in range(10):
                task = asyncio.create_task(one())
                await asyncio.sleep(after)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await _settled(machine)
            machine.drop_idle()
            await machine.bash("true")
            assert descriptors() <= before + 1

    run(work())


async def _settled(machine: RigMachine) -> None:
    for _ in range(500):
        if not machine.processes() and not machine._processes:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"still there: {machine.processes()}")


def test_a_wait_with_a_time_limit_can_be_followed_by_another() -> None:
    async def work() -> None:
        async with rig() as machine:
            process = await machine.spawn(request("echo a; sleep 100; true"), Kept())
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 0.1)
            ended = await process.wait()
            assert ended.signal == signal.SIGKILL
            assert [one.name for one in ended.killed] == ["sleep"]

    run(work())


def test_one_of_two_waiters_may_give_up() -> None:
    async def work() -> None:
        async with rig() as machine:
            process = await machine.spawn(request("sleep 0.3; exit 6"), Kept())
            patient = asyncio.create_task(process.wait())
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 0.05)
            assert (await patient).exit_code == 6

    run(work())


def test_leftovers_are_kept_when_asked_for_and_end_with_a_kill() -> None:
    async def work() -> None:
        async with rig() as machine:
            sink = Kept()
            process = await machine.spawn(
                request("(sleep 0.3; echo late; sleep 100) & echo now", leftovers="keep"), sink
            )
            ended = await process.wait()
            assert ended.exit_code == 0
            assert sink.stdout == "now\n"
            assert ended.killed == ()
            while "late" not in sink.stdout:
                await asyncio.sleep(0.01)
            await process.kill()
            assert machine.processes() == []
            await process.kill()  # twice is fine
            with pytest.raises(ProcessEnded):
                await process.signal(15, "tree")

    run(work())


def test_leftovers_that_end_by_themselves_free_their_connection() -> None:
    async def work() -> None:
        async with rig() as machine:
            process = await machine.spawn(request("sleep 0.2 & true", leftovers="keep"), Kept())
            await process.wait()
            while machine._processes:
                await asyncio.sleep(0.01)
            await process.kill()

    run(work())


def test_when_the_machine_dies_its_commands_are_lost() -> None:
    async def work() -> None:
        async with rig() as machine:
            process = await machine.spawn(request("sleep 100"), Kept())
            machine.running.kill()
            ended = await process.wait()
            assert (ended.exit_code, ended.lost) == (137, True)

    run(work())


def test_a_machine_reached_by_a_long_path(tmp_path: object) -> None:
    async def work() -> None:
        deep = os.path.join(str(tmp_path), *["folder-with-a-long-name"] * 8)
        from pathlib import Path

        async with rig(folder=Path(deep)) as machine:
            assert (await machine.bash("exit 9"))[0].exit_code == 9

    run(work())


def test_the_idle_connection_closes_soon() -> None:
    async def work() -> None:
        async with rig() as machine:
            await machine.bash("true")
            assert machine._idle
            while machine._idle:
                await asyncio.sleep(0.05)

    run(work())
