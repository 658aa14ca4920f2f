"""Rules that hold for every test: unit tests open no sockets, and in CI nothing is skipped that was not foreseen."""

from __future__ import annotations

import fnmatch
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.postgres_rig import Postgres

TESTS = Path(__file__).parent
UNIT = TESTS / "unit"
EXPECTED_SKIPS = TESTS / "expected_skips.txt"


# --- expected skips --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedSkip:
    """A line of expected_skips.txt: who runs the tests (`root`, `user`, `any`), a node id with `*`, the reason."""

    who: str
    node_id: str
    reason: str

    def covers(self, node_id: str, who: str) -> bool:
        return self.who in ("any", who) and fnmatch.fnmatchcase(node_id, self.node_id.replace("[", "[[]"))


def read_expected_skips(text: str) -> list[ExpectedSkip]:
    """Raises: ValueError naming the line that cannot be read."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(maxsplit=2)
        if len(parts) < 3 or parts[0] not in ("root", "user", "any"):
            raise ValueError(f"{EXPECTED_SKIPS.name}:{number}: want `root|user|any  node id  reason`, found {line!r}")
        rows.append(ExpectedSkip(*parts))
    return rows


@dataclass(eq=False)  # pytest keeps plugins in sets
class SkipWatch:
    """Collects skips nobody foresaw; in CI they turn a green run red."""

    expected: list[ExpectedSkip]
    who: str
    strict: bool
    surprises: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._see(report.nodeid, report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._see(report.nodeid, report.longrepr)

    def _see(self, node_id: str, longrepr: Any) -> None:
        if not any(row.covers(node_id, self.who) for row in self.expected):
            self.surprises[node_id] = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.strict and self.surprises and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.surprises:
            return
        terminalreporter.section(f"skips that {EXPECTED_SKIPS.name} does not name", red=self.strict, bold=True)
        for node_id, reason in sorted(self.surprises.items()):
            terminalreporter.line(f"{self.who}  {node_id}  {reason}")


def pytest_configure(config: pytest.Config) -> None:
    for signum, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(signum) is signal.SIG_IGN:  # `nohup scripts/test`, or `scripts/test &` of a script
            signal.signal(signum, usual)  # else programs under test would ignore it, too
    if hasattr(config, "workerinput"):
        return  # one of several workers: its reports reach the process that started it
    who = "root" if os.geteuid() == 0 else "user"
    expected = read_expected_skips(EXPECTED_SKIPS.read_text())
    config.pluginmanager.register(SkipWatch(expected, who, strict=os.environ.get("CI") == "true"), "hutch-skips")


# --- unit tests stay in their process --------------------------------------------------------------------------------


class SocketOpened(AssertionError):
    """A unit test reached out of its process."""


@pytest.fixture(autouse=True)
def no_sockets_in_unit_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only unconnected pairs of Unix sockets may be made: an event loop wakes itself through one."""
    if UNIT not in request.path.parents:
        yield
        return

    def refuse(self: socket.socket, *args: Any, **kwargs: Any) -> None:
        raise SocketOpened(f"a unit test used a socket ({args!r}); such a test belongs in tests/integration")

    plain_init = socket.socket.__init__

    def only_unix(self: socket.socket, family: int = -1, *args: Any, **kwargs: Any) -> None:
        fileno = kwargs.get("fileno", args[2] if len(args) > 2 else None)
        if fileno is None and family != socket.AF_UNIX:
            refuse(self, family)
        plain_init(self, family, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "__init__", only_unix)
    for verb in ("bind", "connect", "connect_ex", "listen"):
        monkeypatch.setattr(socket.socket, verb, refuse)
    yield


# --- one PostgreSQL for all tests that only need a database ----------------------------------------------------------


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Shared: take `new_database()` of it, and do not stop it. A test that does starts one with `running_postgres`."""
    from tests.postgres_rig import running_postgres  # not above: the rules here are tried without the rest

    with running_postgres() as server:
        yield server
