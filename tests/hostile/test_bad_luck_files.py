"""Files in both directions: byte-exact, or a clear error in good time; never a byte of the host read or written."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hutch import HutchError, LimitExceeded, PathRejected, SandboxClient, SandboxFileNotFound
from tests.hostile.bad_luck_stage import MB, client, data_folder

PROMPT = 2.0  # an error comes within two seconds; bounds are five times that
SECRET = "a secret of the host\n"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with data_folder() as found:
        yield found


@pytest.fixture
def box(folder: Path, request: pytest.FixtureRequest) -> Iterator[SandboxClient]:
    made = client(folder, request.node.name)
    made.execute("echo warm")
    yield made
    made.close_session()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


def fails(call: Callable[[], Any], kind: type[HutchError] = HutchError) -> HutchError:
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        call()
    assert time.monotonic() - begun < 5 * PROMPT
    assert str(caught.value)
    return caught.value


def sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("size", [0, 1, MB, 100 * MB])
def test_bytes_are_exact_both_ways(box: SandboxClient, tmp_path: Path, size: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    block = os.urandom(MB)
    with source.open("wb") as file:
        for start in range(0, size, MB):
            file.write(block[: size - start])
    assert box.upload_file(source, "in.bin")["size_bytes"] == size
    seen = box.execute("sha256sum < in.bin; wc -c < in.bin", timeout=60)["stdout"].split()
    assert (seen[0], int(seen[2])) == (sha(source), size)
    box.download_file("in.bin", target)
    assert sha(target) == sha(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_a_file_over_its_limit_is_refused_up_and_down(folder: Path, tmp_path: Path) -> None:
    strict = client(folder, "limits", "strict")
    source = tmp_path / "big"
    with source.open("wb") as file:
        file.truncate(100 * MB + 1)
    error = fails(lambda: strict.upload_file(source), LimitExceeded)
    assert "File size exceeds maximum of 100 MB" in str(error)
    assert strict.list_files()["total_files"] == 0
    with source.open("wb") as file:
        file.truncate(100 * MB)
    assert strict.upload_file(source)["size_bytes"] == 100 * MB
    sparse = 'python3 -c \'open("sparse","wb").truncate(100*2**20)\''
    assert strict.execute(sparse, timeout=20)["exit_code"] == 0
    strict.download_file("sparse", tmp_path / "sparse")
    assert (tmp_path / "sparse").stat().st_size == 100 * MB
    strict.close_session()


def test_a_sparse_giant_cannot_be_made(box: SandboxClient) -> None:
    """No file is larger than its workspace may be, so none can claim more than a download may pour out."""
    result = box.execute("truncate -s 1T giant")
    assert (result["exit_code"], result["limit"]) == (153, "file_size")
    assert box.execute("truncate -s 9G giant")["exit_code"] == 0
    assert box.files.read("giant", offset=8 * 2**30, length=10) == bytes(10)


@pytest.mark.parametrize("path", ["..", "../x", "../../etc/passwd", "a/../../x", "/etc/passwd", "/workspace/../etc/x"])
def test_paths_outside_are_refused(box: SandboxClient, path: str) -> None:
    fails(lambda: box.download_file_to_bytes(path), PathRejected)
    fails(lambda: box.upload_file_from_bytes(path, b"x"), PathRejected)
    fails(lambda: box.files.remove(path, recursive=True), PathRejected)
    fails(lambda: box.files.move("a", path), PathRejected)


def test_links_never_lead_to_the_host(box: SandboxClient, secret: Path) -> None:
    box.execute(
        f"ln -s {secret} final; ln -s {secret.parent} middle; ln -s nowhere dangling; ln -s loop loop; "
        f"ln -s /proc/self/root{secret} magic; ln -s ../../../../../../{secret} climbing; "
        "ln -s /proc/1/root/etc/passwd p1"
    )
    for path in ("final", "middle/secret.txt", "dangling", "loop", "magic", "climbing", "p1"):
        fails(lambda path=path: box.download_file_to_bytes(path))  # type: ignore[misc]
    for path in ("final", "middle/secret.txt", "dangling", "climbing", "middle/new.txt"):
        try:  # a link may be replaced by the file, or refused; it is never followed out
            box.upload_file_from_bytes(path, b"overwritten")
        except HutchError:
            continue
        assert box.download_file_to_bytes(path) == b"overwritten"
    assert secret.read_text() == SECRET
    assert [path.name for path in secret.parent.iterdir()] == ["secret.txt"]


def test_a_link_that_is_swapped_while_it_is_checked(box: SandboxClient, secret: Path) -> None:
    """A command turns a file into a link to the host's and back as fast as it can, while it is loaded up and down."""
    swap = (
        "import os\nos.makedirs('d',exist_ok=True)\nwhile 1:\n"
        f" os.symlink('{secret}','t'); os.replace('t','x')\n"
        " open('t','w').write('mine'); os.replace('t','x')\n"
        f" os.rename('d','e'); os.symlink('{secret.parent}','d'); os.unlink('d'); os.rename('e','d')\n"
    )
    process = box.start(f'python3 -c "{swap}"')["process_id"]
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        for path in ("x", "d/secret.txt"):
            try:
                assert SECRET.encode() not in box.download_file_to_bytes(path)
            except HutchError:
                pass
        for path in ("x", "d/secret.txt", "d/planted"):
            try:
                box.upload_file_from_bytes(path, b"planted")
            except HutchError:
                pass
    box.kill(process)
    assert secret.read_text() == SECRET
    assert [path.name for path in secret.parent.iterdir()] == ["secret.txt"]


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("FIFO", "mkfifo odd"),
        ("socket", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"odd\")'"),
        ("folder", "mkdir odd"),
        ("device", "ln -s /dev/zero odd"),
        ("terminal", "ln -s /dev/tty odd"),
        ("endless", "ln -s /proc/self/environ odd"),
    ],
)
def test_what_is_no_regular_file_is_refused_in_time(box: SandboxClient, tmp_path: Path, kind: str, make: str) -> None:
    assert box.execute(make)["exit_code"] == 0
    fails(lambda: box.download_file("odd", tmp_path / "odd"))
    assert list(tmp_path.iterdir()) == []
    if kind == "folder":
        fails(lambda: box.upload_file_from_bytes("odd", b"x"), PathRejected)
    assert box.list_files()["total_files"] == 0


def test_what_is_no_regular_file_here_is_refused_in_time(box: SandboxClient, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "missing"):
        fails(lambda path=path: box.upload_file(path, "x"))  # type: ignore[misc]
    (tmp_path / "dangling").symlink_to("nowhere")
    fails(lambda: box.upload_file(tmp_path / "dangling"), SandboxFileNotFound)


@pytest.mark.parametrize(
    "name", ["new\nline", "-rf", "\udcff\udcfe", "n" * 255, "ü" * 127, " ", "*", "$(id)", "'", "\\"]
)
def test_odd_names_are_just_names(
    box: SandboxClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    box.upload_file_from_bytes(name, name.encode("utf-8", "surrogateescape"))
    assert box.download_file_to_bytes(name) == name.encode("utf-8", "surrogateescape")
    (row,) = box.list_files()["files"]
    assert row["name"] == name
    source = tmp_path / name
    source.write_bytes(b"from here")
    assert box.upload_file(source)["filename"] == name
    monkeypatch.chdir(tmp_path)
    assert box.download_file(name) == name
    assert box.execute("ls -A | wc -l")["stdout"].strip() in ("1", "2")  # a line end in a name counts twice
    box.files.move(name, "plain")
    box.files.remove("plain")


def test_a_name_that_is_too_long(box: SandboxClient) -> None:
    for name in ("n" * 256, "ü" * 128, "d/" * 2048 + "x"):
        fails(lambda name=name: box.upload_file_from_bytes(name, b""), PathRejected)  # type: ignore[misc]


def test_a_file_that_changes_while_it_is_read(box: SandboxClient) -> None:
    box.upload_file_from_bytes("a", b"x" * (8 * MB))
    items = box.files.read_pieces("a")
    next(items)
    box.execute("echo short > a")
    assert sum(len(piece) for piece in items) <= 8 * MB


def test_many_uploads_at_once_stay_whole(box: SandboxClient) -> None:
    datas = [os.urandom(200_000) for _ in range(8)]
    threads = [threading.Thread(target=box.upload_file_from_bytes, args=("same", data)) for data in datas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert box.download_file_to_bytes("same") in datas
    assert box.list_files()["total_files"] == 1
