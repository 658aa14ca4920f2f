"""The commands of a sandbox, as deepagents runs them."""

from __future__ import annotations

from dataclasses import dataclass

from deepagents.backends.protocol import ExecuteOffloadResult, ExecuteResponse
from deepagents.backends.sandbox import BaseSandbox

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import (
    CommandRejected,
    FileConflict,
    InvalidRequest,
    LimitExceeded,
    PathRejected,
    SandboxFileNotFound,
)
from hutch.tools.ceiling import longest_timeout
from hutch.tools.deepagents.both_ways import BothWays
from hutch.tools.deepagents.captures import CAPTURED_BYTES, inline, offloaded, preview
from hutch.tools.deepagents.notes import note_of
from hutch.tools.deepagents.owner import AnyClient, Owner
from hutch.tools.deepagents.words import storable, told

MERGED = "exec 2>&1; "  # one output, in the order of printing
NOT_RUN = 126
LOG_BYTES = 4 * 1024 * 1024  # fetched at once
# What the caller can mend; the rest (no sandbox to be had, no server) ends the run with its coded error.
TOLD = (CommandRejected, FileConflict, InvalidRequest, LimitExceeded, PathRejected, SandboxFileNotFound)


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command."""

    output: str
    note: str
    exit_code: int
    truncated: bool
    process_id: str | None = None


class Commands(BothWays, BaseSandbox):
    """Runs them in the sandbox of whoever calls."""

    enable_capture_offload = True

    def __init__(
        self,
        client: AnyClient | None = None,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        timeout: float | None = None,
        timeout_minutes: float | None = None,
    ) -> None:
        """Raises: InvalidRequest, SettingsInvalid."""
        self._owner = Owner(client, user_id, thread_id, timeout_minutes)
        self._loop_thread = self._owner.client.loop_thread
        self._timeout = timeout
        self._longest: float | None = None

    @property
    def id(self) -> str:
        """The conversation that the caller is in. Raises: NoActiveSession."""
        return self._owner.thread_id()

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._wait(self.aexecute(command, timeout=timeout))

    @storable
    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command; what it starts in the background lives on. `timeout=0` is the longest that is allowed.

        Raises: SandboxUnavailable, PoolExhausted, ThreadOwnedByOther, NoActiveSession (whose sandbox?).
        """
        ran = await self._run(command, timeout)
        return ExecuteResponse(output=ran.output + ran.note, exit_code=ran.exit_code, truncated=ran.truncated)

    async def _run(self, command: str, timeout: float | None) -> Ran:
        client = self._owner.handle()
        try:
            seconds = await self._there(self._seconds, client, timeout)
            result = await self._there(client.execute, MERGED + command, seconds, leftovers="keep")
        except TOLD as error:
            return Ran(told(error).replace(MERGED, ""), "", NOT_RUN, False)
        output = result["stdout"] + result["stderr"]
        return Ran(output, note_of(result, seconds), result["exit_code"], result["truncated"], result["process_id"])

    async def _seconds(self, client: AsyncSandboxClient, timeout: float | None) -> float | None:
        if timeout is None:
            return self._timeout
        if timeout != 0:
            return timeout
        if self._longest is None:
            self._longest = await longest_timeout(client)
        return self._longest

    def execute_with_offload(
        self,
        command: str,
        capture_path: str,
        *,
        max_inline_bytes: int,
        max_capture_bytes: int | None = None,
        timeout: int | None = None,
    ) -> ExecuteOffloadResult:
        return self._wait(
            self.aexecute_with_offload(
                command,
                capture_path,
                max_inline_bytes=max_inline_bytes,
                max_capture_bytes=max_capture_bytes,
                timeout=timeout,
            )
        )

    async def aexecute_with_offload(
        self,
        command: str,
        capture_path: str,
        *,
        max_inline_bytes: int,
        max_capture_bytes: int | None = None,
        timeout: int | None = None,
    ) -> ExecuteOffloadResult:
        """The same, but of a large output the model sees its two ends only; the rest is in a file at `capture_path`."""
        ran = await self._run(command, timeout)
        raw = ran.output.encode(errors="replace")
        if not self.enable_capture_offload or len(raw) <= max_inline_bytes:
            return inline(ExecuteResponse(ran.output + ran.note, ran.exit_code, ran.truncated))
        most = CAPTURED_BYTES if max_capture_bytes is None else max_capture_bytes
        kept = await self._there(_as_printed, self._owner.handle(), ran, most) if "\ufffd" in ran.output else raw[:most]
        failure = (await self.aupload_files([(capture_path, kept)]))[0].error
        if failure is not None:
            lost = f"{preview(raw)[0]}{ran.note}\n[The rest could not be saved: {failure}]"
            return inline(ExecuteResponse(lost, ran.exit_code, truncated=True))
        return offloaded(kept, ran.note, ran.exit_code, truncated=ran.truncated or len(kept) < len(raw))


async def _as_printed(client: AsyncSandboxClient, ran: Ran, most: int) -> bytes:
    """The bytes of an output that is no text."""
    kept = bytearray()
    while ran.process_id is not None and len(kept) < most:
        chunk = await client.logs(ran.process_id, offset=len(kept), max_bytes=min(LOG_BYTES, most - len(kept)))
        if not chunk["data"]:
            break
        kept += chunk["data"]
    return bytes(kept)
