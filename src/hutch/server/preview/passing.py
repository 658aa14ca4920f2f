"""The previews of a coordinator: it finds the worker that has the sandbox, which judges who may see what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hutch.cluster.locate import Locator
from hutch.model.errors import HutchError, NotSupported
from hutch.server.answers import internal, refusal
from hutch.server.calls import passing_on
from hutch.server.coordinator import body_of
from hutch.server.forward import At, Forward, has_body
from hutch.server.guard import check_peer, networks_of, paced
from hutch.server.preview.address import front, place_of
from hutch.server.preview.app import no_such_preview
from hutch.server.services import ServerOptions


def passing_previews(locator: Locator, forward: Forward, options: ServerOptions) -> ASGIApp | None:
    """None without an address for previews. Raises: SettingsInvalid."""
    return _Passing(locator, forward, options, options.preview_url) if options.preview_url is not None else None


class _Passing:
    def __init__(self, locator: Locator, forward: Forward, options: ServerOptions, url: str) -> None:
        self._locator = locator
        self._forward = forward
        self._front = front(url)
        self._names = options.names
        self._peers = networks_of(options.peers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            check_peer(scope, self._peers)
            if scope["type"] == "websocket":
                await self._pass_on(scope, receive, paced(watched))
            else:
                await passing_on(partial(self._pass_on, scope), receive, paced(watched), body=has_body(scope))
        except ClientDisconnect:
            if not begun:
                await Response(status_code=400)(scope, receive, send)  # to nobody
        except ConnectionError:
            raise
        except Exception as error:
            known = error if isinstance(error, HutchError) else internal(error)
            if begun:
                raise ConnectionAbortedError(known.code) from error
            await refusal(known)(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises: HutchError."""
        place = place_of(scope, self._front.name, self._names)
        if place is None:
            raise no_such_preview()
        worker = await self._locator.anybodys(place.sandbox_id)
        if worker.preview_url is None:
            raise NotSupported(f"Worker {worker.worker_id}, which has this sandbox, has no previews.")
        # By path it may be any name of ours, of which the worker knows only the one that all share.
        at = At(worker.preview_url, place.host if place.by_host else self._front.host())
        if scope["type"] == "websocket":
            return await self._forward.websocket(worker, scope, receive, send, at)
        body: AsyncIterator[bytes] | bytes = body_of(scope, receive)
        await self._forward.relay(worker, await self._forward.ask(worker, scope, body, at), send)
