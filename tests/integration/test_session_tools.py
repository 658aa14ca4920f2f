"""The 36 tools of a session, each by a real call in a real sandbox."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.tools_rig import MCP_PROGRAM, Hosts, Stage, hosts, stage_of

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]
Check = Callable[[str], bool]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, network: Hosts) -> Iterator[Stage]:
    servers = {
        "inside": {"command": "python3", "args": ["/workspace/server.py"]},
        "outside": {"url": f"{network.url}/mcp", "headers": {"Authorization": "Bearer canary-7431"}},
        "closed": {"url": f"{network.url}/mcp"},
        "nowhere": {"command": "no-such-program"},
    }
    folder = tmp_path_factory.mktemp("tools")
    with stage_of(folder, session_id="table", egress=[network.rule], mcp_servers=servers) as made:
        yield made


@dataclass(frozen=True)
class Row:
    """A call and what it must say. `first` are calls that make the ground for it."""

    arguments: Mapping[str, Any]
    says: str | Check
    first: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    needs: str | None = None  # a program of the machine
    also: Check = field(default=lambda _: True)


def _png(text: str) -> bool:
    marker, url = text.split("\n", 1)
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True)
    return marker == "[SCREENSHOT]" and data.startswith(b"\x89PNG")


A_FILE = (("file_write", {"file": "a/text.txt", "content": "one\ntwo\nthree\n"}),)
BACKGROUND = (("shell_exec", {"command": "while read line; do echo got $line; done", "background": True}),)
MAKE_REPOSITORY = """
rm -rf repo up.git; git init -qb main repo; git init -q --bare up.git; cd repo
git remote add origin /workspace/up.git; echo 1 > new.txt
"""
REPOSITORY = (("shell_exec", {"command": MAKE_REPOSITORY}),)
PAGE = (("browser_open", {"url": "data:text/html,<title>t</title><input id=i autofocus>"}),)
SERVER = (("file_write", {"file": "server.py", "content": MCP_PROGRAM}),)

TABLE: Mapping[str, Row] = {
    "file_read": Row({"file": "a/text.txt", "start_line": 1, "end_line": 2}, lambda text: text == "two\n", A_FILE),
    "file_write": Row({"file": "deep/er/b.bin", "content": "/wA=", "encoding": "base64"}, "Wrote 2 bytes"),
    "file_edit": Row({"file": "a/text.txt", "old_str": "two", "new_str": "2"}, "Replaced 1", A_FILE),
    "file_list": Row({"path": "a"}, "text.txt  14 bytes", A_FILE),
    "file_find": Row({"glob": "*.txt"}, "a/text.txt", A_FILE),
    "file_search": Row({"file": "a/text.txt", "regex": r"^t\w+$"}, "L2: two\nL3: three", A_FILE),
    "shell_exec": Row({"command": "echo out; echo err >&2; exit 3"},
                      lambda text: text == "[FAILED (exit 3)]\nout\nerr"),
    "shell_view": Row({}, "[RUNNING]", BACKGROUND),
    "shell_write": Row({"input": "line"}, "Sent 5 bytes", BACKGROUND),
    "shell_wait": Row({"seconds": 0.1}, "[RUNNING] still after 0.1 s", BACKGROUND),
    "shell_kill": Row({}, "Ended p", BACKGROUND),
    "python_execute": Row({"code": "print(kept); kept + 1"}, lambda text: text == "41\n42",
                          (("python_execute", {"code": "kept = 41"}),)),
    "javascript_execute": Row({"code": "console.log(6 * 7)"}, lambda text: text == "42\n", needs="node"),
    "browser_info": Row({}, "viewport: 1280x720", needs="chromium"),
    "browser_screenshot": Row({}, _png, needs="chromium"),
    "browser_action": Row({"action_type": "typing", "text": "abc"}, "Typed 3", PAGE, needs="chromium"),
    "mcp_list_servers": Row({}, "closed\ninside\nnowhere\noutside"),
    "mcp_list_tools": Row({"server_name": "inside"}, "add: Adds two numbers", SERVER),
    "mcp_execute": Row({"server_name": "inside", "tool_name": "add", "arguments": {"a": 2, "b": 3}},
                       lambda text: text == "5", SERVER),
    "grep": Row({"pattern": "THREE", "case_insensitive": True, "path": "a"}, "a/text.txt:3:three", A_FILE),
    "glob": Row({"pattern": "a/**/*.txt"}, "1 found\na/text.txt", A_FILE),
    "workspace_info": Row({}, "session_id: table\nworkspace_path: /workspace\ntemplate: open"),
    "workspace_health": Row({}, lambda text: text == "healthy"),
    "file_delete": Row({"file": "a"}, "Deleted /workspace/a", A_FILE),
    "shell_interactive": Row({"input": "pwd; echo $KEPT"}, "/workspace/a\nyes",
                             (*A_FILE, ("shell_interactive", {"input": "cd a; KEPT=yes"}))),
    "git_clone": Row({"url": "{url}/git", "path": "cloned"}, "Cloned"),
    "git_commit": Row({"message": "first", "path": "repo"}, "Committed ", REPOSITORY),
    "git_push": Row({"path": "repo"}, "Pushed to origin",
                    (*REPOSITORY, ("git_commit", {"message": "m", "path": "repo"}))),
    "git_status": Row({"path": "repo"}, "on main\n?? new.txt", REPOSITORY),
    "python_exec": Row({"code": "import sys\nprint(len(sys.argv), sys.stdin.read() == '')"}, "1 True"),
    "pip_install": Row({"packages": "hutch-test-package"}, "Successfully installed hutch-test-package-1.0",
                       (("env_set", {"name": "PIP_INDEX_URL", "value": "{url}/simple"}),)),
    "http_request": Row({"method": "GET", "url": "{url}/", "headers": {"x-asked": "you"}}, "<h1>Hello you</h1>"),
    "browser_open": Row({"url": "{url}/"}, "A page\n{url}/\n\nHello", needs="chromium"),
    "env_get": Row({"name": "SET_BEFORE"}, lambda text: text == "a b",
                   (("env_set", {"name": "SET_BEFORE", "value": "a b"}),)),
    "env_set": Row({"name": "ANOTHER", "value": "1"}, "Set ANOTHER"),
    "process_list": Row({}, "while read line", BACKGROUND),
}  # fmt: skip


def _filled(value: Any, network: Hosts) -> Any:
    if isinstance(value, str):
        return value.replace("{url}", network.url)
    return {name: _filled(one, network) for name, one in value.items()} if isinstance(value, Mapping) else value


def test_every_tool_has_a_row(stage: Stage) -> None:
    names = [tool.name for tool in stage.session.get_tools()]
    assert len(names) == 36
    assert set(names) == set(TABLE)
    for tool in stage.session.get_tools():
        assert tool.description
        assert all("type" in one or "anyOf" in one or "enum" in one for one in tool.args.values()), tool.args


@pytest.mark.parametrize("name", TABLE)
def test_a_real_call(name: str, stage: Stage, network: Hosts) -> None:
    row = TABLE[name]
    if row.needs is not None and shutil.which(row.needs) is None:
        pytest.skip(f"{row.needs} is not installed")
    for tool, arguments in row.first:
        assert not stage.call(tool, **_filled(arguments, network)).startswith("ERROR")
    answer = stage.call(name, **_filled(row.arguments, network))
    assert row.says(answer) if callable(row.says) else _filled(row.says, network) in answer, answer


def test_what_pip_brought_is_there_for_all_pythons(stage: Stage, network: Hosts) -> None:
    stage.call("env_set", name="PIP_INDEX_URL", value=f"{network.url}/simple")
    stage.call("pip_install", packages=["hutch-test-package"])
    code = "import hutch_test_package; print(hutch_test_package.VALUE)"
    assert stage.call("python_exec", code=code) == "installed\n"
    assert "installed" in stage.call("python_execute", code=code)


def test_a_host_without_a_rule_is_refused(stage: Stage, network: Hosts) -> None:
    answer = stage.call("http_request", method="GET", url="http://127.0.0.3:1/")
    assert "403" in answer, answer
    assert "127.0.0.3" in answer


def test_bodies_go_there_and_back(stage: Stage, network: Hosts) -> None:
    answer = stage.call("http_request", method="POST", url=f"{network.url}/echo", body="grün")
    assert answer.startswith("HTTP 200")
    assert answer.endswith("\n\ngrün")
    assert "[binary, 3 bytes" in stage.call("http_request", method="GET", url=f"{network.url}/binary")
    assert stage.call("http_request", method="GET", url=f"{network.url}/gone").startswith("HTTP 404")


class TestBrowser:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        if shutil.which("chromium") is None:
            pytest.skip("chromium is not installed")

    def test_a_page_is_used_by_mouse_and_keys(self, stage: Stage, network: Hosts) -> None:
        assert "A page" in stage.call("browser_open", url=f"{network.url}/")
        for arguments in (
            {"action_type": "click", "x": 120, "y": 110},
            {"action_type": "typing", "text": "wrong"},
            {"action_type": "hotkey", "keys": ["ctrl", "a"]},
            {"action_type": "typing", "text": "righ"},
            {"action_type": "press", "key": "t"},
            {"action_type": "scroll", "delta_y": 10},
            {"action_type": "press", "key": "Enter"},
            {"action_type": "wait", "duration": 0.2},
        ):
            assert not stage.call("browser_action", **arguments).startswith("ERROR")
        assert f"page: {network.url}/form?name=right" in stage.call("browser_info")
        assert "/form?name=right" in network.seen

    def test_wrong_actions_are_told(self, stage: Stage) -> None:
        assert stage.call("browser_action", action_type="click").startswith(
            "ERROR: invalid_request: click needs x and y"
        )
        assert "There is no key" in stage.call("browser_action", action_type="press", key="Any")
        assert "browser_action was called wrongly" in stage.call("browser_action", action_type="fly")
        assert stage.call("browser_open", url="file:///etc/passwd").startswith("ERROR: invalid_request")

    def test_one_that_died_is_started_again(self, stage: Stage) -> None:
        stage.call("browser_open", url="about:blank")
        stage.call("shell_exec", command="pkill -9 chromium; sleep 0.2")
        stage.call("browser_info")
        assert "viewport" in stage.call("browser_info")


class TestMcp:
    def test_a_server_outside_gets_its_secret_and_the_sandbox_does_not(self, stage: Stage) -> None:
        arguments = '{"a": 6, "b": 7}'  # an object, written as text
        assert stage.call("mcp_execute", server_name="outside", tool_name="add", arguments=arguments) == "42"
        assert "canary" not in stage.call("shell_exec", command="env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null")
        assert stage.call("mcp_list_tools", server_name="closed").startswith("ERROR: port_misbehaved")

    def test_one_that_ends_starts_again(self, stage: Stage) -> None:
        stage.call("file_write", file="server.py", content=MCP_PROGRAM)
        call = {"server_name": "inside", "tool_name": "add"}
        assert stage.call("mcp_execute", **call, arguments={"die": True}).startswith("ERROR: port_misbehaved")
        assert stage.call("mcp_execute", **call, arguments={"a": 1, "b": 1}) == "2"
        assert "Configured: closed, inside" in stage.call("mcp_list_tools", server_name="other")
        assert stage.call("mcp_list_tools", server_name="nowhere").startswith("ERROR: port_misbehaved")
