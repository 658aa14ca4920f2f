"""`client.egress`: which hosts a sandbox may reach, and which it asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hutch.client.transport_egress import Documents, EgressTransport
from hutch.model.egress import EgressRecord, HostRule, HostRuleInfo, rule_document
from hutch.model.errors import InvalidRequest


class AsyncEgress:
    """A sandbox has no network. By its rules, programs in it reach the hosts that are named, through a proxy."""

    def __init__(self, transport: EgressTransport, sandbox: Callable[[], Awaitable[str]]) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def rules(self) -> list[HostRuleInfo]:
        """The rules there are; of secret headers only the names. Raises: NoActiveSession, SessionExpiredError."""
        return await self._transport.rules(await self._sandbox())

    async def set(self, rules: Sequence[HostRule | Mapping[str, Any]]) -> list[HostRuleInfo]:
        """Let the sandbox reach these hosts and no others, from now on; an empty list: none.

        Args:
            rules: such as `{"host": "example.org"}` or `HostRule("*.example.com", ports=(443,))`; see `HostRule`.

        Connections that are open and would not pass any more are cut. The rules stay through restarts of the sandbox.

        Raises: InvalidRequest, NotSupported, Forbidden, FileConflict (port 3128 is taken in the sandbox),
            NoActiveSession, SessionExpiredError, SandboxUnavailable.
        """
        return await self._transport.set(await self._sandbox(), _documents(rules))

    async def allow(self, *rules: HostRule | Mapping[str, Any] | str) -> list[HostRuleInfo]:
        """Let the sandbox reach these hosts, too (a name alone is a rule). A rule for a host that has one replaces it.

        Raises: as `set`.
        """
        named = [{"host": rule} if isinstance(rule, str) else rule for rule in rules]
        return await self._transport.allow(await self._sandbox(), _documents(named))

    async def log(self, *, after: int = 0, limit: int = 100) -> list[EgressRecord]:
        """The latest requests with a `record_id` above `after`, the oldest first; the last 1,000 are kept.

        Raises: InvalidRequest, NoActiveSession, SessionExpiredError.
        """
        return await self._transport.log(await self._sandbox(), after=after, limit=limit)


def _documents(rules: Sequence[HostRule | Mapping[str, Any]]) -> Documents:
    """As they travel; whether they can be used is judged where the sandbox is. Raises: InvalidRequest."""
    found: Documents = []
    for rule in rules if isinstance(rules, Sequence) and not isinstance(rules, str | bytes) else [None]:
        if isinstance(rule, HostRule):
            found.append(rule_document(rule))
        elif isinstance(rule, Mapping):
            found.append(dict(rule))
        else:
            raise InvalidRequest('Egress rules are a list of rules, such as [{"host": "example.org"}].')
    return found
