"""What answers look like, for the API's description: made from the types of `model/`; they never change an answer."""

from __future__ import annotations

from functools import cache
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, Field, create_model


def shape(kind: Any) -> Any:
    """The pydantic model of a TypedDict, also within lists and alternatives; other types as they are."""
    if is_typeddict(kind):
        return _model(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired):
        return shape(arguments[0])
    if origin is list:
        return list[shape(arguments[0])]  # type: ignore[misc]  # a type made at run time
    if arguments and type(None) in arguments:
        others = [shape(one) for one in arguments if one is not type(None)]
        made: Any = others[0]
        for other in others[1:]:
            made = made | other
        return made | None
    return str if kind is bytes else kind


@cache
def _model(kind: type) -> type[BaseModel]:
    fields: dict[str, Any] = {name: (shape(hint), ...) for name, hint in get_type_hints(kind).items()}
    made: type[BaseModel] = create_model(kind.__name__, **fields)
    return made


class ErrorAnswer(BaseModel):
    """Every refusal."""

    code: str = Field(description="one of the closed table in docs/reference/errors.md")
    message: str
    details: dict[str, Any]
    retryable: bool


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "The caller's mistake, or something that is not there."},
    "5XX": {
        "model": ErrorAnswer,
        "description": "The sandbox could not be had; `retryable` says whether to try again.",
    },
}
