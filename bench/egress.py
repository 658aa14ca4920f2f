"""What a request pays for its way through the proxy of a sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.plan import Field
from bench.table import Reading, Row
from bench.timing import Samples

GETS = 100
# Each GET on a connection of its own, as most programs make them; the same program in the sandbox and beside it.
PROGRAM = """
import http.client, json, sys, time
at, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
times = []
for _ in range(count):
    began = time.perf_counter()
    connection = http.client.HTTPConnection(at)
    connection.request("GET", target)
    assert connection.getresponse().read() == b"hello"
    connection.close()
    times.append((time.perf_counter() - began) * 1000)
print(json.dumps(times))
"""


def requests(field: Field) -> list[Row]:
    client = field.free.handle("egress")
    with _host() as port:
        url = f"http://127.0.0.1:{port}/"
        client.egress.set([{"host": "127.0.0.1", "ports": [port], "private": True}])
        client.files.write("gets.py", PROGRAM)
        direct, through = Samples(), Samples()
        for _ in range(max(2, field.plan.rounds // 10)):
            beside = [sys.executable, "-c", PROGRAM, f"127.0.0.1:{port}", "/", str(GETS)]
            done = subprocess.run(beside, capture_output=True, check=True, text=True)
            direct.milliseconds += json.loads(done.stdout)
            said = client.execute(f"python3 gets.py 127.0.0.1:3128 {url} {GETS}")
            if said["exit_code"] != 0:
                raise RuntimeError(f"requests by egress rule went wrong: {said}")
            through.milliseconds += json.loads(said["stdout"])
    client.close_session()
    return [_row(through.reading(), direct.reading())]


def _row(through: Reading, direct: Reading) -> Row:
    return Row("GET through the proxy of egress rules, p50", through, None, "GET from the host itself", direct)


@contextmanager
def _host() -> Iterator[int]:
    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, format: str, *arguments: object) -> None:
            """Not a word."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
