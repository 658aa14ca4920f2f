"""The OpenAI Agents SDK: what stays of a sandbox, whose it is, its ports, and the `ShellTool`."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import Agent, ShellTool
from agents.run_context import RunContextWrapper
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxPathGrant, User
from agents.sandbox.errors import (
    ConfigurationError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceStartError,
)
from agents.tool import ShellActionRequest, ShellCallData, ShellCommandRequest

from hutch.client.async_client import AsyncSandboxClient
from hutch.settings import Settings
from hutch.tools.openai_agents import HutchSandboxClient, HutchSandboxOptions, shell_executor
from tests.server_rig import served
from tests.suites.agents.killed import says_and_dies
from tests.suites.agents.openai_stage import started

pytestmark = pytest.mark.once


# -- snapshots, resume


async def test_a_snapshot_brings_everything_back(client: AsyncSandboxClient, tmp_path: Path) -> None:
    maker = HutchSandboxClient(client)
    session = await maker.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
    await session.start()
    # More than what is kept of a command's output.
    await session.exec(
        "head -c 70000000 /dev/urandom > big; mkdir -p 'odd\nname' d; echo x > 'odd\nname/-rf'; ln -s big l"
    )
    await session.exec("truncate -s 100M sparse; touch old; chmod 711 d; python3 -m http.server &")
    sums = (await session.exec("sha256sum big")).stdout
    await session.stop()
    payload = json.loads(json.dumps(maker.serialize_session_state(session.state)))
    await maker.delete(session)

    resumed = await maker.resume(maker.deserialize_session_state(payload))
    await resumed.start()
    assert (await resumed.exec("sha256sum big; stat -c %a d; readlink l; cat odd*/*")).stdout == sums + b"711\nbig\nx\n"
    assert int((await resumed.exec("stat -c %b sparse")).stdout) < 100, "holes stay holes"

    # It lives on: what changed since the snapshot gives way to it, whatever its name.
    await resumed.exec("touch 'new\nfile' && rm old")
    state = maker.deserialize_session_state(json.loads(json.dumps(maker.serialize_session_state(resumed.state))))
    again = await maker.resume(state)
    await again.start()
    assert (await again.exec("ls -A")).stdout.split() == b"big d l odd\nname old sparse".split()
    await maker.delete(again)


async def test_a_snapshot_without_end_is_cut_off(client: AsyncSandboxClient) -> None:
    async with started(client, maker={"most_archive_bytes": 100_000}) as session:
        await session.exec("head -c 1000000 /dev/zero > big")
        with pytest.raises(WorkspaceArchiveReadError) as refused:
            await session.persist_workspace()
        assert refused.value.context["code"] == "limit_exceeded"
        with pytest.raises(WorkspaceArchiveWriteError, match="tar"):
            await session.hydrate_workspace(io.BytesIO(b"this is no archive" * 1000))


async def test_a_killed_process_leaves_a_session_that_resumes(client: AsyncSandboxClient, data_dir: Path) -> None:
    said = says_and_dies(
        """
        from hutch.tools.openai_agents import HutchSandboxClient, HutchSandboxOptions
        maker = HutchSandboxClient()
        session = await maker.create(options=HutchSandboxOptions(user_id="ada", thread_id="t"))
        await session.start()
        await session.write("kept.txt", io.BytesIO(b"kept"))
        return json.dumps(maker.serialize_session_state(session.state))
        """,
        data_dir,
    )
    maker = HutchSandboxClient(client)
    session = await maker.resume(maker.deserialize_session_state(json.loads(said)))
    await session.start()
    assert await session.running()
    assert (await session.exec("cat kept.txt")).stdout == b"kept"
    await maker.delete(session)


# -- who, and what is refused


async def test_two_users_never_meet(client: AsyncSandboxClient) -> None:
    ada, bob = HutchSandboxOptions(user_id="ada"), HutchSandboxOptions(user_id="bob")
    async with started(client, options=ada) as hers, started(client, options=bob) as his:
        await asyncio.gather(hers.exec("echo hers > secret; sleep 0.2"), his.exec("echo his > secret; sleep 0.2"))
        assert (await hers.exec("cat secret")).stdout == b"hers\n"
        assert (await his.exec("cat secret; ls /workspace")).stdout == b"his\nsecret\n"
        theirs = HutchSandboxOptions(user_id="bob", thread_id=hers.state.thread_id)
        taken = await HutchSandboxClient(client).create(options=theirs)
        with pytest.raises(WorkspaceStartError) as refused:
            await taken.start()
        assert refused.value.context["code"] == "thread_owned_by_other"


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest(root="/srv"),
        Manifest(users=[User(name="other")]),
        Manifest(extra_path_grants=(SandboxPathGrant(path="/opt/data"),)),
    ],
)
async def test_what_a_sandbox_lacks_is_refused(client: AsyncSandboxClient, manifest: Manifest) -> None:
    with pytest.raises(ConfigurationError, match="Hutch sandbox"):
        await HutchSandboxClient(client).create(manifest=manifest)


async def test_the_strict_template_and_other_users_are_refused(client: AsyncSandboxClient) -> None:
    async with started(client) as session:
        with pytest.raises(ConfigurationError, match="one user"):
            await session.exec("id", user="root")
    session = await HutchSandboxClient(AsyncSandboxClient()).create()
    with pytest.raises(ConfigurationError, match="policy"):
        await session.start()


# -- ports


async def test_ports_have_no_address_without_a_server(client: AsyncSandboxClient) -> None:
    async with started(client, options=HutchSandboxOptions(exposed_ports=(3000,))) as session:
        with pytest.raises(ExposedPortUnavailableError) as refused:
            await session.resolve_exposed_port(3000)
        assert "hutch serve" in str(refused.value.context["detail"])


async def test_remotely_an_exposed_port_answers(tmp_path: Path) -> None:
    with served(Settings(data_dir=tmp_path)) as server:
        remote = AsyncSandboxClient("remote", server.url, api_key=server.key, policy="open")
        async with started(remote, options=HutchSandboxOptions(exposed_ports=(3000,))) as session:
            await session.exec("echo hello > index.txt; python3 -m http.server 3000 > /dev/null 2>&1 &")
            endpoint = await session.resolve_exposed_port(3000)
            url = endpoint.url_for("http").replace("/?", "/index.txt?")
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=3)) as http:
                for _ in range(500):
                    answer = await http.get(url.replace(endpoint.host, "127.0.0.1"), headers={"host": endpoint.host})
                    if answer.status_code == 200:
                        break
                    await asyncio.sleep(0.02)
            assert answer.text == "hello\n"
            archive = await session.persist_workspace()
            await session.exec("rm index.txt")
            await session.hydrate_workspace(archive)
            archive.close()
            assert (await session.exec("cat index.txt")).stdout == b"hello\n"
        await remote.aclose()


# -- the shell tool


async def shell(executor: Any, *commands: str, **wanted: Any) -> list[tuple[str, str, str, int | None]]:
    action = ShellActionRequest(commands=list(commands), **wanted)
    request = ShellCommandRequest(ctx_wrapper=RunContextWrapper(None), data=ShellCallData("1", action))
    result = await executor(request)
    return [(one.stdout, one.stderr, one.outcome.type, one.outcome.exit_code) for one in result.output]


async def test_the_shell_tool_runs_in_the_sandbox(client: AsyncSandboxClient) -> None:
    handle = client.for_thread("ada", "t")
    executor = shell_executor(handle)
    assert ShellTool(executor=executor).name == "shell"
    assert await shell(executor, "echo hi > f", "cat f; exit 2") == [("", "", "exit", 0), ("hi\n", "", "exit", 2)]
    timed = await shell(executor, "echo a; sleep 60", "echo never", timeout_ms=300)
    assert timed == [("a\n", "", "timeout", None)]
    long = await shell(executor, "seq 1 1000000")
    assert len(long[0][0]) < 101_000
    assert long[0][0].endswith("1000000\n")
    strict = await shell(shell_executor(AsyncSandboxClient().for_thread("ada", "s")), "rm -rf /")
    assert "ERROR: command_rejected" in strict[0][1]
    other = await shell(shell_executor(client.for_thread("bob", "t")), "cat f")
    assert "thread_owned_by_other" in other[0][1]
    assert Agent(name="a", tools=[ShellTool(executor=executor)]).tools
