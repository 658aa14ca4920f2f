"""What the how-to pages say to run is run, as it stands there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from hutch import SandboxClient, SandboxFileNotFound, Unauthorized
from tests.acceptance.deploy_files import script
from tests.acceptance.serving import WAIT, serving


def run(text: str, place: Path, **variables: str) -> None:
    """By bash, with this `hutch` on its path; variables are what the reader filled in."""
    programs = place / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "hutch").write_text(f'#!/bin/sh\nexec {sys.executable} -m hutch "$@"\n')
    (programs / "hutch").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "HUTCH_DATA_DIR": str(place / "data"), **variables}
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=WAIT)
    assert done.returncode == 0, done.stdout + done.stderr


def client_at(port: int, key: str, thread: str) -> SandboxClient:
    client = SandboxClient(mode="remote", server_url=f"http://localhost:{port}", api_key=key, policy="open")
    client.get_or_create_session(user_id="ada", thread_id=thread)
    return client


def test_a_backup_made_while_serving_is_restored(tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    with serving(tmp_path / "data") as port:
        key = (tmp_path / "data/api-key").read_text().strip()
        client = client_at(port, key, "kept")
        client.upload_file_from_bytes("data.csv", b"a,b\n1,2\n")
        client.execute("mkdir -p deep/er && cd deep/er && echo made > it && ln -s it link && chmod 700 it")
        client.execute("mkdir gone && rm -r gone && mkdir gone && echo new > gone/file && truncate -s 1G sparse")
        client.set_cwd("deep")
        client.set_env({"COLOUR": "blue"})
        writing = client.start("while sleep 0.01; do date >> /workspace/log; done")["process_id"]
        run(script("back-up-and-restore", "Back up"), tmp_path, backup=backup)
        client.kill(writing)
        client.upload_file_from_bytes("/workspace/later.txt", b"after the backup")
        client.close()
    assert sum(file.stat().st_blocks for file in Path(backup).iterdir()) * 512 < 10_000_000, "holes stay holes"
    assert Path(backup).stat().st_mode & 0o077 == 0
    (tmp_path / "data").rename(tmp_path / "lost")

    run(script("back-up-and-restore", "Restore"), tmp_path, backup=backup)
    with serving(tmp_path / "data") as port:
        client = client_at(port, key, "kept")
        assert client.session_id is not None
        seen = client.execute("pwd; echo $COLOUR; cat er/link ../data.csv ../gone/file; stat -c '%s %U' ../sparse")
        lines = ["/workspace/deep", "blue", "made", "a,b", "1,2", "new", f"{2**30} sandboxuser"]
        assert seen["stdout"].splitlines() == lines
        assert client.execute("tail -n 1 /workspace/log")["exit_code"] == 0
        assert (
            client.execute("echo more >> /workspace/data.csv && chmod 600 er/it && rm -r /workspace/gone")["exit_code"]
            == 0
        )
        with pytest.raises(SandboxFileNotFound):
            client.download_file_to_bytes("/workspace/later.txt")
        client.close_session()


def test_a_programs_key_is_rotated_without_losing_its_sessions(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as port:
        old, new = tmp_path / "old", tmp_path / "new"
        run(f'hutch keys create backend > "{old}"', tmp_path)
        before = client_at(port, old.read_text().strip(), "t")
        before.upload_file_from_bytes("a.txt", b"kept")
        # The page's commands, and what its reader does with the new key.
        text = script("rotate-keys", "A program's key") + f'\nprintf %s "$new" > "{new}"'
        run(text, tmp_path, HUTCH_URL=f"http://localhost:{port}")
        assert refused(port, old)
        after = client_at(port, new.read_text().strip(), "t")
        assert after.download_file_to_bytes("a.txt") == b"kept"
        with pytest.raises(Unauthorized):
            before.execute("true")
        for client in (before, after):
            client.close()


def test_the_machines_own_key_is_rotated(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as port:
        file = tmp_path / "data/api-key"
        old = tmp_path / "old"
        shutil.copy(file, old)
        run(script("rotate-keys", "The key of the server's machine"), tmp_path)
        assert file.stat().st_mode & 0o777 == 0o600
        assert refused(port, old)
        headers = {"authorization": f"Bearer {file.read_text().strip()}"}
        assert httpx.get(f"http://localhost:{port}/v1/keys", headers=headers).status_code == 200, "it may do everything"


def refused(port: int, key: Path) -> bool:
    """Servers look at the keys once a second."""
    headers = {"authorization": f"Bearer {key.read_text().strip()}"}
    with httpx.Client(base_url=f"http://localhost:{port}", headers=headers) as http:
        return any(http.get("/v1/sessions").status_code == 401 for _ in range(2000))
