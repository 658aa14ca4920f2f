"""The client contract: what stays open. Shells on a terminal, connections to ports, watches."""

from __future__ import annotations

import asyncio

import pytest

from hutch.model.errors import InvalidRequest, NotSupported, PortUnreachable, ProcessEnded
from hutch.testing import contract_scripts as scripts
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged


class OpenContract(ClientContractStage):
    @staged
    async def test_a_shell_lives_and_ends(self, stage: Stage) -> None:
        client = await stage.bound()
        shell = await client.open_shell(rows=30, columns=100)
        await shell.resize(40, 120)
        for rows, columns in ((0, 80), (24, 100_000)):
            with pytest.raises(InvalidRequest):
                await shell.resize(rows, columns)
        assert await shell.wait(timeout=0.05) is None
        await shell.send("echo it-$((40 + 2))\r")
        shown = b""
        async for piece in shell.output():
            shown += piece
            if b"it-42" in shown:
                break
        await shell.send(b"exit 7\r")
        ended = await shell.wait(timeout=20)
        assert ended is not None
        assert ended["exit_code"] == 7
        with pytest.raises(ProcessEnded):
            await shell.send("echo late\r")
        assert shell.process_id in {one["process_id"] for one in await client.processes()}
        await shell.aclose()

    @staged
    async def test_a_command_runs_on_a_terminal(self, stage: Stage) -> None:
        client = await stage.bound()
        for pty, shown in (((30, 100), b"yes\n"), (None, b"")):
            started = await client.start(scripts.ON_TERMINAL, pty=pty, leftovers="keep")
            assert started["pty"] is (pty is not None)
            printed = b"".join([event["data"] async for event in client.attach(started["process_id"])])
            assert printed.replace(b"\r\n", b"\n") == shown

    @staged
    async def test_leaving_a_shell_ends_it(self, stage: Stage) -> None:
        client = await stage.bound()
        async with await client.open_shell(cwd="/workspace") as shell:
            process = shell.process_id
        ended = await client.wait(process, 10)
        assert ended is not None
        assert (await client.info())["processes"] == 0

    @staged
    async def test_a_connection_carries_bytes_both_ways(self, stage: Stage) -> None:
        client = await stage.bound()
        server = await client.start(scripts.ECHO_SERVER)
        async for event in client.attach(server["process_id"]):
            if b"ready" in event["data"]:
                break
        data = bytes(range(256)) * 40
        async with await client.connect(scripts.PORT) as connection:
            await connection.send(data)
            echoed = b""
            while len(echoed) < len(data):
                piece = await connection.receive(1000)
                assert 0 < len(piece) <= 1000
                echoed += piece
            await connection.send_eof()
            assert await connection.receive() == b""
        assert echoed == data
        with pytest.raises(PortUnreachable):
            await client.connect(1)
        with pytest.raises(InvalidRequest):
            await client.connect(0)

    @staged
    async def test_a_preview_has_an_address_where_there_is_a_server(self, stage: Stage) -> None:
        client = await stage.bound()
        if client.mode == "local":
            with pytest.raises(NotSupported, match="hutch serve"):
                await client.preview(3000)
            return
        for port, seconds in ((0, None), (65536, None), (3000, 0), (3000, 1e9)):
            with pytest.raises(InvalidRequest):
                await client.preview(port, expires_in=seconds)
        made, other = await client.preview(3000), await client.preview(8080, expires_in=60)
        assert made["token"] in made["url"]
        assert made["token"] not in made["address"]
        assert made["expires_at"] > other["expires_at"]
        ids = [made["token_id"], other["token_id"]]
        assert [one["token_id"] for one in await client.previews()] == ids
        await client.revoke_preview(8080, token_id=made["token_id"])  # of another port: nothing happens
        assert [one["token_id"] for one in await client.previews()] == ids
        await client.revoke_preview(8080)
        await client.revoke_preview(8080)
        assert [one["port"] for one in await client.previews()] == [3000]

    @staged
    async def test_a_watch_tells_of_changes(self, stage: Stage) -> None:
        client = await stage.bound()
        writer = client.for_thread("u", "t")
        process = (await writer.start("sleep 0.3; echo x > seen.txt; sleep 20"))["process_id"]
        async for event in client.files.watch(recursive=True):
            assert event["path"] == "seen.txt"
            assert event["is_directory"] is False
            break
        await writer.kill(process)

    @staged
    async def test_one_task_waits_while_another_acts(self, stage: Stage) -> None:
        """Only where calls do not hold the loop up: the sync classes are tested with threads of their own."""
        client = await stage.bound()
        if type(client).__name__ == "_Face":
            return
        process = (await client.start("cat", stdin=True))["process_id"]
        waiting = asyncio.create_task(client.wait(process))
        await asyncio.sleep(0.05)
        await client.close_input(process)
        assert (await waiting) is not None
