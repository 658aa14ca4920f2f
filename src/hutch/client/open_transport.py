"""From the arguments of a client to the transport it uses."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hutch.client.transport import Transport
from hutch.engine.loop import LoopThread
from hutch.model.errors import InvalidRequest
from hutch.model.principal import KEY_FILE
from hutch.settings import Settings, read_settings
from hutch.settings.values import Unusable, address

if TYPE_CHECKING:
    from hutch.client.http_calls import Caller

POLICY_TEMPLATES = {"strict": "bash", "open": "open"}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    mode: str
    template: str
    settings: Settings
    loop_thread: LoopThread
    transport: Transport
    extra_check: Callable[[str], None] | None  # a profile of the caller's own, judged before the engine's

    @property
    def default_timeout(self) -> float:
        return self.settings.default_command_timeout

    def check_command(self, command: str) -> None:
        """Raises: InvalidRequest, CommandRejected (by the caller's own profile; the template's is judged later)."""
        if not isinstance(command, str):
            raise InvalidRequest(f"command must be a text, not {type(command).__name__}.")
        if self.extra_check is not None:
            self.extra_check(command)


def resolve(
    mode: str,
    server_url: str | None,
    api_key: str | None,
    policy: str | os.PathLike[str] | None,
    template: str | None,
    data_dir: str | os.PathLike[str] | None,
    embeddings: object | None = None,
) -> ClientOptions:
    """Raises: InvalidRequest, SettingsInvalid."""
    if mode not in ("local", "remote"):
        raise InvalidRequest(f"mode must be 'local' or 'remote', not {mode!r}.")
    settings = read_settings()
    chosen, check = _policy(policy, template)
    if mode == "remote":
        if data_dir is not None:
            raise InvalidRequest('data_dir belongs to mode="local": a server has its own.')
        if embeddings is not None:
            raise InvalidRequest('embeddings belong to mode="local": a server is told by HUTCH_EMBEDDINGS_URL.')
        return _remote(settings, server_url, api_key, chosen, check)
    if server_url is not None or api_key is not None:
        raise InvalidRequest('server_url and api_key belong to mode="remote".')
    if data_dir is not None:
        settings = replace(settings, data_dir=Path(data_dir).absolute())
    from hutch.client.in_process import InProcess
    from hutch.engine.drive.embedding import ObjectEmbedder
    from hutch.engine.homes import HOMES

    home = HOMES.get(settings)
    transport = InProcess(home, embedder=None if embeddings is None else ObjectEmbedder(embeddings))
    return ClientOptions(mode, chosen, settings, home.thread, transport, check)


def _remote(
    settings: Settings,
    server_url: str | None,
    api_key: str | None,
    template: str,
    check: Callable[[str], None] | None,
) -> ClientOptions:
    caller, thread = caller_of(settings, server_url, api_key), LoopThread("hutch-client")
    from hutch.client.http import Http

    transport = Http(caller)
    weakref.finalize(transport, thread.let_go, caller.aclose)  # for whoever drops a client without closing it
    return ClientOptions("remote", template, settings, thread, transport, check)


def caller_of(settings: Settings, server_url: str | None, api_key: str | None) -> Caller:
    """The connections to a server, with the key that is given, set, or found here. Raises: InvalidRequest."""
    url = server_url if server_url is not None else settings.server_address()
    if not url:
        raise InvalidRequest('mode="remote" needs server_url, or HUTCH_URL in the environment.')
    try:
        url = address(url)
    except Unusable as error:
        raise InvalidRequest(f"server_url {url!r:.200} cannot be used: {error}.") from None
    from hutch.client.http_calls import Caller, is_loopback

    key = api_key if api_key is not None else settings.api_key
    if key is None and is_loopback(url):
        key = key_of_this_machine(settings.data_dir)
    return Caller(url, key)


def key_of_this_machine(data_dir: Path) -> str | None:
    """The key that the first start of a server left in the data folder, for programs on the same machine."""
    try:
        return (data_dir / KEY_FILE).read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None


def _policy(policy: str | os.PathLike[str] | None, template: str | None) -> tuple[str, Callable[[str], None] | None]:
    """The template to use, and the check of a profile of the caller's own."""
    if policy is None:
        return template or "bash", None
    name = POLICY_TEMPLATES.get(str(policy))
    if name is not None:
        if template is not None and template != name:
            raise InvalidRequest(f"policy {str(policy)!r} belongs to template {name!r}, not {template!r}.")
        return name, None
    from hutch.policy import Judge, load_profile

    path = Path(policy)
    if not path.is_file():
        raise InvalidRequest(f"policy must be 'strict', 'open' or the path of a profile; {str(policy)!r} is neither.")
    return template or "open", Judge(load_profile(path)).check
