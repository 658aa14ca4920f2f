"""The rules of tests/conftest.py do what they promise, seen from outside: pytest is run on small folders of tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SKIPPING = "import pytest\n\ndef test_it() -> None:\n    pytest.skip('no such hardware')\n"


def run_pytest(folder: Path, body: str, expected_skips: str, *, ci: bool, options: tuple[str, ...] = ()) -> str:
    """The exit code and output of pytest over one test file `test_it.py` under our conftest."""
    shutil.copy(TESTS / "conftest.py", folder)
    (folder / "expected_skips.txt").write_text(expected_skips)
    (folder / "test_it.py").write_text(body)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | ({"CI": "true"} if ci else {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "workers"])
def test_an_unforeseen_skip_is_red_in_ci(tmp_path: Path, options: tuple[str, ...]) -> None:
    said = run_pytest(tmp_path, SKIPPING, "", ci=True, options=options)
    assert said.startswith("exit 1"), said
    assert "test_it.py::test_it" in said
    assert "no such hardware" in said


def test_an_unforeseen_skip_is_only_mentioned_elsewhere(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, SKIPPING, "", ci=False)
    assert said.startswith("exit 0"), said
    assert "no such hardware" in said


def test_a_skip_of_a_whole_file_counts_too(tmp_path: Path) -> None:
    body = "import pytest\n\npytest.skip('all of it', allow_module_level=True)\n"
    said = run_pytest(tmp_path, body, "", ci=True)
    assert not said.startswith("exit 0"), said
    assert "all of it" in said


def test_a_foreseen_skip_is_green(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, SKIPPING, "# why\nany  test_it.py::*  hardware only few have\n", ci=True)
    assert said.startswith("exit 0"), said


def test_a_skip_foreseen_for_the_other_user_is_red(tmp_path: Path) -> None:
    other = "user" if os.geteuid() == 0 else "root"
    said = run_pytest(tmp_path, SKIPPING, f"{other}  test_it.py::*  not for me\n", ci=True)
    assert said.startswith("exit 1"), said


def test_a_line_without_a_reason_is_refused_by_name(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, SKIPPING, "any  test_it.py::test_it\n", ci=True)
    assert not said.startswith("exit 0"), said
    assert "expected_skips.txt:1" in said


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    body = "import pytest\n\n@pytest.mark.xfail(reason='known', strict=True)\ndef test_it():\n    assert False\n"
    assert run_pytest(tmp_path, body, "", ci=True).startswith("exit 0")


def test_unit_tests_cannot_open_network_sockets() -> None:
    with pytest.raises(AssertionError, match="belongs in tests/integration"):
        socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with pytest.raises(AssertionError, match="belongs in tests/integration"):
        socket.create_connection(("127.0.0.1", 9))


def test_unit_tests_cannot_reach_a_named_unix_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as plain:
        with pytest.raises(AssertionError, match="belongs in tests/integration"):
            plain.connect(str(tmp_path / "socket"))
        with pytest.raises(AssertionError, match="belongs in tests/integration"):
            plain.bind(str(tmp_path / "socket"))


def test_unit_tests_may_run_an_event_loop_and_pairs() -> None:
    async def wake() -> str:
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: "awake")

    assert asyncio.run(wake()) == "awake"
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"x")
        assert right.recv(1) == b"x"
