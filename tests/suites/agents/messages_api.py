"""A Messages API on loopback that answers from a script, for a CLI that never leaves this machine."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = dict[str, Any]


def use(name: str, **given: Any) -> Block:
    return {"type": "tool_use", "id": f"toolu_{secrets.token_hex(8)}", "name": name, "input": given}


class MessagesApi(ThreadingHTTPServer):
    """Each request that offers tools takes the next step of the script; what comes after it is answered by "done"."""

    daemon_threads = True

    def __init__(self, steps: list[list[Block]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps = steps
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_step(self, request: dict[str, Any]) -> list[Block]:
        self.requests.append(request)
        return self.steps.pop(0) if self.steps and request.get("tools") else [{"type": "text", "text": "done"}]

    def results(self) -> list[tuple[str, bool]]:
        """What the tools answered, as the model saw it: text, and whether it was an error."""
        found = []
        for message in self.requests[-1]["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block["type"] == "tool_result":
                    content = block["content"]
                    text = content if isinstance(content, str) else "".join(one.get("text", "") for one in content)
                    found.append((text, bool(block.get("is_error"))))
        return found


@contextmanager
def messages_api(*steps: list[Block]) -> Iterator[MessagesApi]:
    api = MessagesApi(list(steps))
    thread = threading.Thread(target=api.serve_forever, name="messages-api")
    thread.start()
    try:
        yield api
    finally:
        api.shutdown()
        thread.join(30)
        api.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MessagesApi

    def log_message(self, format: str, *args: Any) -> None:
        """Not of interest."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.split("?")[0] != "/v1/messages":
            self._send(404, "application/json", b"{}")
            return
        events = _events(self.server.next_step(json.loads(body)))
        lines = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
        self._send(200, "text/event-stream", "".join(lines).encode())

    def do_GET(self) -> None:
        self._send(404, "application/json", b"{}")

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events(blocks: list[Block]) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    empty: Block
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}
