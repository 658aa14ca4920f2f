from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hutch.model.errors import SettingsInvalid
from hutch.model.limits import MIB
from hutch.model.template import BASH, OPEN
from hutch.settings import Settings, SettingsWarning, read_settings
from hutch.settings.declarations import declarations
from hutch.settings.reading import unknown_variables

# No time bound of its own, and nothing written beside the tests.
any_speed = hypothesis_settings(deadline=None, database=None)

# Field, variable, text, value: every setting once, with a value that is no default.
EXAMPLES: list[tuple[str, str, str, Any]] = [
    ("data_dir", "HUTCH_DATA_DIR", "/srv/hutch", Path("/srv/hutch")),
    ("provider", "HUTCH_PROVIDER", "docker", "docker"),
    ("mode", "SANDBOX_MODE", "remote", "remote"),
    ("server_url", "SANDBOX_URL", "https://sandbox.example:8443/", "https://sandbox.example:8443"),
    ("server_host", "SANDBOX_HOST", "sandbox.example", "sandbox.example"),
    ("server_port", "SANDBOX_PORT", "5000", 5000),
    ("api_key", "HUTCH_API_KEY", "hutch_kexample", "hutch_kexample"),
    ("pool_size", "POOL_SIZE", "10", 10),
    ("max_pool_size", "MAX_POOL_SIZE", "40", 40),
    ("egress_private_tenants", "HUTCH_EGRESS_PRIVATE_TENANTS", "local, team", frozenset({"local", "team"})),
    ("aggressive_cleanup", "AGGRESSIVE_CLEANUP", "False", False),
    ("pool_refill_delay", "POOL_REFILL_DELAY_SECONDS", "0.5", 0.5),
    ("session_timeout_minutes", "SESSION_TIMEOUT_MINUTES", "15", 15.0),
    ("idle_stop_minutes", "CONTAINER_IDLE_TIMEOUT_MINUTES", "7", 7.0),
    ("cleanup_interval", "CLEANUP_INTERVAL_SECONDS", "60", 60.0),
    ("default_command_timeout", "DEFAULT_COMMAND_TIMEOUT", "45", 45.0),
    ("max_command_timeout", "HUTCH_MAX_COMMAND_TIMEOUT", "600", 600.0),
    ("max_file_size_mb", "MAX_FILE_SIZE_MB", "20", 20),
    ("max_total_files", "MAX_TOTAL_FILES", "50", 50),
    ("max_workspace_size_mb", "MAX_WORKSPACE_SIZE_MB", "60", 60),
    ("memory_limit", "MEMORY_LIMIT", "1g", 1024 * MIB),
    ("cpu_quota", "CPU_QUOTA", "50000", 50_000),
    ("allow_missing", "HUTCH_ALLOW_MISSING", "landlock, keyring", frozenset({"landlock", "keyring"})),
    ("uid_range", "HUTCH_UID_RANGE", "300000-365535", (300_000, 365_535)),
    ("drive_quota", "HUTCH_DRIVE_QUOTA", "2g", 2 * 1024 * MIB),
    ("embeddings_url", "HUTCH_EMBEDDINGS_URL", "http://localhost:11434/v1", "http://localhost:11434/v1"),
    ("embeddings_model", "HUTCH_EMBEDDINGS_MODEL", "nomic-embed-text", "nomic-embed-text"),
    ("embeddings_key", "HUTCH_EMBEDDINGS_KEY", "sk-example", "sk-example"),
]


def test_every_setting_has_an_example_here() -> None:
    assert {name for name, *_ in EXAMPLES} | {"min_pool_size"} == set(declarations())


@pytest.mark.parametrize(("name", "variable", "text", "value"), EXAMPLES)
def test_a_setting_is_read_and_says_where_from(name: str, variable: str, text: str, value: Any) -> None:
    settings = read_settings({variable: text})
    assert getattr(settings, name) == value
    assert settings.sources[name] == variable
    assert getattr(read_settings({}), name) != value


@pytest.mark.parametrize("name", [name for name, declared in declarations().items() if len(declared.names) > 1])
def test_the_prefixed_name_wins(name: str) -> None:
    _, _, text, value = next((row for row in EXAMPLES if row[0] == name), (name, "", "0", 0))
    first, *others = declarations()[name].names
    assert first.startswith("HUTCH_")
    settings = read_settings({first: text, **dict.fromkeys(others, "nonsense, and never looked at")})
    assert getattr(settings, name) == value
    assert settings.sources[name] == first


def test_defaults_are_those_of_a_small_machine() -> None:
    settings = read_settings({"HOME": "/home/ann"})
    assert settings.bash_limits() == BASH.limits
    assert (settings.pool_size, settings.min_pool_size, settings.max_pool_size) == (0, 0, 80)
    assert settings.idle_stop_seconds() == 300
    assert settings.server_address() is None
    assert settings.data_dir == Path("/var/lib/hutch" if os.geteuid() == 0 else "/home/ann/.local/share/hutch")


def test_limit_settings_change_template_bash_only() -> None:
    environ = {
        "MEMORY_LIMIT": "512m",
        "CPU_QUOTA": "50999",
        "MAX_FILE_SIZE_MB": "1",
        "MAX_TOTAL_FILES": "2",
        "MAX_WORKSPACE_SIZE_MB": "3",
        "DEFAULT_COMMAND_TIMEOUT": "4",
    }
    before = OPEN.limits
    limits = read_settings(environ).bash_limits()
    assert limits == dataclasses.replace(
        BASH.limits,
        memory_bytes=512 * MIB,
        cpu_percent=50,
        file_bytes=MIB,
        workspace_files=2,
        workspace_bytes=3 * MIB,
        timeout=4.0,
    )
    assert before == OPEN.limits
    assert read_settings({"CPU_QUOTA": "off"}).bash_limits().cpu_percent == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("256m", 256 * MIB), ("256M", 256 * MIB), ("1G", 1024 * MIB), ("65536k", 64 * MIB), ("33554432", 32 * MIB)],
)
def test_memory_is_written_as_docker_does(text: str, size: int) -> None:
    assert read_settings({"MEMORY_LIMIT": text}).memory_limit == size


BAD = [
    ("POOL_SIZE", "-1"),
    ("POOL_SIZE", "ten"),
    ("POOL_SIZE", "1.5"),
    ("POOL_SIZE", "١٢"),
    ("MAX_POOL_SIZE", "0"),
    ("MAX_POOL_SIZE", "9" * 30),
    ("AGGRESSIVE_CLEANUP", "maybe"),
    ("SESSION_TIMEOUT_MINUTES", "0"),
    ("SESSION_TIMEOUT_MINUTES", "nan"),
    ("CONTAINER_IDLE_TIMEOUT_MINUTES", "0.5"),
    ("CLEANUP_INTERVAL_SECONDS", "inf"),
    ("DEFAULT_COMMAND_TIMEOUT", "0"),
    ("DEFAULT_COMMAND_TIMEOUT", "-5"),
    ("HUTCH_MAX_COMMAND_TIMEOUT", "1e3"),
    ("MAX_FILE_SIZE_MB", "0"),
    ("MEMORY_LIMIT", "lots"),
    ("MEMORY_LIMIT", "1m"),
    ("MEMORY_LIMIT", "1.5g"),
    ("CPU_QUOTA", "999"),
    ("CPU_QUOTA", "100001"),
    ("CPU_QUOTA", "0"),
    ("SANDBOX_MODE", "cloud"),
    ("SANDBOX_URL", "localhost:8000"),
    ("SANDBOX_URL", "http://"),
    ("SANDBOX_URL", "http://h:99999"),
    ("SANDBOX_URL", "http://[::1"),
    ("SANDBOX_HOST", "http://host"),
    ("SANDBOX_PORT", "0"),
    ("HUTCH_ALLOW_MISSING", "landlock,firewall"),
    ("HUTCH_UID_RANGE", "0-65535"),
    ("HUTCH_UID_RANGE", "300000"),
    ("HUTCH_UID_RANGE", "400000-300000"),
    ("HUTCH_UID_RANGE", "4294967000-4294967295"),
    ("HUTCH_PROVIDER", "../evil"),
    ("HUTCH_DATA_DIR", "~/data"),
    ("HOST_WORKSPACE_PATH", "/mnt/shared"),
    ("DOCKER_NETWORK_MODE", "bridge"),
    ("WORKSPACE_DIR", "/data"),
    ("SANDBOX_USER", "root"),
]


@pytest.mark.parametrize(("variable", "text"), BAD)
def test_a_value_that_cannot_be_used_names_variable_value_and_remedy(variable: str, text: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        read_settings({variable: text})
    details = caught.value.details
    assert details["variable"] == variable
    assert details["value"] == text
    assert details["remedy"] in caught.value.message
    assert caught.value.message.startswith(f"{variable}=")


def test_a_bad_value_under_the_prefixed_name_names_that_one() -> None:
    with pytest.raises(SettingsInvalid, match=r"^HUTCH_POOL_SIZE='x'"):
        read_settings({"HUTCH_POOL_SIZE": "x", "POOL_SIZE": "3"})


def test_no_password_is_repeated() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        read_settings({"HUTCH_URL": "http://ann:secret@host:8000"})
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.details)


def test_the_network_setting_of_containers_is_answered_with_ours() -> None:
    with pytest.raises(SettingsInvalid, match="HUTCH_EGRESS_HOSTS"):
        read_settings({"DOCKER_NETWORK_MODE": "host"})
    assert read_settings({"DOCKER_NETWORK_MODE": "none"}) == read_settings({})


@pytest.mark.parametrize(
    ("environ", "at_fault"),
    [
        ({"POOL_SIZE": "81"}, "POOL_SIZE"),
        ({"HUTCH_POOL_SIZE": "5", "MAX_POOL_SIZE": "4"}, "HUTCH_POOL_SIZE"),
        ({"MIN_POOL_SIZE": "5", "POOL_SIZE": "4"}, "MIN_POOL_SIZE"),
        ({"MIN_POOL_SIZE": "1"}, "MIN_POOL_SIZE"),
        ({"DEFAULT_COMMAND_TIMEOUT": "61", "HUTCH_MAX_COMMAND_TIMEOUT": "60"}, "DEFAULT_COMMAND_TIMEOUT"),
    ],
)
def test_settings_that_do_not_fit_together(environ: dict[str, str], at_fault: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        read_settings(environ)
    assert caught.value.details["variable"] == at_fault


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"POOL_SIZE": "2"}, "min_pool_size", 2),
        ({"POOL_SIZE": "20"}, "min_pool_size", 3),
        ({"POOL_SIZE": "20", "MIN_POOL_SIZE": "0"}, "min_pool_size", 0),
        ({"HUTCH_MAX_COMMAND_TIMEOUT": "10"}, "default_command_timeout", 10.0),
    ],
)
def test_a_default_gives_way_to_what_was_set(environ: dict[str, str], field: str, value: float) -> None:
    assert getattr(read_settings(environ), field) == value


def test_empty_counts_as_not_set_and_blanks_do_not_matter() -> None:
    assert read_settings({"POOL_SIZE": "", "HUTCH_URL": "", "HOST_WORKSPACE_PATH": ""}) == read_settings({})
    assert read_settings({"HUTCH_POOL_SIZE": "", "POOL_SIZE": " 4 "}).pool_size == 4


def test_variables_of_other_programs_mean_nothing() -> None:
    environ = {
        "PORT": "x",
        "HOST": "x",
        "DEBUG": "x",
        "WORKERS": "x",
        "DATABASE_URL": "x",
        "REDIS_HOST": "x",
        "WORKER_ID": "x",
        "USE_SANDBOX_V2": "x",
        "PROVIDER": "x",
        "DATA_DIR": "x",
    }
    assert read_settings(environ) == read_settings({})


ADDRESSES = {
    "HUTCH_URL": ("http://first:1", "http://first:1"),
    "SANDBOX_URL": ("http://second:2/", "http://second:2"),
    "AGENT_INFRA_URL": ("http://third:3", "http://third:3"),
    "SANDBOX_HOST": ("fourth", "http://fourth:4444"),
}


def test_the_servers_address_by_order_of_names() -> None:
    environ = {name: text for name, (text, _) in ADDRESSES.items()} | {"SANDBOX_PORT": "4444"}
    for name, (_, address) in ADDRESSES.items():
        assert read_settings(environ).server_address() == address
        del environ[name]
    assert read_settings(environ).server_address() is None
    assert read_settings({"SANDBOX_HOST": "::1"}).server_address() == "http://[::1]:8000"


def test_a_container_image_warns_once() -> None:
    code = (
        "from hutch.settings import read_settings\n"
        "for _ in range(3): read_settings({'CONTAINER_IMAGE': 'sandbox-secure:latest'})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.count("SettingsWarning: CONTAINER_IMAGE has no effect") == 1
    with pytest.warns(SettingsWarning):
        read_settings({"CONTAINER_IMAGE": "x"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_settings({"CONTAINER_IMAGE": "x", "HUTCH_PROVIDER": "docker"})


def test_explain_tells_value_and_source_of_every_setting() -> None:
    rows = {row.variable: row for row in read_settings({"POOL_SIZE": "4", "MEMORY_LIMIT": "1g"}).explain()}
    assert len(rows) == len(declarations())
    assert rows["HUTCH_POOL_SIZE"][1:3] == ("4", "POOL_SIZE")
    assert rows["HUTCH_MEMORY_LIMIT"][1:3] == ("1g", "MEMORY_LIMIT")
    assert rows["HUTCH_CPU_QUOTA"][1:3] == ("25000", "default")
    assert all(row.meaning.endswith((".", "off.")) for row in rows.values())


def test_what_is_shown_can_be_set_again() -> None:
    environ = {variable: text for _, variable, text, _ in EXAMPLES if not variable.endswith("_KEY")}
    settings = read_settings(environ)
    again = read_settings({row.variable: row.value for row in settings.explain()})
    assert again == settings


def test_a_key_is_never_shown() -> None:
    shown = read_settings({"HUTCH_API_KEY": "hutch_canary"}).explain()
    assert not any("canary" in row.value for row in shown)
    with pytest.raises(SettingsInvalid) as caught:
        read_settings({"HUTCH_API_KEY": "a canary"})
    assert "canary" not in str(caught.value)


def test_misspelt_variables_are_found() -> None:
    environ = {"HUTCH_POOLSIZE": "1", "HUTCH_POOL_SIZE": "1", "HUTCH_WORKSPACE_DIR": "/workspace", "PATH": "/bin"}
    assert unknown_variables(environ) == ["HUTCH_POOLSIZE"]


def test_the_process_environment_is_read_when_asked_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_POOL_SIZE", "7")
    assert read_settings().pool_size == 7
    assert Settings().pool_size == 0


@any_speed
@given(st.sampled_from(sorted({name for one in declarations().values() for name in one.names})), st.text(max_size=30))
def test_no_text_gives_anything_but_settings_or_a_clear_error(variable: str, text: str) -> None:
    try:
        named = read_settings({variable: text}).sources
    except SettingsInvalid as error:
        named = {"refused": error.details["variable"]}
    assert set(named.values()) <= {variable}
