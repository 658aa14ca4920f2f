"""nginx and Caddy as users start them: with the files of deploy/, names of places replaced, in front of given ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
API, PREVIEW = "hutch.example.org", "preview.example.org"
START_SECONDS = 20.0

NGINX = """\
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/errors.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/hutch.conf;
}}
"""
CADDY = """\
{
\tadmin off
\tdefault_bind 127.0.0.1
\tauto_https disable_redirects
\tservers {
\t\tprotocols h1 h2
\t}
}
"""


@dataclass(frozen=True, slots=True)
class Certificate:
    """For both names and those below; signed by itself."""

    cert: Path
    key: Path


def program(name: str, package: str) -> str:
    """Where it is. Without the rights to install it the test is skipped, which in CI is a failure."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        pytest.skip(f"{name} is missing; scripts/test installs {package}")
    return path


def make_certificate(folder: Path) -> Certificate:
    made = Certificate(folder / "test.crt", folder / "test.key")
    names = f"subjectAltName=DNS:{API},DNS:{PREVIEW},DNS:*.{PREVIEW}"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2"]
    files = ["-out", str(made.cert), "-keyout", str(made.key)]
    request = ["openssl", "req", "-x509", *kind, "-subj", "/CN=test", "-addext", names, *files]
    subprocess.run(request, check=True, capture_output=True)
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"{old!r} is no more in the file: this test would try something else"
        text = text.replace(old, new)
    return text


def nginx_files(folder: Path, certificate: Certificate, port: int, api: int, previews: int) -> list[str]:
    """Writes them; the command to start nginx with."""
    nginx = program("nginx", "nginx-light")
    changes = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "server 127.0.0.1:8000": f"server 127.0.0.1:{api}",
        "server 127.0.0.1:8001": f"server 127.0.0.1:{previews}",
    }
    for name in ("hutch", "preview"):
        changes[f"/etc/hutch/tls/{name}.crt"] = str(certificate.cert)
        changes[f"/etc/hutch/tls/{name}.key"] = str(certificate.key)
    (folder / "hutch.conf").write_text(replaced((DEPLOY / "nginx/hutch.conf").read_text(), changes))
    user = "user root;" if os.geteuid() == 0 else ""  # or its worker would not reach the test's folder
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    return [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors.log")]


def caddy_files(folder: Path, certificate: Certificate, port: int, api: int, previews: int) -> list[str]:
    """Writes them; the command to start Caddy with."""
    caddy = program("caddy", "caddy")
    tls = f"tls {certificate.cert} {certificate.key}"
    changes = {
        f"\n{API} {{": f"\n{API}:{port} {{\n\t{tls}",
        f"{PREVIEW}, *.{PREVIEW} {{": f"{PREVIEW}:{port}, *.{PREVIEW}:{port} {{",
        "tls /etc/hutch/tls/preview.crt /etc/hutch/tls/preview.key": tls,
        "reverse_proxy 127.0.0.1:8000": f"reverse_proxy 127.0.0.1:{api}",
        "reverse_proxy 127.0.0.1:8001": f"reverse_proxy 127.0.0.1:{previews}",
    }
    (folder / "Caddyfile").write_text(CADDY + replaced((DEPLOY / "caddy/Caddyfile").read_text(), changes))
    return [caddy, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


FILES = {"nginx": nginx_files, "caddy": caddy_files}


@contextmanager
def proxy(kind: str, folder: Path, certificate: Certificate, api: int, previews: int) -> Iterator[int]:
    """The port it listens on, with TLS."""
    port = free_port()
    command = FILES[kind](folder, certificate, port, api, previews)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    with (folder / "said").open("wb") as said:
        program = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        until = time.monotonic() + START_SECONDS
        while not _listens(port):
            assert program.poll() is None, (folder / "said").read_text()
            assert time.monotonic() < until, (folder / "said").read_text()
            time.sleep(0.02)
        yield port
    finally:
        program.terminate()
        try:
            program.wait(START_SECONDS)
        finally:
            program.kill()
            program.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
