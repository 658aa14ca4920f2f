"""The clients that settings alone describe: for tools, which get no arguments of their own."""

from __future__ import annotations

from dataclasses import dataclass

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.portal import Portal
from hutch.client.sync_client import SandboxClient
from hutch.settings import read_settings


@dataclass(frozen=True, slots=True)
class Place:
    """Where sandboxes run, as SANDBOX_MODE and the address of a server say it; without an address: here."""

    server_url: str | None
    data_dir: str


def place_by_settings() -> Place:
    """Raises: SettingsInvalid."""
    settings = read_settings()
    url = settings.server_address()
    if "mode" in settings.sources:
        url = (url or "") if settings.mode == "remote" else None  # remote without an address: the client says so
    return Place(url, str(settings.data_dir))


def client_at(place: Place, *, template: str | None = None, api_key: str | None = None) -> AsyncSandboxClient:
    """Raises: InvalidRequest, SettingsInvalid."""
    if place.server_url is None:
        return AsyncSandboxClient(template=template, data_dir=place.data_dir)
    return AsyncSandboxClient("remote", place.server_url, api_key=api_key, template=template)


def plain(client: AsyncSandboxClient) -> SandboxClient:
    """The sync face of `client`, with the same sessions and connections."""
    return SandboxClient._over(client, Portal(client.loop_thread))
