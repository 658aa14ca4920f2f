"""The files of deploy/ and the how-to pages, checked by the programs they are for, and against Hutch's own names."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer

from hutch.cli.serve import LOCAL_NAMES
from hutch.cli.verbs import build_app
from hutch.settings import ServerSettings, read_server_settings, read_settings
from hutch.settings.declarations import declarations
from hutch.settings.reading import REFUSED, check_server
from tests.acceptance.deploy_files import (
    DEPLOY,
    ROOT,
    Server,
    blocks,
    compose,
    compose_servers,
    kubernetes_servers,
    pods,
    rendered,
    text_files,
)
from tests.acceptance.proxies import FILES, free_port, make_certificate, program

pytestmark = pytest.mark.once

KNOWN = {name for of in (declarations(), declarations(ServerSettings)) for one in of.values() for name in one.names}
_CODE = re.compile(r"`(hutch [^`]*)`")
# Not where it is the name of a namespace or a secret.
_COMMAND = re.compile(
    r"(?<!--namespace )(?<!generic )(?:^|(?<=[\s(/]))(hutch [^#\n|&<>)\"']*(?:\"[^\"]*\"[^#\n|&<>)\"']*)*)",
    re.MULTILINE,
)


# -- settings and arguments


def checked(server: Server) -> ServerSettings:
    """As `hutch serve` would read it. Raises: HutchError, ClickException."""
    assert set(server.environ) <= KNOWN, "a variable that no setting has"
    flags = {name: value for name, value in parsed(server.words).items() if value is not None}
    read_settings({"HUTCH_DATA_DIR": "/var/lib/hutch", **server.environ})
    settings = replace(read_server_settings(server.environ), **flags)
    check_server(settings)
    return settings


def parsed(words: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a command of ours. Raises: ClickException when there is no such command or option."""
    command: Any = typer.main.get_command(build_app())
    context = command.make_context("hutch", list(words), resilient_parsing=False)
    while (rest := [*context._protected_args, *context.args]) and hasattr(context.command, "commands"):
        name, inner, rest = context.command.resolve_command(context, rest)
        context = inner.make_context(name, rest, parent=context)
    return dict(context.params)


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_servers_would_start_with_these_settings(kind: str) -> None:
    servers = list(compose_servers() if kind == "compose" else kubernetes_servers())
    settings = [checked(server) for server in servers]
    assert sorted({one.role for one in settings}) == ["coordinator", "worker"]
    workers = [one for one in settings if one.role == "worker"]
    assert len({one.worker_id for one in workers}) == len(workers)
    for one in workers:
        assert one.advertise_url is not None
        address, _, port = one.advertise_url.removeprefix("http://").partition(":")
        assert address in one.allowed_hosts, "coordinators call it by this name"
        assert int(port) == one.port
    for one in settings:
        assert one.redis_address() == "redis://:for-redis@redis:6379/0"


def test_variables_and_arguments_that_are_named_exist() -> None:
    seen = 0
    for path in text_files():
        text = path.read_text()
        for name in re.findall(r"\bHUTCH_[A-Z_]*[A-Z]\b", text):
            assert name in KNOWN or name in REFUSED, f"{path.name} names {name}"
            seen += 1
    assert seen > 20
    for block in blocks("ini"):
        settings = [line.partition("=") for line in block.text.splitlines() if "=" in line and line[0] != "#"]
        environ = {name: value for name, _, value in settings}
        words = ("serve", "--plain-http") if environ.get("HOST") and "HUTCH_TRUSTED_PROXIES" not in environ else ()
        checked(Server(block.page, words or ("serve",), environ))


def _commands() -> Iterator[tuple[str, str]]:
    for page in sorted((ROOT / "docs/how-to").glob("*.md")):
        for code in _CODE.findall(page.read_text()):
            yield page.stem, code
    for block in (*blocks("bash"), *blocks("console")):
        for code in _COMMAND.findall(block.text.replace("\\\n", " ")):
            yield block.page, code
    for name in ("systemd/hutch.service",):
        for code in re.findall(r"exec /opt/hutch/bin/(hutch [^']*)'", (DEPLOY / name).read_text()):
            yield name, code


def test_commands_of_hutch_that_are_named_exist() -> None:
    found = [(where, shlex.split(code)[1:]) for where, code in _commands() if "…" not in code]
    assert len(found) >= 12
    for where, words in found:
        try:
            parsed(tuple(words))
        except typer.Exit:
            pass
        except Exception as error:
            if type(error).__name__ == "MissingParameter":  # a command that is only named, without what it is for
                continue
            pytest.fail(f"{where}: hutch {shlex.join(words)}: {error!r}")
    with pytest.raises(Exception, match="no-such-option"):
        parsed(("serve", "--no-such-option"))


def test_what_pages_and_files_point_to_is_there() -> None:
    for page in (ROOT / "docs/how-to.md", *(ROOT / "docs/how-to").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
    linked = (ROOT / "docs/how-to.md").read_text()
    assert all(f"how-to/{page.name}" in linked for page in (ROOT / "docs/how-to").glob("*.md"))


# -- containers


def test_the_seccomp_profile_is_made_from_the_default() -> None:
    script = ROOT / "scripts/generate_worker_seccomp.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_in_compose_only_workers_lose_walls_and_only_the_coordinator_is_reached() -> None:
    services, networks = compose()["services"], compose()["networks"]
    for name, service in services.items():
        if service["image"] == "hutch":
            assert service["cap_drop"] == ["ALL"]
            assert service["read_only"]
            assert "no-new-privileges:true" in service["security_opt"]
            assert (len(service["security_opt"]) > 1) == name.startswith("worker")
        if name != "coordinator":
            assert "ports" not in service
            assert all(networks[network].get("internal") for network in service["networks"])
    assert all(port.startswith("127.0.0.1:") for port in services["coordinator"]["ports"])


def test_kubernetes_objects_are_valid() -> None:
    assert len(rendered()) >= 12
    for one in rendered():
        kubernetes_validate.validate(one, "1.37", strict=True)
    broken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"no-such-field": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.37", strict=True)


def test_pods_keep_what_they_can_do_without() -> None:
    for name, pod in pods():
        (container,) = pod["containers"]
        assert pod["enableServiceLinks"] is False, "or HUTCH_PORT and REDIS_PORT would be addresses"
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        worker = name == "hutch-worker"
        assert (pod["securityContext"]["seccompProfile"]["type"] == "Localhost") == worker
        assert (container["securityContext"].get("procMount") == "Unmasked") == worker
        assert (pod.get("hostUsers") is False) == worker, "an unmasked /proc needs a user namespace of the pod's own"
        for probe in (container.get("livenessProbe"), container.get("readinessProbe")):
            if probe is not None and "httpGet" in probe:
                (header,) = probe["httpGet"]["httpHeaders"]
                assert (header["name"], header["value"] in LOCAL_NAMES) == ("Host", True)


def test_kubernetes_services_and_policies_find_their_pods() -> None:
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in rendered()
        if "template" in one.get("spec", {})
    }
    values = {label for found in labels.values() for label in found.items()}
    for one in rendered():
        spec = one.get("spec", {})
        for selector in (spec.get("selector") or {}, spec.get("podSelector") or {}):
            wanted = selector.get("matchLabels", selector)
            assert set(wanted.items()) <= values, one["metadata"]["name"]


def test_servers_get_the_time_they_need_to_end() -> None:
    drain = ServerSettings().drain_seconds
    for server in compose_servers():
        assert compose()["services"][server.name]["stop_grace_period"] in ("60s", "1m0s")
        assert drain < 60
    for name, pod in pods():
        if name.startswith("hutch-"):
            assert pod["terminationGracePeriodSeconds"] > drain
    stop = re.search(r"^TimeoutStopSec=(\d+)$", (DEPLOY / "systemd/hutch.service").read_text(), re.MULTILINE)
    assert stop is not None
    assert int(stop[1]) > drain


# -- systemd and proxies


def test_the_systemd_unit_is_valid(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd/hutch.service").read_text()
    unit = tmp_path / "hutch.service"

    def verify(changed: str) -> subprocess.CompletedProcess[str]:
        unit.write_text(changed)
        command = [program("systemd-analyze", "systemd"), "verify", "--man=no", str(unit)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = verify(text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    broken = verify(text.replace("OOMPolicy=continue", "OOMPolicy=no-such-policy"))
    assert "no-such-policy" in broken.stderr or broken.returncode != 0


@pytest.mark.parametrize("kind", sorted(FILES))
def test_the_proxies_take_their_files(kind: str, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    command = FILES[kind](tmp_path, certificate, free_port(), 8000, 8001)
    check = [*command, "-t"] if kind == "nginx" else [command[0], "validate", *command[2:]]
    done = subprocess.run(check, capture_output=True, text=True, check=False, env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
