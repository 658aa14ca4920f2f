"""What `hutch serve` reads beside the settings of every program: where it listens, whom it trusts, its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from hutch.settings import values
from hutch.settings.declarations import both, setting

Role = Literal["all", "coordinator", "worker"]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Flags of `hutch serve` win over these."""

    role: Role = setting(
        "all",
        "What this server is: all (one machine), worker (runs sandboxes) or coordinator (finds the worker).",
        values.one_of("all", "coordinator", "worker"),
        "HUTCH_ROLE",
    )
    host: str = setting(
        "127.0.0.1",
        "Address to listen on. One beyond this machine also needs TLS, HUTCH_TRUSTED_PROXIES or HUTCH_PLAIN_HTTP.",
        values.host,
        *both("HOST"),
    )
    port: int = setting(8000, "Port of the API.", values.whole(1, 65535), *both("PORT"))
    preview_port: int = setting(
        8001, "Port of the previews, an origin of their own; 0: none.", values.whole(0, 65535), "HUTCH_PREVIEW_PORT"
    )
    preview_url: str | None = setting(
        None,
        "Where browsers reach the previews from outside; each has a host of its own one label below that name.",
        values.address,
        "HUTCH_PREVIEW_URL",
        default_text="localhost at that port",
    )
    allowed_hosts: frozenset[str] = setting(
        frozenset(),
        "Names that requests may call this server by, beside localhost and the address it listens on; * is any.",
        values.host_names,
        "HUTCH_ALLOWED_HOSTS",
    )
    tls_cert: Path | None = setting(None, "File of the TLS certificate (PEM).", values.folder, "HUTCH_TLS_CERT")
    tls_key: Path | None = setting(None, "File of the certificate's key (PEM).", values.folder, "HUTCH_TLS_KEY")
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "Addresses of the proxies that end TLS in front of this server; nobody else but this machine may connect.",
        values.networks,
        "HUTCH_TRUSTED_PROXIES",
    )
    plain_http: bool = setting(
        False,
        "Serve other machines without TLS, keys readable on the way: for networks that you trust.",
        values.yes_or_no,
        "HUTCH_PLAIN_HTTP",
    )
    rate: str | None = setting(
        "6000/minute", "Calls that one key may make.", values.rate, "HUTCH_RATE", default_text="6000/minute"
    )
    mypa_open: bool = setting(
        False,
        "Whether programs on this machine may use the flat routes of older clients without a key.",
        values.yes_or_no,
        "HUTCH_MYPA_OPEN",
    )
    drain_seconds: float = setting(
        30.0,
        "How long running commands may go on when the server is told to end.",
        values.number(0, 86_400),
        "HUTCH_DRAIN_SECONDS",
    )
    log_format: Literal["text", "json"] = setting(
        "json", "How the log is written.", values.one_of("json", "text"), "HUTCH_LOG_FORMAT"
    )
    otel_endpoint: str | None = setting(
        None,
        "Where OpenTelemetry traces go; unset, none are made. The other OTEL_ variables count, too.",
        values.address,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    otel_exporter: Literal["otlp", "none"] | None = setting(
        None,
        "otlp makes traces also without an address (they go to this machine), none makes none.",
        values.one_of("otlp", "none"),
        "OTEL_TRACES_EXPORTER",
        default_text="otlp when there is an address",
    )
    otel_disabled: bool = setting(
        False, "Whether there are no traces, whatever else is set.", values.yes_or_no, "OTEL_SDK_DISABLED"
    )
    debug: bool = setting(
        False, "Whether the log also tells what happens in between.", values.yes_or_no, *both("DEBUG")
    )
    database_url: str | None = setting(
        None,
        "PostgreSQL that keeps sessions and keys; roles coordinator and worker need one.",
        values.database_url,
        *both("DATABASE_URL"),
        show=values.show_secret,
        default_text="SQLite in the data folder",
    )
    redis_url: str | None = setting(
        None,
        "Redis that the servers of a cluster share.",
        values.redis_url,
        "HUTCH_REDIS_URL",
        "REDIS_URL",
        show=values.show_secret,
    )
    redis_host: str | None = setting(
        None, "Host of that Redis, when no address is set.", values.host, *both("REDIS_HOST")
    )
    redis_port: int = setting(6379, "Port of that Redis at that host.", values.whole(1, 65535), *both("REDIS_PORT"))
    redis_password: str | None = setting(
        None, "Password of that Redis.", str, *both("REDIS_PASSWORD"), show=values.show_secret
    )
    worker_id: str = setting(
        "standalone",
        "Name of this worker, which no other has and which it keeps when it starts again.",
        values.worker_name,
        *both("WORKER_ID"),
    )
    workers: tuple[str, ...] = setting(
        (),
        "Addresses of workers that a coordinator asks for their name, beside those that register themselves.",
        values.addresses,
        *both("WORKERS"),
    )
    advertise_url: str | None = setting(
        None,
        "Where coordinators reach this worker.",
        values.address,
        "HUTCH_ADVERTISE_URL",
        default_text="the address it listens on",
    )
    shared_data: bool = setting(
        False,
        "Whether all workers share the storage of the data folder: one then takes over the files of one that died.",
        values.yes_or_no,
        "HUTCH_SHARED_DATA",
    )
    sources: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)  # field -> variable that set it

    @property
    def traces(self) -> bool:
        """Whether OpenTelemetry's variables ask for traces."""
        wanted = self.otel_exporter == "otlp" or (self.otel_endpoint is not None and self.otel_exporter is None)
        return wanted and not self.otel_disabled

    @property
    def tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def beyond_this_machine(self) -> bool:
        """Whether others than programs of this machine can connect."""
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    def preview_address(self) -> str | None:
        """Where previews are reached from outside; None: there are none."""
        if self.preview_port == 0:
            return None
        return self.preview_url or f"{'https' if self.tls else 'http'}://localhost:{self.preview_port}"

    def redis_address(self) -> str | None:
        if self.redis_url is not None or self.redis_host is None:
            return self.redis_url
        password = "" if self.redis_password is None else f":{quote(self.redis_password, safe='')}@"
        host = f"[{self.redis_host}]" if ":" in self.redis_host else self.redis_host
        return f"redis://{password}{host}:{self.redis_port}/0"
