"""A deep agent from end to end: a scripted model, commands in a sandbox, files in a drive, approval, PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypedDict

import pytest
import pytest_asyncio
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend
from langchain.agents.middleware import InterruptOnConfig
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.types import Command

from hutch import AsyncSandboxClient
from hutch.tools.deepagents import ARTIFACTS_ROOT, HutchDrive, HutchSandbox
from tests.client_rig import settings_of
from tests.postgres_rig import Postgres
from tests.suites.agents.scripted_model import ScriptedModel, Turn


class Context(TypedDict):
    user_id: str


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AsyncSandboxClient]:
    with settings_of(tmp_path_factory.mktemp("data")):
        yield AsyncSandboxClient(policy="open")


@pytest_asyncio.fixture
async def saver(postgres: Postgres) -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncPostgresSaver.from_conn_string(postgres.new_database()) as saver:
        await saver.setup()
        yield saver


class Agent:
    """One graph for everybody, as a backend has it; `thread` of `user` is one conversation."""

    def __init__(self, client: AsyncSandboxClient, saver: AsyncPostgresSaver, *turns: Turn, approval: bool = False):
        self.model = ScriptedModel(turns=list(turns))
        backend = CompositeBackend(
            default=HutchSandbox(client),
            routes={"/memories/": HutchDrive(client, root="/memories")},
            artifacts_root=ARTIFACTS_ROOT,
        )
        self.graph: Any = create_deep_agent(
            self.model,
            backend=backend,
            checkpointer=saver,
            context_schema=Context,
            interrupt_on={"execute": InterruptOnConfig(allowed_decisions=["approve", "edit", "reject"])}
            if approval
            else None,
        )

    async def say(self, said: Any, *, thread: str, user: str = "ada") -> dict[str, Any]:
        inputs = {"messages": [("user", said)]} if isinstance(said, str) else said
        answer = await self.graph.ainvoke(inputs, {"configurable": {"thread_id": thread}}, context={"user_id": user})
        return dict(answer)

    def results(self) -> list[str]:
        """What the tools of the last turn answered."""
        return [str(message.content) for message in self.model.told() if isinstance(message, ToolMessage)]


def decisions(*each: dict[str, Any]) -> Command[Any]:
    return Command(resume={"decisions": list(each)})


def interrupted(answer: dict[str, Any]) -> Sequence[dict[str, Any]]:
    requests: Sequence[dict[str, Any]] = answer["__interrupt__"][0].value["action_requests"]
    return requests


async def test_a_person_approves_edits_and_rejects(client: AsyncSandboxClient, saver: AsyncPostgresSaver) -> None:
    thread = uuid.uuid4().hex
    orders = '[{"amount": 45.5}, {"amount": 67}, {"amount": 30}]'
    first = Agent(
        client,
        saver,
        [("write_file", {"file_path": "/workspace/orders.json", "content": orders})],
        [("execute", {"command": "jq 'map(.amount) | add' /workspace/orders.json"})],
        approval=True,
    )
    waiting = await first.say("What was sold?", thread=thread)
    assert [request["name"] for request in interrupted(waiting)] == ["execute"]

    # Another process goes on: all it has is the database, the drive and the sandbox.
    second = Agent(
        client,
        saver,
        [("execute", {"command": "rm -rf /workspace/*"}), ("execute", {"command": "echo one"})],
        [("execute", {"command": "ls /workspace"})],
        [("write_file", {"file_path": "/memories/sales.md", "content": "142.5 in May"})],
        "142.5 were sold.",
        approval=True,
    )
    waiting = await second.say(decisions({"type": "approve"}), thread=thread)
    assert second.results()[0].startswith("142.5\n")
    assert len(interrupted(waiting)) == 2
    edited = {"type": "edit", "edited_action": {"name": "execute", "args": {"command": "echo two > /workspace/two"}}}
    waiting = await second.say(decisions({"type": "reject", "message": "Never."}, edited), thread=thread)
    rejected, changed = second.results()
    assert "Never." in rejected
    assert "exit code 0" in changed
    done = await second.say(decisions({"type": "approve"}), thread=thread)
    assert done["messages"][-1].content == "142.5 were sold."
    handle = client.for_thread("ada", thread)
    assert (await handle.execute("ls; cat two"))["stdout"] == "orders.json\ntwo\ntwo\n"
    assert await client.drive_of("ada").read_text("/memories/sales.md") == "142.5 in May"
    await handle.close_session()


async def test_memory_is_a_users_and_a_sandbox_a_threads(client: AsyncSandboxClient, saver: AsyncPostgresSaver) -> None:
    look = [
        ("read_file", {"file_path": "/memories/me.md"}),
        ("execute", {"command": "cat /workspace/me.txt /memories/me.md"}),
    ]

    async def conversation(user: str, *turns: Turn) -> list[str]:
        agent = Agent(client, saver, *turns, look, "Done.")
        await agent.say("Go on.", thread=uuid.uuid4().hex, user=user)
        return agent.results()

    def write(user: str) -> Turn:
        return [
            ("write_file", {"file_path": "/memories/me.md", "content": f"I am {user}"}),
            ("write_file", {"file_path": "/workspace/me.txt", "content": f"box of {user}\n"}),
        ]

    users = [f"user {number}@example.com" for number in range(4)]
    firsts = await asyncio.gather(*(conversation(user, write(user)) for user in users))
    for user, (memory, box) in zip(users, firsts, strict=True):
        assert f"I am {user}" in memory
        assert box.startswith(f"box of {user}\n")
        assert "No such file" in box  # commands do not see the drive
    memory, box = await conversation(users[0])
    assert f"I am {users[0]}" in memory
    assert "box of" not in box  # another thread, another sandbox
    memory, _ = await conversation("a stranger")
    assert "not found" in memory


@pytest.mark.parametrize("composite", [True, False])
async def test_large_results_stay_out_of_the_conversation(
    client: AsyncSandboxClient, saver: AsyncPostgresSaver, composite: bool
) -> None:
    root = ARTIFACTS_ROOT if composite else ""
    agent = Agent(
        client,
        saver,
        [("execute", {"command": "seq 1 100000"}), ("execute", {"command": "yes 0123456789 | head -c 10000000"})],
        [
            ("read_file", {"file_path": f"{root}/large_tool_results/call_1_0", "offset": 99_998, "limit": 9}),
            ("execute", {"command": "head -c 50000 /dev/zero | tr '\\0' x; exit 3"}),
        ],
        "Done.",
    )
    if not composite:
        agent.graph = create_deep_agent(agent.model, backend=HutchSandbox(client), checkpointer=saver)
    await agent.say("Print.", thread=uuid.uuid4().hex)
    assert all(len(str(message.content)) < 100_000 for turn in agent.model.seen for message in turn)
    counted, large = (message for message in agent.model.seen[1] if isinstance(message, ToolMessage))
    for result in (counted, large):
        assert "too large" in str(result.content)
        assert len(str(result.content)) < 10_000
        assert result.artifact["exit_code"] == 0
        assert result.artifact["output_file"].startswith(f"{root}/large_tool_results/call_1_")
    page, fifty = agent.results()
    assert "99999" in page
    assert "100000" in page
    assert "exit code 3" in fifty


async def test_a_sandbox_that_expired_in_mid_conversation(
    client: AsyncSandboxClient, saver: AsyncPostgresSaver
) -> None:
    """The model is told, once, that its files are gone, and goes on."""
    thread = uuid.uuid4().hex
    agent = Agent(client, saver, [("write_file", {"file_path": "/workspace/a.txt", "content": "a"})], "Stored.")
    await agent.say("Store it.", thread=thread)
    await client.for_thread("ada", thread).close_session()
    agent.model.turns += [
        [("read_file", {"file_path": "/workspace/a.txt"})],
        [("write_file", {"file_path": "/workspace/a.txt", "content": "again"})],
        [("execute", {"command": "cat a.txt"})],
        "There it is.",
    ]
    done = await agent.say("Read it.", thread=thread)
    assert done["messages"][-1].content == "There it is."
    told = [str(message.content) for message in agent.model.seen[-1] if isinstance(message, ToolMessage)]
    assert "session_expired" in told[1]
    assert told[3].startswith("again")


async def test_a_cancelled_run_leaves_nothing_running(client: AsyncSandboxClient, saver: AsyncPostgresSaver) -> None:
    thread = uuid.uuid4().hex
    agent = Agent(client, saver, [("execute", {"command": "echo > begun; sleep 300; echo > ended"})])
    running = asyncio.create_task(agent.say("Wait.", thread=thread))
    box = HutchSandbox(client, user_id="ada", thread_id=thread)
    while (await box.aread("/workspace/begun")).error:
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await box.aexecute("pgrep -c sleep; ls")).output == "0\nbegun\n"


async def test_two_calls_at_once_and_calls_that_make_no_sense(
    client: AsyncSandboxClient, saver: AsyncPostgresSaver
) -> None:
    agent = Agent(
        client,
        saver,
        [("execute", {"command": f"echo {number}; sleep 0.2; echo {number}"}) for number in range(4)],
        [
            ("read_file", {"file_path": "/workspace/../../etc/passwd"}),
            ("execute", {"command": "if true"}),
            ("execute", {"command": "echo x", "timeout": 100_000}),
            ("edit_file", {"file_path": "/workspace/none", "old_string": "a", "new_string": "b"}),
            ("grep", {"pattern": "x", "path": "/workspace/none"}),
        ],
        "Done.",
    )
    await agent.say("Go.", thread=uuid.uuid4().hex)
    at_once = [str(message.content) for message in agent.model.seen[1] if isinstance(message, ToolMessage)]
    assert [text.split("\n")[:2] for text in at_once] == [[str(number)] * 2 for number in range(4)]
    climbed, broken, long, missing, nowhere = agent.results()
    assert "root:" not in climbed
    assert "not bash" in broken
    assert "rror" in long
    assert "not found" in missing
    assert "path_not_found" in nowhere
