"""One plain request: out to its host, with the secrets of its rule, and the answer back, piece by piece."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import h11

from hutch.engine.egress.inward import Inward
from hutch.engine.egress.outside import Failed, Link
from hutch.engine.egress.relay import Meter, relay
from hutch.engine.egress.wanted import Wanted, backward

MOST_HEAD = 64 * 1024
PIECE = 16 * 1024
ANSWER_SECONDS = 600.0  # without a byte from the host: models think for minutes


@dataclass(slots=True)
class Exchange:
    inward: Inward
    link: Link
    wanted: Wanted
    meter: Meter
    http: h11.Connection

    async def run(self, request: h11.Request) -> None:
        """Raises: Failed, while no answer has begun; h11.ProtocolError (the sandbox's), TimeoutError, OSError."""
        await self._send(request)
        if self.inward.http.they_are_waiting_for_100_continue:
            await self.inward.send(h11.InformationalResponse(status_code=100, headers=[]))
        sending = asyncio.create_task(self._send_body())
        answering = asyncio.create_task(self._answer())
        try:
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and (error := sending.exception()) is not None and not isinstance(error, Failed):
                raise error  # the sandbox's side broke; a host that takes no more may still answer
            await answering
        finally:
            sending.cancel()
            answering.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)

    async def _send(self, event: h11.Event) -> None:
        """Raises: Failed when the host takes no more."""
        data = self.http.send(event) or b""
        self.meter.sent += len(data)
        try:
            await self.link.send(data)
        except OSError as error:
            raise Failed(f"{self.wanted.host} broke the connection off") from error

    async def _send_body(self) -> None:
        while (piece := await self.inward.piece()) is not None:
            await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())

    async def _answer(self) -> None:
        while True:
            event = await self._event()
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    return await self._turned(event)
                continue  # hints may be left out
            if isinstance(event, h11.Response):
                self.meter.status = event.status_code
                head = h11.Response(status_code=event.status_code, reason=event.reason, headers=backward(event))
                await self.inward.send(head)
            elif isinstance(event, h11.Data):
                await self.inward.send(h11.Data(data=event.data))
            else:
                return await self.inward.send(h11.EndOfMessage())

    async def _event(self) -> object:
        """Raises: Failed."""
        try:
            while (event := self.http.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(ANSWER_SECONDS):
                    data = await self.link.reader.read(PIECE)
                self.meter.received += len(data)
                self.http.receive_data(data)
        except TimeoutError as error:
            raise Failed(f"{self.wanted.host} does not answer") from error
        except (OSError, h11.RemoteProtocolError) as error:
            raise Failed(f"{self.wanted.host} does not answer as HTTP wants it") from error
        if isinstance(event, h11.ConnectionClosed):
            raise Failed(f"{self.wanted.host} broke the connection off")
        return event

    async def _turned(self, event: h11.InformationalResponse) -> None:
        """Into a WebSocket, with the same host: from here on bytes pass unread."""
        self.meter.status = event.status_code
        await self.inward.send(h11.InformationalResponse(status_code=101, headers=backward(event)))
        for data, send in (
            (self.http.trailing_data[0], self.inward.stream.send),
            (self.inward.http.trailing_data[0], self.link.send),
        ):
            if data:
                await send(data)
        await relay(self.inward.stream, self.link, self.meter)


def new_exchange(inward: Inward, link: Link, wanted: Wanted, meter: Meter) -> Exchange:
    return Exchange(inward, link, wanted, meter, h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD))
