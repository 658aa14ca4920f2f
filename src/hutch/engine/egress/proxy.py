"""The proxy of one sandbox. It lives on the engine's loop, takes what the sandbox's loopback brings, and ends with it.

What a hostile sandbox can take here is bounded: connections, by leaving the rest in its own kernel's queue; memory, as
no piece is kept that nobody takes; refusals, which are given one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import h11

from hutch.engine.egress.exchange import new_exchange
from hutch.engine.egress.inward import Inward
from hutch.engine.egress.outside import LOOKUPS_OF_ONE, Failed, Outside, Refused
from hutch.engine.egress.relay import Meter
from hutch.engine.egress.tunnel import tunnel
from hutch.engine.egress.wanted import BadRequest, Wanted, onward, read_request
from hutch.model.egress import HostRule, Verdict
from hutch.model.errors import HutchError
from hutch.policy.hosts import Pass, judge_request, judge_tunnel
from hutch.providers.base import ByteStream, Listener

MOST_CONNECTIONS = 64  # a browser opens 32 to a proxy
REFUSAL_SECONDS = 0.01  # each; a program that asks in vain without end must not keep the engine busy

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Told:
    """How a request went."""

    method: str = ""
    host: str = ""
    port: int = 0
    verdict: Verdict = "passed"
    rule: str = ""
    reason: str = ""
    meter: Meter = field(default_factory=Meter)
    began: float = field(default_factory=time.perf_counter)


class Proxy:
    def __init__(
        self, listener: Listener, rules: Sequence[HostRule], outside: Outside, tell: Callable[[Told], None]
    ) -> None:
        self.rules = tuple(rules)
        self._listener = listener
        self._outside = outside
        self._tell = tell
        self._places = asyncio.Semaphore(MOST_CONNECTIONS)
        self._lookups = asyncio.Semaphore(LOOKUPS_OF_ONE)
        self._refusing = asyncio.Lock()
        self._under_way: dict[asyncio.Task[None], tuple[Wanted, Pass] | None] = {}
        self._accepting = asyncio.create_task(self._accept())

    @property
    def ended(self) -> bool:
        return self._accepting.done()

    def change(self, rules: Sequence[HostRule]) -> None:
        """From now on; what is under way and would not pass any more, or not in the same way, is cut."""
        self.rules = tuple(rules)
        for task, current in list(self._under_way.items()):
            if current is not None and self._judge(current[0]) != current[1]:
                task.cancel()

    async def aclose(self) -> None:
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)

    async def _accept(self) -> None:
        """Ends with the machine, and everything that is under way with it."""
        try:
            while True:
                await self._places.acquire()
                stream = await self._listener.accept()
                task = asyncio.create_task(self._serve(stream))
                self._under_way[task] = None
                task.add_done_callback(self._served)
        except HutchError:
            pass
        finally:
            await self._listener.aclose()
            serving = list(self._under_way)
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        self._places.release()

    async def _serve(self, stream: ByteStream) -> None:
        inward = Inward(stream)
        try:
            async with self._outside.places:
                while (request := await inward.request()) is not None:
                    await self._one(inward, request)
                    if not inward.next_request():
                        return await inward.linger()
        except h11.RemoteProtocolError as error:
            await self._answer_nonsense(inward, error)
        except (OSError, HutchError, h11.LocalProtocolError):
            pass  # it went away, was too slow, or got an answer that is none
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the proxy; nothing of it is quoted
            log.error("egress_fault kind=%s", type(error).__name__)
        finally:
            await stream.aclose()

    async def _answer_nonsense(self, inward: Inward, error: h11.RemoteProtocolError) -> None:
        if not inward.begun:
            with contextlib.suppress(OSError, HutchError, h11.LocalProtocolError):
                told = Told(method="-", verdict="refused", reason=f"it is no HTTP request: {error}")
                await self._refuse(inward, told, error.error_status_hint, "Bad request")

    # -- one request

    async def _one(self, inward: Inward, request: h11.Request) -> None:
        told = Told(method=request.method.decode("ascii")[:20])
        try:
            wanted = read_request(request)
        except BadRequest as error:
            told.verdict, told.reason = "refused", str(error)
            return await self._refuse(inward, told, 400, "Bad request")
        told.method, told.host, told.port = wanted.method, wanted.host.text, wanted.port
        passed = self._judge(wanted)
        if isinstance(passed, str):
            told.verdict, told.reason = "refused", passed
            return await self._refuse(inward, told, 403, "Not allowed by egress rules")
        task = asyncio.current_task()
        assert task is not None
        self._under_way[task] = wanted, passed
        told.rule, told.port = passed.rule.host, passed.port
        try:
            await self._pass(inward, request, wanted, passed, told)
        finally:
            self._under_way[task] = None

    async def _pass(self, inward: Inward, request: h11.Request, wanted: Wanted, passed: Pass, told: Told) -> None:
        try:
            await self._carry(inward, request, wanted, passed, told.meter)
        except Refused as error:
            told.verdict, told.reason = "refused", str(error)
            return await self._refuse(inward, told, 403, "Not allowed by egress rules")
        except Failed as error:
            told.verdict, told.reason = "failed", str(error)
            return await self._refuse(inward, told, 502, "Not reached")
        except asyncio.CancelledError:
            told.verdict, told.reason = "failed", "cut: the rules changed, or the sandbox ended"
            self._tell(told)
            raise
        except (OSError, HutchError, h11.ProtocolError):
            told.verdict, told.reason = "failed", "broken off"
            self._tell(told)
            raise
        self._tell(told)

    async def _carry(self, inward: Inward, request: h11.Request, wanted: Wanted, passed: Pass, meter: Meter) -> None:
        tls = passed.rule.tls_onward and not wanted.tunnel
        link = await self._outside.open(passed, self._lookups, tls=tls)
        try:
            if wanted.tunnel:
                return await tunnel(inward, link, passed, meter)
            there = Wanted(wanted.method, passed.host, passed.port, wanted.path, wanted.websocket)
            sent = onward(request, there, passed.rule.headers, 443 if tls else 80)
            await new_exchange(inward, link, there, meter).run(sent)
        finally:
            link.close()

    def _judge(self, wanted: Wanted) -> Pass | str:
        judge = judge_tunnel if wanted.tunnel else judge_request
        return judge(self.rules, wanted.host, wanted.port)

    async def _refuse(self, inward: Inward, told: Told, status: int, reason: str) -> None:
        """Raises: OSError: the connection is over."""
        if not inward.begun:
            told.meter.status = status
        self._tell(told)
        async with self._refusing:
            await asyncio.sleep(REFUSAL_SECONDS)
        if inward.begun:
            raise ConnectionError("an answer that has begun cannot be taken back")
        await inward.refuse(status, reason, self._text(told))

    def _text(self, told: Told) -> str:
        """For programs, and the models that read what they print."""
        what = f"{told.host}:{told.port}" if told.host else "This request"
        if told.verdict == "failed":
            return f"{what} was let through by the rule for {told.rule}, but: {told.reason}."
        hosts = ", ".join(dict.fromkeys(rule.host for rule in self.rules[:50]))
        rule = f" (rule for {told.rule})" if told.rule else ""
        return (
            f"{what} may not be reached from this sandbox: {told.reason}{rule}. Its egress rules name {hosts}. They are"
            " set from outside: client.egress.set, or hutch egress allow."
        )
