"""The self-test of `doctor --run`: ordinary commands in a real sandbox, and its walls seen from inside."""

from __future__ import annotations

import re
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hutch.cli.lease import Wanted, session
from hutch.cli.place import Place
from hutch.model.errors import HutchError
from hutch.model.process import ExecResult

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

FILE = "selftest.txt"
TEXT = "Hello from a sandbox"
CONNECT = """\
python3 -c '
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
    print("reached")
except OSError as error:
    print("refused:", error)
'"""


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    passed: bool
    seen: str

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "passed": self.passed, "seen": self.seen}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    command: str
    holds: Callable[[ExecResult], bool]


def self_test(place: Place) -> list[Outcome]:
    """Never raises for a sandbox that cannot be had: that is an outcome too."""
    outcomes: list[Outcome] = []
    try:
        with _bait() as (path, port), session(Wanted(place=place), "test") as client:
            outcomes.append(Outcome("a sandbox starts", True, "in template bash"))
            outcomes += [_run(client, check) for check in checks(path, port)]
            outcomes.append(_listing(client))
    except HutchError as error:
        outcomes.append(Outcome("a sandbox starts" if not outcomes else "it keeps running", False, error.message))
    return outcomes


@contextmanager
def _bait() -> Iterator[tuple[str, int]]:
    """A file and a port of the host that no sandbox may reach."""
    with tempfile.NamedTemporaryFile(prefix="hutch-selftest-") as file, socket.create_server(("127.0.0.1", 0)) as port:
        file.write(secrets.token_bytes(16))
        file.flush()
        yield file.name, port.getsockname()[1]


def checks(host_path: str, host_port: int) -> list[Check]:
    return [
        Check("who it is", "whoami", _prints("sandboxuser")),
        Check("where it is", "pwd", _prints("/workspace")),
        Check("a file can be made", f"echo '{TEXT}' > {FILE}", _succeeds),
        Check("and read again", f"cat {FILE}", _prints(TEXT)),
        Check("Python runs", "python --version", lambda result: result["stdout"].startswith("Python 3")),
        Check("it has one user, not root", "id -u", _prints("1000")),
        Check("no file of the host", f"cat {host_path}", lambda result: result["exit_code"] != 0),
        Check("no home folder of the host", "ls /root /home", lambda result: not result["stdout"].strip()),
        Check("no network interface but its own", "tail -n +3 /proc/net/dev", _only_loopback),
        Check("no port of the host", CONNECT.format(port=host_port), lambda result: "refused" in result["stdout"]),
        Check("no capabilities", "grep '^Cap' /proc/self/status", _no_capabilities),
        Check("no new privileges", "grep '^NoNewPrivs' /proc/self/status", _field("NoNewPrivs", "1")),
        Check("system calls are filtered", "grep '^Seccomp:' /proc/self/status", _field("Seccomp", "2")),
    ]


def _run(client: SandboxClient, check: Check) -> Outcome:
    try:
        result = client.execute(check.command)
    except HutchError as error:
        return Outcome(check.name, False, f"{error.code}: {error.message}")
    printed = (result["stdout"].strip() or result["stderr"].strip()).splitlines()
    seen = "; ".join(" ".join(line.split()) for line in printed[:5]) or f"exit code {result['exit_code']}"
    return Outcome(check.name, check.holds(result), seen)


def _listing(client: SandboxClient) -> Outcome:
    try:
        names = [file["name"] for file in client.list_files()["files"]]
    except HutchError as error:
        return Outcome("files can be listed", False, f"{error.code}: {error.message}")
    return Outcome("files can be listed", FILE in names, ", ".join(names) or "none")


def _succeeds(result: ExecResult) -> bool:
    return result["exit_code"] == 0


def _prints(text: str) -> Callable[[ExecResult], bool]:
    return lambda result: result["exit_code"] == 0 and result["stdout"].strip() == text


def _field(name: str, value: str) -> Callable[[ExecResult], bool]:
    return lambda result: re.fullmatch(rf"{name}:\s*{value}", result["stdout"].strip()) is not None


def _only_loopback(result: ExecResult) -> bool:
    names = [line.split(":")[0].strip() for line in result["stdout"].splitlines() if ":" in line]
    return names == ["lo"]


def _no_capabilities(result: ExecResult) -> bool:
    held = [line.split()[1] for line in result["stdout"].splitlines() if len(line.split()) == 2]
    return len(held) == 5 and all(int(mask, 16) == 0 for mask in held)
