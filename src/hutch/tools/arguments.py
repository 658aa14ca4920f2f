"""From a plain coroutine function to a tool of LangChain: what its arguments are, and how a mistake is told.

Models get arguments slightly wrong. What can only be meant in one way is taken so (one text where a list was asked for,
JSON text where an object was); everything else is answered by a text that says what to do.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from langchain_core.tools import InjectedToolArg, StructuredTool
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.v1 import ValidationError as OlderValidationError

from hutch.tools.answers import error_text

RUNTIME = "runtime"  # LangGraph hands its runtime to an argument of that name; models never see it


def as_list(value: object) -> object:
    """A list as it is; one text as a list of one, or of what its JSON says."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            pass
    return [value] if value.strip() else []


def as_mapping(value: object) -> object:
    """An object as it is, or what its JSON says."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            pass
    return value


def tool_of(
    function: Callable[..., Awaitable[Any]], answer: Callable[..., Awaitable[Any]] | None = None
) -> StructuredTool:
    """A tool named and described as `function` is; `answer` is what runs, by default the function itself."""
    name = function.__name__
    return StructuredTool(
        name=name,
        description=_description(function),
        args_schema=schema_of(function),
        coroutine=_with_hints(answer or function, function),
        handle_validation_error=lambda error: error_text("invalid_request", _what_is_wrong(name, error)),
    )


def schema_of(function: Callable[..., Any]) -> type[BaseModel]:
    """The arguments of `function`; a text in `Annotated` describes one."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (_kind(name, hints[name]), _field(hints[name], default))
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _kind(name: str, hint: Any) -> Any:
    if name == RUNTIME:
        return Annotated[Any, InjectedToolArg()]
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kinds = {get_origin(kind) or kind for kind in (get_args(bare) or (bare,))} | {get_origin(bare)}
    if list in kinds:
        return Annotated[bare, BeforeValidator(as_list)]
    if dict in kinds:
        return Annotated[bare, BeforeValidator(as_mapping)]
    return bare


def _field(hint: Any, default: Any) -> Any:
    texts = [text for text in get_args(hint)[1:] if isinstance(text, str)] if get_origin(hint) is Annotated else []
    return Field(default, description=texts[0] if texts else None)


def _description(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or function.__name__)


def _with_hints(run: Callable[..., Awaitable[Any]], function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """LangChain looks at the names of the function that runs for those it has to inject."""
    injected = RUNTIME in inspect.signature(function).parameters

    async def call(**arguments: Any) -> Any:
        return await run(**arguments)

    async def call_with_runtime(runtime: Any = None, **arguments: Any) -> Any:
        return await run(runtime=runtime, **arguments)

    return call_with_runtime if injected else call


def _what_is_wrong(name: str, error: ValidationError | OlderValidationError) -> str:
    parts = []
    for one in error.errors():
        where = ".".join(str(part) for part in one["loc"]) or "the arguments"
        parts.append(f"{where}: {one['msg']}")
    return f"{name} was called wrongly: " + "; ".join(parts)


def tools_of(functions: Sequence[Callable[..., Awaitable[str]]]) -> list[StructuredTool]:
    return [tool_of(function) for function in functions]
