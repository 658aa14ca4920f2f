"""Floods: each hits its limit, the session goes on, what was written stays, this process and its neighbours live on."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch import LimitExceeded, SandboxClient
from hutch.model.process import ExecResult
from tests.client_rig import client_of, memory_mib, settings_of
from tests.guest_rig import needs_bubblewrap

pytestmark = [needs_bubblewrap, pytest.mark.serial]

GROWTH_MIB = 64.0
HAS_CGROUPS = os.geteuid() == 0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxClient]:
    with client_of(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxClient]:
    limits = {"MAX_FILE_SIZE_MB": "20", "MAX_WORKSPACE_SIZE_MB": "60", "MAX_TOTAL_FILES": "300", "CPU_QUOTA": "off"}
    with client_of(tmp_path_factory.mktemp("data"), "strict", **limits) as made:
        yield made


def flood(client: SandboxClient, command: str, timeout: float = 20) -> ExecResult:
    """Run it; afterwards this process must not have grown, and the session must go on."""
    client.execute("echo before")
    before = memory_mib()
    result = client.execute(command, timeout=timeout)
    assert memory_mib() - before < GROWTH_MIB
    assert client.execute("echo on")["stdout"] == "on\n"
    return result


def test_a_fork_bomb(client: SandboxClient) -> None:
    result = flood(client, "b() { b | b & }; b; sleep 2")
    assert result["limit"] == "pids"


def test_a_storm_of_threads(client: SandboxClient) -> None:
    # Small stacks: without a cgroup the address space is limited, too, and large ones would use that up first.
    code = "import threading,time\nthreading.stack_size(65536)\n"
    code += "while True: threading.Thread(target=time.sleep, args=(100,)).start()"
    assert flood(client, f'python3 -c "{code}"')["limit"] == "pids"


def test_a_memory_bomb(strict: SandboxClient) -> None:
    result = flood(strict, "python3 -c 'x = bytearray(2 << 30)'; echo $?")
    if HAS_CGROUPS:
        assert result["limit"] == "memory"
        assert result["stdout"] == "137\n"
    else:  # an address space limit: the program is told instead of killed
        assert "MemoryError" in result["stderr"]


@pytest.mark.skipif(not HAS_CGROUPS, reason="only a cgroup counts a sandbox's memory files")
def test_memory_taken_by_files_counts(strict: SandboxClient) -> None:
    result = flood(
        strict, "python3 -c \"\nwith open('/dev/shm/x', 'wb') as f:\n for i in range(4096): f.write(bytes(1<<20))\""
    )
    assert result["exit_code"] != 0  # "no space left": the folder is smaller than the memory


@pytest.mark.parametrize(
    ("command", "timeout"),
    [("yes", 3.0), ("tr '\\0' x < /dev/zero | head -c 100000000", 60.0), ("head -c 1000000000 /dev/zero", 120.0)],
)
def test_output_without_end(client: SandboxClient, command: str, timeout: float) -> None:
    result = flood(client, command, timeout)
    assert result["limit"] == "output"
    assert result["truncated"]
    assert len(result["stdout"]) == 10 * 2**20
    assert result["stdout_bytes"] >= 100_000_000
    assert result["spooled_bytes"] == 64 * 2**20
    last = client.logs(result["process_id"], offset=64 * 2**20 - 10, max_bytes=100)
    assert len(last["data"]) == 10
    assert last["complete"]
    assert last["total_bytes"] == result["stdout_bytes"]


def test_a_million_lines_arrive_in_order(client: SandboxClient) -> None:
    result = flood(client, "seq 1000000", 60)
    assert result["stdout"] == "".join(f"{number}\n" for number in range(1, 1_000_001))
    assert (result["limit"], result["truncated"]) == (None, False)


def test_output_of_a_whole_session_is_bounded(client: SandboxClient) -> None:
    results = [flood(client, "head -c 67108864 /dev/zero", 60) for _ in range(6)]
    assert [result["spooled_bytes"] for result in results] == [64 * 2**20] * 6
    with pytest.raises(LookupError):
        client.logs(results[0]["process_id"])  # the oldest made place
    assert client.logs(results[-1]["process_id"], offset=64 * 2**20 - 1)["complete"]


def test_terminals_run_out_in_one_sandbox_only(client: SandboxClient) -> None:
    code = "import os\nn=0\ntry:\n while True: os.openpty(); n+=1\nexcept OSError: print(n)"
    assert int(flood(client, f'python3 -c "{code}"')["stdout"]) < 40
    neighbour = client.for_thread("other", "terminals")
    with neighbour.open_shell() as shell:
        shell.send("exit 3\n")
        ended = shell.wait(20)
    neighbour.close_session()
    assert ended is not None
    assert ended["exit_code"] == 3


def test_descriptors_run_out_in_one_process_only(client: SandboxClient) -> None:
    code = "import os\nn=0\ntry:\n while True: os.dup(0); n+=1\nexcept OSError: print(n)"
    assert int(flood(client, f'python3 -c "{code}"')["stdout"]) < 5000


def test_one_file_too_large(strict: SandboxClient) -> None:
    result = flood(strict, "head -c 50000000 /dev/zero > big")
    assert result["limit"] == "file_size"
    assert strict.files.stat("big")["size_bytes"] == 20 * 2**20  # what was written stays
    strict.files.remove("big")


def test_one_file_too_large_for_a_program_that_takes_it_calmly(strict: SandboxClient) -> None:
    code = "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))"
    assert flood(strict, f'python3 -c "{code}"')["limit"] == "file_size"
    assert strict.execute("false")["limit"] is None  # an older full file is not the next command's
    strict.files.remove("big")


def test_files_without_a_name_count_while_they_are_held(strict: SandboxClient) -> None:
    code = """
import os
held = []
while True:
    held.append(open("x", "wb", 0))
    os.unlink("x")
    held[-1].write(bytes(5 << 20))
"""
    strict.upload_file_from_bytes("hold.py", code.encode())
    assert flood(strict, "python3 hold.py")["limit"] == "workspace"
    strict.files.remove("hold.py")
    assert strict.list_files()["total_size_bytes"] == 0
    assert strict.upload_file_from_bytes("more", b"x")["size_bytes"] == 1  # what was held went with who held it
    strict.files.remove("more")


def test_a_full_workspace(strict: SandboxClient) -> None:
    result = flood(strict, "i=0; while true; do head -c 5000000 /dev/zero > f$i; i=$((i + 1)); done")
    assert result["limit"] == "workspace"
    assert not result["timed_out"]
    listing = strict.list_files()
    assert 60 * 2**20 < listing["total_size_bytes"] < 20 * 60 * 2**20
    with pytest.raises(LimitExceeded, match="Workspace size exceeds maximum"):
        strict.upload_file_from_bytes("more", b"x")
    for entry in listing["files"]:
        strict.files.remove(entry["name"])
    assert strict.upload_file_from_bytes("more", b"x")["size_bytes"] == 1


def test_too_many_files(strict: SandboxClient) -> None:
    result = flood(strict, "for i in {1..100000}; do : > g$i; done", 60)
    assert result["limit"] == "files"
    assert not result["timed_out"]
    with pytest.raises(LimitExceeded, match="files"):
        strict.upload_file_from_bytes("one-more", b"x")
    for entry in strict.list_files()["files"]:
        strict.files.remove(entry["name"])
    assert strict.upload_file_from_bytes("one-more", b"x")["size_bytes"] == 1


def test_too_many_files_within_a_moment(strict: SandboxClient) -> None:
    """Too quick to be seen while it runs: it is seen at its end."""
    result = flood(strict, "for i in {1..400}; do : > h$i; done")
    assert result["limit"] == "files"
    for entry in strict.list_files()["files"]:
        strict.files.remove(entry["name"])


def test_uploads_over_the_limits(strict: SandboxClient, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(21 * 2**20)
    with pytest.raises(LimitExceeded, match="File size exceeds maximum"):
        strict.upload_file(large)
    with pytest.raises(ValueError, match="File size exceeds maximum"):
        strict.upload_file_from_bytes("large", bytes(21 * 2**20))
    assert strict.list_files()["total_files"] == 0


def p50(client: SandboxClient, calls: int = 200) -> float:
    times: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        client.execute("echo hi")
        times.append(time.perf_counter() - started)
    return statistics.median(times)


@pytest.mark.skipif(not HAS_CGROUPS, reason="without cgroups nothing holds a flood back")
@pytest.mark.parametrize(
    ("policy", "command"),
    [
        ("strict", "while true; do echo " + "y" * 200 + "; done"),
        ("strict", "tr '\\0' y < /dev/zero"),
        ("strict", "python3 -c 'while True: pass'"),
        ("strict", "python3 -c 'import os\nwhile True: os.fork()'"),
        ("open", "yes"),
        ("open", "b() { b | b & }; b; sleep 60"),
    ],
)
def test_a_neighbour_hardly_feels_it(tmp_path: Path, policy: str, command: str) -> None:
    with settings_of(tmp_path):
        victim = SandboxClient().for_thread("good", "victim")
        attacker = SandboxClient(policy=policy).for_thread("bad", "attacker")
        p50(victim)
        ratios = [rounds_ratio(victim, attacker, command) for _ in range(3)]
        attacker.close_session()
        victim.close_session()
    assert min(ratios) <= 2  # other work on this machine only ever makes it look worse


def rounds_ratio(victim: SandboxClient, attacker: SandboxClient, command: str) -> float:
    alone = p50(victim)
    thread = threading.Thread(target=lambda: attacker.execute(command, timeout=6))
    thread.start()
    time.sleep(0.5)
    beside = p50(victim)
    thread.join()
    return beside / alone
