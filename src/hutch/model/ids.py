"""Ids are random and say nothing of whom they belong to."""

from __future__ import annotations

import base64
import secrets
import uuid


def _random(bytes_count: int) -> str:
    return base64.b32encode(secrets.token_bytes(bytes_count)).decode().lower()


def new_sandbox_id() -> str:
    return "sb" + _random(10)


def new_process_id() -> str:
    return "p" + _random(10)


def new_session_id() -> str:
    return str(uuid.uuid4())


def new_key_id() -> str:
    return "k" + _random(10)


def new_token_id() -> str:
    return "t" + _random(10)
