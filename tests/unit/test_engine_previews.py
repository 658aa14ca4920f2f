"""Tokens of previews in the engine: how many, for how long, and what another process hears of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from hutch.engine import previews
from hutch.engine.previews import Previews
from hutch.model.errors import LimitExceeded, Unauthorized
from hutch.store.database import open_database
from hutch.store.previews import PreviewStore
from tests.unit.engine_stage import TENANT, Stage, play


def test_a_sandbox_has_so_many_tokens_and_what_ended_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "TOKENS_AT_MOST", 3)

    async def body(stage: Stage) -> None:
        made = stage.engine.previews
        sandbox, other = await stage.session(), await stage.session("other")
        await made.make(TENANT, sandbox, 1, 0.05)
        for port in (2, 3):
            await made.make(TENANT, sandbox, port)
        with pytest.raises(LimitExceeded):
            await made.make(TENANT, sandbox, 4)
        await made.make(TENANT, other, 4)  # of others nothing is taken
        await asyncio.sleep(0.06)
        await made.make(TENANT, sandbox, 4)
        assert await made.revoke(TENANT, sandbox, 3) == 1
        await made.make(TENANT, sandbox, 5)
        assert [one["port"] for one in await made.list(TENANT, sandbox)] == [2, 4, 5]

    play(tmp_path, body)


def test_a_token_that_another_process_revokes_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "KNOWN_SECONDS", 0.1)
    monkeypatch.setattr(previews, "LOOK_SECONDS", 0.05)

    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        token, _ = await stage.engine.previews.make(TENANT, sandbox, 3000)
        admission = await stage.engine.previews.admit(token.text, sandbox, 3000)
        over = asyncio.create_task(stage.engine.previews.until_over(admission))
        database = await open_database(tmp_path / "hutch.db")  # as a process of its own would
        try:
            elsewhere = Previews(PreviewStore(database), stage.engine.sandboxes)
            await asyncio.sleep(0.2)
            assert not over.done()
            assert await elsewhere.revoke(TENANT, sandbox, 3000, token.token_id) == 1
        finally:
            await database.aclose()
        await over
        with pytest.raises(Unauthorized):
            await stage.engine.previews.admit(token.text, sandbox, 3000)

    play(tmp_path, body)


def test_a_token_ends_by_itself(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        token, _ = await stage.engine.previews.make(TENANT, sandbox, 3000, 0.2)
        admission = await stage.engine.previews.admit(token.text, sandbox, 3000)
        await stage.engine.previews.until_over(admission)
        assert time.time() >= admission.expires_at

    play(tmp_path, body)


def test_a_token_ends_with_the_key_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "KNOWN_SECONDS", 0.0)

    async def body(stage: Stage) -> None:
        made, keys, sandbox = stage.engine.previews, stage.engine.keys, await stage.session()
        key, _ = await keys.create("leaked", TENANT, "use")
        ended, _ = await made.make(TENANT, sandbox, 3000, key_id=key.key_id)
        kept, _ = await made.make(TENANT, sandbox, 3000, key_id="another")
        await made.admit(ended.text, sandbox, 3000)
        await keys.revoke(key.key_id)
        with pytest.raises(Unauthorized):
            await made.admit(ended.text, sandbox, 3000)
        await made.admit(kept.text, sandbox, 3000)

    play(tmp_path, body)
