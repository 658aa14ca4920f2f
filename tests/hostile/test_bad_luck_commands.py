"""Commands that cannot be judged, that wait, that hide from their time-out, or that break their own shell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch import CommandRejected, SandboxClient
from tests.hostile.bad_luck_stage import client, data_folder

TIMEOUT = 1.0


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with data_folder() as found:
        yield found


@pytest.fixture
def box(folder: Path) -> SandboxClient:
    return client(folder, "t")


@pytest.mark.parametrize("policy", ["strict", "open"])
@pytest.mark.parametrize(
    "command",
    ["", " \t\n", "echo a\0b", "echo 'never closed", "if true; then", "echo $(", "((", "echo " + "x" * 131_067],
    ids=["empty", "blank", "nul", "quote", "if", "substitution", "arithmetic", "too-long"],
)
def test_what_cannot_be_judged_is_refused_at_once(folder: Path, policy: str, command: str) -> None:
    box = client(folder, policy, policy)
    box.execute("echo warm")
    begun = time.monotonic()
    with pytest.raises(CommandRejected) as caught:
        box.execute(command)
    assert time.monotonic() - begun < 5
    if len(command) > 1000:
        assert "upload" in str(caught.value).lower() + str(caught.value.details).lower()


def test_the_longest_command_runs(box: SandboxClient) -> None:
    command = "echo " + "x" * (131_071 - 5)
    assert len(command) == 131_071
    assert box.execute(command)["stdout_bytes"] == 131_067


@pytest.mark.parametrize("command", ["cat", "read x", "python3", "read -t 60 x", "cat /dev/stdin | wc -c"])
def test_input_is_empty(box: SandboxClient, command: str) -> None:
    result = box.execute(command, timeout=20)
    assert not result["timed_out"]


HIDING = {
    "background": "echo printed; sleep 300 & sleep 300",
    "setsid": "echo printed; setsid sleep 300 & sleep 300",
    "nohup": "echo printed; nohup sleep 300 >/dev/null 2>&1 & sleep 300",
    "double-fork": "echo printed; (setsid bash -c 'sleep 300 & sleep 300' &) ; sleep 300",
    "process-substitution": "exec > >(cat); echo printed; sleep 300",
    "closed-output": "echo printed; exec 1>&- 2>&-; sleep 300",
    "stopped-shell": "echo printed; kill -STOP $$",
    "stopped-child": "echo printed; sleep 300 & kill -STOP $!; wait",
    "deaf": "trap '' TERM INT HUP QUIT PIPE USR1; echo printed; while :; do sleep 1; done",
    "deaf-children": "echo printed; for i in 1 2 3; do (trap '' TERM; while :; do sleep 1; done) & done; wait",
    "busy": "echo printed; while :; do :; done",
    "waits-on-fifo": "mkfifo pipe; echo printed; cat pipe",
    "python-daemon": (
        "echo printed; python3 -c 'import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "time.sleep(300)'; sleep 300"
    ),
}


@pytest.mark.parametrize("name", HIDING)
def test_nothing_outlives_its_timeout(folder: Path, name: str) -> None:
    box = client(folder, f"hiding-{name}")
    before = min(living(box) for _ in range(8))
    begun = time.monotonic()
    result = box.execute(HIDING[name], timeout=TIMEOUT)
    took = time.monotonic() - begun
    assert (result["timed_out"], result["exit_code"], result["stdout"]) == (True, 124, "printed\n")
    assert TIMEOUT <= took < 5 * (TIMEOUT + 1)
    for _ in range(100):  # a shell that waits for the next command comes and goes; a survivor stays
        if (left := living(box)) <= before:
            break
        time.sleep(0.01)
    assert left <= before
    box.close_session()


def living(box: SandboxClient) -> int:
    """How many processes the sandbox has, the one that looks among them."""
    return len(box.execute("echo /proc/[0-9]*")["stdout"].split())


@pytest.mark.parametrize("name", ["background", "setsid", "nohup", "double-fork", "python-daemon"])
def test_nothing_outlives_a_command_that_ends(folder: Path, name: str) -> None:
    box = client(folder, f"ending-{name}")
    command = HIDING[name].removesuffix("sleep 300").rstrip("; ")
    result = box.execute(command or "true", timeout=20)
    assert not result["timed_out"]
    assert "sleep" not in box.execute("cat /proc/[0-9]*/comm")["stdout"]
    box.close_session()


BREAKING = {
    "kills itself": ("kill $$", 143),
    "kills all": ("kill -9 -1", 137),
    "leaves": ("exit 3", 3),
    "stops at errors": ("set -e; false", 1),
    "closes its output": ("exec 1>&-", 0),
    "starves itself": ("ulimit -v 1; ls", None),
    "leaves no files": ("ulimit -n 0; ls", None),
    "unsets all": ("unset PATH HOME; cd /; true", 0),
    "changes its options": ("set -fuxo pipefail; shopt -s failglob; true", 0),
    "execs": ("exec sleep 0", 0),
    "signals the first process": ("kill -9 1; kill -TERM 1; true", 0),
}


@pytest.mark.parametrize("name", BREAKING)
def test_the_next_command_works(box: SandboxClient, name: str) -> None:
    command, code = BREAKING[name]
    result = box.execute(command, timeout=20)
    assert code is None or result["exit_code"] == code
    after = box.execute("pwd; echo $-; type -t ls; echo on")
    assert (after["stdout"].splitlines()[0], after["stdout"].splitlines()[-1]) == ("/workspace", "on")
    assert (after["exit_code"], after["session_recreated"]) == (0, False)


def test_a_sandbox_that_kills_everything_in_it_goes_on(box: SandboxClient) -> None:
    """Over and over: what carries commands into the sandbox is killed, too, and that is no end of the sandbox."""
    for number in range(40):
        assert box.execute("kill -9 -1", timeout=20)["exit_code"] == 137
        after = box.execute(f"echo {number}")
        assert (after["stdout"], after["session_recreated"]) == (f"{number}\n", False)


@pytest.mark.parametrize(
    ("octal", "text"),
    [
        (r"\377\376ok\n", "\ufffd\ufffdok\n"),
        (r"caf\303\251\n", "café\n"),
        (r"cut\303", "cut\ufffd"),
        (r"a\r\nb\rc\n", "a\r\nb\rc\n"),
        (r"\000x\n", "\0x\n"),
    ],
)
def test_odd_bytes_are_shown_and_kept(box: SandboxClient, octal: str, text: str) -> None:
    result = box.execute(f"printf '{octal}'")
    assert result["stdout"] == text
    chunk = box.logs(result["process_id"])
    assert chunk["data"] == octal.encode().decode("unicode_escape").encode("latin-1")
    assert (chunk["complete"], chunk["text"]) == (True, text)


def test_characters_cut_by_the_pipe_are_whole(box: SandboxClient) -> None:
    """300,000 three-byte characters after one byte: every edge of every buffer falls inside one."""
    script = "import sys; sys.stdout.buffer.write(b'x' + '漢'.encode() * 300_000)"
    pieces: list[str] = []
    result = box.execute(f'python3 -c "{script}"', on_stdout=pieces.append)
    assert result["stdout"] == "x" + "漢" * 300_000
    assert "".join(pieces) == result["stdout"]
    assert len(pieces) > 1
