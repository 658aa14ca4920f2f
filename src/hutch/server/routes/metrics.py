"""What the server counts, for Prometheus and for `hutch top`."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response

from hutch.server.answers import Json
from hutch.server.auth import Reader
from hutch.server.services import Shared

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response)
async def metrics(caller: Reader, services: Shared, request: Request) -> Response:
    """Numbers of the whole server, in Prometheus' text; with `Accept: application/json` as a list of samples."""
    if services.runs is not None:  # a coordinator counts what it passes on
        services.metrics.now(await services.runs.surveyor.take())
    if request.headers.get("accept", "").partition(";")[0].strip() == "application/json":
        return Json(list(services.metrics.samples()))
    return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
