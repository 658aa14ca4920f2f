"""What requests carry, checked for shape; what the values mean is the engine's to judge."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from starlette.requests import Request

from hutch.model.errors import InvalidRequest
from hutch.model.principal import Scope
from hutch.model.process import Leftovers, ProcessSpec, SignalScope

MOST_ARGUMENTS = 10_000


def _text(value: Any) -> str:
    """Names of files may hold bytes that are no text, which pydantic's own type refuses."""
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value


Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]
# What the schemas say beyond the type is told, not checked, here: the engine's own words are better.
Name = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 512})]
Seconds = Annotated[float, Field(allow_inf_nan=False, json_schema_extra={"exclusiveMinimum": 0})]
Whole = Annotated[int, Field(le=2**63 - 1, ge=-(2**63))]  # what databases and files can count to
Signal = Annotated[int, Field(json_schema_extra={"minimum": 1, "maximum": 64})]
Side = Annotated[int, Field(json_schema_extra={"minimum": 1, "maximum": 9999})]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SessionBody(Body):
    user_id: Name
    thread_id: Name
    timeout_minutes: Seconds | None = None
    template: str = "bash"
    shared: bool = False
    renews: bool = Field(default=False, description="The caller had a session, which expired.")


class ContextBody(Body):
    """What is not given stays."""

    cwd: Text | None = None
    env: dict[str, Text] | None = None


class ProcessBody(Body):
    """Bash text in `command`, or an argument vector in `argv`; neither is a shell."""

    command: Text | None = None
    argv: list[Text] = Field(default=[], max_length=MOST_ARGUMENTS)
    env: dict[Text, Text] = {}
    cwd: Text | None = None
    user: str | None = None
    stdin: Literal["empty", "pipe"] = "empty"
    pty: tuple[Side, Side] | None = Field(default=None, description="rows and columns of a terminal")
    timeout: Seconds | None = None
    leftovers: Leftovers = "kill"
    tag: Text | None = None

    def spec(self, default_timeout: float | None) -> ProcessSpec:
        """Raises: InvalidRequest."""
        if self.command is not None and self.argv:
            raise InvalidRequest("Give command or argv, not both.")
        rows_and_columns = self.pty
        if rows_and_columns is not None and not all(0 < side < 10_000 for side in rows_and_columns):
            raise InvalidRequest("A terminal has from 1 to 9999 rows and columns.")
        return ProcessSpec(
            command=self.command,
            argv=tuple(self.argv),
            env=self.env,
            cwd=self.cwd,
            user=self.user,
            stdin=self.stdin,
            pty=rows_and_columns,
            timeout=default_timeout if self.timeout is None else self.timeout,
            leftovers=self.leftovers,
            tag=self.tag,
        )


class SignalBody(Body):
    signum: Signal
    scope: SignalScope = "tree"


class SizeBody(Body):
    rows: Side
    columns: Side


class FolderBody(Body):
    path: Text
    parents: bool = False


class MoveBody(Body):
    source: Text
    target: Text
    overwrite: bool = False


class RuleBody(Body):
    """What the values must be like is the engine's to say."""

    host: Text = Field(description="example.org, *.example.com, or an address with private")
    ports: list[int] | None = Field(default=None, description="Default: 80 and 443.")
    private: bool = Field(default=False, description="It may lie in a private network, or on the server itself.")
    tls: bool | None = Field(default=None, description="Default: in tunnels yes, else only with headers.")
    headers: dict[Text, Text] | None = Field(default=None, description="Secrets that are added to each request.")


class RulesBody(Body):
    rules: list[RuleBody]

    def documents(self) -> list[dict[str, Any]]:
        return [rule.model_dump() for rule in self.rules]

    def hosts(self) -> str:
        """For the audit trail: never the headers."""
        return " ".join(rule.host for rule in self.rules) or "(none)"


class PathBody(Body):
    path: Text


class EditBody(Body):
    path: Text
    old: Text
    new: Text
    replace_all: bool = False


class PathsBody(Body):
    paths: list[Text] = Field(max_length=MOST_ARGUMENTS)


class SaveBody(Body):
    filename: Text = Field(description="In the sandbox.")
    path: Text = Field(description="In the drive.")


class KeyBody(Body):
    name: Text
    scope: Scope = "use"
    tenant: Text | None = Field(default=None, description="Default: that of the key that makes it.")


def raw_query(request: Request, name: str) -> str | None:
    """A parameter of the query with every byte it was sent with; the framework's own reading replaces odd ones.

    Raises: InvalidRequest.
    """
    query = request.scope["query_string"].decode("latin-1")
    try:
        found = parse_qsl(query, keep_blank_values=True, encoding="utf-8", errors="surrogateescape", max_num_fields=100)
    except ValueError:
        raise InvalidRequest("The query has too many parameters.") from None
    return dict(found).get(name)
