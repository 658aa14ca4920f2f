"""Answers: JSON in ASCII, and errors as codes of the closed table."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hutch.model.errors import HutchError, InvalidRequest, MethodNotAllowed, RequestTooLarge, RouteNotFound
from hutch.model.wire import dumps, pack_error
from hutch.server import trail

RETRY_AFTER_SECONDS = 1
SHOWN_PROBLEMS = 5

log = logging.getLogger(__name__)


class Json(Response):
    """Any value a model's types allow; names that are no text included, which only escapes can carry."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)


def refusal(error: HutchError) -> Json:
    """The answer that an error is."""
    trail.failed(error)
    headers = {}
    if error.retryable:
        headers["retry-after"] = str(round(error.details.get("retry_after", RETRY_AFTER_SECONDS)) or 1)
    if error.http_status == 401:
        headers["www-authenticate"] = "Bearer"
    return Json(pack_error(error), error.http_status, headers)


def internal(error: Exception) -> HutchError:
    """What a caller learns of a mistake of ours: nothing but that there was one."""
    log.error("internal_error type=%s", type(error).__name__, exc_info=error)
    return HutchError("The server made a mistake; its log says more. Please report it.")


def install(app: FastAPI) -> None:
    app.add_exception_handler(HutchError, _coded)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


async def _coded(request: Request, error: Exception) -> Response:
    assert isinstance(error, HutchError)
    return refusal(error)


async def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return refusal(malformed(error))


def malformed(error: RequestValidationError) -> InvalidRequest:
    problems = [
        {"where": ".".join(str(part) for part in one["loc"]), "what": str(one["msg"])[:200]}
        for one in error.errors()[:SHOWN_PROBLEMS]
    ]
    said = "; ".join(f"{one['where']}: {one['what']}" for one in problems)
    return InvalidRequest(f"The request is not as it should be: {said}.", problems=problems)


async def _http(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself, in our words."""
    assert isinstance(error, HTTPException)
    made: HutchError
    if error.status_code == 404:
        made = RouteNotFound(f"There is nothing at {request.url.path!r:.200}. GET /openapi.json lists what there is.")
    elif error.status_code == 405:
        made = MethodNotAllowed(f"{request.method} is not possible at {request.url.path!r:.200}.")
    elif error.status_code == 413:
        made = RequestTooLarge("The request is larger than this server takes.")
    elif error.status_code < 500:
        made = InvalidRequest("The request could not be read.")
    else:
        made = internal(error)
    answer = refusal(made)
    answer.headers.update({name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"})
    return answer


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is there to read it; and that somebody left is nothing to log."""
    return Response(status_code=400)


async def _unexpected(request: Request, error: Exception) -> Response:
    return refusal(internal(error))
