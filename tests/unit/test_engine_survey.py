"""Looking at an engine changes nothing in it."""

from __future__ import annotations

from pathlib import Path

from hutch.testing.fake_process import Running
from hutch.testing.fake_provider import FakeProvider
from tests.unit.engine_stage import Stage, play


def test_a_look_in_the_midst_of_a_command_does_not_hide_the_limit_it_passes(tmp_path: Path) -> None:
    provider = FakeProvider()

    async def body(stage: Stage) -> None:
        async def fill(me: Running) -> None:
            for number in range(6):
                me.computer.tree.write(f"file{number}", b"x")
            assert (await stage.engine.surveyor.take()).workspace_files == 6

        provider.on("echo fill", fill)
        sandbox = await stage.session(template="bash")
        assert (await stage.run(sandbox, "echo fill"))["limit"] == "files"

    play(tmp_path, body, provider, max_total_files=3)


def test_a_workspace_is_weighed_when_it_was_used_and_remembered_while_it_sleeps(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        take = stage.engine.surveyor.take
        sandbox = await stage.session()
        await stage.write(sandbox, "a", b"x" * 100)
        assert (await take()).workspace_bytes == 100
        stage.machine(sandbox).tree.write("b", b"x" * 10)  # nobody used it: not worth a look
        assert (await take()).workspace_bytes == 100
        await stage.run(sandbox, "echo hi")
        assert (await take()).workspace_bytes == 110
        await stage.engine.sandboxes.stop(stage.live(sandbox))
        found = await take()
        assert (found.sessions, found.sandboxes_running, found.workspace_bytes) == (1, 0, 110)
        await stage.engine.sessions.close("local", sandbox)
        found = await take()
        assert (found.sessions, found.workspaces, found.workspace_bytes) == (0, 0, 0)

    play(tmp_path, body)
