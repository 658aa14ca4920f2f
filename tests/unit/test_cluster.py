"""What a coordinator decides without asking anybody: who gets a sandbox, and where a request belongs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hutch.cluster.workers import WorkerInfo, by_preference, checked, loads
from hutch.model.errors import InvalidRequest
from hutch.model.wire import PROTOCOL
from hutch.server.destinations import AllWorkers, AnyWorker, OfName, OfSandbox, Own, destination, named_in
from hutch.server.form_field import LONGEST_VALUE, FieldFinder

WORKER = WorkerInfo("w", "http://127.0.0.1:1", PROTOCOL, "1", capacity=10, running=5)


def test_who_has_the_most_room_comes_first_whatever_its_size() -> None:
    small = replace(WORKER, worker_id="small", capacity=4, running=1)
    large = replace(WORKER, worker_id="large", capacity=100, running=60)
    spare = replace(WORKER, worker_id="spare", capacity=10, running=10, spare=9)
    assert [one.worker_id for one in by_preference([large, small, spare])] == ["spare", "small", "large"]


@pytest.mark.parametrize(
    "worker",
    [
        replace(WORKER, alive=False),
        replace(WORKER, draining=True),
        replace(WORKER, protocol=PROTOCOL + 1),
        replace(WORKER, protocol=PROTOCOL - 2),
    ],
)
def test_who_cannot_take_a_sandbox_gets_none(worker: WorkerInfo) -> None:
    assert by_preference([worker]) == []


def test_one_protocol_number_older_is_fine() -> None:
    assert by_preference([replace(WORKER, protocol=PROTOCOL - 1)])


def test_what_a_worker_says_is_read_back() -> None:
    assert loads(WORKER.dumps()) == WORKER
    newer = {**json.loads(WORKER.dumps()), "invented": [1]}
    assert checked(newer) == WORKER


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", "null", "{}", '{"worker_id": 1}', "nan", "\x00"]
    + [
        json.dumps({**json.loads(WORKER.dumps()), name: wrong})
        for name, wrong in (("url", 7), ("capacity", "many"), ("running", True), ("preview_url", 1), ("ended_at", ""))
    ],
)
def test_what_no_worker_says_is_nobody(text: str) -> None:
    assert loads(text) is None


@pytest.mark.parametrize(
    ("method", "path", "query", "where"),
    [
        ("GET", "/v1/sandboxes/sb1", {}, OfSandbox("sb1")),
        ("POST", "/v1/sandboxes/sb1/exec", {}, OfSandbox("sb1")),
        ("GET", "/v1/sandboxes/s%62%2F1/files/a/b", {}, OfSandbox("sb/1")),
        ("DELETE", "/v1/sandboxes/sb1", {}, OfSandbox("sb1")),
        ("PUT", "/v1/sessions", {}, OfName("thread_id", makes=True)),
        ("GET", "/v1/sessions", {"thread_id": ""}, OfName("thread_id", "")),
        ("GET", "/v1/sessions", {}, AllWorkers()),
        ("POST", "/v1/sessions", {}, Own()),
        ("GET", "/openapi.json", {}, AnyWorker()),
        ("GET", "/v1/keys", {}, Own()),
        ("GET", "/internal/sandboxes/sb1", {}, Own()),
        ("GET", "/metrics", {}, Own()),
        ("POST", "/create_session", {}, OfName("thread_id", makes=True)),
        ("POST", "/execute", {}, OfName("session_id")),
        ("POST", "/upload_file", {}, OfName("session_id", form=True)),
        ("GET", "/list_files", {"session_id": "s"}, OfName("session_id", "s")),
        ("GET", "/status/a%20b", {}, OfName("session_id", "a b")),
        ("GET", "/execute", {}, Own()),
    ],
)
def test_where_a_request_belongs(method: str, path: str, query: dict[str, str], where: object) -> None:
    assert destination(method, path, query) == where


@pytest.mark.parametrize("document", [None, [], "x", {}, {"thread_id": 7}, {"session_id": "s"}])
def test_a_body_that_names_nothing(document: object) -> None:
    with pytest.raises(InvalidRequest, match="thread_id"):
        named_in(document, "thread_id")


def _found(body: bytes, content_type: str = "multipart/form-data; boundary=B", step: int = 1) -> str | None:
    finder = FieldFinder(content_type, "session_id")
    for start in range(0, len(body), step):
        finder.feed(body[start : start + step])
    return finder.value


FILE = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n--A\r\n\x00session_id\r\n'
NAME = b'--B\r\nContent-Disposition: form-data; name="session_id"\r\n\r\nthe one\r\n'


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("parts", [FILE + NAME, NAME + FILE, NAME + NAME.replace(b"one", b"two")])
def test_the_field_is_found_wherever_it_stands_in_a_form(parts: bytes, step: int) -> None:
    assert _found(parts + b"--B--\r\n", step=step) == "the one"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (FILE + b"--B--\r\n", "multipart/form-data; boundary=B"),
        (NAME, "application/json"),
        (NAME, "multipart/form-data"),
        (b"no form at all", "multipart/form-data; boundary=B"),
        (NAME[:-4], "multipart/form-data; boundary=B"),
    ],
)
def test_what_is_no_such_form_has_no_field(body: bytes, content_type: str) -> None:
    assert _found(body, content_type) is None


def test_a_field_without_end_is_not_kept() -> None:
    found = _found(NAME.replace(b"the one", b"x" * 1_000_000) + b"--B--\r\n", step=4096)
    assert found == "x" * LONGEST_VALUE
