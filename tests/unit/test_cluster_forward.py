"""What a coordinator does with an answer that comes in the moment in which its caller leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import httpcore
import pytest

from hutch.cluster.workers import WorkerInfo
from hutch.model.wire import PROTOCOL
from hutch.server.forward import Forward

WORKER = WorkerInfo("w", "http://127.0.0.1:1", PROTOCOL, "1", capacity=1)
SCOPE = {"type": "http", "method": "GET", "raw_path": b"/", "query_string": b"", "headers": []}


class Answer(httpcore.Response):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


def test_an_answer_whose_caller_left_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        forward, answer, come = Forward(lambda _: True), Answer(200), asyncio.Event()

        async def send(request: httpcore.Request) -> httpcore.Response:
            await come.wait()
            return answer

        connections: Any = forward._connections
        monkeypatch.setattr(connections, "send", send)
        asking = asyncio.create_task(forward.ask(WORKER, SCOPE, b""))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        come.set()
        await asyncio.sleep(0)  # the answer is there, and nobody has taken it yet
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert answer.closed

    asyncio.run(run())
