"""`client.code` in real sandboxes: what a notebook's cell does, and what becomes of it."""

from __future__ import annotations

import base64
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hutch import SandboxClient
from hutch.engine.assemble import Engine
from hutch.engine.homes import HOMES
from hutch.engine.interpreter.trees import Trees
from hutch.model.code import CodeResult
from hutch.settings import read_settings
from tests.client_rig import client_of
from tests.tree_rig import SHARED, with_trees

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxClient]:
    with client_of(with_trees(tmp_path_factory.mktemp("code") / "data")) as made:
        yield made


def shown(result: CodeResult) -> dict[str, Any]:
    """The one output there is."""
    assert result["error"] is None, result["error"]
    [output] = result["outputs"]
    return output["data"]


def test_a_cell_does_what_a_notebooks_does(client: SandboxClient) -> None:
    run = client.code.run
    assert run("!echo shell; exit 3")["stdout"].split() == ["shell"]
    assert sorted(run("import os; os.system('echo child'); print('own')")["stdout"].split()) == ["child", "own"]
    assert shown(run("import asyncio; await asyncio.sleep(0.01, 'waited')")) == {"text/plain": "'waited'"}
    assert "Wall time" in run("%time sum(range(10))")["stdout"]
    assert "Docstring" in run("len?")["stdout"]
    assert run("%%writefile made.txt\nhello")["error"] is None
    assert client.files.read("made.txt") == b"hello\n"
    asked = run("input('name? ')")
    assert asked["error"] is not None
    assert "input" in asked["error"]["value"]
    wrong = run("def f(:")
    assert wrong["error"] is not None
    assert wrong["error"]["name"] == "SyntaxError"
    assert [one["name"] for one in client.files.list()] == ["made.txt"]  # an interpreter leaves nothing of its own


def test_what_is_shown_comes_in_every_form_it_has(client: SandboxClient) -> None:
    run = client.code.run
    image = shown(run(f"import base64; from IPython.display import *; Image(data=base64.b64decode('{PNG}'))"))
    assert image["image/png"].strip() == PNG
    table = "class Table:\n def _repr_html_(self): return '<table/>'\nTable()"
    assert shown(run(table))["text/html"] == "<table/>"
    assert shown(run("JSON({'a': [1, None]})"))["application/json"] == {"a": [1, None]}
    assert shown(run("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"))["image/svg+xml"].startswith("<svg")
    several = run("display(1); display(2); 3")
    assert [(one["type"], one["data"]["text/plain"]) for one in several["outputs"]] == [
        ("display", "1"),
        ("display", "2"),
        ("result", "3"),
    ]


def test_calls_on_one_context_take_turns(client: SandboxClient) -> None:
    handle, said = client.for_thread("tester", "rig"), list[str]()

    def call(number: int) -> None:
        said.append(handle.code.run(f"import time; time.sleep(0.1); print({number})")["stdout"])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [f"{number}\n" for number in range(4)]


def test_who_leaves_interrupts_the_code_and_its_state_stays(client: SandboxClient) -> None:
    def leave(_: object) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        client.code.run("kept = 1\nprint('x', flush=True)\nwhile True: pass", timeout=50, on_output=leave)
    after = client.code.run("kept")
    assert shown(after) == {"text/plain": "1"}
    assert not after["context_restarted"]


def _stop_idle(engine: Engine) -> Any:
    async def stop() -> None:
        for live in list(engine.sandboxes.live.values()):
            await engine.sandboxes.stop(live, only_idle=True)

    return stop()


def test_contexts_end_with_an_idle_sandbox_and_say_so(client: SandboxClient) -> None:
    client.code.run("before = 1")
    other = client.code.create_context()["context_id"]
    home = HOMES.get(read_settings())
    home.thread.run(home.do(_stop_idle))
    assert {one["status"] for one in client.code.contexts()} == {"stopped"}
    for context in (None, other):
        again = client.code.run("'before' in globals()", context=context)
        assert shown(again) == {"text/plain": "False"}
        assert again["context_restarted"]
    assert not client.code.run("1")["context_restarted"]
    client.code.close_context(other)


def test_the_tree_can_be_read_and_nothing_else(client: SandboxClient) -> None:
    write = "import os\nfor at in ('/opt/hutch/x', os.path.dirname(__import__('zmq').__file__) + '/x'):\n open(at, 'w')"
    refused = client.code.run(write)
    assert refused["error"] is not None
    assert refused["error"]["name"] == "OSError"
    assert client.execute("touch /opt/hutch/x")["exit_code"] != 0
    mounts = client.execute("cat /proc/self/mountinfo")["stdout"]
    assert "/opt/hutch" in mounts
    data = str(read_settings().data_dir)
    assert not [line for line in mounts.splitlines() if data in line or str(SHARED) in line]
    strict = SandboxClient(policy="strict").for_thread("tester", "strict")
    assert strict.execute("ls /opt")["exit_code"] != 0
    strict.close_session()


def test_a_sandbox_older_than_the_tree_gets_it(tmp_path: Path) -> None:
    with client_of(tmp_path / "data") as older:
        assert older.execute("ls /opt/hutch")["stdout"] == ""
        with_trees(tmp_path / "elsewhere")
        name = Trees(SHARED).name()
        shutil.copytree(SHARED / name, tmp_path / "data" / "trees" / name, copy_function=_link)
        assert shown(older.code.run("40 + 2")) == {"text/plain": "42"}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
