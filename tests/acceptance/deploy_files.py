"""The files of deploy/ as the programs read them that they are written for, and the commands of the how-to pages."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.acceptance.proxies import program

ROOT = Path(__file__).resolve().parents[2]
DEPLOY, PAGES = ROOT / "deploy", ROOT / "docs/how-to"
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_REFERENCE = re.compile(r"\$\((\w+)\)")


@dataclass(frozen=True, slots=True)
class Server:
    """A server of ours that a file would start: its name, `hutch`'s arguments, its environment."""

    name: str
    words: tuple[str, ...]
    environ: Mapping[str, str]


@cache
def compose() -> dict[str, Any]:
    """What docker-compose makes of the file. Raises: CalledProcessError when it takes it for wrong."""
    environ = {"PATH": os.environ["PATH"], "POSTGRES_PASSWORD": "for-postgres", "REDIS_PASSWORD": "for-redis"}
    command = [program("docker-compose", "docker-compose"), "--file", "compose.yaml", "config"]
    done = subprocess.run(command, cwd=DEPLOY, env=environ, check=True, capture_output=True, text=True)
    read: dict[str, Any] = yaml.safe_load(done.stdout)
    return read


def compose_servers() -> Iterator[Server]:
    for name, service in compose()["services"].items():
        if service["image"] == "hutch":
            yield Server(name, tuple(service["command"]), service["environment"])


@cache
def rendered() -> tuple[dict[str, Any], ...]:
    """The objects of the kustomization. Raises: CalledProcessError."""
    command = [program("kubectl", "kubernetes-client"), "kustomize", str(DEPLOY / "kubernetes")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(yaml.safe_load_all(done.stdout))


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """What runs: name and specification."""
    for one in rendered():
        if one["kind"] in ("Deployment", "StatefulSet"):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def kubernetes_servers() -> Iterator[Server]:
    settings = {one["metadata"]["name"]: one["data"] for one in rendered() if one["kind"] == "ConfigMap"}
    secrets = {"database-url": "postgresql://hutch:p@postgres:5432/hutch", "redis-password": "for-redis"}
    for name, pod in pods():
        (container,) = pod["containers"]
        if container["image"].partition(":")[0] != "hutch":
            continue
        shared = [settings[source["configMapRef"]["name"]] for source in container["envFrom"]]
        yield Server(name, tuple(container["args"]), _environ(container["env"], shared, secrets, f"{name}-0"))


def _environ(
    rows: list[dict[str, Any]], shared: list[dict[str, str]], secrets: dict[str, str], pod: str
) -> dict[str, str]:
    environ = {name: value for one in shared for name, value in one.items()}
    for one in rows:
        value = one.get("value")
        if value is None:
            source = one["valueFrom"]
            value = secrets[source["secretKeyRef"]["key"]] if "secretKeyRef" in source else pod
        environ[one["name"]] = _REFERENCE.sub(lambda match: environ[match[1]], value)
    return environ


@dataclass(frozen=True, slots=True)
class Block:
    """Of a page: `bash` is run by a test, `console` shown, `ini` is settings."""

    page: str
    heading: str
    kind: str
    text: str


def blocks(kind: str, page: str | None = None) -> Iterator[Block]:
    for path in sorted(PAGES.glob("*.md")):
        if page is not None and path.stem != page:
            continue
        text = path.read_text()
        for match in _BLOCK.finditer(text):
            if match["kind"] == kind:
                heading = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)[-1]
                lines = [line.removeprefix(match["indent"]) for line in match["text"].splitlines()]
                yield Block(path.stem, heading, kind, "\n".join(lines))


def script(page: str, heading: str) -> str:
    """What a page says to run below a heading."""
    texts = [block.text for block in blocks("bash", page) if block.heading == heading]
    assert texts, f"{page} has nothing to run below {heading!r}"
    return "\n".join(texts)


def text_files() -> Iterator[Path]:
    for path in (*DEPLOY.rglob("*"), *PAGES.glob("*.md")):
        if path.is_file() and path.name != ".env":
            yield path
