"""Sandboxes as other programs find them: by the names they look for, in the ways they call."""

from __future__ import annotations

import gc
import sys
from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from blockbuster import BlockBuster
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox

from hutch import SandboxClient
from tests.client_rig import settings_of


@pytest.fixture(autouse=True)
def data(tmp_path: Path) -> Iterator[Path]:
    with settings_of(tmp_path):
        yield tmp_path


@pytest.fixture
def streams_of_inspect() -> Iterator[None]:
    """It leaves some open; they shall be found at the end of the test that made them."""
    yield
    gc.collect()


@solver
def counting() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        box = sandbox()
        counted = await box.exec(["sh", "-c", "sort fruit.txt | uniq -c | sort -rn | head -1; pwd"])
        state.output.completion = counted.stdout + (await box.connection()).command
        return state

    return solve


@pytest.mark.usefixtures("streams_of_inspect")
@pytest.mark.filterwarnings("ignore:Exception ignored in.*MemoryObject:pytest.PytestUnraisableExceptionWarning")
async def test_an_evaluation_runs_in_sandboxes_of_its_own(data: Path) -> None:
    """`sandbox="hutch"` and nothing else, as inspect's users write it."""
    samples = [
        Sample(input="?", target=f"2 {fruit}\n/workspace", files={"fruit.txt": f"kiwi\n{fruit}\nplum\n{fruit}\n"})
        for fruit in ("fig", "pear", "apple")
    ]
    task = Task(dataset=samples, solver=counting(), scorer=includes(), sandbox="hutch")
    (log,) = await eval_async(task, model="mockllm/model", log_dir=str(data / "logs"))
    assert log.status == "success", log.error
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1
    assert SandboxClient(policy="open").sessions() == []  # nothing is left behind


# --- deepagents-code, which wants older versions of deepagents and mcp than this environment has ---------------------


class SandboxProvider(ABC):  # noqa: B024  # as it is there
    """What dcode's interface is, as far as a provider sees it."""


@dataclass(frozen=True)
class SandboxProviderMetadata:
    name: str
    working_dir: str
    install: Any = None
    supports_sandbox_id: bool = True
    supports_snapshot_name: bool = False
    backend_module: str | None = None


@dataclass(frozen=True)
class SandboxInstallHint:
    kind: str
    name: str


class SandboxNotFoundError(Exception):
    pass


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("deepagents_code.integrations.sandbox_provider")
    for one in (SandboxProvider, SandboxProviderMetadata, SandboxInstallHint, SandboxNotFoundError):
        setattr(module, one.__name__, one)
    for name in ("deepagents_code", "deepagents_code.integrations"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "hutch.tools.deepagents.code_provider", raising=False)
    (found,) = entry_points(group="deepagents_code.sandbox_providers", name="hutch")
    return found.load()()


@pytest.fixture
def detector() -> Iterator[None]:
    """As `langgraph dev` arms it, but for less: locks are what it leaves to everybody."""
    armed = BlockBuster()
    for name in ("threading.Lock.acquire", "threading.Lock.acquire_lock"):
        armed.functions.pop(name).deactivate()
    armed.activate()
    yield
    armed.deactivate()


async def test_dcode_makes_finds_and_deletes_sandboxes_where_nothing_may_block(provider: Any, detector: None) -> None:
    assert (provider.metadata.name, provider.metadata.working_dir) == ("hutch", "/workspace")
    box = provider.get_or_create(timeout=5)
    assert (await box.aexecute("pwd")).output == "/workspace\n"
    assert (await box.awrite("/workspace/a.txt", "x")).error is None
    assert (await box.aedit("/workspace/a.txt", "x", "kept")).error is None
    assert [one["path"] for one in (await box.aglob("*.txt")).matches] == ["/workspace/a.txt"]
    assert (await box.agrep("kept")).matches
    again = provider.get_or_create(sandbox_id=box.id)
    assert (await again.aread("/workspace/a.txt")).file_data["content"] == "kept"
    provider.delete(sandbox_id=box.id)
    provider.delete(sandbox_id=box.id)
    with pytest.raises(SandboxNotFoundError, match=box.id):
        provider.get_or_create(sandbox_id=box.id)
    with pytest.raises(TypeError, match="snapshot"):
        provider.get_or_create(snapshot="x")
