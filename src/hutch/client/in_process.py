"""The transport of `mode="local"`: an engine in this process, on its own thread.

Every call hops to the engine's loop when it comes from another one, so the same client works from any event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from hutch.client.in_process_code import InProcessCode
from hutch.client.in_process_drive import InProcessDrive
from hutch.client.in_process_egress import InProcessEgress
from hutch.client.in_process_git import InProcessGit
from hutch.client.transport import Connection, SessionOrder, WriteOrder
from hutch.engine.assemble import Engine
from hutch.engine.drive.embedding import ObjectEmbedder
from hutch.engine.files import WriteRequest
from hutch.engine.homes import EngineHome
from hutch.engine.sessions import SessionRequest
from hutch.model.errors import NotSupported
from hutch.model.files import FileEvent, FileInfo, FileListing, UploadResult
from hutch.model.preview import Preview, PreviewInfo
from hutch.model.principal import LOCAL_TENANT
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

T = TypeVar("T")
Act = Callable[[Engine], Coroutine[Any, Any, T]]


class InProcess:
    """Implements `Transport`."""

    def __init__(self, home: EngineHome, tenant: str = LOCAL_TENANT, embedder: ObjectEmbedder | None = None) -> None:
        self._home = home
        self._tenant = tenant
        self.egress = InProcessEgress(home, tenant)
        self.code = InProcessCode(home, tenant)
        self.git = InProcessGit(home, tenant)
        self.drive = InProcessDrive(home, tenant, embedder)

    async def _do(self, act: Act[T]) -> T:
        return await self._home.do(act)

    def _each(self, items: Callable[[Engine], AsyncIterator[T]]) -> AsyncIterator[T]:
        return self._home.each(items)

    async def ensure_session(self, order: SessionOrder) -> tuple[SessionInfo, str]:
        request = SessionRequest(
            tenant=self._tenant,
            user_id=order.user_id,
            thread_id=order.thread_id,
            timeout_minutes=order.timeout_minutes,
            template=order.template,
            shared=order.shared,
            renews=order.renews,
        )
        return await self._do(lambda engine: engine.sessions.get_or_create(request))

    async def find_session(self, thread_id: str, user_id: str | None) -> SandboxInfo | None:
        return await self._do(lambda engine: engine.sessions.find_info(self._tenant, thread_id, user_id))

    async def sessions(self) -> list[SandboxInfo]:
        return await self._do(lambda engine: engine.sessions.list(self._tenant))

    async def info(self, sandbox_id: str) -> SandboxInfo:
        return await self._do(lambda engine: engine.sessions.info(self._tenant, sandbox_id))

    async def close_session(self, sandbox_id: str) -> None:
        await self._do(lambda engine: engine.sessions.close(self._tenant, sandbox_id))

    async def set_context(self, sandbox_id: str, *, cwd: str | None, env: Mapping[str, str] | None) -> None:
        await self._do(lambda engine: engine.context.set(self._tenant, sandbox_id, cwd=cwd, env=env))

    async def execute(self, sandbox_id: str, spec: ProcessSpec) -> ExecResult:
        return await self._do(lambda engine: engine.processes.execute(self._tenant, sandbox_id, spec))

    def stream(self, sandbox_id: str, spec: ProcessSpec) -> AsyncIterator[OutputEvent]:
        return self._each(lambda engine: engine.processes.stream(self._tenant, sandbox_id, spec))

    async def start(self, sandbox_id: str, spec: ProcessSpec) -> ProcessInfo:
        return await self._do(lambda engine: engine.processes.start(self._tenant, sandbox_id, spec))

    async def processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return await self._do(lambda engine: engine.processes.list(self._tenant, sandbox_id))

    def attach(self, sandbox_id: str, process_id: str, *, replay: bool) -> AsyncIterator[OutputEvent]:
        return self._each(lambda engine: engine.processes.attach(self._tenant, sandbox_id, process_id, replay=replay))

    async def logs(
        self, sandbox_id: str, process_id: str, *, stream: StreamName, offset: int, max_bytes: int
    ) -> LogChunk:
        return await self._do(
            lambda engine: engine.processes.logs(
                self._tenant, sandbox_id, process_id, stream=stream, offset=offset, max_bytes=max_bytes
            )
        )

    async def wait(self, sandbox_id: str, process_id: str, timeout: float | None) -> ExecResult | None:
        return await self._do(lambda engine: engine.processes.wait(self._tenant, sandbox_id, process_id, timeout))

    async def send_input(self, sandbox_id: str, process_id: str, data: bytes) -> None:
        await self._do(lambda engine: engine.processes.send_input(self._tenant, sandbox_id, process_id, data))

    async def close_input(self, sandbox_id: str, process_id: str) -> None:
        await self._do(lambda engine: engine.processes.close_input(self._tenant, sandbox_id, process_id))

    async def resize(self, sandbox_id: str, process_id: str, rows: int, columns: int) -> None:
        await self._do(lambda engine: engine.processes.resize(self._tenant, sandbox_id, process_id, rows, columns))

    async def signal(self, sandbox_id: str, process_id: str, signum: int, scope: SignalScope) -> None:
        await self._do(lambda engine: engine.processes.signal(self._tenant, sandbox_id, process_id, signum, scope))

    async def kill(self, sandbox_id: str, process_id: str) -> None:
        await self._do(lambda engine: engine.processes.kill(self._tenant, sandbox_id, process_id))

    async def write_file(self, sandbox_id: str, order: WriteOrder, data: AsyncIterator[bytes]) -> UploadResult:
        request = WriteRequest(path=order.path, size=order.size, mode=order.mode, overwrite=order.overwrite)
        return await self._do(lambda engine: engine.files.write(self._tenant, sandbox_id, request, data))

    def read_file(self, sandbox_id: str, path: str, *, offset: int, length: int | None) -> AsyncIterator[bytes]:
        return self._each(
            lambda engine: engine.files.read(self._tenant, sandbox_id, path, offset=offset, length=length)
        )

    async def list_files(self, sandbox_id: str) -> FileListing:
        return await self._do(lambda engine: engine.files.list_files(self._tenant, sandbox_id))

    async def list_tree(self, sandbox_id: str, path: str, *, recursive: bool) -> list[FileInfo]:
        return await self._do(lambda engine: engine.files.list(self._tenant, sandbox_id, path, recursive=recursive))

    async def stat(self, sandbox_id: str, path: str) -> FileInfo:
        return await self._do(lambda engine: engine.files.stat(self._tenant, sandbox_id, path))

    async def mkdir(self, sandbox_id: str, path: str, *, parents: bool) -> None:
        await self._do(lambda engine: engine.files.mkdir(self._tenant, sandbox_id, path, parents=parents))

    async def move(self, sandbox_id: str, source: str, target: str, *, overwrite: bool) -> None:
        await self._do(lambda engine: engine.files.move(self._tenant, sandbox_id, source, target, overwrite=overwrite))

    async def remove(self, sandbox_id: str, path: str, *, recursive: bool) -> None:
        await self._do(lambda engine: engine.files.remove(self._tenant, sandbox_id, path, recursive=recursive))

    def watch(self, sandbox_id: str, path: str, *, recursive: bool) -> AsyncIterator[FileEvent]:
        return self._each(lambda engine: engine.files.watch(self._tenant, sandbox_id, path, recursive=recursive))

    async def connect(self, sandbox_id: str, port: int) -> Connection:
        stream = await self._do(lambda engine: engine.ports.connect(self._tenant, sandbox_id, port))
        return _Hopping(self._home, stream)

    async def preview(self, sandbox_id: str, port: int, expires_in: float | None) -> Preview:
        raise _no_previews()

    async def previews(self, sandbox_id: str) -> list[PreviewInfo]:
        raise _no_previews()

    async def revoke_preview(self, sandbox_id: str, port: int, token_id: str | None) -> None:
        raise _no_previews()

    async def health(self) -> Mapping[str, Any]:
        return await self._do(lambda engine: engine.health())

    async def templates(self) -> list[TemplateInfo]:
        return await self._do(lambda engine: engine.templates())

    async def aclose(self) -> None:
        """The engine belongs to the process, not to one client: it ends at exit."""


def _no_previews() -> NotSupported:
    return NotSupported(
        "A preview is an address of a server, and this client has none: start hutch serve and use "
        'SandboxClient(mode="remote"). In this process, connect(port) reaches the same port.'
    )


class _Hopping:
    """A connection used from any event loop."""

    def __init__(self, home: EngineHome, stream: Connection) -> None:
        self._home = home
        self._stream = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._home.do(lambda _: self._stream.receive(max_bytes))

    async def send(self, data: bytes) -> None:
        await self._home.do(lambda _: self._stream.send(data))

    async def send_eof(self) -> None:
        await self._home.do(lambda _: self._stream.send_eof())

    async def aclose(self) -> None:
        await self._home.do(lambda _: self._stream.aclose())
