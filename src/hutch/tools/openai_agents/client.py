"""`HutchSandboxClient`: makes, resumes and deletes the sandboxes of agents."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from agents.sandbox.errors import ConfigurationError, ErrorCode
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import Dependencies, Instrumentation, SandboxSession, SandboxSessionState
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.limits import MIB
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.openai_agents.session import HutchSandboxSession, HutchSandboxState, Reach

BACKEND = "hutch"


class HutchSandboxOptions(BaseSandboxClientOptions):
    """Whose sandbox it is, and what it opens.

    Without a `thread_id` each sandbox is a new one; with one it is that conversation's, whoever made it.
    """

    type: Literal["hutch"] = "hutch"
    user_id: str = "openai-agents"
    thread_id: str | None = None
    timeout_minutes: float | None = None
    exposed_ports: tuple[int, ...] = ()


class HutchSandboxClient(BaseSandboxClient[HutchSandboxOptions]):
    """Sandboxes of Hutch for `SandboxRunConfig(client=…)`.

    Args:
        client: where the sandboxes come from; default is this process, with the template `open`.
        exec_seconds: until a command is ended whose caller named no time.
        most_archive_bytes: of a snapshot; a hostile sandbox could send without end.
    """

    backend_id = BACKEND
    supports_default_options = True

    def __init__(
        self,
        client: AsyncSandboxClient | None = None,
        *,
        exec_seconds: float = 300.0,
        most_archive_bytes: int = 20_480 * MIB,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        """Raises: SettingsInvalid."""
        super().__init__()
        self._client = client if client is not None else AsyncSandboxClient(policy="open")
        self._reach = Reach(exec_seconds, most_archive_bytes)
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: HutchSandboxOptions | None = None,
    ) -> SandboxSession:
        """A session whose sandbox is made when it starts. Raises: ConfigurationError."""
        wanted = options if options is not None else HutchSandboxOptions()
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        _refuse_what_is_lacking(manifest)
        session_id = uuid.uuid4()
        state = HutchSandboxState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            exposed_ports=wanted.exposed_ports,
            user_id=wanted.user_id,
            thread_id=wanted.thread_id if wanted.thread_id is not None else f"openai-agents-{session_id.hex}",
            timeout_minutes=wanted.timeout_minutes,
        )
        return self._wrapped(self._session(state))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The sandbox of `state`, with its files; a new one, which starts from the snapshot, if that is gone.

        Raises: ConfigurationError, WorkspaceStartError.
        """
        if not isinstance(state, HutchSandboxState):
            raise TypeError(f"This is not the state of a Hutch sandbox: {type(state).__name__}.")
        state.assert_path_grants_rebound()
        _refuse_what_is_lacking(state.manifest)
        session = self._session(state)
        await session.attach()
        return self._wrapped(session)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End the sandbox and delete its files. Fine when it is gone already."""
        inner = session._inner
        if not isinstance(inner, HutchSandboxSession):
            raise TypeError(f"This is not a session of a Hutch sandbox: {type(inner).__name__}.")
        await inner.delete()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, HutchSandboxState)

    def _session(self, state: HutchSandboxState) -> HutchSandboxSession:
        box = self._client.for_thread(state.user_id, state.thread_id, state.timeout_minutes)
        return HutchSandboxSession(state, box, self._reach)

    def _wrapped(self, session: HutchSandboxSession) -> SandboxSession:
        return self._wrap_session(session, instrumentation=self._instrumentation)


def _refuse_what_is_lacking(manifest: Manifest) -> None:
    """Raises: ConfigurationError."""
    root = str(manifest.root)
    lacking: list[tuple[Any, str]] = [
        (
            root != WORKSPACE_DIR and not root.startswith(WORKSPACE_DIR + "/"),
            f"manifest.root must be {WORKSPACE_DIR} or below it: the files of a sandbox live there",
        ),
        (manifest.users or manifest.groups, "a sandbox has one user; manifest.users and manifest.groups must be empty"),
        (manifest.mount_targets(), "buckets cannot be mounted; copy what the agent needs into the workspace"),
        (manifest.extra_path_grants, f"files outside {WORKSPACE_DIR} cannot be granted; put them below it"),
    ]
    for found, why in lacking:
        if found:
            raise ConfigurationError(
                message=f"Hutch sandbox: {why}.",
                error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
                op="start",
                context={"backend": BACKEND, "manifest_root": root},
            )
