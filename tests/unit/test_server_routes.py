"""What every route of the server keeps to."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, cast

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from hutch.engine.assemble import Engine
from hutch.server.app import create_api
from hutch.server.services import ServerOptions


def _routes() -> list[APIRoute]:
    waiting: list[Any] = list(create_api(cast(Engine, None), ServerOptions()).routes)
    found = []
    while waiting:
        route = waiting.pop()
        waiting += getattr(getattr(route, "original_router", None), "routes", [])
        if isinstance(route, APIRoute):
            found.append(route)
    return found


def _called(dependant: Dependant) -> Iterator[Any]:
    yield dependant.call
    for below in dependant.dependencies:
        yield from _called(below)


def test_nothing_goes_through_a_thread_of_a_pool() -> None:
    """The framework runs what is not `async` in a thread: two switches for each call, and a crowd waits for threads."""
    called = {one for route in _routes() for one in _called(route.dependant)}
    assert len(called) > 30
    assert not [one for one in called if not inspect.iscoroutinefunction(one)]
