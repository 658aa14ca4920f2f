"""A Docker engine of our own for the time of a benchmark or test: its own folders, socket and control groups."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.docker_image import image_archive

_START_SECONDS = 40.0
_STOP_SECONDS = 20.0
IMAGE = "hutch-bench"


class EngineMissing(Exception):
    """No Docker here; says why."""


@contextmanager
def docker_engine() -> Iterator[Any]:
    """A client of the SDK, connected to a private engine with the image loaded. Raises: EngineMissing."""
    try:
        archive = image_archive()
    except RuntimeError as error:
        raise EngineMissing(str(error)) from None
    with private_engine() as client:
        client.api.import_image(src=str(archive), repository=IMAGE, tag="latest")
        yield client


@contextmanager
def private_engine() -> Iterator[Any]:
    """A client of the SDK, connected to an engine without images. Raises: EngineMissing."""
    _require_parts()
    folder = Path(tempfile.mkdtemp(prefix="hutch-docker-"))
    daemon = _start(folder)
    try:
        client = _connect(folder, daemon)
        try:
            yield client
        finally:
            for container in client.containers.list(all=True):
                container.remove(force=True)
            client.close()
    finally:
        _stop(daemon, folder)
        _clear_away(folder)


def _require_parts() -> None:
    if os.geteuid() != 0:
        raise EngineMissing("a private Docker engine needs root")
    if shutil.which("dockerd") is None:
        raise EngineMissing("dockerd (Debian: docker.io) is not installed")
    if importlib.util.find_spec("docker") is None:
        raise EngineMissing("the Docker SDK for Python is not installed")


def _start(folder: Path) -> subprocess.Popen[bytes]:
    options = {
        "data-root": folder / "data",
        "exec-root": folder / "exec",
        "pidfile": folder / "pid",
        "host": f"unix://{folder}/socket",
        "cgroup-parent": f"/{folder.name}",
        "exec-opt": "native.cgroupdriver=cgroupfs",
        "bridge": "none",
        "iptables": "false",
        "ip-forward": "false",
        "log-level": "error",
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            ["dockerd", *(f"--{name}={value}" for name, value in options.items())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us; we end the engine in order
        )


def _connect(folder: Path, daemon: subprocess.Popen[bytes]) -> Any:
    import docker

    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and daemon.poll() is None:
        if _listens(folder / "socket"):  # a client of the SDK that cannot connect would leave its socket open
            client = docker.DockerClient(base_url=f"unix://{folder}/socket", timeout=60)
            client.ping()
            return client
        time.sleep(0.1)
    last = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    raise EngineMissing(f"dockerd did not come up: {last[0][:200]}")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _stop(daemon: subprocess.Popen[bytes], folder: Path) -> None:
    daemon.terminate()
    try:
        daemon.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    # A daemon that had to be killed leaves its containerd behind; the pid file is in our own folder.
    pid_file = folder / "exec/containerd/containerd.pid"
    if pid_file.exists():
        with suppress(ValueError, ProcessLookupError):
            os.kill(int(pid_file.read_text()), signal.SIGKILL)


def _clear_away(folder: Path) -> None:
    """Mounts, control groups and files below names that only this run has."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((one for one in mounts if one.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    groups = Path("/sys/fs/cgroup")
    for place in [*groups.glob(folder.name), *groups.glob(f"*/{folder.name}")]:
        for group, _, _ in os.walk(place, topdown=False):
            with suppress(OSError):
                os.rmdir(group)
    shutil.rmtree(folder, ignore_errors=True)
