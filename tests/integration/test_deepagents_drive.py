"""HutchDrive over a real drive: deepagents' contract, users apart, and the same files as `client.drive`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends import CompositeBackend
from deepagents.backends.protocol import BackendProtocol, SandboxBackendProtocol

from hutch import AsyncSandboxClient
from hutch.model.errors import InvalidRequest, NoActiveSession
from hutch.tools.deepagents import ARTIFACTS_ROOT, HutchDrive, HutchSandbox
from tests.client_rig import settings_of

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AsyncSandboxClient]:
    with settings_of(tmp_path_factory.mktemp("data")):
        yield AsyncSandboxClient(policy="open")


@pytest.fixture
def drive(client: AsyncSandboxClient, request: pytest.FixtureRequest) -> HutchDrive:
    return HutchDrive(client, user_id=f"{request.node.name}@example.com")


def paths(found: Any) -> list[str]:
    assert found.error is None, found
    return [one["path"] for one in (found.entries if hasattr(found, "entries") else found.matches)]


def test_a_file_from_first_write_to_deletion(drive: HutchDrive) -> None:
    assert drive.write("/notes/a.md", "one\r\ntwo\r\n").path == "/notes/a.md"
    assert drive.write("/notes/a.md", "one\r\ntwo\r\nthree").error is None  # writing overwrites
    page = drive.read("/notes/a.md", 1, 1)
    assert page.file_data == {"content": "two", "encoding": "utf-8"}
    assert (page.total_lines, page.start_line, page.end_line, page.next_offset) == (3, 2, 2, 2)
    assert drive.edit("/notes/a.md", "one\ntwo", "1\n2").occurrences == 1
    assert drive.download_files(["/notes/a.md"])[0].content == b"1\r\n2\r\nthree"
    assert paths(drive.ls("/")) == ["/notes"]
    assert drive.delete("/notes").path == "/notes"
    assert drive.delete("/notes").error == "Error: '/notes' not found"
    assert drive.read("/notes/a.md").error == "File '/notes/a.md' not found"
    assert paths(drive.ls("/")) == []


def test_what_models_get_wrong(drive: HutchDrive) -> None:
    drive.write("/d/a.txt", "a a")
    drive.upload_files([("/d/b.bin", b"\xff\x00"), ("/d/p.png", b"PNG"), ("/d/empty", b"")])
    assert "multiple times" in (drive.edit("/d/a.txt", "a", "b").error or "")
    assert "not found in file" in (drive.edit("/d/a.txt", "zz", "b").error or "")
    assert "cannot be empty" in (drive.edit("/d/a.txt", "", "b").error or "")
    assert "not a text file" in (drive.edit("/d/b.bin", "a", "b").error or "")
    assert "not found" in (drive.edit("/d/none", "a", "b").error or "")
    assert drive.edit("/d/a.txt", "a", "b", replace_all=True).occurrences == 2
    assert drive.edit("/d/a.txt", "b b", "\ud800").error is not None
    assert drive.read("/d/b.bin").file_data == {"content": "/wA=", "encoding": "base64"}
    assert drive.read("/d/p.png").file_data == {"content": "UE5H", "encoding": "base64"}
    assert "empty contents" in str(drive.read("/d/empty").file_data)
    assert "path_rejected" in (drive.read("/d").error or "")
    assert drive.write("/d", "x").error is not None
    assert drive.write("/x/../d/a.txt", "x").error is not None
    assert drive.ls("/none").error == "Path '/none': path_not_found"
    assert drive.glob("*", "/none").error == "Path '/none': path_not_found"
    assert drive.grep("a", "/none").error == "Path '/none': path_not_found"
    uploads = drive.upload_files([("relative", b""), ("/d", b""), ("/ok", b"1"), ("/../x", b"")])
    assert [one.error for one in uploads] == ["invalid_path", uploads[1].error, None, "invalid_path"]
    assert uploads[1].error is not None
    downloads = drive.download_files(["relative", "/none", "/d", "/ok"])
    assert [one.error for one in downloads] == ["invalid_path", "file_not_found", "invalid_path", None]


@pytest.mark.parametrize(
    ("pattern", "path", "wanted"),
    [
        ("*.py", None, ["/.hid/x.py", "/a.py", "/src/b.py", "/src/deep/c.py"]),
        ("**/*.py", "/", ["/a.py", "/src/b.py", "/src/deep/c.py"]),
        ("/*.py", "/", ["/a.py"]),
        ("*.{py,md}", "/src", ["/src/b.py", "/src/deep/c.py", "/src/r.md"]),
        ("deep/*", "/src", ["/src/deep/c.py"]),
        ("[!a]*.py", "/", ["/.hid/x.py", "/src/b.py", "/src/deep/c.py"]),
        (".env", "/", ["/.env"]),
        ("none", "/", []),
    ],
)
def test_patterns(drive: HutchDrive, pattern: str, path: str | None, wanted: list[str]) -> None:
    names = ["/.env", "/.hid/x.py", "/a.py", "/src/b.py", "/src/deep/c.py", "/src/r.md"]
    drive.upload_files([(name, b"say TODO\n") for name in names])
    assert sorted(paths(drive.glob(pattern, path))) == wanted
    found = drive.grep("TODO", path, pattern)
    assert sorted(paths(found)) == wanted
    assert drive.glob("../*").error is not None
    assert drive.grep("TODO", "/", "../*").error is not None


def test_grep_is_literal_and_counts(drive: HutchDrive) -> None:
    drive.write("/a", "x.y\nxzy\nx.y\n")
    drive.write("/b", "x.y")
    assert [(one["path"], one["line"]) for one in drive.grep("x.y").matches or []] == [("/a", 1), ("/a", 3), ("/b", 1)]
    for most, cut in ((2, True), (3, False), (4, False)):
        found = drive.grep("x.y", max_count=most)
        assert (len(found.matches or []), found.truncated) == (min(most, 3), cut)
    assert drive.grep("x\ny").error is not None


def test_a_route_is_a_folder_of_the_drive(client: AsyncSandboxClient) -> None:
    memories = HutchDrive(client, user_id="routed", root="/memories")
    assert paths(memories.ls("/")) == []
    assert paths(memories.glob("*")) == []
    assert paths(memories.grep("x")) == []
    both = CompositeBackend(
        default=HutchSandbox(client, user_id="routed", thread_id="routed"),
        routes={"/memories/": memories},
        artifacts_root=ARTIFACTS_ROOT,
    )
    both.write("/memories/.dot/AGENTS.md", "be kind")
    both.write("/workspace/a.txt", "be quick")
    stored = asyncio.run(client.drive_of("routed").read_text("/memories/.dot/AGENTS.md"))
    assert stored == "be kind"
    assert {one["path"] for one in both.grep("be ").matches or []} == {"/memories/.dot/AGENTS.md", "/workspace/a.txt"}
    assert "/memories/.dot/AGENTS.md" in paths(both.glob("*.md"))
    assert "/memories/.dot" in [path.rstrip("/") for path in paths(both.ls("/memories"))]
    assert both.delete("/memories/.dot/AGENTS.md").error is None
    assert not isinstance(memories, SandboxBackendProtocol)  # no command would ever run in it
    with pytest.raises(InvalidRequest, match="root"):
        HutchDrive(client, root="memories/..")


def test_users_do_not_meet(client: AsyncSandboxClient) -> None:
    """One object for all users, and ids that are other people's names for folders."""
    users = ["ada", "ada/b", "ada@example.com", "auth0|1", "ada*", "../ada"]
    for user in users:
        HutchDrive(client, user_id=user).write("/mine", user)
    for user in users:
        drive = HutchDrive(client, user_id=user)
        assert paths(drive.glob("*")) == ["/mine"]
        assert drive.download_files(["/mine"])[0].content == user.encode()
    with pytest.raises(NoActiveSession, match="user"):
        HutchDrive(client).read("/mine")


def test_the_run_says_whose(client: AsyncSandboxClient) -> None:
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    class State(TypedDict):
        said: str

    class Context(TypedDict):
        user_id: str

    shared: BackendProtocol = HutchDrive(client)

    async def work(state: State) -> State:
        before = (await shared.adownload_files(["/mine"]))[0].content or b""
        await shared.awrite("/mine", state["said"])
        return {"said": before.decode()}

    graph = StateGraph(State, context_schema=Context).add_node("work", work)
    graph.add_edge(START, "work").add_edge("work", END)
    compiled: Any = graph.compile()

    async def run(user: str, said: str) -> str:
        return str((await compiled.ainvoke({"said": said}, context={"user_id": user}))["said"])

    async def all_at_once() -> list[str]:
        await asyncio.gather(*(run(f"user {number}", f"I am {number}") for number in range(8)))
        return await asyncio.gather(*(run(f"user {number}", "again") for number in range(8)))

    assert asyncio.run(all_at_once()) == [f"I am {number}" for number in range(8)]


def test_a_full_drive_is_told_with_both_numbers(tmp_path: Path) -> None:
    with settings_of(tmp_path, HUTCH_DRIVE_QUOTA="1m"):
        drive = HutchDrive(AsyncSandboxClient(policy="open"), user_id="ada")
        error = drive.write("/large", "x" * 2_000_000).error or ""
        assert "limit_exceeded" in error
        assert drive.write("/small", "x").error is None
