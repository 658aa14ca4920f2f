"""The contract, part six: the life of a machine, its ports, and what a provider keeps and removes."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from hutch.model.errors import FileConflict, HutchError, PortUnreachable, SandboxUnavailable
from hutch.model.ids import new_sandbox_id
from hutch.model.wall import WALLS
from hutch.providers.base import ByteStream, Machine, MachineSpec, Process, SpawnRequest
from hutch.testing import contract_scripts as scripts
from hutch.testing.contract_stage import ENVIRONMENT, Collector, ContractStage, Stage, staged, staged_with

# A provider may count the folders on the way, or not.
ENTRY_SLACK = 2


class MachineContract(ContractStage):
    # --- start and stop ----------------------------------------------------------------------------------------

    @staged
    async def test_a_machine_knows_who_it_is(self, stage: Stage) -> None:
        assert stage.machine.sandbox_id == stage.spec.sandbox_id
        assert stage.machine.alive
        assert stage.spec.folder.is_dir()

    @staged
    async def test_stop_ends_everything(self, stage: Stage) -> None:
        process = await stage.start("sleep 60 & sleep 60")
        await stage.machine.stop()
        ended = await process.wait()
        assert (ended.exit_code, ended.lost) == (137, True)
        assert not stage.machine.alive
        assert await stage.machine.wait_stopped()

    @staged
    async def test_one_who_waits_hears_of_the_stop(self, stage: Stage) -> None:
        waiting = asyncio.create_task(stage.machine.wait_stopped())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await stage.machine.stop()
        assert await waiting

    @staged
    async def test_stop_twice_and_at_once(self, stage: Stage) -> None:
        await asyncio.gather(stage.machine.stop(), stage.machine.stop())
        await stage.machine.stop()
        assert not stage.machine.alive

    @staged
    async def test_a_stopped_machine_says_so(self, stage: Stage) -> None:
        await stage.machine.stop()
        with pytest.raises(SandboxUnavailable):
            await stage.execute("echo hi")
        with pytest.raises(SandboxUnavailable):
            await stage.machine.open_read("a")
        with pytest.raises(SandboxUnavailable):
            await stage.machine.mkdir("a", parents=False)

    @staged
    async def test_files_outlive_the_machine(self, stage: Stage) -> None:
        await stage.write("sub/kept", b"1", parents=True)
        await stage.execute("echo 2 > by_command")
        await stage.machine.stop()
        again = await stage.provider.start(stage.spec)
        assert await stage.read("sub/kept", machine=again) == b"1"
        assert (await stage.execute("cat by_command", machine=again)).stdout == b"2\n"
        await again.stop()

    @staged
    async def test_a_start_that_is_given_up_leaves_a_startable_sandbox(self, stage: Stage) -> None:
        other = self._neighbour(stage)
        for turns in (0, 1, 3, 10, 30):
            starting = asyncio.create_task(stage.provider.start(other))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not starting.cancel():
                await starting.result().stop()
                continue
            for outcome in await asyncio.gather(starting, return_exceptions=True):
                if isinstance(outcome, Machine):
                    await outcome.stop()
        machine = await stage.provider.start(other)
        assert (await stage.execute("echo hi", machine=machine)).stdout == b"hi\n"
        await machine.stop()
        await stage.provider.destroy(other)

    @staged
    async def test_machines_are_apart(self, stage: Stage) -> None:
        spec = self._neighbour(stage)
        other = await stage.provider.start(spec)
        await stage.write("mine", b"1")
        assert await other.list(".", recursive=True, max_entries=10) == []
        sleeping = await stage.start("sleep 60")
        assert (await stage.execute(scripts.COUNT_SLEEPERS, machine=other)).stdout == b"0\n"
        await other.stop()
        assert stage.machine.alive
        await sleeping.kill()
        await stage.provider.destroy(spec)

    @staged
    async def test_many_machines_at_once(self, stage: Stage) -> None:
        specs = [self._neighbour(stage, taken=n) for n in range(8)]
        machines = await asyncio.gather(*(stage.provider.start(spec) for spec in specs))
        results = await asyncio.gather(
            *(stage.execute(f"echo {n}", machine=machine) for n, machine in enumerate(machines))
        )
        assert [result.stdout for result in results] == [b"%d\n" % n for n in range(8)]
        await asyncio.gather(*(machine.stop() for machine in machines))
        await asyncio.gather(*(stage.provider.destroy(spec) for spec in specs))

    def _neighbour(self, stage: Stage, taken: int = 0) -> MachineSpec:
        sandbox_id = new_sandbox_id()
        host_uid = stage.spec.host_uid
        if host_uid is not None:
            host_uid = stage.provider.allocate_uid(frozenset(range(host_uid, host_uid + taken + 1)))
        folder = stage.spec.folder.parent / sandbox_id
        return replace(stage.spec, sandbox_id=sandbox_id, folder=folder, host_uid=host_uid)

    # --- what a provider keeps and removes ---------------------------------------------------------------------

    @staged
    async def test_destroy_removes_everything(self, stage: Stage) -> None:
        for text in (scripts.LINKS, scripts.LOCKED_FOLDERS, scripts.DEEP_FOLDERS, scripts.ODD_NAMES):
            await stage.execute(text)
        await stage.machine.stop()
        await stage.provider.destroy(stage.spec)
        assert not stage.spec.folder.exists()
        await stage.provider.destroy(stage.spec)

    @staged
    async def test_destroy_follows_no_link(self, stage: Stage) -> None:
        outside = stage.spec.folder.parent / "outside"
        outside.mkdir()
        (outside / "precious").write_text("1")
        request = SpawnRequest(["ln", "-s", str(outside), "link"], ENVIRONMENT, "/workspace")
        await (await stage.machine.spawn(request, Collector())).wait()
        await stage.machine.stop()
        await stage.provider.destroy(stage.spec)
        assert (outside / "precious").read_text() == "1"

    @staged
    async def test_a_destroyed_sandbox_starts_empty(self, stage: Stage) -> None:
        await stage.write("old", b"1")
        await stage.machine.stop()
        await stage.provider.destroy(stage.spec)
        again = await stage.provider.start(stage.spec)
        assert await again.list(".", recursive=True, max_entries=10) == []
        await again.stop()

    @staged
    async def test_sweep_and_destroy_of_what_never_was(self, stage: Stage) -> None:
        other = self._neighbour(stage)
        await stage.provider.sweep(other)
        await stage.provider.destroy(other)
        assert not other.folder.exists()

    @staged
    async def test_sweep_keeps_files(self, stage: Stage) -> None:
        await stage.write("kept", b"1")
        await stage.machine.stop()
        await stage.provider.sweep(stage.spec)
        again = await stage.provider.start(stage.spec)
        assert await stage.read("kept", machine=again) == b"1"
        await again.stop()

    @staged
    async def test_closing_the_provider_stops_its_machines(self, stage: Stage) -> None:
        spec = self._neighbour(stage)
        other = await stage.provider.start(spec)
        await stage.provider.aclose()
        assert not stage.machine.alive
        assert not other.alive
        await stage.provider.aclose()
        await stage.provider.destroy(spec)

    @staged
    async def test_another_process_reaches_a_shared_machine(self, stage: Stage) -> None:
        second = self.make_second_provider(stage.spec.folder.parent.parent, stage.provider)
        reached = await second.reach(stage.spec)
        if not stage.provider.capabilities.shared:
            assert reached is None
            return
        assert reached is not None
        assert (await stage.execute("echo hi", machine=reached)).stdout == b"hi\n"
        await stage.write("both", b"1")
        assert await stage.read("both", machine=reached) == b"1"
        await second.aclose()
        assert stage.machine.alive, "who only reached a machine must not end it"

    @staged
    async def test_nobody_reaches_a_machine_that_is_not_there(self, stage: Stage) -> None:
        second = self.make_second_provider(stage.spec.folder.parent.parent, stage.provider)
        assert await second.reach(self._neighbour(stage)) is None
        await stage.machine.stop()
        assert await second.reach(stage.spec) is None
        await second.aclose()

    @staged
    async def test_a_new_uid_is_not_taken(self, stage: Stage) -> None:
        first = stage.provider.allocate_uid(frozenset())
        if first is not None:
            assert first > 0
            assert stage.provider.allocate_uid(frozenset({first})) not in (first, None)

    @staged
    async def test_the_report_is_about_the_walls_there_are(self, stage: Stage) -> None:
        report = await stage.provider.report()
        assert (report.provider, report.usable) == (stage.provider.name, True)
        names = [wall.name for wall in report.walls]
        assert len(names) == len(set(names))
        assert set(names) <= {wall.name for wall in WALLS}
        assert all(wall.detail for wall in report.walls if wall.state != "up")

    # --- usage -------------------------------------------------------------------------------------------------

    @staged
    async def test_usage_counts_bytes_and_files(self, stage: Stage) -> None:
        before = await stage.machine.usage(1000, 10**9)
        assert before.complete
        for n in range(5):
            await stage.write(f"sub/{n}", b"x" * 100_000, parents=True)
        after = await stage.machine.usage(1000, 10**9)
        assert after.complete
        assert 500_000 <= after.bytes - before.bytes <= 600_000
        assert 5 <= after.files - before.files <= 5 + ENTRY_SLACK

    @staged
    async def test_usage_past_a_ceiling_is_seen(self, stage: Stage) -> None:
        for n in range(30):
            await stage.write(str(n), b"x" * 1000)
        by_files = await stage.machine.usage(10, 10**9)
        assert by_files.files > 10 or not by_files.complete
        by_bytes = await stage.machine.usage(1000, 5000)
        assert by_bytes.bytes > 5000 or not by_bytes.complete

    @staged
    async def test_headroom_is_told(self, stage: Stage) -> None:
        free_bytes, free_files = stage.machine.headroom_hint()
        assert free_bytes > 0
        assert free_files > 0

    # --- ports -------------------------------------------------------------------------------------------------

    @staged_with("ports")
    async def test_a_port_is_reached(self, stage: Stage) -> None:
        server = await self._serve(stage)
        stream = await stage.machine.connect(scripts.PORT)
        await stream.send(b"hello")
        assert await stream.receive() == b"hello"
        await stream.send_eof()
        assert await stream.receive() == b""
        await stream.aclose()
        await server.kill()

    @staged_with("ports")
    async def test_much_passes_a_port_both_ways(self, stage: Stage) -> None:
        server = await self._serve(stage)
        data = bytes(range(256)) * 4096
        echoes = await asyncio.gather(*(_echoed(stage.machine, data) for _ in range(3)))
        assert all(echo == data for echo in echoes)
        await server.kill()

    @staged_with("ports")
    async def test_a_port_where_nobody_listens(self, stage: Stage) -> None:
        with pytest.raises(PortUnreachable):
            await stage.machine.connect(scripts.PORT)

    @staged_with("ports")
    async def test_a_port_closes_with_its_server(self, stage: Stage) -> None:
        server = await self._serve(stage)
        stream = await stage.machine.connect(scripts.PORT)
        await stream.send(b"x")
        await stream.receive()
        await server.kill()
        with pytest.raises(PortUnreachable):
            await stage.machine.connect(scripts.PORT)
        await stream.aclose()

    @staged_with("ports")
    async def test_a_number_that_is_no_port(self, stage: Stage) -> None:
        for port in (0, -1, 65536, 65536 + scripts.PORT):
            with pytest.raises(HutchError):
                await stage.machine.connect(port)

    @staged_with("listen")
    async def test_the_host_answers_on_a_port_of_the_sandbox(self, stage: Stage) -> None:
        async with contextlib.aclosing(await stage.machine.listen(scripts.PORT)) as listener:
            assert listener.port == scripts.PORT
            calls = [asyncio.create_task(stage.execute(scripts.CALL_HOST)) for _ in range(3)]
            for number in range(3):
                stream = await listener.accept()
                heard = b""
                while piece := await stream.receive():
                    heard += piece
                assert heard == b"from inside"
                await stream.send(b"to number %d" % number)
                await stream.aclose()
            assert sorted(result.stdout for result in await asyncio.gather(*calls)) == [
                b"to number 0",
                b"to number 1",
                b"to number 2",
            ]
        assert (await stage.execute(scripts.CALL_HOST)).exit.exit_code == 1, "a closed port answers nobody"

    @staged_with("listen")
    async def test_a_port_that_is_taken_cannot_be_listened_on(self, stage: Stage) -> None:
        server = await self._serve(stage)
        with pytest.raises(FileConflict):
            await stage.machine.listen(scripts.PORT)
        await server.kill()
        for port in (0, -1, 65536):
            with pytest.raises(HutchError):
                await stage.machine.listen(port)

    @staged_with("listen")
    async def test_a_listener_ends_with_its_machine_and_when_it_is_closed(self, stage: Stage) -> None:
        closed, left = await stage.machine.listen(scripts.PORT), await stage.machine.listen(scripts.PORT + 1)
        for end, listener in ((closed.aclose, closed), (stage.machine.stop, left)):
            waiting = asyncio.create_task(listener.accept())
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await end()
            with pytest.raises(SandboxUnavailable):
                await waiting
            with pytest.raises(SandboxUnavailable):
                await listener.accept()
            await listener.aclose()

    async def _serve(self, stage: Stage) -> Process:
        sink = Collector()
        process = await stage.start(scripts.ECHO_SERVER, sink)
        await sink.shows(b"ready\n")
        return process


async def _echoed(machine: Machine, data: bytes) -> bytes:
    stream = await machine.connect(scripts.PORT)
    sending = asyncio.create_task(_send_all(stream, data))
    received = bytearray()
    while piece := await stream.receive():
        received += piece
    await sending
    await stream.aclose()
    return bytes(received)


async def _send_all(stream: ByteStream, data: bytes) -> None:
    await stream.send(data)
    await stream.send_eof()
