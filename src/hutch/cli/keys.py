"""`hutch keys`: API keys of this data folder's server or DATABASE_URL's, or of another one, by a key that may admin.

Whoever may write the folder, or the database, may make them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import typer

from hutch.cli import options, show
from hutch.cli.place import Place
from hutch.engine.access import Access, open_access
from hutch.model.errors import InvalidRequest
from hutch.model.principal import LOCAL_TENANT, Scope
from hutch.settings import read_server_settings, read_settings

T = TypeVar("T")


def build_app() -> typer.Typer:
    app = typer.Typer(help="API keys: make, list and revoke them.", no_args_is_help=True, rich_markup_mode=None)
    app.command("create")(options.at_a_place(create))
    app.command("list")(options.at_a_place(list_keys))
    app.command("revoke")(options.at_a_place(revoke))
    return app


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What or whom it is for; shown in lists and the audit.")],
    scope: Annotated[
        str, typer.Option("--scope", help="read, use or admin; each allows what those before it do.")
    ] = "use",
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            metavar="TENANT",
            help="Whose sandboxes it reaches. Default: local, which programs on the data folder itself are; "
            "on a server, that of the key that makes it, and no other.",
        ),
    ] = None,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Make a key. Its text is printed now and kept nowhere."""
    wanted: Any = scope

    async def work(access: Access) -> dict[str, Any]:
        checked: Scope = wanted
        made, info = await access.keys.create(name, tenant or LOCAL_TENANT, checked)
        return {**info, "key": made.text}

    if place.server() is None:
        made = _with_access(work)
    else:
        made = place.ask("POST", "/v1/keys", json={"name": name, "scope": scope, "tenant": tenant})
    if as_json:
        show.document(made)
    else:
        show.line(made["key"])
        show.note(f"key {made['key_id']} may {scope} what belongs to tenant {made['tenant']}; it is not shown again")


def list_keys(as_json: options.Json = False, *, place: Place) -> None:
    """List the keys, revoked ones too. What they are is not kept."""
    if place.server() is None:
        found = _with_access(lambda access: access.keys.list())
    else:
        found = place.ask("GET", "/v1/keys")
    if as_json:
        show.document(found)
        return
    rows = [
        [
            key["key_id"],
            key["name"],
            key["tenant"],
            key["scope"],
            show.when(key["created_at"]),
            "never" if key["last_used_at"] is None else show.when(key["last_used_at"]),
            "revoked" if key["revoked_at"] else "valid",
        ]
        for key in found
    ]
    show.table(["KEY", "NAME", "TENANT", "SCOPE", "MADE", "LAST USED", "STATE"], rows, {"valid": "green"})


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="Its id, as hutch keys list shows it.")],
    *,
    place: Place,
) -> None:
    """Revoke a key. Running servers refuse it within a second."""
    if place.server() is None:
        revoked = _with_access(lambda access: access.keys.revoke(key_id))
    else:
        there = place.ask("GET", "/v1/keys")
        revoked = any(one["key_id"] == key_id and one["revoked_at"] is None for one in there)
        if revoked:
            place.ask("DELETE", f"/v1/keys/{key_id}")
    if not revoked:
        raise InvalidRequest(f"There is no valid key {key_id!r:.80}. hutch keys list shows those there are.")


def _with_access(work: Callable[[Access], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with open_access(read_settings().data_dir, read_server_settings().database_url) as access:
            return await work(access)

    return asyncio.run(run())
