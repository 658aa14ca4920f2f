"""The page of the command line, made from its declarations: writes it, or with `--check` says whether it is stale."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from hutch.cli.verbs import build_app

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/cli.md"
HEAD = """\
<!-- Made by scripts/generate_cli_page.py; do not edit. -->
# The command line

With `--url` (or `HUTCH_URL`) every verb acts on a server instead of this machine's data folder. Without it,
`hutch` runs sandboxes in this process, with the [settings](settings.md) of the environment. Sessions and files live in
the data folder, which all processes of a user share; a running sandbox lives no longer than the process that started
it, and the next command that needs it starts it again from its files, in milliseconds.

Output goes to standard output, messages to standard error, each on a line that begins with `hutch:`. An error's line
is `hutch: <code>: <message>`. Colours and fitted tables are for terminals only, and `NO_COLOR` is heeded. Names and
messages that come out of a sandbox are shown with their control characters spelled out; what a command prints is
passed on as it is, as every remote shell does.

## Exit codes

| Code | Meaning |
|---|---|
| 0 | it worked |
| 1 | a check of `doctor` failed, or a command of `batch` |
| 2 | the line could not be understood |
| 3 | the request was refused: a rejected command, an invalid value, a limit, a session or file that is not there |
| 4 | not now: a wall or the data folder is not in order, all places are taken, no server answers; or a fault of Hutch |
| 124 | (`exec`, `shell`) the command took longer than it may |
| 128 + n | ended by signal n, the command or we; 141 when nobody reads our output any more |

`exec` and `shell` end with the command's own code, whatever it is. With `exec --json` a document is printed only if the
command ran, which tells its codes from ours.

Ctrl-C and SIGTERM end the command and remove the session of its own before `hutch` ends. A second signal some seconds
later ends it at once; what is then left is cleared away by the next `hutch` that runs.
"""


def markdown() -> str:
    app: Any = typer.main.get_command(build_app())
    return "\n".join([HEAD, *_options_of_all(app), *(line for name, verb in _verbs(app) for line in _verb(name, verb))])


def _options_of_all(app: Any) -> list[str]:
    return ["## Options before the verb", "", *_options(app), ""]


def _verbs(group: Any, prefix: str = "hutch") -> Iterator[tuple[str, Any]]:
    for name, verb in group.commands.items():
        if hasattr(verb, "commands"):
            yield from _verbs(verb, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", verb


def _verb(name: str, verb: Any) -> list[str]:
    arguments = [one for one in verb.params if one.param_type_name == "argument"]
    usage = " ".join([name, "[OPTIONS]", *(_shape(one) for one in arguments)])
    lines = [f"## {name}", "", f"    {usage}", "", inspect.cleandoc(verb.help or ""), ""]
    explained = [f"- `{one.metavar}`: {one.help}" for one in arguments if one.help]
    lines += [*explained, ""] if explained else []
    return [*lines, *_options(verb), ""]


def _shape(argument: Any) -> str:
    dots = "..." if argument.nargs == -1 else ""
    return f"{argument.metavar if argument.required else f'[{argument.metavar}]'}{dots}"


def _options(verb: Any) -> list[str]:
    rows = [_option(one) for one in verb.params if one.param_type_name == "option"]
    return ["| Option | Meaning |", "|---|---|", *rows] if rows else []


def _option(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar}"
    return f"| {', '.join(f'`{name}{value}`' for name in names)} | {option.help or ''} |"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("generate_cli_page.py takes --check or nothing", file=sys.stderr)
        return 2
    fresh = PAGE.exists() and PAGE.read_text("utf-8") == markdown()
    if fresh:
        return 0
    if arguments == ["--check"]:
        print("docs/reference/cli.md is stale: run scripts/generate_cli_page.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(markdown(), "utf-8")
    print("wrote docs/reference/cli.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
