"""The integration guide that users were given: its examples run as they are written, on the real provider.

The guide lies beside the checkout, not in it. Where it is absent its calls, written down below, still run.
"""

from __future__ import annotations

import logging
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hutch
from hutch import BashTool, SandboxClient, SessionExpiredError
from hutch.engine.homes import HOMES
from hutch.settings import read_settings

GUIDE = Path(__file__).parents[2].parent / "shared" / "mission" / "002_53bb42fd23307a35.txt"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# The blocks that local mode is promised for, by a piece of text that only they hold.
BLOCKS = {
    "quick start": "# Execute commands (files persist across commands!)",
    "bash tool": "class BashTool:",
    "error handling": "from sandbox_client_v2 import SessionExpiredError\nimport requests",
    "file operations": "# Process in sandbox",
    "clean-up and context manager": "# Context manager (auto-cleanup)",
    "resource limits": "# Check workspace usage",
    "auto-retry": "# Enable auto-retry (default)",
    "migration from a worker": "# Files persist! No heredoc needed",
    "migration from V1": "# Automatic session management",
}


@pytest.fixture
def _data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HUTCH_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    yield
    HOMES.get(read_settings()).close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _data_folder: None) -> dict[str, Any]:
    """The names that the guide's blocks leave undefined."""
    local = tmp_path / "local"
    local.mkdir()
    (local / "data.csv").write_text("".join(f"{number},value\n" for number in range(20)))
    requests = types.ModuleType("requests")
    requests.HTTPError = type("HTTPError", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "requests", requests)
    client = SandboxClient(mode="local")
    client.get_or_create_session(user_id="user123", thread_id="guide")
    client.upload_file_from_bytes("output.csv", b"a,b\n")
    return {
        "SandboxClient": SandboxClient,
        "client": client,
        "command": "echo hi",
        "logger": logging.getLogger("guide"),
        "local": local,
        "MAX_TOTAL_FILES": 1000,
        "MAX_WORKSPACE_SIZE_MB": 500,
        "__name__": "guide",
    }


def block(name: str) -> str:
    found = [text for text in BLOCK.findall(GUIDE.read_text()) if BLOCKS[name] in text]
    assert len(found) == 1, f"the guide has {len(found)} blocks of {name!r}"
    return str(found[0])


def run(text: str, names: dict[str, Any]) -> None:
    """As written, but for the module's name and the folder of local files."""
    text = text.replace("from sandbox_client_v2 import", "from hutch import").replace("/local/", f"{names['local']}/")
    exec(compile(text, "guide", "exec"), names)


def prepare(name: str, names: dict[str, Any]) -> None:
    if name == "bash tool":  # it reads a file of the conversation it names
        other = SandboxClient()
        other.get_or_create_session("user123", "conversation_abc")
        other.upload_file_from_bytes("input.json", b'{"data": [1, 2, 3]}')


def check(name: str, names: dict[str, Any], printed: str) -> None:
    match name:
        case "quick start":
            assert printed == "6\n\nTotal files: 1\n"
        case "bash tool":
            assert printed == "Exit code: 0\nOutput: 3\n\n"
            assert set(names["result"]) == {"exit_code", "stdout", "stderr", "execution_time_ms"}
        case "error handling" | "migration from V1":
            pass
        case "file operations":
            assert names["result"]["stdout"].count("\n") == 5
            assert (names["local"] / "output.csv").read_text() == "a,b\n"
        case "clean-up and context manager":
            assert names["client"].session_id is None
        case "resource limits":
            assert printed == "Files: 1/1000\nSize: 0.00 MB / 500 MB\n"
        case "auto-retry":
            assert names["result"]["stdout"] == "hi\n"
        case "migration from a worker":
            assert names["result"]["stdout"] == "6\n"


@pytest.mark.skipif(not GUIDE.is_file(), reason="the guide does not lie beside this checkout")
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_the_guide(name: str, world: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    text = block(name)
    if name == "auto-retry":  # its second half is a line of an .env file
        text = text.partition("# Or increase session timeout")[0]
    prepare(name, world)
    run(text, world)
    check(name, world, capsys.readouterr().out)


class TestTheGuidesCalls:
    """What the blocks call, in our own words: kept where the guide is absent."""

    def test_files_stay_in_a_conversation(self, world: dict[str, Any]) -> None:
        client = SandboxClient(mode="local")
        client.get_or_create_session(user_id="user123", thread_id="conversation")
        client.execute("echo '{\"data\": [1,2,3]}' > data.json")
        assert client.execute("jq '.data | add' data.json")["stdout"] == "6\n"
        assert client.list_files()["total_files"] == 1
        client.close_session()

    def test_the_bash_tool_of_the_package_is_a_drop_in(self, world: dict[str, Any]) -> None:
        tool = BashTool(mode="local")
        result = tool.execute(command="echo hi", user_id="user123", thread_id="guide", timeout=30)
        assert (result["exit_code"], result["stdout"], result.get("execution_time_ms", -1) >= 0) == (0, "hi\n", True)
        tool.upload_file(str(world["local"] / "data.csv"), "user123", "guide", remote_name="in.csv")
        assert tool.download_file("in.csv", "user123", "guide", local_path=str(world["local"] / "back.csv"))
        assert (world["local"] / "back.csv").read_text() == (world["local"] / "data.csv").read_text()
        assert tool.list_files("user123", "guide")["total_files"] == 2
        tool.cleanup_session("guide")

    def test_errors_are_caught_as_the_guide_catches_them(self, world: dict[str, Any]) -> None:
        client = world["client"]
        with pytest.raises(ValueError, match="wget"):
            client.execute("wget https://example.com/data.json")
        with pytest.raises(ValueError, match="No active session"):
            SandboxClient(mode="local").execute("echo hi")
        client.for_thread("user123", "guide").close_session()
        with pytest.raises(SessionExpiredError):
            client.execute("echo hi", auto_retry=False)
        assert client.execute("echo hi", auto_retry=True)["stdout"] == "hi\n"

    def test_every_name_the_guide_imports_is_there(self) -> None:
        assert {"SandboxClient", "SessionExpiredError"} <= set(hutch.__all__)

    def test_the_context_manager_cleans_up(self, world: dict[str, Any]) -> None:
        with SandboxClient(mode="local") as client:
            client.get_or_create_session(user_id="...", thread_id="...")
            assert client.execute("ls -lh")["exit_code"] == 0
        assert [one["thread_id"] for one in world["client"].sessions()] == ["guide"]
