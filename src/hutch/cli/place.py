"""Where a verb acts: on this machine's data folder, or on a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hutch.model.errors import InvalidRequest, SettingsInvalid

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

HERE = "http://localhost:8000"


@dataclass(frozen=True, slots=True)
class Place:
    """As the line named it."""

    url: str | None = None
    api_key: str | None = None

    def server(self) -> str | None:
        """The server's address; None: the data folder. Raises: InvalidRequest, SettingsInvalid."""
        from hutch.settings import read_settings

        if self.url is not None:
            return self.url
        settings = read_settings()
        found = settings.server_address()
        if settings.sources.get("server_url") == "HUTCH_URL" or (settings.mode == "remote" and found):
            return found
        if settings.mode == "remote":
            raise InvalidRequest("SANDBOX_MODE=remote needs an address: set HUTCH_URL, or say --url.")
        if self.api_key is not None:
            raise InvalidRequest("--api-key belongs to a server: say --url, too, or set HUTCH_URL.")
        return None

    def served(self) -> Place:
        """For verbs that only a server knows: this machine's, unless another one is named. Raises: SettingsInvalid."""
        from hutch.settings import read_settings

        return Place(self.url or read_settings().server_address() or HERE, self.api_key)

    def server_if_known(self) -> str | None:
        """The same for verbs that must work where settings are broken. Raises: InvalidRequest."""
        try:
            return self.server()
        except SettingsInvalid:
            return None

    def client(self, policy: str | None = None, template: str | None = None) -> SandboxClient:
        """Raises: InvalidRequest, SettingsInvalid."""
        from hutch.client.sync_client import SandboxClient

        return SandboxClient(**self.arguments(), policy=policy, template=template)

    def arguments(self) -> dict[str, Any]:
        """What makes a client act here."""
        url = self.server()
        return {} if url is None else {"mode": "remote", "server_url": url, "api_key": self.api_key}

    def ask(self, method: str, path: str, query: Mapping[str, Any] | None = None, json: Any = None) -> Any:
        """A server's answer to a call that no client method makes. Raises: HutchError."""
        import asyncio

        from hutch.client.http_calls import Call
        from hutch.client.open_transport import caller_of
        from hutch.settings import read_settings

        async def work() -> Any:
            caller = caller_of(read_settings(), self.server(), self.api_key)
            try:
                return await caller.json(Call(method, path, query or {}, json))
            finally:
                await caller.aclose()

        return asyncio.run(work())
