"""The examples and pages of agent frameworks, with a script in the place of the model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from agents.models.multi_provider import MultiProvider
from agents.testing import ScriptedModel, assistant_message, function_call

from tests.example_rows import EXAMPLES, OF_AGENTS, run
from tests.suites.agents.messages_api import messages_api, use

pytestmark = pytest.mark.once

PAGES = EXAMPLES.parent / "docs/how-to"
LINES = 10


def program(page: str) -> str:
    """The first Python of a page: no longer than was promised."""
    found = re.search(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    assert len([line for line in found[1].splitlines() if line.strip()]) <= LINES
    return found[1]


@pytest.fixture
def claude(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "home"),
        "DISABLE_AUTOUPDATER": "1",
    }


@pytest.mark.parametrize("name", sorted(OF_AGENTS.keys() - {"claude_agent.py"}))
def test_an_example_runs(name: str, shared_data_dir: Path) -> None:
    assert OF_AGENTS[name] in run(name, shared_data_dir, OPENAI_API_KEY="", HF_TOKEN="").splitlines()


def test_the_claude_example_runs(tmp_path: Path, claude: dict[str, str]) -> None:
    squares = "for n in $(seq 10); do echo $((n * n)); done > squares.txt"
    with messages_api([use("mcp__sandbox__execute", command=squares)]) as api:
        printed = run("claude_agent.py", tmp_path / "data", ANTHROPIC_BASE_URL=api.url, **claude)
    assert OF_AGENTS["claude_agent.py"] in printed.splitlines()


@pytest.mark.usefixtures("data_dir")
def test_the_openai_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command = function_call("exec_command", {"cmd": "ls /usr/bin/jq"}, call_id="1")
    model = ScriptedModel([[command], [assistant_message("jq")]])
    monkeypatch.setattr(MultiProvider, "get_model", lambda *_: model)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    exec(program("openai-agents.md"), {})
    assert capsys.readouterr().out == "jq\n"
    assert model.last_call is not None
    assert "/usr/bin/jq" in str(model.last_call.input)


@pytest.mark.usefixtures("data_dir")
def test_the_claude_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], claude: dict[str, str]
) -> None:
    with messages_api([use("mcp__sandbox__execute", command="ls /usr/bin/jq")]) as api:
        for name, value in {**claude, "ANTHROPIC_BASE_URL": api.url}.items():
            monkeypatch.setenv(name, value)
        exec(program("claude-agent.md"), {})
        assert api.results() == [("/usr/bin/jq\n", False)]
    assert capsys.readouterr().out == "done\n"


@pytest.mark.usefixtures("shared_data_dir")
def test_the_smolagents_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("smolagents.InferenceClientModel", _Answers)
    exec(program("smolagents.md"), {})
    assert capsys.readouterr().out.endswith("129\n")


class _Answers:
    """As much of a model as an agent needs."""

    model_id = "scripted"

    def generate(self, *_: Any, **__: Any) -> Any:
        from smolagents import ChatMessage, MessageRole

        return ChatMessage(role=MessageRole.ASSISTANT, content="<code>\nfinal_answer(129)\n</code>")
