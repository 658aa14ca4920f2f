"""Reference pages that are made from the code: `generate_docs.py` writes them, `--check` says which are stale."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hutch.model.errors import ERRORS, HutchError
from hutch.settings.declarations import Declaration, Settings, declarations
from hutch.settings.reading import REFUSED
from hutch.settings.serving import ServerSettings
from hutch.tools.answers import MODEL_BYTES

ROOT = Path(__file__).resolve().parent.parent
_MADE = "<!-- Made by scripts/generate_docs.py; do not edit. -->"


def settings_markdown() -> str:
    rows = [_row(Settings, name, declared) for name, declared in declarations().items()]
    of_servers = [_row(ServerSettings, name, declared) for name, declared in declarations(ServerSettings).items()]
    refused = [_refused_row(name, allowed, remedy) for name, (allowed, remedy) in REFUSED.items()]
    return "\n".join(
        [
            _MADE,
            "# Settings",
            "",
            "Settings are environment variables, read once at the start and checked: a value that cannot be used",
            "stops the program with an error that names the variable, the value and the remedy. An empty value",
            "counts as none. Where a setting has several names, the first that is set counts.",
            "",
            "| Variable | Default | Meaning |",
            "|---|---|---|",
            *rows,
            "",
            "`MIN_POOL_SIZE` <= `POOL_SIZE` <= `MAX_POOL_SIZE`, and `DEFAULT_COMMAND_TIMEOUT` <=",
            "`HUTCH_MAX_COMMAND_TIMEOUT`. The server's address is the first of `HUTCH_URL`, `SANDBOX_URL`,",
            "`AGENT_INFRA_URL`, and `SANDBOX_HOST` with `SANDBOX_PORT`.",
            "",
            "## Of a server",
            "",
            "Read by `hutch serve` only, beside those above; its flags win over them.",
            "",
            "| Variable | Default | Meaning |",
            "|---|---|---|",
            *of_servers,
            "",
            "## Refused",
            "",
            "These promise what Hutch does not do, so a program that sets them is told instead of surprised.",
            "",
            "| Variable | Values that are fine | Otherwise |",
            "|---|---|---|",
            *refused,
            "",
            "`CONTAINER_IMAGE` warns once with provider bubblewrap, which shows the host's own programs.",
            "`USE_SANDBOX_V2` is ignored. `PORT`, `HOST`, `DEBUG`, `WORKERS`, `DATABASE_URL` and `REDIS_*` belong to a",
            "server and mean nothing in a program that uses the library.",
            "",
        ]
    )


def _row(kind: type[Settings] | type[ServerSettings], name: str, declared: Declaration) -> str:
    variables = "<br>".join(f"`{variable}`" for variable in declared.names)
    default = declared.default_text or declared.show(kind.__dataclass_fields__[name].default) or "not set"
    return f"| {variables} | {default} | {declared.meaning} |"


def _refused_row(name: str, allowed: tuple[str, ...], remedy: str) -> str:
    fine = ", ".join(f"`{value}`" for value in allowed) or "none"
    return f"| `{name}` | {fine} | {remedy[0].upper()}{remedy[1:]}. |"


def errors_markdown() -> str:
    rows = [
        f"| `{code}` | `{cls.__name__}` | {cls.http_status} | {'yes' if cls.retryable else 'no'} | {_meaning(cls)} |"
        for code, cls in ERRORS.items()
    ]
    return "\n".join(
        [
            _MADE,
            "# Errors",
            "",
            "One closed table. A code never changes its meaning; over a wire an error is its code, its message and",
            "`details`. A command that fails is no error but a result with its exit code.",
            "",
            "| Code | Class | HTTP | Try again? | Meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "All are `HutchError`. Those about the caller's arguments are also `ValueError`,",
            "`SandboxFileNotFound` is also `FileNotFoundError`, `FileConflict` also `FileExistsError`.",
            "",
        ]
    )


def _meaning(cls: type[HutchError]) -> str:
    return (cls.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()


_TOOLS = f"""\
# Tools

What agents hold. All answer with at most {MODEL_BYTES // 1000} KB (pictures are never cut) and say how to read on.

## The bash tool

`hutch.tools.execute_bash_command` and `hutch.tools.download_sandbox_file` are tools of LangChain, over the process's
own client (`get_sandbox_client()`) and the user's drive; `BashTools(client, files, timeout).get_tools()` makes them
over other ones. User and thread come from the runtime's context. `bind(user_id, thread_id)` and `abind(…)` give the
same as plain functions and as coroutines, together with `read_file`, `write_file`, `edit_file`, `ls`, `glob`, `grep`
and `delete` of the drive.

A result is a dict: `status` (`success` or `error`), `exit_code` and `return_code`, `stdout`, `stderr`,
`execution_time_ms`, `uploaded_files` (below `/workspace`), `session_status` (`created`: the sandbox is new and empty).
Where there is something to say also `timed_out`, `limit`, `killed_processes`, `session_recreated`; when nothing ran,
`error`, `code` (see [errors](errors.md)) and `command`.
"""
_SESSION_TOOLS = """\

## The tools of a session

`SandboxSession.create(…)` and `get_tools()`. All are asynchronous and return text; failures read `ERROR: <code>: …`.
A session's sandbox has template `open`, and no network unless `egress=` names hosts.
"""
_DIRECT_TOOLS = """\

## The direct toolkit

`create_sandbox_tools(base_url, timeout)`: one sandbox that all its users share, absolute paths, sessions by name.
"""


def tools_markdown() -> str:
    from hutch import AsyncSandboxClient
    from hutch.tools import BashTools, SandboxSession, SandboxToolkit

    client = AsyncSandboxClient(template="open")
    bash, session = BashTools(client), SandboxSession(client=client)
    return "\n".join(
        [
            _MADE,
            _TOOLS,
            *_table([bash.execute_bash_command, bash.download_sandbox_file]),
            _SESSION_TOOLS,
            *_table(session.functions()),
            _DIRECT_TOOLS,
            *_table(SandboxToolkit(client=client).functions()),
            "",
        ]
    )


def _table(functions: Sequence[Callable[..., Awaitable[Any]]]) -> list[str]:
    return ["| Tool | Arguments | What it does |", "|---|---|---|", *(_tool_row(function) for function in functions)]


def _tool_row(function: Callable[..., Any]) -> str:
    hints = get_type_hints(function)
    arguments = [
        _argument(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "runtime"
    ]
    purpose = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return f"| `{function.__name__}` | {'<br>'.join(arguments) or 'none'} | {purpose} |"


def _argument(name: str, hint: Any, default: Any) -> str:
    values = [str(value) for kind in (get_args(hint) or ()) for value in _literals(kind)]
    values += [str(value) for value in _literals(hint) if str(value) not in values]
    among = f": {', '.join(dict.fromkeys(values))}" if values else ""
    if default is inspect.Parameter.empty:
        return f"`{name}`{among}"
    return f"`{name}`{among}" + (" (optional)" if default is None else f" = `{default!r}`")


def _literals(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/errors.md": errors_markdown,
    "docs/reference/settings.md": settings_markdown,
    "docs/reference/tools.md": tools_markdown,
}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("generate_docs.py takes --check or nothing", file=sys.stderr)
        return 2
    stale = [name for name, make in PAGES.items() if _text_of(ROOT / name) != make()]
    if arguments == ["--check"]:
        for name in stale:
            print(f"{name} is stale: run scripts/generate_docs.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(PAGES[name](), "utf-8")
        print(f"wrote {name}")
    return 0


def _text_of(file: Path) -> str | None:
    return file.read_text("utf-8") if file.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
