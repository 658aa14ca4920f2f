"""The way from the host to the world: names are looked up here, every address is checked, and the one that was checked
is the one that is connected to."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address

from hutch.policy.hosts import Address, Pass, why_refused

LOOKUP_THREADS = 16
LOOKUPS_OF_ONE = 4  # names of one sandbox that are looked up at once
LOOKUP_SECONDS = 10.0
CONNECT_SECONDS = 10.0
_MOST_ADDRESSES = 32
_MOST_TRIED = 4

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]  # raises OSError


class Refused(Exception):
    """The rules do not let it pass."""


class Failed(Exception):
    """It may pass, but does not get there."""


@dataclass(frozen=True, slots=True)
class Link:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Raises: OSError."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """At once: who has something to say has said it."""
        self.writer.transport.abort()


class SystemResolver:
    """As this machine looks names up. Threads of its own: a name server that hangs must not hold up other work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="hutch-lookup")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host, port)
        return list(dict.fromkeys(str(one[4][0]) for one in found))


def _look_up(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]


@dataclass
class Outside:
    """Shared by the proxies of an engine. Tests put other ones in its place."""

    resolver: Resolver = field(default_factory=SystemResolver)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_places()))  # of all sandboxes

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Whose certificates are believed: those this machine believes, or what SSL_CERT_FILE names."""
        made = ssl.create_default_context()
        made.set_alpn_protocols(["http/1.1"])
        return made

    async def open(self, passed: Pass, lookups: asyncio.Semaphore, *, tls: bool) -> Link:
        """Raises: Refused, Failed."""
        problem = ""
        for address in (await self._checked(passed, lookups))[:_MOST_TRIED]:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(
                        str(address),
                        passed.port,
                        ssl=self.tls if tls else None,
                        server_hostname=passed.host.text if tls else None,
                    )
                return Link(reader, writer)
            except (OSError, UnicodeError) as error:  # of a name that no certificate can be for: UnicodeError
                problem = _said(error)
        raise Failed(f"{passed.host}:{passed.port} cannot be reached: {problem}")

    async def _checked(self, passed: Pass, lookups: asyncio.Semaphore) -> list[Address]:
        """A name that also leads where it must not is not to be trusted at all. Raises: Refused, Failed."""
        found = await self._addresses(passed, lookups)
        for address in found:
            reason = why_refused(address, passed.rule)
            if reason is not None:
                raise Refused(f"it is {reason}" if passed.host.address else f"it leads to {address}, {reason}")
        return found

    async def _addresses(self, passed: Pass, lookups: asyncio.Semaphore) -> list[Address]:
        if passed.host.address is not None:
            return [passed.host.address]
        try:
            async with lookups, asyncio.timeout(LOOKUP_SECONDS):
                found = [ip_address(one) for one in await self.resolver(passed.host.text, passed.port)]
        except (OSError, ValueError) as error:
            raise Failed(f"{passed.host} cannot be looked up: {_said(error)}") from error
        if not found:
            raise Failed(f"{passed.host} has no address")
        return found[:_MOST_ADDRESSES]


def _places() -> int:
    """Each connection takes two descriptors of this process, which needs the others for its sandboxes."""
    return max(64, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8, 8192))


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
