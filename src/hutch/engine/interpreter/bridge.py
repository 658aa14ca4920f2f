"""Runs in the sandbox, in its own Python: starts an ipykernel and speaks for it in JSON lines.

What comes in (stdin):   {"do": "run", "id": …, "code": …}   {"do": "interrupt"}
What goes out (stdout):  ready · stdout, stderr (text) · part (mime, text, json) closed by display or result ·
                         error (name, value, traceback) · done (id, count, lost) · dead (code)

It is sent as text to `python3 -I -c`, so it stands alone; its arguments are the tree's library folder. Whatever it says
is believed by nobody: the code it runs can reach its descriptors. Between two runs it says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from typing import Any

PIECE = 32_000  # characters of one line
STREAM_CHARACTERS = 10 * 1024 * 1024  # of stdout, and of stderr
RUN_BYTES = 32 * 1024 * 1024  # of all lines of one run
LINE_COST = 200  # of each line, however short: the host has to hold it
MOST_OUTPUTS = 1000
LONGEST_ERROR = 20_000  # characters: however they are escaped, the line is one that the host takes
IDLE_SECONDS = 2.0  # a kernel that has replied says soon that it is idle; what it said before that may have been lost
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

# The tree stands behind what the sandbox installed for itself, and before the system's own packages. What a cell prints
# beyond its share is dropped where it is printed: else it would fill the memory of the kernel, on its way out.
KERNEL = """
import contextlib, sys
library, connection, share = sys.argv[1], sys.argv[2], int(sys.argv[3])
if sys.path[0] == "":
    del sys.path[0]
system = [n for n, p in enumerate(sys.path) if p.startswith("/usr/") and p.endswith("-packages")]
sys.path.insert(system[0] if system else len(sys.path), library)
from IPython.core.interactiveshell import InteractiveShell
from ipykernel.iostream import OutStream
from ipykernel.kernelapp import IPKernelApp
write, left = OutStream.write, {}
def write_share(stream, text):
    cell, room = left.get(stream.name, ("", 0))
    now = stream.parent_header.get("msg_id")
    room = share if now != cell else room
    rest = max(0, room - len(text))
    left[stream.name] = now, rest
    if room:
        write(stream, text[:room])
        if room >> 20 != rest >> 20:
            stream.flush()
    return len(text)
OutStream.write = write_share
if hasattr(InteractiveShell, "_tee"):  # keeps all that was ever printed
    InteractiveShell._tee = lambda self, channel: contextlib.nullcontext()
IPKernelApp.launch_instance(argv=["-f", connection, "--HistoryManager.enabled=False"])
"""


class Bridge:
    def __init__(self, library: str) -> None:
        self.library = library
        self.out = os.dup(1)
        os.dup2(2, 1)  # whatever a library prints is no line of ours
        self.kernel: Any = None
        self.client: Any = None
        self.running = ""  # the id of the request under way
        self.replied = asyncio.Event()
        self.idle = asyncio.Event()
        self.count: int | None = None
        self.leaving = False
        self.lost = self.failed = False
        self.room = 0
        self.left: dict[str, int] = {}
        self.outputs = 0

    # -- saying

    def say(self, **fields: object) -> None:
        line = json.dumps(fields).encode() + b"\n"
        while line:
            line = line[os.write(self.out, line) :]

    def tell(self, **fields: object) -> bool:
        """Of a run; False when it has said as much as it may."""
        size = len(json.dumps(fields)) + LINE_COST
        if not self.running or size > self.room:
            self.lost = self.lost or bool(self.running)
            return False
        self.room -= size
        self.say(**fields)
        return True

    def tell_stream(self, name: str, text: str) -> None:
        kept = text[: self.left.get(name, 0)]
        self.lost = self.lost or (len(kept) < len(text) and bool(self.running))
        self.left[name] = self.left.get(name, 0) - len(kept)
        for start in range(0, len(kept), PIECE):
            if not self.tell(type=name, text=kept[start : start + PIECE]):
                return

    def tell_bundle(self, kind: str, data: dict[str, object]) -> None:
        self.outputs += 1
        if self.outputs > MOST_OUTPUTS:
            self.lost = True
            return
        for mime, value in data.items():
            text = value if isinstance(value, str) else json.dumps(value)
            if len(text) > self.room:
                self.lost = True
                continue
            for start in range(0, max(len(text), 1), PIECE):
                piece = text[start : start + PIECE]
                self.tell(type="part", mime=str(mime)[:200], text=piece, json=not isinstance(value, str))
        self.tell(type=kind)

    # -- the kernel

    async def launch(self) -> None:
        folder = self.folder = tempfile.mkdtemp(prefix=".hutch-code-")
        connection = os.path.join(folder, "connection.json")
        ports = {f"{name}_port": number for number, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)}
        with open(connection, "w") as file:  # noqa: ASYNC230 - nothing else goes on yet
            at = {"transport": "ipc", "ip": os.path.join(folder, "at"), "key": secrets.token_hex(16)}
            json.dump({**at, **ports, "signature_scheme": "hmac-sha256"}, file)
        env = {**os.environ, "IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder, "JPY_PARENT_PID": str(os.getpid())}
        env.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        self.kernel = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", KERNEL, self.library, connection, str(STREAM_CHARACTERS + PIECE)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )

    async def meet(self) -> None:
        """Returns when the kernel is heard."""
        sys.path.insert(0, self.library)
        from jupyter_client.asynchronous import AsyncKernelClient  # while the kernel starts

        self.client = AsyncKernelClient(connection_file=os.path.join(self.folder, "connection.json"))
        self.client.load_connection_file()
        self.client.start_channels(stdin=False, hb=False)
        while True:  # what it publishes reaches us only from some moment on: asked until that is heard
            self.client.kernel_info()
            try:
                await self.client.get_iopub_msg(timeout=0.3)
                return
            except Exception:  # noqa: BLE001 - queue.Empty of whatever library
                pass

    async def listen(self) -> None:
        """Output of the kernel."""
        while True:
            message = await self.client.get_iopub_msg()
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                self.tell_stream("stderr" if content["name"] == "stderr" else "stdout", content["text"])
            elif kind == "execute_result":
                self.tell_bundle("result", content["data"])
            elif kind in ("display_data", "update_display_data"):
                self.tell_bundle("display", content["data"])
            elif kind == "error" and self.running and not self.failed:
                self.failed = True  # and said, whatever there is room for
                traceback = COLOURS.sub("", "\n".join(content["traceback"]))
                self.say(
                    type="error",
                    name=content["ename"][:200],
                    value=content["evalue"][:LONGEST_ERROR],
                    traceback=traceback[-LONGEST_ERROR:],
                )
            elif kind == "status" and content["execution_state"] == "idle" and self.is_of_run(message):
                self.idle.set()

    async def hear(self) -> None:
        """Its replies."""
        while True:
            message = await self.client.get_shell_msg()
            if message["msg_type"] == "execute_reply" and self.is_of_run(message):
                self.count = message["content"].get("execution_count")
                for payload in message["content"].get("payload", ()):
                    if payload.get("source") == "page":  # what `name?` shows
                        self.tell_stream("stdout", COLOURS.sub("", payload["data"].get("text/plain", "")) + "\n")
                    self.leaving = self.leaving or payload.get("source") == "ask_exit"
                self.replied.set()

    def is_of_run(self, message: dict[str, Any]) -> bool:
        return bool(message["parent_header"].get("msg_id") == self.running)

    async def run(self, name: str, code: str) -> None:
        self.replied.clear()
        self.idle.clear()
        self.room, self.lost, self.failed, self.outputs = RUN_BYTES, False, False, 0
        self.left = {"stdout": STREAM_CHARACTERS, "stderr": STREAM_CHARACTERS}
        self.running = self.client.execute(code, allow_stdin=False, stop_on_error=False)
        await self.replied.wait()
        try:
            await asyncio.wait_for(self.idle.wait(), IDLE_SECONDS)
        except asyncio.TimeoutError:  # noqa: UP041 - an older Python's is another one
            self.lost = True
        self.running = ""
        self.say(type="done", id=name, count=self.count, lost=self.lost)
        if self.leaving:  # `exit()` was called
            os.killpg(self.kernel.pid, signal.SIGKILL)

    async def obey(self, orders: asyncio.StreamReader) -> None:
        """What the host wants, until it hangs up."""
        runs = None
        while line := await orders.readline():
            order = json.loads(line)
            if order["do"] == "run":
                if runs is not None:
                    await runs
                runs = asyncio.create_task(self.run(order["id"], order["code"]))
            elif self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.kernel.pid, signal.SIGINT)

    async def die(self) -> None:
        code = await self.kernel.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.say(type="dead", code=code)


async def main() -> None:
    bridge = Bridge(sys.argv[1])
    orders = asyncio.StreamReader(limit=64 * 1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await bridge.launch()
    dying, meeting = asyncio.create_task(bridge.die()), asyncio.create_task(bridge.meet())
    await asyncio.wait({dying, meeting}, return_when=asyncio.FIRST_COMPLETED)
    if meeting.done():
        meeting.result()
        bridge.say(type="ready")
        works = [asyncio.create_task(work) for work in (bridge.listen(), bridge.hear(), bridge.obey(orders))]
        done, _ = await asyncio.wait({dying, *works}, return_when=asyncio.FIRST_COMPLETED)
        for work in done:
            work.result()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
