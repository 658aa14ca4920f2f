"""An adapter whose framework is not installed says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "framework", "extra"),
    [
        ("claude_agent", "claude_agent_sdk", "claude-agent"),
        ("openai_agents", "agents", "openai-agents"),
        ("smolagents", "smolagents", "smolagents"),
    ],
)
def test_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, adapter: str, framework: str, extra: str) -> None:
    for name in [name for name in sys.modules if name.startswith(f"hutch.tools.{adapter}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'hutch\[{extra}\]'"):
        importlib.import_module(f"hutch.tools.{adapter}")
