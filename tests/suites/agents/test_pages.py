"""The how-to pages of these frameworks, and their examples, as they stand."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox
from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import TypedDict

from hutch import AsyncSandboxClient
from tests.client_rig import settings_of
from tests.suites.agents.scripted_model import ScriptedModel

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def data(tmp_path: Path) -> Iterator[Path]:
    with settings_of(tmp_path):
        yield tmp_path


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / f"docs/how-to/{page}.md").read_text(), re.DOTALL)


class Context(TypedDict):
    user_id: str


async def test_deepagents(data: Path) -> None:
    first, many_users = blocks("deepagents")
    write = [
        ("write_file", {"file_path": "/memories/a.md", "content": "kept"}),
        ("execute", {"command": "echo $((6*7))"}),
    ]
    client = AsyncSandboxClient(policy="open")
    names: dict[str, Any] = {"model": ScriptedModel(turns=[write, "Done."]), "client": client}
    exec(compile(first, "deepagents.md", "exec"), names)
    await names["agent"].ainvoke({"messages": [("user", "Go.")]})
    assert "42" in str(names["model"].told()[1].content)
    assert await client.drive_of("ada").read_text("/memories/a.md") == "kept"

    names |= {"model": ScriptedModel(turns=["Hello."]), "checkpointer": InMemorySaver(), "Context": Context}
    names["messages"] = {"messages": [("user", "Go.")]}
    setup, _, call = many_users.partition("await ")
    exec(compile(setup, "deepagents.md", "exec"), names)
    done = await eval(compile(call.strip(), "deepagents.md", "eval"), names)
    assert done["messages"][-1].content == "Hello."


@pytest.fixture
def streams_of_inspect() -> Iterator[None]:
    """It leaves some open; they shall be found at the end of the test that made them."""
    yield
    gc.collect()


@solver
def looking() -> Solver:
    """What the model of the page would do."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output.completion = (await sandbox().exec(["sh", "-c", "sort fruit.txt | uniq -d"])).stdout
        return state

    return solve


@pytest.mark.usefixtures("streams_of_inspect")
@pytest.mark.filterwarnings("ignore:Exception ignored in.*MemoryObject:pytest.PytestUnraisableExceptionWarning")
def test_inspect(data: Path) -> None:
    """But for the model, which has no network here."""
    (block,) = blocks("inspect")
    ours = block.replace("generate()]", "looking()]").replace(
        'eval(task, model="openai/gpt-5")', 'log = eval(task, model="mockllm/model", log_dir=logs)[0]'
    )
    names: dict[str, Any] = {"logs": str(data / "logs"), "looking": looking}
    exec(compile(ours, "inspect.md", "exec"), names)
    log = names["log"]
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1


def test_the_example_runs(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/deep_agent.py")], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "in the drive   Sold: 142.5" in done.stdout
