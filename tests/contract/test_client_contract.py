"""The client contract on each transport there is, by the async and by the sync classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite(
    *(
        f"hutch.testing.client_contract_{part}"
        for part in ("commands", "drive", "egress", "errors", "files", "open", "placing", "sessions")
    )
)

from hutch.engine.homes import HOMES  # noqa: E402 - the rewrite must come before the import
from hutch.settings import Settings  # noqa: E402
from hutch.testing.client_contract import ClientContract  # noqa: E402
from hutch.testing.client_contract_stage import SYNC_OF, over_sync  # noqa: E402
from hutch.testing.fake_process import Running  # noqa: E402
from hutch.testing.fake_provider import FakeProvider  # noqa: E402
from hutch.testing.fake_scripts import teach  # noqa: E402
from tests.server_rig import served  # noqa: E402
from tests.unit.client_stage import fake_home  # noqa: E402
from tests.unit.engine_stage import settings  # noqa: E402

Make = Callable[..., Any]


def make_async(kind: type, **options: Any) -> Any:
    return kind(**options)


def make_sync(kind: type, **options: Any) -> Any:
    return over_sync(SYNC_OF[kind](**options))


async def _interactive(me: Running) -> int:
    """As much of a shell on a terminal as the contract types into."""
    line = b""
    while byte := await me.read(1):
        line += byte
        if byte == b"\n":
            if line.startswith(b"exit"):
                return int(line.split()[1])
            me.out("it-42\n")
            line = b""
    return 0


def taught() -> FakeProvider:
    provider = FakeProvider()
    teach(provider)
    provider.on(("bash", "-i"), _interactive)
    return provider


@contextmanager
def on_fake(folder: Path, make: Make) -> Iterator[Make]:
    provider = taught()
    with pytest.MonkeyPatch.context() as patch, fake_home(folder, provider):
        patch.setenv("HUTCH_DATA_DIR", str(folder))
        patch.chdir(folder.parent)
        yield make


@contextmanager
def on_bubblewrap(folder: Path, make: Make) -> Iterator[Make]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUTCH_DATA_DIR", str(folder))
        patch.chdir(folder.parent)
        try:
            yield make
        finally:
            HOMES.get(Settings(data_dir=folder)).close()


@contextmanager
def on_server(folder: Path, make: Make, provider: FakeProvider | None = None) -> Iterator[Make]:
    """Clients of a real server, on a bubblewrap or a fake provider."""
    with pytest.MonkeyPatch.context() as patch, served(settings(folder), provider) as server:
        patch.setenv("HUTCH_DATA_DIR", str(folder.parent / "nowhere"))
        patch.chdir(folder.parent)

        def make_remote(kind: type, **options: Any) -> Any:
            remote = {"mode": "remote", "server_url": server.url, "api_key": server.key, **options}
            return make(kind, **remote)

        yield make_remote


class TestAsyncOnFake(ClientContract):
    def clients(self, folder: Path) -> Any:
        return on_fake(folder, make_async)


class TestSyncOnFake(ClientContract):
    def clients(self, folder: Path) -> Any:
        return on_fake(folder, make_sync)


class TestAsyncOnBubblewrap(ClientContract):
    def clients(self, folder: Path) -> Any:
        return on_bubblewrap(folder, make_async)


class TestSyncOnBubblewrap(ClientContract):
    def clients(self, folder: Path) -> Any:
        return on_bubblewrap(folder, make_sync)


class TestAsyncOnServer(ClientContract):
    def clients(self, folder: Path) -> Any:
        return on_server(folder, make_async)


class TestSyncOnServer(ClientContract):
    def clients(self, folder: Path) -> Any:
        return on_server(folder, make_sync)


class TestAsyncOnServerOnFake(ClientContract):
    def clients(self, folder: Path) -> Any:
        return on_server(folder, make_async, taught())
