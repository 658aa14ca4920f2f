"""The longest time that a command may be given."""

from __future__ import annotations

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import InvalidRequest

BEYOND_SECONDS = 10**9


async def longest_timeout(client: AsyncSandboxClient) -> float:
    """The ceiling belongs to whoever runs the sandbox; a request beyond it is refused with the figure.

    Raises: HutchError.
    """
    try:
        await client.execute("true", BEYOND_SECONDS)
    except InvalidRequest as error:
        if "maximum" not in error.details:
            raise
        return float(error.details["maximum"])
    return BEYOND_SECONDS
