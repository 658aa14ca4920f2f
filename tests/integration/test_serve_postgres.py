"""`hutch serve` and `hutch keys` with DATABASE_URL: all they know is in PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from hutch import SandboxClient
from tests.integration.test_serve import WAIT, _hutch, serving
from tests.postgres_rig import PASSWORD, Postgres

pytestmark = pytest.mark.once


def keys(data_dir: Path, url: str, *words: str) -> str:
    program = _hutch(data_dir, "keys", *words, DATABASE_URL=url)
    output, errors = program.communicate(timeout=WAIT)
    assert program.returncode == 0, errors
    return output


def test_sessions_and_keys_live_in_the_database(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUTCH_DATA_DIR", str(tmp_path))
    database = postgres.new_database()
    with serving(tmp_path, DATABASE_URL=database) as (url, _):
        client = SandboxClient(mode="remote", server_url=url)
        client.get_or_create_session(user_id="u", thread_id="t")
        client.upload_file_from_bytes("a.txt", b"kept")
        key = keys(tmp_path, database, "create", "second").strip()  # of another process, and known at once
        other = SandboxClient(mode="remote", server_url=url, api_key=key)
        assert other.get_or_create_session(user_id="u", thread_id="t2")["status"] == "created"
    assert not (tmp_path / "hutch.db").exists()
    assert {one["name"] for one in json.loads(keys(tmp_path, database, "list", "--json"))} >= {"second"}
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT thread_id FROM sessions ORDER BY thread_id").fetchall()
        assert [row[0] for row in rows] == ["t", "t2"]
    with serving(tmp_path, DATABASE_URL=database) as (url, _):
        client = SandboxClient(mode="remote", server_url=url)
        assert client.get_or_create_session(user_id="u", thread_id="t")["status"] == "existing"
        assert client.execute("cat a.txt")["stdout"] == "kept"


def test_two_servers_of_one_name_do_not_take_each_others_sandboxes(tmp_path: Path, postgres: Postgres) -> None:
    database = postgres.new_database()
    first, second = tmp_path / "first", tmp_path / "second"
    with serving(first, DATABASE_URL=database) as (url, _):
        key = keys(first, database, "create", "k").strip()
        client = SandboxClient(mode="remote", server_url=url, api_key=key)
        client.get_or_create_session(user_id="u", thread_id="t")
        client.upload_file_from_bytes("a.txt", b"kept")
        refused = _hutch(second, "serve", "--port", "1", "--preview-port", "0", DATABASE_URL=database)
        _, errors = refused.communicate(timeout=WAIT)
        assert refused.returncode not in (0, None)
        assert "WORKER_ID" in errors
        with serving(second, DATABASE_URL=database, WORKER_ID="another") as (other, _):
            stranger = SandboxClient(mode="remote", server_url=other, api_key=key)
            assert stranger.for_thread("u", "t2").execute("echo hi")["stdout"] == "hi\n"
        assert client.execute("cat a.txt")["stdout"] == "kept"


def test_a_database_that_cannot_be_used_ends_the_start_with_the_reason(tmp_path: Path, postgres: Postgres) -> None:
    missing = postgres.url_of("missing")
    for words in (["serve", "--port", "1", "--preview-port", "0"], ["keys", "list"]):
        program = _hutch(tmp_path, *words, DATABASE_URL=missing)
        output, errors = program.communicate(timeout=WAIT)
        assert program.returncode not in (0, None)
        assert 'database "missing" does not exist' in errors
        assert "DATABASE_URL" in errors
        assert PASSWORD not in output + errors
