"""Egress: which hosts a sandbox may reach, and what is written down of each request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

PROXY_PORT = 3128  # of a sandbox's own loopback; nobody listens there while a sandbox has no rules
DEFAULT_PORTS = (80, 443)
LOG_KEPT = 1_000  # requests that are remembered, for each sandbox
MOST_RULES = 200

Verdict = Literal["passed", "refused", "failed"]  # failed: allowed, but the host could not be reached or broke off


@dataclass(frozen=True, slots=True)
class HostRule:
    """A host that a sandbox may reach.

    Args:
        host: "example.org"; "*.example.com" for all names below (not "example.com" itself); "*" for every public name;
            an address only together with `private`.
        ports: which of its ports.
        private: it may lie in a private network, or on this machine.
        tls: whether TLS is spoken to it. None: in tunnels (CONNECT) yes; for plain requests only with `headers`.
        headers: secrets that are added to each request on its way out. They never enter the sandbox.
    """

    host: str
    ports: tuple[int, ...] = DEFAULT_PORTS
    private: bool = False
    tls: bool | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def tls_in_tunnels(self) -> bool:
        return self.tls is not False

    @property
    def tls_onward(self) -> bool:
        """Whether a plain request of the sandbox leaves this machine by TLS."""
        return bool(self.headers) if self.tls is None else self.tls


class HostRuleInfo(TypedDict):
    """A rule as it is shown: of the headers only their names."""

    host: str
    ports: list[int]
    private: bool
    tls: bool | None
    headers: list[str]


class EgressRecord(TypedDict):
    """One request of a sandbox. What it asked for beyond host and port may be secret, and is not kept."""

    record_id: int
    at: str
    method: str
    host: str
    port: int
    verdict: Verdict
    rule: str  # the host of the rule that let it pass; "" when there was none
    reason: str  # why it was refused or failed; "" when it passed
    status: int | None  # of the answer that the sandbox got
    sent_bytes: int
    received_bytes: int
    duration_ms: float


def rule_info(rule: HostRule) -> HostRuleInfo:
    return {
        "host": rule.host,
        "ports": list(rule.ports),
        "private": rule.private,
        "tls": rule.tls,
        "headers": sorted(rule.headers),
    }


def rule_document(rule: HostRule) -> dict[str, Any]:
    """All of a rule, secrets too: for the store, and for the way to a server."""
    return {
        "host": rule.host,
        "ports": list(rule.ports),
        "private": rule.private,
        "tls": rule.tls,
        "headers": dict(rule.headers),
    }
