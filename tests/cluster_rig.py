"""A real cluster on loopback: coordinators and workers as processes of their own, over a real Redis and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hutch.engine.access import open_access
from hutch.model.principal import Scope
from tests.postgres_rig import Postgres, running_postgres
from tests.redis_rig import RunningRedis, running_redis

START_SECONDS = 60.0
END_SECONDS = 60.0
QUIET_END_SECONDS = 1.0


@dataclass(slots=True)
class Member:
    """One `hutch serve`."""

    name: str
    port: int
    preview_port: int
    folder: Path
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """As `kill -9` does it."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """As systemd or Kubernetes does it; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END_SECONDS)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")


@dataclass(slots=True)
class Cluster:
    folder: Path
    redis: RunningRedis
    postgres: Postgres
    database_url: str
    preview_url: str = ""  # of the first coordinator
    variables: dict[str, str] = field(default_factory=dict[str, str])
    members: list[Member] = field(default_factory=list[Member])

    def coordinator(self, name: str, **variables: str) -> Member:
        return self._start("coordinator", name, variables)

    def worker(self, name: str, **variables: str) -> Member:
        return self._start("worker", name, variables)

    def _start(self, role: str, name: str, variables: dict[str, str]) -> Member:
        folder = self.folder / name
        before = next((one for one in self.members if one.name == name), None)
        port, preview_port = (before.port, before.preview_port) if before else (_free_port(), _free_port())
        if role == "coordinator" and not self.preview_url:
            self.preview_url = f"http://localhost:{preview_port}"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HUTCH_")}
        environment |= {
            "DATABASE_URL": self.database_url,
            "HUTCH_REDIS_URL": self.redis.url,
            "HUTCH_DATA_DIR": str(folder),
            "WORKER_ID": name,
            "HUTCH_PREVIEW_PORT": str(preview_port),
            "HUTCH_PREVIEW_URL": self.preview_url,
            "HUTCH_RATE": "1000000/minute",
            **self.variables,
            **variables,
        }
        command = [sys.executable, "-m", "hutch", "serve", "--role", role, "--port", str(port)]
        log = self.folder / f"{name}.log"
        with log.open("ab") as said:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
            )
        member = Member(name, port, preview_port, folder, log, process)
        self.members = [one for one in self.members if one.name != name] + [member]
        return member

    def key(self, tenant: str = "local", scope: Scope = "use") -> str:
        """A new one, also for those who are in an event loop."""

        async def make() -> str:
            async with open_access(self.folder, self.database_url) as access:
                return (await access.keys.create("test", tenant, scope))[0].text

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, make()).result(START_SECONDS)

    def ready(self, coordinator: Member, *workers: str) -> None:
        """Wait until the coordinator serves and these workers, and no others, take sandboxes."""
        key = self.key(scope="read")

        def there() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                answer = httpx.get(f"{coordinator.url}/v1/doctor", headers={"authorization": f"Bearer {key}"})
                rows = answer.json()["workers"] if answer.status_code == 200 else []
                able = {row["worker_id"] for row in rows if row["status"] == "healthy" and not row["draining"]}
                return able == set(workers)
            return False

        try:
            wait_for(there, START_SECONDS)
        except TimeoutError:
            raise TimeoutError("\n".join(f"{one.name}: {one.said()[-2000:]}" for one in self.members)) from None


def wait_for(there: Callable[[], Any], seconds: float) -> None:
    """Raises: TimeoutError."""
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.05)


@contextlib.contextmanager
def running_cluster(folder: Path, **variables: str) -> Iterator[Cluster]:
    """Redis and PostgreSQL; coordinators and workers are started by the test, and ended here."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_postgres() as postgres, running_redis(folder) as redis:
        cluster = Cluster(folder, redis, postgres, postgres.new_database(), variables=dict(variables))
        try:
            yield cluster
        finally:
            living = [one for one in cluster.members if one.process.poll() is None]
            for member in living:
                member.resume()
                member.process.send_signal(signal.SIGTERM)
            for member in living:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    member.process.wait(QUIET_END_SECONDS)
                member.process.send_signal(signal.SIGINT)  # whatever still runs in a sandbox
            for member in living:
                try:
                    member.process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    member.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
