"""A real PostgreSQL for tests: made in a folder of its own, listening on loopback, gone when the test ends."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

USER = "hutch"
PASSWORD = "s3cret/of:the@tests"
START_SECONDS = 60
_SETTINGS = {
    # Nothing of it outlives the test: a killed server still finds what it wrote, as the kernel lives on.
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "200",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
}


@functools.cache
def binaries() -> Path:
    """The folder of `postgres` and `initdb`. Raises: FileNotFoundError (scripts/test installs them as root)."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: int(one.parent.name))
    on_path = shutil.which("postgres")
    for folder in [*reversed(folders), *([Path(on_path).parent] if on_path else [])]:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise FileNotFoundError("PostgreSQL is not installed: sudo apt-get install -y --no-install-recommends postgresql")


@dataclass
class Postgres:
    """A server, and the means to be bad to it. `url` is of an empty database; `new_database` makes more."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] = field(init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        return f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of one more database, empty."""
        name = f"test{next(self._numbers)}_{os.getpid()}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'".encode())
        return self.url_of(name)

    def start(self) -> None:
        """Start it (again) and wait until it answers. Raises: RuntimeError with its log."""
        command = [str(binaries() / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-k", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_as_other_user(), *command], cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        give_up_at = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > give_up_at:
                    self.kill()
                    raise RuntimeError(f"{error}\n{(self.folder / 'log').read_text(errors='replace')}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the server and of all it started."""
        if self.process.poll() is not None:
            return
        children = _children(self.process.pid)
        for pid in (self.process.pid, *children):
            _signal(pid, signal.SIGKILL)
        self.process.wait()
        give_up_at = time.monotonic() + START_SECONDS
        while any(_alive(pid) for pid in children) and time.monotonic() < give_up_at:
            time.sleep(0.01)

    def stop(self) -> None:
        """End it in order, closing the connections there are."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(START_SECONDS)

    def pause(self) -> None:
        """It goes on listening, and answers nobody."""
        for pid in (self.process.pid, *_children(self.process.pid)):
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in (*_children(self.process.pid), self.process.pid):
            _signal(pid, signal.SIGCONT)


@contextmanager
def running_postgres(folder: Path | None = None) -> Iterator[Postgres]:
    """A server in a new folder inside `folder`, which its user must be able to reach (default: the temporary one).

    Raises: FileNotFoundError (not installed), RuntimeError (does not start; with its log).
    """
    own = Path(tempfile.mkdtemp(prefix="hutch-pg-", dir=folder))
    try:
        if os.geteuid() == 0:
            account = _account()
            os.chown(own, account.pw_uid, account.pw_gid)
        _initialise(own)
        postgres = Postgres(own, _free_port())
        postgres.start()
        try:
            yield postgres
        finally:
            if postgres.process.poll() is None:
                postgres.resume()
            postgres.kill()
    finally:
        shutil.rmtree(own)


def _initialise(folder: Path) -> None:
    password_file = folder / "password"
    password_file.write_text(PASSWORD)
    command = [str(binaries() / "initdb"), "-D", str(folder / "data"), "-U", USER, "--pwfile", str(password_file)]
    command += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
    done = subprocess.run([*_as_other_user(), *command], cwd="/", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")
    with (folder / "data" / "postgresql.conf").open("a") as config:
        config.writelines(f"{name} = '{value}'\n" for name, value in _SETTINGS.items())


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _as_other_user() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    account = _account()
    return ["setpriv", "--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups", "--"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _signal(pid: int, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
