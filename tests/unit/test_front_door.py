"""The front door: what it offers, and how little it loads."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hutch
from hutch.client import async_bash_tool, async_batch, async_client, async_files, async_shell, sync_client
from hutch.model.errors import ERRORS

HEAVY = (
    *("anyio", "asyncio", "hypothesis", "multiprocessing", "pydantic", "pydantic_settings", "pyseccomp", "rich"),
    *("sqlite3", "ssl", "tree_sitter", "tree_sitter_bash", "typer", "ziglang", "http", "email", "inspect"),
)
PAIRS = [
    (async_client.AsyncSandboxClient, sync_client.SandboxClient),
    (async_batch.AsyncBatchSandboxClient, sync_client.BatchSandboxClient),
    (async_bash_tool.AsyncBashTool, sync_client.BashTool),
    (async_files.AsyncFiles, sync_client.Files),
    (async_shell.AsyncShell, sync_client.Shell),
    (async_shell.AsyncConnection, sync_client.Connection),
]
RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
ONLY_ASYNC = {"loop_thread", "open"}  # where plain code runs it; how a shell is made


def in_a_fresh_process(text: str) -> Any:
    """What `text` leaves in `answer`."""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"import sys\nsys.path[:0] = {sys.path!r}\n{text}\nimport json\nprint(json.dumps(answer))",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_importing_hutch_loads_next_to_nothing() -> None:
    text = "before = set(sys.modules)\nimport hutch\nanswer = sorted(set(sys.modules) - before)"
    loaded = set(in_a_fresh_process(text))
    assert "hutch" in loaded
    assert [name for name in loaded if name.startswith("hutch.")] == []
    assert sorted(name for name in HEAVY if name in loaded) == []


def test_the_first_client_does_not_load_what_it_does_not_need(tmp_path: Path) -> None:
    text = f"import hutch\nhutch.SandboxClient(data_dir={str(tmp_path)!r})\nanswer = sorted(sys.modules)"
    loaded = set(in_a_fresh_process(text))
    unwanted = {"typer", "rich", "pydantic", "fastapi", "sqlalchemy", "redis", "docker", "hutch.testing", "hutch.cli"}
    assert sorted(unwanted & loaded) == []


def test_errors_load_without_the_client() -> None:
    text = "from hutch import SessionExpiredError\nanswer = sorted(sys.modules)"
    assert [name for name in in_a_fresh_process(text) if name.startswith(("hutch.client", "hutch.engine"))] == []


@pytest.mark.parametrize("name", hutch.__all__)
def test_every_name_is_there(name: str) -> None:
    found = getattr(hutch, name)
    assert found.__name__ == name
    assert getattr(hutch, name) is found
    assert inspect.getdoc(found)


def test_every_error_is_at_the_front_door() -> None:
    assert {cls.__name__ for cls in ERRORS.values()} <= set(hutch.__all__)
    assert list(hutch.__all__) == sorted(hutch.__all__)
    assert dir(hutch) == sorted(hutch.__all__)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        hutch.Nonsense  # noqa: B018
    with pytest.raises(ImportError):
        exec("from hutch import Nonsense")


def public(kind: type) -> dict[str, Any]:
    return {
        RENAMED.get(name, name): value
        for name, value in vars(kind).items()
        if (not name.startswith("_") or name in (*RENAMED, *RENAMED.values())) and name not in ONLY_ASYNC
    }


def words_of(function: Any) -> list[tuple[str, Any, Any, str]]:
    """Names, kinds, defaults and types of arguments, and the result, in the words of the sync world."""
    signature = inspect.signature(function)
    arguments = [
        (one.name, one.kind, one.default, str(one.annotation).replace("Async", ""))
        for one in signature.parameters.values()
    ]
    result = str(signature.return_annotation).replace("AsyncIterator", "Iterator").replace("Async", "")
    return [*arguments, ("return", None, None, result)]


@pytest.mark.parametrize(("ours", "plain"), PAIRS, ids=lambda kind: kind.__name__)
def test_sync_and_async_have_the_same_methods(ours: type, plain: type) -> None:
    assert set(public(ours)) == set(public(plain))
    for name, method in public(ours).items():
        other = public(plain)[name]
        if isinstance(method, property):
            assert isinstance(other, property)
            assert words_of(method.fget) == words_of(other.fget)
            assert (method.fset is None) == (other.fset is None)
            continue
        assert words_of(method) == words_of(other), name
        assert not inspect.iscoroutinefunction(other), name
        if name not in RENAMED.values():
            assert inspect.getdoc(method) == inspect.getdoc(other), name


@pytest.mark.parametrize(("ours", "plain"), PAIRS[:3], ids=lambda kind: kind.__name__)
def test_they_are_made_alike(ours: type, plain: type) -> None:
    assert words_of(ours.__init__) == words_of(plain.__init__)  # type: ignore[misc]


def test_every_public_method_of_the_client_has_words(tmp_path: Path) -> None:
    bare = [name for name, method in public(async_client.AsyncSandboxClient).items() if not inspect.getdoc(method)]
    assert set(bare) <= {"mode", "user_id", "thread_id", "__enter__", "__exit__"}
