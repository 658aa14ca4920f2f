"""All settings: one field declares one setting, with its type, default, names, meaning and form.

The reference page and `explain` are made from these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from hutch.model.limits import MIB, Limits
from hutch.model.principal import LOCAL_TENANT
from hutch.model.template import BASH
from hutch.settings import values

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Declaration:
    names: tuple[str, ...]  # of the variable; the first that is set and not empty counts
    parse: Callable[[str], Any]  # raises values.Unusable
    show: Callable[[Any], str]
    meaning: str
    default_text: str | None  # the default in words, where it follows from something else


class Explained(NamedTuple):
    variable: str
    value: str
    source: str  # the variable that set it, or "default"
    meaning: str


def setting(
    default: T,
    meaning: str,
    parse: Callable[[str], Any],
    *names: str,
    default_text: str | None = None,
    show: Callable[[T], str] = values.show,
) -> T:
    """A field that declares one. `default_text` says the default in words, where it follows from something else."""
    declaration = Declaration(names, parse, show, meaning, default_text)
    return field(default=default, metadata={"declaration": declaration})


def both(name: str) -> tuple[str, str]:
    """The names of a setting that older programs know without our prefix."""
    return f"HUTCH_{name}", name


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of an engine and of a client. `read_settings` gives checked ones; tests may make their own."""

    data_dir: Path = setting(
        Path("/var/lib/hutch"),
        "Folder of the database and of all sandboxes; processes may share it.",
        values.folder,
        "HUTCH_DATA_DIR",
        default_text="~/.local/share/hutch; as root /var/lib/hutch",
    )
    provider: str = setting("bubblewrap", "What makes the sandboxes.", values.word, "HUTCH_PROVIDER")
    mode: Literal["local", "remote"] = setting(
        "local",
        "Where sandboxes run: in this program (local) or on a server (remote).",
        values.one_of("local", "remote"),
        *both("SANDBOX_MODE"),
    )
    server_url: str | None = setting(
        None, "Address of the server, for mode remote.", values.address, "HUTCH_URL", "SANDBOX_URL", "AGENT_INFRA_URL"
    )
    server_host: str | None = setting(
        None, "Host of the server, when no address is set.", values.host, "HUTCH_SANDBOX_HOST", "SANDBOX_HOST"
    )
    server_port: int = setting(8000, "Port of the server at that host.", values.whole(1, 65535), *both("SANDBOX_PORT"))
    api_key: str | None = setting(
        None,
        "Key for the server. Without one, on this machine: the key in the data folder.",
        values.secret,
        "HUTCH_API_KEY",
        show=values.show_secret,
    )
    pool_size: int = setting(
        0,
        "Sandboxes started ahead of their use. A start takes milliseconds.",
        values.whole(0, 100_000),
        *both("POOL_SIZE"),
    )
    min_pool_size: int = setting(
        0,
        "Sandboxes that a refill keeps ready.",
        values.whole(0, 100_000),
        *both("MIN_POOL_SIZE"),
        default_text="3, but at most POOL_SIZE",
    )
    max_pool_size: int = setting(
        80, "Sandboxes that may run at once, pooled and in use.", values.whole(1, 100_000), *both("MAX_POOL_SIZE")
    )
    egress_private_tenants: frozenset[str] = setting(
        frozenset({LOCAL_TENANT}),
        "Tenants whose egress rules may name private addresses, which are this machine's own network; * is all.",
        values.tenants,
        "HUTCH_EGRESS_PRIVATE_TENANTS",
    )
    aggressive_cleanup: bool = setting(
        True,
        "Whether a session's processes go when it is idle; its files stay.",
        values.yes_or_no,
        *both("AGGRESSIVE_CLEANUP"),
    )
    pool_refill_delay: float = setting(
        60.0,
        "Seconds from a sandbox's use to the refill of the pool.",
        values.number(0, 86_400),
        *both("POOL_REFILL_DELAY_SECONDS"),
    )
    session_timeout_minutes: float = setting(
        30.0,
        "Idle minutes after which a session and its files go.",
        values.number(1, 525_600),
        *both("SESSION_TIMEOUT_MINUTES"),
    )
    idle_stop_minutes: float = setting(
        5.0,
        "Idle minutes after which a session's processes go, with AGGRESSIVE_CLEANUP.",
        values.number(1, 525_600),
        *both("CONTAINER_IDLE_TIMEOUT_MINUTES"),
    )
    cleanup_interval: float = setting(
        300.0,
        "Most seconds between two looks for sandboxes to end.",
        values.number(1, 86_400),
        *both("CLEANUP_INTERVAL_SECONDS"),
    )
    default_command_timeout: float = setting(
        BASH.limits.timeout,
        "Seconds a command of template bash may take.",
        values.number(0.001, 1e9),
        *both("DEFAULT_COMMAND_TIMEOUT"),
        default_text="30, but at most HUTCH_MAX_COMMAND_TIMEOUT",
    )
    max_command_timeout: float = setting(
        3600.0,
        "Most seconds a call may ask for, in any template.",
        values.number(0.001, 1e9),
        "HUTCH_MAX_COMMAND_TIMEOUT",
    )
    max_file_size_mb: int = setting(
        BASH.limits.file_bytes // MIB,
        "Largest single file of template bash, in MB.",
        values.whole(1, 10**9),
        *both("MAX_FILE_SIZE_MB"),
    )
    max_total_files: int = setting(
        BASH.limits.workspace_files,
        "Most files of a workspace of template bash.",
        values.whole(1, 10**9),
        *both("MAX_TOTAL_FILES"),
    )
    max_workspace_size_mb: int = setting(
        BASH.limits.workspace_bytes // MIB,
        "Largest workspace of template bash, in MB.",
        values.whole(1, 10**9),
        *both("MAX_WORKSPACE_SIZE_MB"),
    )
    memory_limit: int = setting(
        BASH.limits.memory_bytes,
        "Memory of a sandbox of template bash.",
        values.memory,
        *both("MEMORY_LIMIT"),
        show=values.show_memory,
    )
    cpu_quota: int = setting(
        BASH.limits.cpu_percent * 1000,
        "CPU of a sandbox of template bash: microseconds of each 100 ms, in steps of 1000, or off.",
        values.cpu_quota,
        *both("CPU_QUOTA"),
        show=values.show_cpu_quota,
    )
    allow_missing: frozenset[str] = setting(
        frozenset(),
        "Required walls, by name and comma, without which sandboxes may start all the same. Weakens isolation.",
        values.wall_names,
        "HUTCH_ALLOW_MISSING",
    )
    uid_range: tuple[int, int] | None = setting(
        None,
        "As root: the user ids that sandboxes get, as first-last.",
        values.uid_range,
        "HUTCH_UID_RANGE",
        default_text="the provider's",
    )
    drive_quota: int | None = setting(
        None,
        "Most bytes of each user's drive, as a number or like 500m, 10g.",
        values.byte_count,
        "HUTCH_DRIVE_QUOTA",
        default_text="no limit",
    )
    embeddings_url: str | None = setting(
        None,
        "Address of an OpenAI-compatible service whose embeddings let a drive be searched by meaning.",
        values.address,
        "HUTCH_EMBEDDINGS_URL",
    )
    embeddings_model: str = setting(
        "text-embedding-3-small", "The model it is asked for.", values.label, "HUTCH_EMBEDDINGS_MODEL"
    )
    embeddings_key: str | None = setting(
        None, "Key for that service.", values.secret, "HUTCH_EMBEDDINGS_KEY", show=values.show_secret
    )
    sources: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)  # field -> variable that set it

    def server_address(self) -> str | None:
        """Where the server is, by the first of the names that are set."""
        if self.server_url is not None or self.server_host is None:
            return self.server_url
        host = f"[{self.server_host}]" if ":" in self.server_host else self.server_host
        return f"http://{host}:{self.server_port}"

    def idle_stop_seconds(self) -> float | None:
        """Idle time after which a machine is stopped; None: never."""
        return self.idle_stop_minutes * 60 if self.aggressive_cleanup else None

    def bash_limits(self) -> Limits:
        """The limits of template bash. No setting changes those of other templates."""
        return replace(
            BASH.limits,
            memory_bytes=self.memory_limit,
            cpu_percent=self.cpu_quota // 1000,  # never more than was asked for
            file_bytes=self.max_file_size_mb * MIB,
            workspace_bytes=self.max_workspace_size_mb * MIB,
            workspace_files=self.max_total_files,
            timeout=self.default_command_timeout,
        )

    def explain(self) -> list[Explained]:
        """Every setting with its value and where that came from, for people to read."""
        return [
            Explained(
                declared.names[0],
                declared.show(getattr(self, name)),
                self.sources.get(name, "default"),
                declared.meaning,
            )
            for name, declared in declarations().items()
        ]


def declarations(kind: type[Any] = Settings) -> dict[str, Declaration]:
    """By the name of their field, in order."""
    return {one.name: one.metadata["declaration"] for one in fields(kind) if "declaration" in one.metadata}
