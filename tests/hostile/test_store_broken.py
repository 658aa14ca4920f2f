"""Disks that are full, folders that cannot be written, files that are no database."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hutch.model.errors import StoreUnavailable
from hutch.store.store import Store

pytestmark = pytest.mark.once

WORKER = Path(__file__).with_name("store_worker.py")


def run_worker(verb: str, path: Path, *, inside: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Answers of a worker that runs `inside` another command."""
    command = [*inside, sys.executable, str(WORKER), verb, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=100)
    return [json.loads(line) for line in done.stdout.splitlines()]


def on_small_disk(folder: Path, options: str) -> list[str]:
    """A mount namespace with a file system of its own at `folder`; it goes with the process, however that ends."""
    mount = f'mount -t tmpfs -o "{options}" tmpfs "$0" && exec "$@"'
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        unshare.insert(1, "--map-root-user")
    return [*unshare, "sh", "-c", mount, str(folder)]


def without_overriding_modes() -> list[str]:
    """Root may write everywhere; without that capability, modes hold for root, too."""
    return ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []


def open_fails(path: Path) -> StoreUnavailable:
    async def attempt() -> None:
        store = await Store.open(path, busy_seconds=0.3)
        await store.aclose()

    with pytest.raises(StoreUnavailable) as caught:
        asyncio.run(attempt())
    assert str(path) in caught.value.message
    assert caught.value.details["remedy"] in caught.value.message
    return caught.value


def test_a_full_disk_is_named_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    answers = run_worker("use_full_disk", tmp_path / "hutch.db", inside=on_small_disk(tmp_path, "size=1m"))
    full, readable, after = answers
    assert full["code"] == "store_unavailable"
    assert full["cause"] == "the disk is full"
    assert "free space" in full["remedy"]
    assert full["written"] > 0
    assert readable == {"readable": full["written"]}
    assert after == {"after": full["written"] + 1}


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    (found,) = run_worker("use", tmp_path / "hutch.db", inside=on_small_disk(tmp_path, "size=8k"))
    assert found["cause"] == "the disk is full"


def test_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    before, after = run_worker(
        "use_mount_gone_read_only", tmp_path / "hutch.db", inside=on_small_disk(tmp_path, "size=4m")
    )
    assert before == {"ok": True}
    assert after["cause"] == "its file system is mounted read-only"
    assert "HUTCH_DATA_DIR" in after["remedy"]


@pytest.mark.parametrize("existing", [False, True], ids=["new file", "file that exists"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, existing: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if existing:
        assert run_worker("use", folder / "hutch.db") == [{"ok": True}]
    folder.chmod(0o500)
    try:
        (found,) = run_worker("use", folder / "hutch.db", inside=without_overriding_modes())
        assert found["code"] == "store_unavailable"
        assert found["cause"] == f"{folder} is not writable"
        (found,) = run_worker("use", folder / "deeper" / "hutch.db", inside=without_overriding_modes())
        assert "Permission denied" in found["cause"]
    finally:
        folder.chmod(0o700)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"
    assert run_worker("use", path) == [{"ok": True}]
    path.chmod(0o400)
    (found,) = run_worker("use", path, inside=without_overriding_modes())
    assert found["cause"] == f"{path} is not writable"


@pytest.mark.parametrize("content", [b"not a database, but long enough to be taken for one" * 20, os.urandom(8192)])
def test_garbage_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hutch.db"
    path.write_bytes(content)
    assert "not a database" in open_fails(path).details["cause"]
    assert path.read_bytes() == content


def test_a_truncated_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"
    assert run_worker("use", path) == [{"ok": True}]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    (found,) = run_worker("use", path)
    assert "damaged" in found["cause"]
    assert "backup" in found["remedy"]


def test_damage_in_the_middle_is_found_when_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"
    assert run_worker("use", path) == [{"ok": True}]
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    (found,) = run_worker("use", path)
    assert found["code"] == "store_unavailable"
    assert "damaged" in found["cause"]


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"
    path.touch()
    assert run_worker("use", path) == [{"ok": True}]


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "hutch.db").mkdir()
    assert open_fails(tmp_path / "hutch.db").details["cause"] == "there is a folder of that name"


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert open_fails(tmp_path / "data" / "hutch.db").code == "store_unavailable"
