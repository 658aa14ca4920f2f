"""Requests made up from the description of the API: none breaks the server, hangs it, or gets an unforeseen answer.

A route is covered here the day it is added: the list is the description's own. The seed is fixed, so a failure comes
again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hutch.providers.base import SpawnRequest
from hutch.settings import Settings
from hutch.testing.fake_process import Behaviour, Running
from hutch.testing.fake_provider import FakeProvider
from hutch.testing.fake_shell import UnknownCommand
from tests.server_rig import Served, served
from tests.tree_rig import with_trees

pytestmark = pytest.mark.once

DESCRIPTION = json.loads((Path(__file__).parents[3] / "docs/reference/openapi.json").read_text())
API = schemathesis.openapi.from_dict(DESCRIPTION)
KEEPING, BREAKING = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
OPERATIONS = [
    (method.upper(), path, mode)
    for path, methods in DESCRIPTION["paths"].items()
    for method, operation in methods.items()
    # Without a parameter, a body or a key there is no rule that a request could break.
    for mode in ([KEEPING, BREAKING] if {"parameters", "requestBody"} & operation.keys() else [KEEPING])
]
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SEED = 3
EXAMPLES = 20  # of an operation, and as many that break its rules
SECONDS = 10.0  # of one call
STREAM_BYTES = 65536


class AnyCommand(FakeProvider):
    """Its sandboxes know no program but those of the fake, as a real shell would say."""

    def _resolve(self, request: SpawnRequest) -> Behaviour:
        try:
            return super()._resolve(request)
        except (UnknownCommand, ValueError):  # ValueError: a quote that does not end
            return not_found


async def not_found(me: Running) -> int:
    me.err("bash: command not found\n")
    return 127


@dataclass(slots=True)
class Stage:
    """A server, and ids of things that are really there."""

    server: Served
    http: requests.Session

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, self.server.url + path, json=body, timeout=SECONDS)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def known(self, thread: str) -> dict[str, str]:
        """Of a sandbox with a file, a process that has ended, one that waits for input, and a key."""
        made = self.call("PUT", "/v1/sessions", {"user_id": "u", "thread_id": thread, "template": "open"})
        sandbox = f"/v1/sandboxes/{made['sandbox_id']}"
        self.http.put(f"{self.server.url}{sandbox}/files?path=a", data=b"content", timeout=SECONDS)
        ended = self.call("POST", f"{sandbox}/exec", {"command": "echo hi"})["process_id"]
        reads = self.call("POST", f"{sandbox}/processes", {"command": "cat", "stdin": "pipe"})["process_id"]
        key = self.call("POST", "/v1/keys", {"name": "to be revoked"})["key_id"]
        return {"sandbox_id": made["sandbox_id"], "ended": ended, "reads": reads, "key_id": key}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    place = Settings(data_dir=with_trees(tmp_path_factory.mktemp("data")), max_pool_size=1000)
    provider = AnyCommand()
    provider.on(("bash",), not_found)
    with served(place, provider) as server, requests.Session() as http:
        http.trust_env = False
        http.headers["authorization"] = f"Bearer {server.key}"
        yield Stage(server, http)


def _send(stage: Stage, case: schemathesis.Case[Any]) -> Response:
    """Its answer; of one that does not end the beginning. Raises: requests.Timeout, AssertionError."""
    asked = case.as_transport_kwargs(base_url=stage.server.url)
    until = time.monotonic() + SECONDS
    headers = {**dict(asked.pop("headers") or {}), "authorization": f"Bearer {stage.server.key}"}
    with stage.http.request(**asked, headers=headers, stream=True, timeout=SECONDS, allow_redirects=False) as answer:
        content = b""
        streams = answer.headers.get("content-type", "").startswith("text/event-stream")
        for piece in answer.iter_content(STREAM_BYTES if not streams else 1):
            content += piece
            assert time.monotonic() < until, "the answer does not end"
            if streams and b"\n\n" in content:
                assert content.startswith((b"event: ", b": ")), content
                break
        answer._content = content
        return Response.from_requests(answer, verify=False)


@pytest.mark.parametrize(
    ("method", "path", "mode"), OPERATIONS, ids=[f"{mode.value}-{method}-{path}" for method, path, mode in OPERATIONS]
)
def test_no_request_breaks_it(stage: Stage, method: str, path: str, mode: GenerationMode) -> None:
    operation = API[path][method]
    turns = count(1)

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,  # each call has its own bound
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: schemathesis.Case[Any]) -> None:
        turn = next(turns)
        if turn % 4:  # made-up ids get no further than the first look
            known = stage.known(f"{mode.value} {method} {path}")
            known["process_id"] = known["ended" if path.endswith("/result") or turn % 2 else "reads"]
            for name in set(case.path_parameters) & known.keys():
                case.path_parameters[name] = known[name]
            if turn % 2 and isinstance(case.body, dict) and "command" in case.body:
                # What is asked beside the command is hardly ever all right at once.
                case.body = {name: case.body[name] for name in ("command", "stdin", "tag") if name in case.body}
        answer = _send(stage, case)
        assert answer.status_code != 500, answer.text
        case.validate_response(answer, checks=CHECKS)

    one()
    assert stage.http.get(stage.server.url + "/health", timeout=SECONDS).json()["status"] == "ok"
