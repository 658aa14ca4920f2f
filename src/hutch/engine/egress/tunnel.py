"""A tunnel (CONNECT): bytes pass unread, but where its rule is for TLS they begin with a greeting to the named host."""

from __future__ import annotations

import asyncio

import h11

from hutch.engine.egress.hello import Greeting, NoGreeting
from hutch.engine.egress.inward import PIECE, Inward
from hutch.engine.egress.outside import Link, Refused
from hutch.engine.egress.relay import Meter, relay
from hutch.policy.hosts import Pass

GREETING_SECONDS = 30.0


async def tunnel(inward: Inward, link: Link, passed: Pass, meter: Meter) -> None:
    """Raises: Refused (after the tunnel was opened), TimeoutError, OSError."""
    meter.status = 200
    await inward.send(h11.Response(status_code=200, reason=b"Connection established", headers=[]))
    first = inward.http.trailing_data[0]
    if passed.rule.tls_in_tunnels:
        async with asyncio.timeout(GREETING_SECONDS):
            first = await _greeting(inward, passed, first)
    if first:
        meter.sent += len(first)
        await link.send(first)
    await relay(inward.stream, link, meter)


async def _greeting(inward: Inward, passed: Pass, first: bytes) -> bytes:
    """All that was sent up to its end. Raises: Refused."""
    greeting = Greeting()
    try:
        complete = greeting.feed(first) if first else False
        while not complete:
            data = await inward.stream.receive(PIECE)
            if not data:
                raise NoGreeting("it ended before TLS was spoken")
            complete = greeting.feed(data)
    except NoGreeting as error:
        raise Refused(f"{error} in the tunnel; a rule with tls: false lets anything through") from None
    name = greeting.server_name
    if name is None and passed.host.address is None:
        raise Refused("the TLS in the tunnel does not say whom it is for")
    if name is not None and name.lower().removesuffix(".") != passed.host.text:
        raise Refused(f"the TLS in the tunnel is for {name[:253]!a}")
    return greeting.data
