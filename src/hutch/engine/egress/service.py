"""Rules of sandboxes: kept, shown, changed while running, and brought back with the machine.

The process that runs a sandbox answers its proxy. Another one that shares the data folder may change the rules: the
first notices within a second, and the call waits until it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hutch.engine.egress.notes import Notes
from hutch.engine.live import LiveSandbox
from hutch.engine.ownership import try_lock
from hutch.engine.sandboxes import Sandboxes, expired
from hutch.model.egress import (
    LOG_KEPT,
    PROXY_PORT,
    EgressRecord,
    HostRule,
    HostRuleInfo,
    Verdict,
    rule_document,
    rule_info,
)
from hutch.model.errors import Forbidden, HutchError, InvalidRequest, NotSupported, SandboxUnavailable
from hutch.policy.hosts import parse_rules
from hutch.providers.base import Capabilities, Machine
from hutch.store.egress import Documents, EgressStore, RequestRecord, RulesRecord

if TYPE_CHECKING:
    from hutch.engine.egress.outside import Outside
    from hutch.engine.egress.proxy import Proxy, Told

LOOK_SECONDS = 1.0
IN_FORCE_SECONDS = 10.0
Rules = Iterable[HostRule | Mapping[str, Any]]

_URL = f"http://127.0.0.1:{PROXY_PORT}"
_VARIABLES = {"http_proxy": _URL, "https_proxy": _URL, "all_proxy": _URL, "no_proxy": "localhost,127.0.0.1"}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seat:
    """What this process knows of a sandbox that has, or had, rules."""

    rules: tuple[HostRule, ...] = ()
    revision: int = 0
    proxy: Proxy | None = None
    applying: asyncio.Lock = field(default_factory=asyncio.Lock)


class Egress:
    def __init__(
        self,
        *,
        sandboxes: Sandboxes,
        store: EgressStore,
        worker_id: str,
        capabilities: Capabilities,
        private_tenants: frozenset[str],
    ) -> None:
        self._sandboxes = sandboxes
        self._store = store
        self._worker_id = worker_id
        self._capabilities = capabilities
        self._private_tenants = private_tenants
        self._notes = Notes(store)
        self._seats: dict[str, _Seat] = {}
        self._following: asyncio.Task[None] | None = None
        self.outside: Outside | None = None  # made when the first sandbox has rules
        self.requests: Counter[Verdict] = Counter()
        sandboxes.on_machine = self._machine_runs

    # -- what users ask

    async def rules(self, tenant: str, sandbox_id: str) -> list[HostRuleInfo]:
        """Without the values of headers. Raises: SessionExpiredError, StoreUnavailable."""
        await self._sandboxes.find(tenant, sandbox_id)
        return [rule_info(rule) for rule in _rules(await self._store.rules(sandbox_id))]

    async def set(self, tenant: str, sandbox_id: str, rules: Rules) -> list[HostRuleInfo]:
        """Instead of those before; none: nothing passes. What is under way and would not pass any more is cut.

        Raises: InvalidRequest, NotSupported, Forbidden, FileConflict (the proxy's port is taken in the sandbox),
            SessionExpiredError, SandboxUnavailable, StoreUnavailable.
        """
        checked = [rule_document(rule) for rule in self._checked(tenant, rules)]
        return await self._change(tenant, sandbox_id, lambda _: checked)

    async def allow(self, tenant: str, sandbox_id: str, rules: Rules) -> list[HostRuleInfo]:
        """Beside those there are; one for the same host takes the place of the earlier one. Raises: as `set`."""
        checked = [rule_document(rule) for rule in self._checked(tenant, rules)]

        def added(before: Documents) -> Documents:
            hosts = {rule["host"] for rule in checked}
            together = [rule for rule in before if rule["host"] not in hosts] + checked
            parse_rules(together)  # there may be too many now
            return together

        return await self._change(tenant, sandbox_id, added)

    async def log(self, tenant: str, sandbox_id: str, *, after: int = 0, limit: int = 100) -> list[EgressRecord]:
        """The latest requests, the oldest first. Raises: InvalidRequest, SessionExpiredError, StoreUnavailable."""
        if not 0 < limit <= LOG_KEPT or not 0 <= after < 2**63:
            raise InvalidRequest(f"limit is from 1 to {LOG_KEPT}, after is the record_id of a record, or 0.")
        await self._sandboxes.find(tenant, sandbox_id)
        return await self._notes.list(sandbox_id, after, limit)

    def env(self, live: LiveSandbox, *given: Mapping[str, str]) -> dict[str, str]:
        """What tells programs of the proxy. A name that was given, in small or capital letters, is left alone."""
        seat = self._seats.get(live.sandbox_id)
        if seat is None or not seat.rules:
            return {}
        taken = {name.lower() for one in given for name in one}
        ours = {name: value for name, value in _VARIABLES.items() if name not in taken}
        return {**ours, **{name.upper(): value for name, value in ours.items()}}

    def _checked(self, tenant: str, rules: Rules) -> tuple[HostRule, ...]:
        checked = parse_rules(rules)
        if checked and not self._capabilities.listen:
            raise NotSupported("This provider cannot let a sandbox reach hosts by rule: its sandboxes have no network.")
        allowed = {"*", tenant} & self._private_tenants
        if not allowed and any(rule.private for rule in checked):
            raise Forbidden(
                f"Tenant {tenant!r} may not reach private addresses from here: they are this server's own network. "
                "Whoever runs it may name the tenant in HUTCH_EGRESS_PRIVATE_TENANTS."
            )
        return checked

    async def _change(
        self, tenant: str, sandbox_id: str, change: Callable[[Documents], Documents]
    ) -> list[HostRuleInfo]:
        live = await self._sandboxes.find(tenant, sandbox_id)
        live.touch()
        record = await self._store.change(sandbox_id, change)
        if record is None:
            raise expired()
        if live.lock is None and _held_elsewhere(live):
            await self._taken_elsewhere(sandbox_id, record.revision)
        await self._apply(live, record)
        return [rule_info(rule) for rule in _rules(record)]

    async def _taken_elsewhere(self, sandbox_id: str, revision: int) -> None:
        until = time.monotonic() + IN_FORCE_SECONDS
        while (await self._store.rules(sandbox_id)).in_force < revision:
            if time.monotonic() > until:
                raise SandboxUnavailable(
                    "The rules are kept, but the process that runs this sandbox has not taken them yet. Stop that "
                    "process, or wait for it."
                )
            await asyncio.sleep(0.05)

    # -- bringing rules into force

    async def _machine_runs(self, live: LiveSandbox, machine: Machine) -> None:
        """Before anything is done with it. Raises: HutchError: it has no network then."""
        record = await self._store.rules(live.sandbox_id)
        if record.revision:
            await self._apply(live, record)

    async def _apply(self, live: LiveSandbox, record: RulesRecord) -> None:
        """Raises: FileConflict, NotSupported, SandboxUnavailable, StoreUnavailable."""
        seat = self._seats.setdefault(live.sandbox_id, _Seat())
        async with seat.applying:
            if record.revision < seat.revision:
                return
            rules, machine = _rules(record), live.machine
            if live.lock is not None and machine is not None and machine.alive:
                await self._serve(live, machine, seat, rules)
                await self._store.now_in_force(live.sandbox_id, record.revision)
            seat.rules, seat.revision = rules, record.revision

    async def _serve(self, live: LiveSandbox, machine: Machine, seat: _Seat, rules: tuple[HostRule, ...]) -> None:
        """Without rules nobody listens in the sandbox."""
        proxy = seat.proxy if seat.proxy is not None and not seat.proxy.ended else None
        if proxy is not None and rules:
            return proxy.change(rules)
        seat.proxy = None
        if proxy is not None:
            await proxy.aclose()
        if rules:
            from hutch.engine.egress.outside import Outside
            from hutch.engine.egress.proxy import Proxy

            self.outside = self.outside or Outside()
            listener = await machine.listen(PROXY_PORT)
            seat.proxy = Proxy(listener, rules, self.outside, lambda told: self._note(live.sandbox_id, told))

    def _note(self, sandbox_id: str, told: Told) -> None:
        self.requests[told.verdict] += 1
        self._notes.add(
            RequestRecord(
                sandbox_id=sandbox_id,
                at=time.time(),
                method=told.method,
                host=told.host,
                port=told.port,
                verdict=told.verdict,
                rule=told.rule,
                reason=told.reason[:500],
                status=told.meter.status,
                sent_bytes=told.meter.sent,
                received_bytes=told.meter.received,
                duration_ms=round((time.perf_counter() - told.began) * 1000, 3),
            )
        )

    # -- what other processes change

    def start(self) -> None:
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            running = {live.sandbox_id: live for live in self._sandboxes.live.values() if live.running}
            if not running:
                continue
            try:
                await self._look(running)
            except HutchError as error:
                log.warning("egress_look_failed code=%s reason=%s", error.code, error)

    async def _look(self, running: Mapping[str, LiveSandbox]) -> None:
        """Raises: StoreUnavailable."""
        revisions = await self._store.revisions(self._worker_id)
        for sandbox_id in [one for one in self._seats if one not in revisions and one not in running]:
            del self._seats[sandbox_id]
        for sandbox_id, revision in revisions.items():
            live = running.get(sandbox_id)
            if live is not None and self._behind(live, revision):
                try:
                    await self._apply(live, await self._store.rules(sandbox_id))
                except HutchError as error:
                    log.warning("egress_not_in_force sandbox=%s code=%s reason=%s", sandbox_id, error.code, error)

    def _behind(self, live: LiveSandbox, revision: int) -> bool:
        seat = self._seats.get(live.sandbox_id)
        if seat is None or seat.revision < revision:
            return True
        return live.lock is not None and bool(seat.rules) and (seat.proxy is None or seat.proxy.ended)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        proxies = [seat.proxy for seat in self._seats.values() if seat.proxy is not None]
        await asyncio.gather(*(proxy.aclose() for proxy in proxies), return_exceptions=True)
        with contextlib.suppress(HutchError):
            await self._notes.close()


def _rules(record: RulesRecord) -> tuple[HostRule, ...]:
    return tuple(HostRule(**{**one, "ports": tuple(one["ports"])}) for one in record.rules)


def _held_elsewhere(live: LiveSandbox) -> bool:
    """Whether another process runs it."""
    if not live.spec.folder.exists():
        return False
    lock = try_lock(live.spec.folder)
    if lock is not None:
        lock.release()
    return lock is None
