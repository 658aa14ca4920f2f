"""The bash tool of agents: files brought first, results a model can act on, users who never meet."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from hutch.model.errors import DriveFileNotFound, HutchError, NoActiveSession, SessionExpiredError
from hutch.tools import BashTools, abind, bind, end_conversation, get_sandbox_client, system_prompt
from hutch.tools.answers import MODEL_BYTES
from tests.client_rig import settings_of

pytestmark = pytest.mark.once
HANG = 90.0


@dataclass
class Context:
    user_id: str | None = "ana@example.com"
    thread_id: str | None = "talk"
    session_id: str | None = None


@dataclass
class Runtime:
    context: Any
    config: Any = None


@pytest.fixture(autouse=True, scope="module")
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with settings_of(tmp_path_factory.mktemp("bash-tool")):
        yield


@pytest.fixture(autouse=True)
def _sessions_end() -> Iterator[None]:
    yield
    for session in get_sandbox_client().sessions():
        end_conversation(session["thread_id"])


def play(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG):
            await body()

    asyncio.run(bounded())


def tools_of(**options: Any) -> dict[str, Any]:
    return {tool.name: tool for tool in BashTools(**options).get_tools()}


class TestForLangChain:
    def test_models_see_no_runtime(self) -> None:
        from hutch.tools import download_sandbox_file, execute_bash_command

        assert set(execute_bash_command.args) == {"command", "file_paths", "working_dir"}
        assert set(download_sandbox_file.args) == {"filename", "save_path"}

    @pytest.mark.parametrize(
        ("runtime", "says"),
        [
            (None, "Runtime context not provided"),
            (Runtime(Context(thread_id=None)), "No thread_id in context"),
            (Runtime(Context(user_id=None)), "No user_id in context"),
            (Runtime(None), "No thread_id in context"),
        ],
    )
    def test_without_a_caller_nothing_runs(self, runtime: Any, says: str) -> None:
        async def body() -> None:
            answer = await tools_of()["execute_bash_command"].ainvoke({"command": "echo hi", "runtime": runtime})
            assert answer == {"status": "error", "error": says}

        play(body)
        assert get_sandbox_client().sessions() == []

    @pytest.mark.parametrize(
        "runtime",
        [
            Runtime(Context()),
            Runtime(Context(thread_id=None, session_id="talk")),
            Runtime({"user_id": "ana@example.com", "thread_id": "talk", "session_id": "other"}),
            Runtime({"user_id": "ana@example.com"}, {"configurable": {"thread_id": "talk"}}),
        ],
    )
    def test_the_thread_is_found(self, runtime: Any) -> None:
        async def body() -> None:
            arguments = {"command": "echo hi; exit 3", "runtime": runtime}
            answer = await tools_of()["execute_bash_command"].ainvoke(arguments)
            assert answer["execution_time_ms"] >= 0
            del answer["execution_time_ms"]
            assert answer == {
                "status": "error",
                "exit_code": 3,
                "return_code": 3,
                "stdout": "hi\n",
                "stderr": "",
                "uploaded_files": [],
                "session_status": "created",
            }

        play(body)
        assert [(one["thread_id"], one["template"]) for one in get_sandbox_client().sessions()] == [("talk", "bash")]

    def test_an_agent_of_langgraph_calls_it(self) -> None:
        from langchain_core.messages import AIMessage
        from langgraph.graph import END, START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode

        call = {"name": "execute_bash_command", "args": {"command": "echo $((6*7))"}, "id": "1", "type": "tool_call"}
        graph = StateGraph(MessagesState, context_schema=Context)
        graph.add_node("tools", ToolNode(list(tools_of().values())))
        graph.add_edge(START, "tools").add_edge("tools", END)

        async def body() -> None:
            state: Any = {"messages": [AIMessage("", tool_calls=[call])]}
            answer = await graph.compile().ainvoke(state, context=Context())
            assert '"stdout": "42\\n"' in answer["messages"][-1].content

        play(body)

    def test_a_string_where_a_list_was_asked_for(self) -> None:
        async def body() -> None:
            await abind("ana@example.com", "talk").write_file("/data/a b.txt", "x")
            tool = tools_of()["execute_bash_command"]
            for paths in ("/data/a b.txt", '["/data/a b.txt"]', ["/data/a b.txt"]):
                arguments = {"command": "cat 'a b.txt'", "file_paths": paths, "runtime": Runtime(Context())}
                assert (await tool.ainvoke(arguments))["stdout"] == "x", paths
            wrong = await tool.ainvoke({"command": ["ls"], "runtime": Runtime(Context())})
            assert wrong.startswith("ERROR: invalid_request: execute_bash_command was called wrongly: command")

        play(body)


class TestFiles:
    def test_a_missing_one_is_named_and_nothing_runs(self) -> None:
        tools = bind(secrets.token_hex(4), "t")
        tools.write_file("/data/there.txt", "x")
        answer = tools.execute_bash_command("touch ran", ["/data/there.txt", "/data/gone.txt"])
        assert (answer["status"], answer["code"], answer["exit_code"]) == ("error", DriveFileNotFound.code, -1)
        assert "/data/gone.txt" in answer["error"]
        assert tools.execute_bash_command("ls -A")["stdout"] == ""

    def test_two_of_one_name_both_arrive(self) -> None:
        tools = bind(secrets.token_hex(4), "t")
        tools.write_file("/data/a.txt", "data")
        tools.write_file("/scripts/a.txt", "script")
        answer = tools.execute_bash_command("cat data/a.txt scripts/a.txt", ["/data/a.txt", "/scripts/a.txt"])
        assert (answer["stdout"], answer["uploaded_files"]) == ("datascript", ["data/a.txt", "scripts/a.txt"])

    def test_paths_that_lead_elsewhere(self) -> None:
        tools = bind(secrets.token_hex(4), "t")
        for path in ("../../etc/passwd", "relative", "", "/a\0b"):
            assert tools.execute_bash_command("ls", [path])["status"] == "error", path
        for folder in ("../../gone", "nowhere"):
            assert tools.execute_bash_command("ls", working_dir=folder)["status"] == "error", folder
        for filename, path in (("../x", "/x"), ("/etc/passwd", "/x"), ("gone", "/x")):
            assert tools.download_sandbox_file(filename, path)["status"] == "error", filename
        assert tools.ls("/") == []

    def test_bytes_go_there_and_back(self) -> None:
        user = secrets.token_hex(4)
        tools = bind(user, "t")
        data = bytes(range(256)) * 40
        tools.write_file("/in.bin", data)
        assert tools.execute_bash_command("cat in.bin > out.bin", "/in.bin")["exit_code"] == 0
        assert tools.download_sandbox_file("out.bin", "/out.bin")["size_bytes"] == len(data)
        assert get_sandbox_client().drive_of(user).read_file("/out.bin") == data
        with pytest.raises(HutchError):
            tools.read_file("/out.bin")
        assert "�" in tools.execute_bash_command("cat in.bin")["stdout"]

    def test_plain_functions_of_the_drive(self) -> None:
        tools = bind(secrets.token_hex(4), "t")
        assert tools.write_file("/notes/a.md", "one two") == "/notes/a.md"
        assert tools.edit_file("/notes/a.md", "two", "2") == 1
        assert tools.read_file("/notes/a.md") == "one 2"
        assert (tools.ls("/"), tools.glob("**/*.md")) == (["/notes/"], ["/notes/a.md"])
        assert [match["line"] for match in tools.grep("one")] == [1]
        tools.delete("/notes/a.md")
        with pytest.raises(FileNotFoundError):
            tools.read_file("/notes/a.md")

    def test_files_of_a_store_and_of_a_backend(self) -> None:
        from deepagents.backends import StoreBackend

        store = InMemoryStore()
        backend = StoreBackend(store=store, namespace=lambda _: ("ana", "filesystem"))

        async def body() -> None:
            await backend.awrite("/data/a.txt", "grün")
            for files in (store, backend):
                tools = BashTools(files=files)
                answer = await tools.run(
                    "ana", "t", "cat a.txt; printf '\\xff' > b.bin; echo ok > c.txt", ["/data/a.txt"]
                )
                assert (answer["stdout"], answer["uploaded_files"]) == ("grün", ["a.txt"])
                assert (await tools.save("ana", "t", "c.txt", "/out/c.txt"))["size_bytes"] == 3
                found = await tools.run("ana", "t", "cat c.txt", "/out/c.txt")
                assert found["stdout"] == "ok\n"
                missing = await tools.run("ana", "t", "touch ran", ["/data/a.txt", "/none"])
                assert missing["status"] == "error"
                assert "/none" in missing["error"]
                assert "ran" not in (await tools.run("ana", "t", "ls"))["stdout"]
            await BashTools(files=store).save("ana", "t", "b.bin", "/out/b.bin")
            assert (await BashTools(files=store).run("ana", "t", "wc -c < b.bin", "/out/b.bin"))["stdout"] == "1\n"
            stranger = await BashTools(files=store).run("eve", "of-eve", "cat a.txt", "/data/a.txt")
            assert stranger["status"] == "error"

        play(body)


class TestResults:
    def test_what_may_not_run_is_told(self) -> None:
        answer = bind("u", "t").execute_bash_command("wget https://example.com")
        assert (answer["status"], answer["code"], answer["return_code"]) == ("error", "command_rejected", -1)
        assert "wget" in answer["error"]
        assert answer["command"] == "wget https://example.com"

    def test_time_outs_and_limits(self) -> None:
        answer = asyncio.run(BashTools(timeout=0.3).run("u", "t", "echo before; while true; do :; done"))
        assert (answer["exit_code"], answer["timed_out"], answer["stdout"]) == (124, True, "before\n")

    def test_ten_megabytes_of_output(self) -> None:
        tools = bind(secrets.token_hex(4), "t")
        command = 'python3 -c \'print("é" * 8_000_000); print("the end")\'; ls nothing'
        answer = tools.execute_bash_command(command)
        assert len(answer["stdout"].encode()) + len(answer["stderr"].encode()) < MODEL_BYTES + 1000
        assert answer["stdout"].endswith("é\nthe end\n")
        assert "�" not in answer["stdout"]
        note = next(line for line in answer["stdout"].splitlines() if line.startswith("[…"))
        path = note.partition(" in /workspace/")[2].partition(":")[0].partition(" ")[0]
        assert "The first 10," in note
        assert tools.execute_bash_command(f"wc -c < {path}")["stdout"] == f"{10 * 2**20}\n"
        assert "No such file" in answer["stderr"]
        for _ in range(20):
            tools.execute_bash_command("python3 -c 'print(\"x\" * 200_000)'")
        assert int(tools.execute_bash_command("ls .output | wc -l")["stdout"]) <= 17  # old ones go
        assert tools.execute_bash_command("ls")["stdout"] == ""

    def test_a_session_that_expired_gets_its_files_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tools = bind(secrets.token_hex(4), "t")
        tools.write_file("/a.txt", "again")
        assert tools.execute_bash_command("cat a.txt", "/a.txt")["session_status"] == "created"
        assert tools.execute_bash_command("cat a.txt")["session_status"] == "existing"
        once_for_real = BashTools._once
        calls: list[str] = []

        async def once(self: BashTools, *arguments: Any) -> dict[str, Any]:
            if not calls:  # it goes just as the command is on its way
                calls.append("expired")
                await asyncio.to_thread(end_conversation, "t")
                raise SessionExpiredError("gone")
            return await once_for_real(self, *arguments)

        monkeypatch.setattr(BashTools, "_once", once)
        answer = tools.execute_bash_command("cat a.txt", "/a.txt")
        assert (answer["stdout"], answer["session_recreated"], answer["session_status"]) == ("again", True, "created")

    def test_two_calls_at_once_and_one_that_is_cancelled(self) -> None:
        tools = abind("u", "t")

        async def body() -> None:
            await tools.write_file("/a.txt", "x")
            calls = [tools.execute_bash_command(f"tr x y < a.txt; echo {n}", "/a.txt") for n in range(4)]
            assert [one["stdout"] for one in await asyncio.gather(*calls)] == [f"y{n}\n" for n in range(4)]
            call = asyncio.create_task(tools.execute_bash_command("echo x > began; while true; do :; done"))
            while "began" not in (await tools.execute_bash_command("ls"))["stdout"]:
                await asyncio.sleep(0.02)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            client = get_sandbox_client().for_thread("u", "t")
            running = await asyncio.to_thread(client.processes)
            assert [process for process in running if process["status"] == "running"] == []

        play(body)


class TestTheOneClient:
    def test_fifty_users_never_meet(self) -> None:
        failures: list[str] = []

        def plain(number: int) -> None:
            client = get_sandbox_client()
            with_pause = threading.Event()
            client.get_or_create_session(user_id=f"user{number}", thread_id=f"thread{number}")
            for turn in range(2):
                client.upload_file_from_bytes(f"{turn}.txt", str(number).encode())
                with_pause.wait(0.01)
                seen = client.execute("cat *.txt; ls | wc -l")["stdout"]
                if seen != f"{str(number) * (turn + 1)}{turn + 1}\n":
                    failures.append(f"{number}: {seen}")

        async def by_tool(number: int) -> None:
            tools = abind(f"user{number}", f"thread{number}")
            await tools.write_file("/mine.txt", f"{number};")
            for turn in range(2):
                seen = (await tools.execute_bash_command("cat mine.txt >> all; cat all", "/mine.txt"))["stdout"]
                if seen != f"{number};" * (turn + 1):
                    failures.append(f"{number}: {seen}")

        async def body() -> None:
            await asyncio.gather(
                *(asyncio.to_thread(plain, number) for number in range(25)),
                *(by_tool(number) for number in range(25, 50)),
            )

        play(body)
        assert failures == []
        with pytest.raises(NoActiveSession):
            get_sandbox_client().execute("echo hi")

    def test_it_is_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert get_sandbox_client() is get_sandbox_client()
        assert get_sandbox_client().mode == "local"
        monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
        assert get_sandbox_client().mode == "remote"
        monkeypatch.setenv("SANDBOX_MODE", "local")
        assert get_sandbox_client().mode == "local"

    def test_the_end_of_a_conversation(self) -> None:
        client = get_sandbox_client()
        client.get_or_create_session(user_id="u", thread_id="mine")
        bind("other", "theirs").execute_bash_command("echo hi")
        end_conversation("theirs")
        end_conversation("never-there")
        assert [one["thread_id"] for one in client.sessions()] == ["mine"]
        assert client.thread_id == "mine"
        with pytest.raises(ValueError):
            end_conversation("")

    def test_another_users_thread(self) -> None:
        bind("one", "t").execute_bash_command("echo secret > s.txt")
        answer = bind("two", "t").execute_bash_command("cat s.txt")
        assert (answer["status"], answer["code"], answer["stdout"]) == ("error", "thread_owned_by_other", "")


def test_the_prompt_says_what_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = system_prompt()
    assert len(text) < 3000
    assert "256 MB of memory, 100 MB a file, 500 MB and 1,000 files" in text
    assert " jq, " in text
    assert "curl" not in text
    with settings_of(tmp_path / "other", MAX_FILE_SIZE_MB="7", DEFAULT_COMMAND_TIMEOUT="9", MEMORY_LIMIT="2g"):
        changed = system_prompt()
    assert "9 s a command, 2 GB of memory, 7 MB a file" in changed
    assert "any program" in system_prompt("open")
