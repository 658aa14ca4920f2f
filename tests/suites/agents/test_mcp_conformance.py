"""The official conformance suite of the Model Context Protocol, against Hutch and against what it wants to find."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from hutch.tools.mcp.http import McpHttp
from tests.mcp_rig import mcp_served
from tests.suites.agents.mcp_fixture import fixture

pytestmark = pytest.mark.once
HERE = Path(__file__).parent
PINS = HERE / "conformance"
LISTED: dict[str, dict[str, dict[str, str]]] = tomllib.loads((HERE / "mcp_scenarios.toml").read_text())
ROWS = [(server, name) for server, scenarios in LISTED.items() for name in scenarios]
BIN = Path(sys.executable).parent
SECONDS = 300
Verdicts = dict[str, dict[str, list[Any]]]  # the checks of each scenario, by server


class WithKey:
    """The suite has no key to send: each of its requests is given one on the way."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.key = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {self.key}".encode())]
        await self._app(scope, receive, send)


@pytest.fixture(scope="session")
def suite() -> Path:
    """Its program, installed once for each set of pins."""
    digest = hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()[:16]
    place = BIN.parent / f"conformance-{digest}"
    with open(BIN.parent / "conformance.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "installed").exists():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(PINS, place)
            install = [str(BIN / "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run(install, cwd=place, check=True, timeout=SECONDS)
            (place / "installed").touch()
    return place / "node_modules/@modelcontextprotocol/conformance/dist/index.js"


@pytest.fixture(scope="session")
def verdicts(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    makers: dict[str, Callable[[], McpHttp]] = {"hutch": McpHttp, "fixture": partial(McpHttp, make=fixture)}
    found: Verdicts = {}
    for name, make in makers.items():
        adding: list[WithKey] = []

        def wrap(app: ASGIApp, adding: list[WithKey] = adding) -> ASGIApp:
            adding.append(WithKey(app))
            return adding[0]

        folder = tmp_path_factory.mktemp(name)
        with mcp_served(tmp_path_factory.mktemp("data"), make, wrap=wrap) as server:
            adding[0].key = server.key
            words = ["server", "--url", f"{server.url}/mcp", "--suite", "all", "-o", str(folder)]
            subprocess.run([BIN / "node", suite, *words], capture_output=True, timeout=SECONDS, check=False)
        found[name] = {_scenario(one.parent.name): json.loads(one.read_text()) for one in folder.glob("*/checks.json")}
    return found


def _scenario(folder: str) -> str:
    match = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", folder)
    assert match is not None, folder
    return match[1]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(("server", "scenario"), ROWS)
def test_scenario(verdicts: Verdicts, request: pytest.FixtureRequest, server: str, scenario: str) -> None:
    why = LISTED[server][scenario].get("fails")
    if why is not None:
        request.applymarker(pytest.mark.xfail(reason=why, strict=True))
    checks = verdicts[server][scenario]
    assert checks
    assert [one for one in checks if one["status"] not in ("SUCCESS", "INFO")] == []


def test_every_scenario_is_listed(suite: Path) -> None:
    said = subprocess.run(
        [BIN / "node", suite, "list", "--server"], capture_output=True, text=True, timeout=60, check=True
    )
    known = re.findall(r"^  - (\S+)", said.stdout.split("Client scenarios")[0], re.MULTILINE)
    assert sorted(known) == sorted(name for _, name in ROWS)
