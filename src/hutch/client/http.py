"""The transport of `mode="remote"`: the same calls, over HTTP to a server."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from hutch.client.http_calls import Call, Caller, Query, Sending, segment, unreachable
from hutch.client.http_code import HttpCode
from hutch.client.http_drive import HttpDrive
from hutch.client.http_egress import HttpEgress
from hutch.client.http_git import HttpGit
from hutch.client.http_streams import events, open_stream
from hutch.client.transport import Connection, SessionOrder, WriteOrder
from hutch.engine.connections import BROKEN
from hutch.engine.loop import close_items, closing_items
from hutch.model.errors import CommandRejected, HutchError, InvalidRequest, NoActiveSession, SandboxUnavailable
from hutch.model.files import FileEvent, FileInfo, FileListing, UploadResult
from hutch.model.preview import Preview, PreviewInfo
from hutch.model.process import (
    ExecResult,
    LogChunk,
    OutputEvent,
    ProcessInfo,
    ProcessSpec,
    SignalScope,
    StreamName,
)
from hutch.model.session import SandboxInfo, SessionInfo
from hutch.model.template import TemplateInfo
from hutch.model.wire import unpack_chunk, unpack_event

WAITED_AT_MOST = 50.0  # seconds for an answer without a sign of life: what stands between may end longer ones
LONG_POLL = 25.0
START_SECONDS = 30.0
FILE_SECONDS = 60.0
POLICIES_KEPT = 10_000


class Http:
    """Implements `Transport`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.egress = HttpEgress(caller)
        self.code = HttpCode(caller)
        self.git = HttpGit(caller)
        self.drive = HttpDrive(caller)
        self._policies: OrderedDict[str, str] = OrderedDict()  # of sandboxes, by the name of the profile

    def goes_to(self, sending: Sending) -> None:
        """Calls from this event loop go there."""
        self._caller.goes_to(sending)

    # -- sessions

    async def ensure_session(self, order: SessionOrder) -> tuple[SessionInfo, str]:
        body = {
            "user_id": order.user_id,
            "thread_id": order.thread_id,
            "timeout_minutes": order.timeout_minutes,
            "template": order.template,
            "shared": order.shared,
            "renews": order.renews,
        }
        answer = await self._caller.json(Call("PUT", "/v1/sessions", json=body, seconds=START_SECONDS))
        sandbox_id = str(answer.pop("sandbox_id"))
        self._policies[sandbox_id] = str(answer.pop("policy", ""))  # an older server does not say: it alone judges
        if len(self._policies) > POLICIES_KEPT:
            self._policies.popitem(last=False)
        return cast(SessionInfo, answer), sandbox_id

    async def find_session(self, thread_id: str, user_id: str | None) -> SandboxInfo | None:
        try:
            found = await self._caller.json(Call("GET", "/v1/sessions", {"thread_id": thread_id, "user_id": user_id}))
        except NoActiveSession:
            return None
        return cast(SandboxInfo, found[0])

    async def sessions(self) -> list[SandboxInfo]:
        return cast(list[SandboxInfo], await self._caller.json(Call("GET", "/v1/sessions")))

    async def info(self, sandbox_id: str) -> SandboxInfo:
        return cast(SandboxInfo, await self._caller.json(Call("GET", _sandbox(sandbox_id))))

    async def close_session(self, sandbox_id: str) -> None:
        await self._caller.json(Call("DELETE", _sandbox(sandbox_id), seconds=START_SECONDS))
        self._policies.pop(sandbox_id, None)

    async def set_context(self, sandbox_id: str, *, cwd: str | None, env: Mapping[str, str] | None) -> None:
        body = {"cwd": cwd, "env": None if env is None else dict(env)}
        await self._caller.json(Call("PATCH", _sandbox(sandbox_id), json=body, repeat=True))

    # -- commands and processes

    async def execute(self, sandbox_id: str, spec: ProcessSpec) -> ExecResult:
        self._judge(sandbox_id, spec)
        seconds = spec.timeout or 0.0
        if seconds <= WAITED_AT_MOST:
            call = Call("POST", _sandbox(sandbox_id, "exec"), json=_body(spec), seconds=max(0.0, seconds))
            return cast(ExecResult, await self._caller.json(call))
        async with closing_items(self._run(sandbox_id, spec, {"events": "exit"})) as items:
            async for event in items:
                if event["result"] is not None:
                    return event["result"]
        raise SandboxUnavailable("The sandbox ended before the command did.")

    async def stream(self, sandbox_id: str, spec: ProcessSpec) -> AsyncIterator[OutputEvent]:
        self._judge(sandbox_id, spec)
        async with closing_items(self._run(sandbox_id, spec, {})) as items:
            async for event in items:
                yield event

    async def _run(self, sandbox_id: str, spec: ProcessSpec, query: Query) -> AsyncIterator[OutputEvent]:
        """A command that ends when nobody follows it any more; who leaves early waits until it has."""
        items = events(self._caller, Call("POST", _sandbox(sandbox_id, "exec"), query, _body(spec)))
        process_id, ended = "", False
        try:
            async for kind, fields in items:
                if kind == "started":
                    process_id = fields["process_id"]
                    continue
                ended = kind == "exit"
                yield unpack_event(kind, fields)
        except HutchError:
            ended = True
            raise
        finally:
            await close_items(items)
            if process_id and not ended:
                with contextlib.suppress(HutchError):
                    await self.kill(sandbox_id, process_id)
                    await self.wait(sandbox_id, process_id, LONG_POLL)

    async def start(self, sandbox_id: str, spec: ProcessSpec) -> ProcessInfo:
        self._judge(sandbox_id, spec)
        call = Call("POST", _sandbox(sandbox_id, "processes"), json=_body(spec), seconds=START_SECONDS)
        return cast(ProcessInfo, await self._caller.json(call))

    def _judge(self, sandbox_id: str, spec: ProcessSpec) -> None:
        """What the server would refuse anyway is refused here at once. Raises: CommandRejected."""
        if spec.command is not None and self._policies.get(sandbox_id) == "strict":
            from hutch.policy import STRICT, Judge

            try:
                Judge(STRICT).check(spec.command)
            except CommandRejected:
                self._caller.refused += 1
                raise

    async def processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return cast(list[ProcessInfo], await self._caller.json(Call("GET", _sandbox(sandbox_id, "processes"))))

    async def attach(self, sandbox_id: str, process_id: str, *, replay: bool) -> AsyncIterator[OutputEvent]:
        call = Call("GET", _process(sandbox_id, process_id, "events"), {"replay": replay})
        async with closing_items(events(self._caller, call)) as items:
            async for kind, fields in items:
                if kind != "started":
                    yield unpack_event(kind, fields)

    async def logs(
        self, sandbox_id: str, process_id: str, *, stream: StreamName, offset: int, max_bytes: int
    ) -> LogChunk:
        query: Query = {"stream": stream, "offset": offset, "max_bytes": max_bytes}
        return unpack_chunk(await self._caller.json(Call("GET", _process(sandbox_id, process_id, "logs"), query)))

    async def wait(self, sandbox_id: str, process_id: str, timeout: float | None) -> ExecResult | None:
        """In turns: no single call is long enough to be ended by what stands between."""
        left = timeout
        while True:
            turn = LONG_POLL if left is None else max(0.0, min(left, LONG_POLL))
            call = Call("GET", _process(sandbox_id, process_id, "result"), {"timeout": str(turn)}, seconds=turn)
            result = await self._caller.json(call)
            left = None if left is None else left - turn
            if result is not None or (left is not None and left <= 0):
                return cast("ExecResult | None", result)

    async def send_input(self, sandbox_id: str, process_id: str, data: bytes) -> None:
        await self._caller.json(
            Call("POST", _process(sandbox_id, process_id, "input"), content=data, seconds=FILE_SECONDS)
        )

    async def close_input(self, sandbox_id: str, process_id: str) -> None:
        await self._caller.json(Call("DELETE", _process(sandbox_id, process_id, "input"), repeat=False))

    async def resize(self, sandbox_id: str, process_id: str, rows: int, columns: int) -> None:
        body = {"rows": rows, "columns": columns}
        await self._caller.json(Call("POST", _process(sandbox_id, process_id, "resize"), json=body, repeat=True))

    async def signal(self, sandbox_id: str, process_id: str, signum: int, scope: SignalScope) -> None:
        body = {"signum": signum, "scope": scope}
        await self._caller.json(Call("POST", _process(sandbox_id, process_id, "signal"), json=body))

    async def kill(self, sandbox_id: str, process_id: str) -> None:
        await self._caller.json(Call("DELETE", _process(sandbox_id, process_id)))

    # -- files

    async def write_file(self, sandbox_id: str, order: WriteOrder, data: AsyncIterator[bytes]) -> UploadResult:
        if not 0 <= order.mode <= 0o777:
            raise InvalidRequest(f"The mode of a file is from 0 to 0o777, not {order.mode:#o}.")
        query: Query = {"path": order.path, "mode": f"{order.mode:o}", "overwrite": order.overwrite}
        headers = {"content-type": "application/octet-stream"}
        if order.size is not None:
            headers["content-length"] = str(order.size)
        call = Call(
            "PUT",
            _sandbox(sandbox_id, "files"),
            query,
            content=data,
            headers=headers,
            seconds=FILE_SECONDS,
            repeat=False,
        )
        try:
            return cast(UploadResult, await self._caller.json(call))
        finally:
            await close_items(data)

    async def read_file(self, sandbox_id: str, path: str, *, offset: int, length: int | None) -> AsyncIterator[bytes]:
        query: Query = {"path": path, "offset": offset, "length": length}
        call = Call("GET", _sandbox(sandbox_id, "files"), query, seconds=FILE_SECONDS)
        async with self._caller.answer(call) as response:
            try:
                async for piece in response.aiter_stream():
                    yield piece
            except BROKEN as error:
                raise unreachable(self._caller.url, error, sent=True) from error

    async def list_files(self, sandbox_id: str) -> FileListing:
        return cast(FileListing, await self._caller.json(Call("GET", _sandbox(sandbox_id, "files/top"))))

    async def list_tree(self, sandbox_id: str, path: str, *, recursive: bool) -> list[FileInfo]:
        call = Call("GET", _sandbox(sandbox_id, "files/list"), {"path": path, "recursive": recursive})
        return cast(list[FileInfo], await self._caller.json(call))

    async def stat(self, sandbox_id: str, path: str) -> FileInfo:
        return cast(FileInfo, await self._caller.json(Call("GET", _sandbox(sandbox_id, "files/stat"), {"path": path})))

    async def mkdir(self, sandbox_id: str, path: str, *, parents: bool) -> None:
        body = {"path": path, "parents": parents}
        await self._caller.json(Call("POST", _sandbox(sandbox_id, "files/mkdir"), json=body))

    async def move(self, sandbox_id: str, source: str, target: str, *, overwrite: bool) -> None:
        body = {"source": source, "target": target, "overwrite": overwrite}
        await self._caller.json(Call("POST", _sandbox(sandbox_id, "files/move"), json=body))

    async def remove(self, sandbox_id: str, path: str, *, recursive: bool) -> None:
        query: Query = {"path": path, "recursive": recursive}
        await self._caller.json(
            Call("DELETE", _sandbox(sandbox_id, "files"), query, seconds=FILE_SECONDS, repeat=False)
        )

    async def watch(self, sandbox_id: str, path: str, *, recursive: bool) -> AsyncIterator[FileEvent]:
        call = Call("GET", _sandbox(sandbox_id, "files/watch"), {"path": path, "recursive": recursive})
        async with closing_items(events(self._caller, call)) as items:
            async for kind, fields in items:
                if kind == "change":
                    yield cast(FileEvent, fields)

    # -- the rest

    async def connect(self, sandbox_id: str, port: int) -> Connection:
        return await open_stream(self._caller, _sandbox(sandbox_id, f"ports/{port}/stream"))

    async def preview(self, sandbox_id: str, port: int, expires_in: float | None) -> Preview:
        query: Query = {"expires_in": None if expires_in is None else str(float(expires_in))}
        return cast(Preview, await self._caller.json(Call("GET", _sandbox(sandbox_id, f"ports/{port}"), query)))

    async def previews(self, sandbox_id: str) -> list[PreviewInfo]:
        return cast(list[PreviewInfo], await self._caller.json(Call("GET", _sandbox(sandbox_id, "ports"))))

    async def revoke_preview(self, sandbox_id: str, port: int, token_id: str | None) -> None:
        await self._caller.json(Call("DELETE", _sandbox(sandbox_id, f"ports/{port}"), {"token_id": token_id}))

    async def health(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", await self._caller.json(Call("GET", "/v1/doctor", seconds=START_SECONDS)))

    async def templates(self) -> list[TemplateInfo]:
        return cast(list[TemplateInfo], await self._caller.json(Call("GET", "/v1/templates")))

    async def aclose(self) -> None:
        await self._caller.aclose()


def _sandbox(sandbox_id: str, rest: str = "") -> str:
    return f"/v1/sandboxes/{segment(sandbox_id)}" + (f"/{rest}" if rest else "")


def _process(sandbox_id: str, process_id: str, rest: str = "") -> str:
    return _sandbox(sandbox_id, f"processes/{segment(process_id)}" + (f"/{rest}" if rest else ""))


def _body(spec: ProcessSpec) -> dict[str, Any]:
    """Only what differs from the defaults of the API."""
    body = {"env": dict(spec.env), "argv": list(spec.argv), "stdin": spec.stdin, "leftovers": spec.leftovers}
    given = {
        "command": spec.command,
        "cwd": spec.cwd,
        "user": spec.user,
        "pty": spec.pty,
        "timeout": spec.timeout,
        "tag": spec.tag,
    }
    return {**body, **{name: value for name, value in given.items() if value is not None}}
