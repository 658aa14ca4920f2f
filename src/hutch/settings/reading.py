"""From the environment to checked settings. Nothing else in Hutch looks at the environment."""

from __future__ import annotations

import os
import pwd
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hutch.model.errors import SettingsInvalid
from hutch.model.session import WORKSPACE_DIR
from hutch.model.template import BASH
from hutch.settings.declarations import Declaration, Settings, both, declarations
from hutch.settings.serving import ServerSettings
from hutch.settings.values import Unusable

SANDBOX_USER = "sandboxuser"
_MIN_POOL_SIZE = 3  # unless POOL_SIZE is smaller
# Settings of other programs of this kind that promise what Hutch does not do: allowed values, and what to do instead.
REFUSED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "HOST_WORKSPACE_PATH": ((), "unset it: a folder of the host is never shared with sandboxes; upload files instead"),
    "DOCKER_NETWORK_MODE": (
        ("none",),
        "unset it: sandboxes have no network. Hosts they may reach will be named by HUTCH_EGRESS_HOSTS",
    ),
    "HUTCH_EGRESS_HOSTS": ((), "unset it: this version gives sandboxes no network"),
    "WORKSPACE_DIR": ((WORKSPACE_DIR,), f"unset it: every sandbox shows its files at {WORKSPACE_DIR}"),
    "SANDBOX_USER": ((SANDBOX_USER,), f"unset it: the user in a sandbox is always {SANDBOX_USER}"),
}


class SettingsWarning(UserWarning):
    """A setting that has no effect here. Python shows the same text once in a process."""


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of `environ` (None: of this process), checked one by one and together.

    An empty value counts as none.

    Raises: SettingsInvalid, naming variable, value and remedy.
    """
    given = os.environ if environ is None else environ
    _refuse(given)
    found, sources = read_declared(declarations(), given)
    found.setdefault("data_dir", _default_data_dir(given))
    found.setdefault("min_pool_size", min(_MIN_POOL_SIZE, found.get("pool_size", 0)))
    most = found.get("max_command_timeout", BASH.limits.timeout)
    found.setdefault("default_command_timeout", min(BASH.limits.timeout, most))
    settings = Settings(**found, sources=sources)
    _check_together(settings)
    if given.get("CONTAINER_IMAGE") and settings.provider == "bubblewrap":
        # Of this line, not of the caller's: Python then shows it once, however often settings are read.
        warnings.warn(
            "CONTAINER_IMAGE has no effect: provider bubblewrap shows the host's own programs. Unset it.",
            SettingsWarning,
            stacklevel=1,
        )
    return settings


def read_declared(
    declared: Mapping[str, Declaration], given: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that are set, and the variable each came from, by field. Raises: SettingsInvalid."""
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, one in declared.items():
        variable = next((alias for alias in one.names if given.get(alias)), None)
        if variable is not None:
            found[name] = _parsed(variable, given[variable], one)
            sources[name] = variable
    return found, sources


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Variables with our prefix that no setting has: most likely misspelt. For doctor to show."""
    both_kinds = {**declarations(), **declarations(ServerSettings)}
    known = {name for declared in both_kinds.values() for name in declared.names}
    known |= {variable for name in REFUSED for variable in _variables(name)}
    return sorted(
        name for name in (os.environ if environ is None else environ) if name.startswith("HUTCH_") and name not in known
    )


def read_server_settings(environ: Mapping[str, str] | None = None) -> ServerSettings:
    """What `hutch serve` reads beside the settings of every program. Raises: SettingsInvalid."""
    found, sources = read_declared(declarations(ServerSettings), os.environ if environ is None else environ)
    return ServerSettings(**found, sources=sources)


def check_server(settings: ServerSettings) -> None:
    """What must fit together; flags may have changed single values since. Raises: SettingsInvalid."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        missing, variable = ("key", "HUTCH_TLS_KEY") if settings.tls_key is None else ("certificate", "HUTCH_TLS_CERT")
        raise invalid(variable, "", f"TLS needs the {missing}, too")
    if settings.log_format not in ("json", "text"):
        raise invalid(settings.sources.get("log_format", "--log-format"), settings.log_format, "use json or text")
    guarded = settings.tls or settings.trusted_proxies or settings.plain_http
    if settings.beyond_this_machine and not guarded:
        raise invalid(
            settings.sources.get("host", "--host"),
            settings.host,
            "other machines can reach it, and keys would cross the network in the clear. Set HUTCH_TLS_CERT and "
            "HUTCH_TLS_KEY, or name the proxy that ends TLS in HUTCH_TRUSTED_PROXIES, or say --plain-http",
        )
    if settings.mypa_open and (settings.beyond_this_machine or settings.trusted_proxies):
        raise invalid(
            settings.sources.get("mypa_open", "--mypa-open"),
            "true",
            "without a key only programs on this machine may call. Leave it away, or serve 127.0.0.1 without proxies",
        )
    if settings.role != "all":
        if settings.database_url is None:
            raise invalid("DATABASE_URL", "", f"role {settings.role} needs a PostgreSQL that all servers share")
        if settings.redis_address() is None:
            raise invalid("REDIS_HOST", "", f"role {settings.role} needs a Redis that all servers share")
    if settings.role == "worker" and settings.worker_id == "standalone":
        raise invalid("WORKER_ID", "", "a worker needs a name that no other has and that it keeps")
    if settings.port == settings.preview_port:
        raise invalid("HUTCH_PREVIEW_PORT", str(settings.preview_port), "previews need a port of their own")


def _refuse(given: Mapping[str, str]) -> None:
    for name, (allowed, remedy) in REFUSED.items():
        for variable in _variables(name):
            value = given.get(variable)
            if value and value not in allowed:
                raise invalid(variable, value, remedy)


def _variables(name: str) -> tuple[str, ...]:
    return (name,) if name.startswith("HUTCH_") else both(name)


def _parsed(variable: str, text: str, declared: Declaration) -> Any:
    try:
        return declared.parse(text.strip())
    except Unusable as error:
        raise invalid(variable, text, str(error)) from None


def _default_data_dir(given: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/hutch")
    home = given.get("HOME")
    if not home:
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            remedy = "set it to a folder this user may write, as the user has no home folder"
            raise invalid("HUTCH_DATA_DIR", "", remedy) from None
    return Path(home).absolute() / ".local/share/hutch"


def _check_together(settings: Settings) -> None:
    least, size, most = settings.min_pool_size, settings.pool_size, settings.max_pool_size
    if size > most:
        raise _conflict(settings, "pool_size", f"use at most MAX_POOL_SIZE, which is {most}, or raise that")
    if least > size:
        raise _conflict(settings, "min_pool_size", f"use at most POOL_SIZE, which is {size}, or raise that")
    if settings.default_command_timeout > settings.max_command_timeout:
        most_seconds = f"{settings.max_command_timeout:g}"
        remedy = f"use at most HUTCH_MAX_COMMAND_TIMEOUT, which is {most_seconds}, or raise that"
        raise _conflict(settings, "default_command_timeout", remedy)


def _conflict(settings: Settings, name: str, remedy: str) -> SettingsInvalid:
    """Of two settings that do not fit. The one at fault is named as the user named it."""
    declared = declarations()[name]
    variable = settings.sources.get(name, declared.names[0])
    return invalid(variable, declared.show(getattr(settings, name)), remedy)


def invalid(variable: str, value: str, remedy: str) -> SettingsInvalid:
    # An address may hold a password, and a key is one.
    shown = "(not shown)" if "@" in value or variable.endswith("_KEY") else value
    return SettingsInvalid(
        f"{variable}={shown!r:.200} cannot be used: {remedy}.", variable=variable, value=shown, remedy=remedy
    )
