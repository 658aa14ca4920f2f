"""git in a sandbox: an address for each order of `model/git.py`, made from the table of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from fastapi import APIRouter
from pydantic import create_model
from starlette.requests import Request
from starlette.responses import Response

from hutch.model import git
from hutch.model.git import GIT_VERBS, Credentials, GitOrder
from hutch.model.principal import Principal
from hutch.model.wire import sse
from hutch.server.answers import Json
from hutch.server.auth import User
from hutch.server.bodies import Body, Seconds, Text
from hutch.server.calls import unless_gone
from hutch.server.events import event_stream
from hutch.server.schemas import shape
from hutch.server.services import Services, Shared

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/git", tags=["git"])

# What each answers, and what it does, for the API's description. The rest answer with what git had to say.
ANSWERS: Mapping[str, Any] = {
    "clone": git.GitRepository,
    "init": git.GitRepository,
    "status": git.GitStatus,
    "commit": git.GitCommit,
    "branches": list[git.GitBranch],
    "log": list[git.GitLogEntry],
    "diff": git.GitDiff,
    "remotes": list[git.GitRemote],
    "config": git.GitConfigValue,
}


class CredentialsBody(Body):
    """For this one call over HTTP; kept nowhere."""

    username: Text
    password: Text


_KINDS: Mapping[Any, Any] = {
    str: Text,
    str | None: Text | None,
    tuple[str, ...]: list[Text],
    float | None: Seconds | None,
    Credentials | None: CredentialsBody | None,
}


def _body(kind: type[GitOrder]) -> type[Body]:
    hints = get_type_hints(kind)
    made = {
        one.name: (_KINDS.get(hints[one.name], hints[one.name]), ... if one.default is MISSING else one.default)
        for one in fields(kind)
    }
    model: type[Body] = create_model(f"Git{kind.__name__}Body", __base__=Body, **made)  # type: ignore[call-overload]  # as pydantic documents it
    return model


def _order(kind: type[GitOrder], body: Body) -> GitOrder:
    given: dict[str, Any] = {name: getattr(body, name) for name in type(body).model_fields}
    if isinstance(found := given.get("credentials"), CredentialsBody):
        given["credentials"] = Credentials(found.username, found.password)
    make: Callable[..., GitOrder] = kind
    return make(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def _endpoint(verb: str, kind: type[GitOrder]) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def endpoint(
        sandbox_id: str, body: Body, caller: Principal, services: Services, request: Request
    ) -> Response:
        work = services.engine.git.do(caller.tenant, sandbox_id, _order(kind, body))
        if "text/event-stream" not in request.headers.get("accept", ""):
            return Json(await unless_gone(request.receive, work))
        return event_stream(_one_event(work))

    endpoint.__name__ = verb.replace("-", "_")
    endpoint.__doc__ = f"`git {verb}`; with `Accept: text/event-stream` as one event, `answer`, kept alive until then."
    endpoint.__annotations__ = {
        "sandbox_id": str,
        "body": _body(kind),
        "caller": User,  # for reading, too: a program runs in the sandbox
        "services": Shared,
        "request": Request,
        "return": Response,
    }
    return endpoint


async def _one_event(work: Coroutine[Any, Any, Any]) -> AsyncIterator[bytes]:
    yield sse("answer", {"answer": await work})


for _verb, _kind in GIT_VERBS.items():
    _answer = shape(ANSWERS.get(_verb, git.GitDone))
    router.add_api_route(f"/{_verb}", _endpoint(_verb, _kind), methods=["POST"], response_model=_answer)
