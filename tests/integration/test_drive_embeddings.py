"""An OpenAI-compatible service of embeddings: asked as it wants to be, and distrusted."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hutch.engine.drive.embedding import EmbeddingFailed, ServiceEmbedder
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.drive_rig import Meaning, one
from tests.unit.engine_stage import Stage, play

pytestmark = pytest.mark.once

Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


@contextmanager
def service(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the keys it was shown."""
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            keys.append(f"{self.path} {self.headers['authorization']} {asked['model']}")
            status, body = answer(asked)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", keys
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def good(asked: dict[str, Any]) -> tuple[int, bytes]:
    rows = [{"index": at, "embedding": Meaning().embed_query(text)} for at, text in enumerate(asked["input"])]
    return 200, json.dumps({"data": rows[::-1]}).encode()


def test_a_drive_is_searched_by_a_service(tmp_path: Path) -> None:
    async def check(stage: Stage) -> None:
        drive = stage.engine.drive
        await drive.files.write("local", "ann", "/a.txt", one(b"The kitten sleeps"))
        found = await drive.search.search("local", "ann", "feline")
        assert (found["by"], [hit["path"] for hit in found["hits"]]) == ("words+meaning", ["/a.txt"])

    with service(good) as (url, keys):
        more: dict[str, Any] = {"embeddings_url": url, "embeddings_model": "small", "embeddings_key": "sk-1"}
        play(tmp_path, check, FakeProvider(), **more)
        assert set(keys) == {"/v1/embeddings Bearer sk-1 small"}
        assert "sk-1" not in str([one.value for one in Settings(**more).explain()])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"data": null}',
        b'{"data": []}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": ["x"]}]}',
        b'{"data": [{"index": 0, "embedding": [NaN]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999]}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1]}]}',
        b"[" * 50_000,
    ],
)
def test_an_answer_that_is_none_is_told(body: bytes) -> None:
    with service(lambda _: (200, body)) as (url, _), pytest.raises(EmbeddingFailed):
        asyncio.run(ServiceEmbedder(url, "m", None).query("x"))


def test_a_service_that_fails_leaves_the_words(tmp_path: Path) -> None:
    async def check(stage: Stage) -> None:
        drive = stage.engine.drive
        await drive.files.write("local", "ann", "/a.txt", one(b"The kitten sleeps"))
        for _ in range(2):
            found = await drive.search.search("local", "ann", "kitten")
            assert (found["by"], [hit["path"] for hit in found["hits"]]) == ("words", ["/a.txt"])
            assert "503" in (found["note"] or "")

    with service(lambda _: (503, b"away")) as (url, _):
        play(tmp_path, check, FakeProvider(), embeddings_url=url)
    with service(lambda _: (302, b"")) as (url, _), pytest.raises(EmbeddingFailed, match="302"):
        asyncio.run(ServiceEmbedder(url, "m", None).query("x"))
