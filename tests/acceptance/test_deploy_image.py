"""The image, and what a container with it must be given: built and tried with a Docker engine of our own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.docker_engine import private_engine
from tests.acceptance.bare_machine import new_bare_machine
from tests.acceptance.deploy_files import DEPLOY, ROOT, blocks, compose
from tests.acceptance.proxies import program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a private Docker engine needs root"),
]
CALLS = json.loads((DEPLOY / "seccomp-worker.json").read_text())["syscalls"][-1]["names"]
# What the default profile says of it, for who has no capability: processes and threads, no namespaces.
PLAIN_CLONE = {
    "names": ["clone"],
    "action": "SCMP_ACT_ALLOW",
    "args": [{"index": 0, "value": 0x7E02_0000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
}
# What works in a container that serves: told by the key in its data folder, as programs on a server's machine do.
SESSION = """
import time, urllib.request
from hutch import SandboxClient
for _ in range(300):
    try:
        urllib.request.urlopen("http://localhost:5000/ready")
        break
    except OSError:
        time.sleep(0.1)
client = SandboxClient(mode="remote", server_url="http://localhost:5000", policy="open")
client.get_or_create_session(user_id="u", thread_id="t")
client.upload_file_from_bytes("a.txt", b"in a container")
print(client.execute("cat a.txt; git --version >/dev/null && jq --version >/dev/null && echo; id --user")["stdout"])
client.close_session()
"""


@dataclass(frozen=True, slots=True)
class Docker:
    """The command line, over our engine."""

    environ: dict[str, str]

    def run(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        command = [program("docker", "docker.io"), *words]
        output = subprocess.PIPE
        return subprocess.run(
            command,
            env=self.environ,
            cwd=DEPLOY,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **more,
        )

    def doctor(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.run("run", "--rm", "--network", "none", *flags, "hutch", "doctor", "--run")


def address(client: Any) -> str:
    """Of the engine, which the SDK keeps to itself."""
    return f"unix://{client.api._custom_adapter.socket_path}"


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    """An engine that has the image `hutch`, made as docs/how-to/containers.md says, without a network."""
    place = tmp_path_factory.mktemp("image")
    with private_engine() as client:
        _import_base(client, place)
        environ = {**os.environ, "DOCKER_HOST": address(client), "PYTHON": sys.executable}
        command = [str(DEPLOY / "make-image"), "--tag", "hutch", "--network", "none", "--build-arg", "BASE=base"]
        made = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        yield Docker(environ)


def _import_base(client: Any, place: Path) -> None:
    """A Debian with the packages that the Dockerfile would fetch: the image `base`."""
    machine = new_bare_machine(place / "machine")
    packages = "bubblewrap libseccomp2 bc file git jq"
    install = f"apt-get update -q && apt-get install -q -y --no-install-recommends {packages} && apt-get clean"
    installed = machine.run("bash", "-c", install, folder="/")
    assert installed.exit_code == 0, installed.output
    archive = place / "base.tar"
    tar = ["tar", "--create", "--file", str(archive), "--directory", str(machine.root), "--exclude=./dev/*", "."]
    subprocess.run(tar, check=True, capture_output=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(machine.root)], check=True)
    client.api.import_image(src=str(archive), repository="base", tag="latest")
    archive.unlink()


def compose_flags() -> list[str]:
    """What compose.yaml gives a worker, as flags of `docker run`."""
    service = compose()["services"]["worker1"]
    flags = [f"--security-opt={option.replace(':', '=', 1)}" for option in service["security_opt"]]
    flags += [f"--cap-drop={name}" for name in service["cap_drop"]]
    flags += [f"--tmpfs={path}" for path in service["tmpfs"]]
    return [*flags, "--read-only"] if service["read_only"] else flags


def finds_fault(done: subprocess.CompletedProcess[str]) -> bool:
    """The container came up, and its doctor did not like what it saw."""
    return done.returncode in (1, 4) and "hutch: " in done.stdout


def without(flags: list[str], part: str) -> list[str]:
    left = [flag for flag in flags if part not in flag]
    assert len(left) < len(flags)
    return left


def test_the_image_holds_what_runs_and_not_what_built_it(docker: Docker) -> None:
    assert docker.run("run", "--rm", "--network", "none", "hutch", "version").stdout.startswith("hutch ")
    seen = docker.run(
        *("run", "--rm", "--network", "none", "--entrypoint", "sh", "hutch", "-c"),
        "id --user --name; ls -d /wheels; /opt/hutch/bin/python -m pip --version; stat -c %a /var/lib/hutch",
    ).stdout
    assert seen.splitlines()[0] == "hutch"
    assert "No such file" in seen
    assert "No module named pip" in seen
    assert seen.splitlines()[-1] == "700"


@pytest.mark.parametrize("number", [0, 1], ids=["ordinary", "root"])
def test_what_the_page_says_to_try(docker: Docker, number: int) -> None:
    texts = [block.text for block in blocks("bash", "containers")]
    assert len(texts) == 2
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", texts[number]],
        cwd=ROOT,
        env=docker.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    down = [line.split()[0] for line in done.stdout.splitlines() if " down " in line]
    assert down == (["cgroup_limits"] if number == 0 else [])


@pytest.mark.parametrize("number", range(6))
def test_each_capability_of_a_worker_that_is_root_is_needed(docker: Docker, number: int) -> None:
    words = shlex.split(list(blocks("bash", "containers"))[1].text.replace("\\\n", ""))
    words = [word.replace("seccomp=deploy/", "seccomp=") for word in words[2 : words.index("hutch")]]
    places = [place for place, word in enumerate(words) if word == "--cap-add"]
    assert len(places) == 6
    del words[places[number] : places[number] + 2]
    assert finds_fault(docker.run("run", *words, "hutch", "doctor", "--run"))


def test_a_worker_with_what_compose_gives_it_serves_and_ends_in_order(docker: Docker) -> None:
    began = docker.run("run", "--detach", "--network", "none", *compose_flags(), "--env", "PORT=5000", "hutch", "serve")
    container = began.stdout.strip()
    try:
        assert began.returncode == 0, container
        ask = ["exec", "--interactive", container, "/opt/hutch/bin/python", "-"]
        done = docker.run(*ask, input=SESSION)
        assert done.stdout.split() == ["in", "a", "container", "1000"], done.stdout
        healthy = docker.run("exec", container, *_health_check())
        assert healthy.returncode == 0, healthy.stdout
        assert docker.run("stop", "--time", "30", container).returncode == 0
        assert docker.run("inspect", "--format", "{{.State.ExitCode}}", container).stdout.strip() == "0"
    finally:
        docker.run("rm", "--force", "--volumes", container)


def _health_check() -> list[str]:
    test: list[str] = compose()["services"]["worker1"]["healthcheck"]["test"]
    assert test[0] == "CMD"
    return test[1:]


def test_each_thing_a_worker_is_given_is_needed(docker: Docker, tmp_path: Path) -> None:
    given = compose_flags()
    assert docker.doctor(*given).returncode == 0
    for part in ("seccomp=", "systempaths="):
        assert finds_fault(docker.doctor(*without(given, part))), part
    profile = json.loads((DEPLOY / "seccomp-worker.json").read_text())
    rules, lesser = profile["syscalls"], tmp_path / "profile.json"
    for call in CALLS:
        rule = {**rules[-1], "names": [name for name in CALLS if name != call]}
        profile["syscalls"] = [*rules[:-1], rule, *([PLAIN_CLONE] if call == "clone" else [])]
        lesser.write_text(json.dumps(profile))
        done = docker.doctor(*without(given, "seccomp="), f"--security-opt=seccomp={lesser}")
        assert finds_fault(done), f"{call}: {done.stdout}"
