from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hutch.model.errors import SettingsInvalid
from hutch.settings import ServerSettings, read_server_settings
from hutch.settings.declarations import declarations
from hutch.settings.reading import check_server, unknown_variables

DATABASE = "postgresql://hutch:canary@db:5432/hutch"
# Field, variable, text, value: every setting once, with a value that is no default.
EXAMPLES: list[tuple[str, str, str, Any]] = [
    ("role", "HUTCH_ROLE", "worker", "worker"),
    ("host", "HOST", "0.0.0.0", "0.0.0.0"),
    ("port", "PORT", "5000", 5000),
    ("preview_port", "HUTCH_PREVIEW_PORT", "0", 0),
    ("preview_url", "HUTCH_PREVIEW_URL", "https://p.example/", "https://p.example"),
    ("allowed_hosts", "HUTCH_ALLOWED_HOSTS", "Hutch.example., api", frozenset({"hutch.example", "api"})),
    ("tls_cert", "HUTCH_TLS_CERT", "/etc/hutch/cert.pem", Path("/etc/hutch/cert.pem")),
    ("tls_key", "HUTCH_TLS_KEY", "/etc/hutch/key.pem", Path("/etc/hutch/key.pem")),
    ("trusted_proxies", "HUTCH_TRUSTED_PROXIES", "10.0.0.5, fd00::/8", ("10.0.0.5/32", "fd00::/8")),
    ("plain_http", "HUTCH_PLAIN_HTTP", "true", True),
    ("rate", "HUTCH_RATE", "10/second", "10/second"),
    ("mypa_open", "HUTCH_MYPA_OPEN", "yes", True),
    ("drain_seconds", "HUTCH_DRAIN_SECONDS", "5", 5.0),
    ("log_format", "HUTCH_LOG_FORMAT", "text", "text"),
    ("otel_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", "http://collector:4318"),
    ("otel_exporter", "OTEL_TRACES_EXPORTER", "otlp", "otlp"),
    ("otel_disabled", "OTEL_SDK_DISABLED", "true", True),
    ("debug", "DEBUG", "true", True),
    ("database_url", "DATABASE_URL", DATABASE, DATABASE),
    ("redis_url", "REDIS_URL", "rediss://:canary@redis:6380/1", "rediss://:canary@redis:6380/1"),
    ("redis_host", "REDIS_HOST", "redis", "redis"),
    ("redis_port", "REDIS_PORT", "6380", 6380),
    ("redis_password", "REDIS_PASSWORD", "canary", "canary"),
    ("worker_id", "WORKER_ID", "worker1", "worker1"),
    ("workers", "WORKERS", "http://w1:5000, http://w2:5000/", ("http://w1:5000", "http://w2:5000")),
    ("advertise_url", "HUTCH_ADVERTISE_URL", "http://w1:5000", "http://w1:5000"),
    ("shared_data", "HUTCH_SHARED_DATA", "true", True),
]


def test_every_setting_has_an_example_here() -> None:
    assert {name for name, *_ in EXAMPLES} == set(declarations(ServerSettings))


@pytest.mark.parametrize(("name", "variable", "text", "value"), EXAMPLES)
def test_a_setting_is_read_and_says_where_from(name: str, variable: str, text: str, value: Any) -> None:
    settings = read_server_settings({variable: text})
    assert getattr(settings, name) == value
    assert settings.sources[name] == variable
    assert getattr(read_server_settings({}), name) != value
    shown = declarations(ServerSettings)[name].show(value)
    assert "canary" not in shown
    assert not unknown_variables({variable: text})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HUTCH_RATE", "fast"),
        ("HUTCH_RATE", "0/minute"),
        ("HUTCH_TRUSTED_PROXIES", "nginx"),
        ("DATABASE_URL", "mysql://canary@db/x"),
        ("DATABASE_URL", "canary"),
        ("REDIS_URL", "http://canary@x"),
        ("WORKER_ID", "../x"),
        ("PORT", "65536"),
        ("HUTCH_ALLOWED_HOSTS", "http://x/"),
        ("WORKERS", "w1:5000"),
    ],
)
def test_what_cannot_be_used_is_named_with_a_remedy(variable: str, text: str) -> None:
    with pytest.raises(SettingsInvalid, match=variable) as caught:
        read_server_settings({variable: text})
    assert caught.value.details["remedy"]
    assert "canary@" not in str(caught.value)


def test_other_machines_are_served_only_when_keys_are_safe_or_somebody_said_so() -> None:
    check_server(ServerSettings())
    check_server(ServerSettings(host="::1"))
    for host in ("0.0.0.0", "192.0.2.1", "::", "hutch.example"):
        with pytest.raises(SettingsInvalid, match="plain-http"):
            check_server(ServerSettings(host=host))
        check_server(ServerSettings(host=host, plain_http=True))
        check_server(ServerSettings(host=host, trusted_proxies=("10.0.0.5/32",)))
        check_server(ServerSettings(host=host, tls_cert=Path("/c"), tls_key=Path("/k")))
    with pytest.raises(SettingsInvalid, match="HUTCH_TLS_KEY"):
        check_server(ServerSettings(tls_cert=Path("/c")))


def test_a_log_is_written_in_a_form_there_is() -> None:
    flags: dict[str, Any] = {"log_format": "xml"}
    with pytest.raises(SettingsInvalid, match="log-format"):
        check_server(replace(ServerSettings(), **flags))


def test_calls_without_a_key_come_from_this_machine_only() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_server(ServerSettings(host=host, mypa_open=True))
    for broken in (
        ServerSettings(host="0.0.0.0", plain_http=True, mypa_open=True),
        ServerSettings(host="hutch.example", tls_cert=Path("/c"), tls_key=Path("/k"), mypa_open=True),
        ServerSettings(trusted_proxies=("10.0.0.5/32",), mypa_open=True),
    ):
        with pytest.raises(SettingsInvalid, match="mypa-open"):
            check_server(broken)


def test_a_cluster_needs_what_its_servers_share() -> None:
    worker = ServerSettings(role="worker", worker_id="w1", database_url=DATABASE, redis_host="redis")
    check_server(worker)
    for broken, named in (
        (replace(worker, database_url=None), "DATABASE_URL"),
        (replace(worker, redis_host=None), "REDIS_HOST"),
        (replace(worker, worker_id="standalone"), "WORKER_ID"),
        (replace(worker, preview_port=8000), "HUTCH_PREVIEW_PORT"),
    ):
        with pytest.raises(SettingsInvalid, match=named):
            check_server(broken)


def test_the_address_of_redis_is_put_together() -> None:
    assert ServerSettings().redis_address() is None
    assert ServerSettings(redis_host="r", redis_password="a/b").redis_address() == "redis://:a%2Fb@r:6379/0"
    assert ServerSettings(redis_host="::1").redis_address() == "redis://[::1]:6379/0"
    assert ServerSettings(redis_host="r", redis_url="redis://x").redis_address() == "redis://x"
