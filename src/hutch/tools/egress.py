"""What a tool says when a sandbox may reach nobody: that, and who can change it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from hutch.model.errors import HutchError, NotSupported
from hutch.tools.workspace import Workspace

HOW = (
    'The sandbox may reach no host. Whoever runs it allows hosts with SandboxSession.create(egress=[{"host": '
    '"example.com"}]), or session.client.egress.allow("example.com") while it runs.'
)
_OWN = ("", "localhost", "127.0.0.1", "::1")


@contextlib.asynccontextmanager
async def no_hosts(workspace: Workspace, url: str) -> AsyncIterator[None]:
    """Failures of what needs the network are explained, where the reason is that there are no rules."""
    try:
        yield
    except HutchError as error:
        if await is_cut_off(workspace, url):
            raise NotSupported(f"{HOW} (It failed with: {str(error)[:300]})") from error
        raise


async def is_cut_off(workspace: Workspace, url: str) -> bool:
    """Whether it cannot be reached as the sandbox has no rules. Raises: HutchError."""
    return is_outside(url) and not await workspace.client.egress.rules()


def is_outside(url: str) -> bool:
    """Whether an address may lie beyond the sandbox; the name of a git remote may."""
    if url.startswith(("/", ".")):
        return False
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return True
    return host is None or host not in _OWN
