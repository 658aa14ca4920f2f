"""Addresses of previews and what becomes of headers, without a server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hutch.engine.previews import Admission
from hutch.model.errors import Forbidden, SettingsInvalid
from hutch.model.ids import new_sandbox_id
from hutch.model.preview import label, new_token, split_label, split_token
from hutch.model.principal import digest, new_key, split_key
from hutch.server.preview.address import Place, front, place_of, target_of
from hutch.server.preview.entry import Entry, exchange
from hutch.server.preview.headers import inwards, location, outwards, without_token

SANDBOX = "sb" + "a" * 16
OTHERS = frozenset({"localhost", "127.0.0.1", "::1"})
FRONT = front("https://p.example")
PLACE = Place(SANDBOX, 3000, f"3000-{SANDBOX}.p.example")


def _scope(host: bytes | None, path: bytes = b"/", *more: tuple[bytes, bytes]) -> dict[str, Any]:
    hosts = [] if host is None else [(b"host", host)]
    return {"type": "http", "raw_path": path, "path": path.decode(), "headers": [*hosts, *more], "query_string": b""}


@given(some.integers(1, 65535))
def test_a_label_says_sandbox_and_port(port: int) -> None:
    sandbox = new_sandbox_id()
    assert split_label(label(sandbox, port)) == (sandbox, port)
    assert len(label(sandbox, port)) <= 63


@given(some.text(max_size=40))
def test_any_text_is_a_label_or_none(text: str) -> None:
    found = split_label(text)
    assert found is None or label(*found) == text


def test_tokens_and_keys_are_not_taken_for_each_other() -> None:
    token, key = new_token(), new_key()
    parts = split_token(token.text)
    assert parts is not None
    assert (parts[0], digest(parts[1])) == (token.token_id, token.digest)
    assert split_key(token.text) is None
    assert split_token(key.text) is None
    assert split_token(token.text + "\n") is None


@pytest.mark.parametrize(
    ("url", "of_browsers", "of_programs"),
    [
        ("http://localhost:8001", f"http://3000-{SANDBOX}.localhost:8001/?hutch_token=t", "http://localhost:8001"),
        ("https://P.example/", f"https://3000-{SANDBOX}.p.example/?hutch_token=t", "https://p.example"),
        ("https://p.example:443", f"https://3000-{SANDBOX}.p.example/?hutch_token=t", "https://p.example"),
    ],
)
def test_a_front_gives_addresses(url: str, of_browsers: str, of_programs: str) -> None:
    made = front(url)
    assert made.url(SANDBOX, 3000, "t") == of_browsers
    assert made.address(SANDBOX, 3000) == f"{of_programs}/3000-{SANDBOX}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8001", "http://[::1]:8001", "https://p.example/below", "http://"])
def test_a_front_is_a_name_that_hosts_can_be_below(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="HUTCH_PREVIEW_URL"):
        front(url)


def test_a_request_names_its_place() -> None:
    by_host = place_of(_scope(f"3000-{SANDBOX}.P.EXAMPLE:444".encode()), "p.example", OTHERS)
    assert by_host == Place(SANDBOX, 3000, f"3000-{SANDBOX}.p.example:444")
    path = f"/3000-{SANDBOX}/a//b%2F".encode()
    for host in (b"p.example", b"localhost:8001", b"127.0.0.1", b"[::1]:8001"):
        scope = _scope(host, path)
        by_path = place_of(scope, "p.example", OTHERS)
        assert by_path is not None
        assert (by_path.sandbox_id, by_path.port, by_path.by_host) == (SANDBOX, 3000, False)
        assert target_of(scope, by_path) == b"/a//b%2F"


@pytest.mark.parametrize(
    "scope",
    [
        _scope(None),
        _scope(f"3000-{SANDBOX}.p.example".encode(), b"/", (b"host", b"p.example")),  # which of the two?
        _scope(f"3000-{SANDBOX}.p.example.".encode()),
        _scope(f"3000-{SANDBOX}.p.example@evil".encode()),
        _scope(f"3000-{SANDBOX}.p.example\0".encode()),
        _scope(f"3000-{SANDBOX}.evil.p.example".encode()),
        _scope(f"03000-{SANDBOX}.p.example".encode()),
        _scope(f"65536-{SANDBOX}.p.example".encode()),
        _scope(b"evil.example", f"/3000-{SANDBOX}/".encode()),
        _scope(b"p.example", f"/3000-{SANDBOX}".encode()),  # a path of the port begins with a slash
        _scope(b"p.example", f"//3000-{SANDBOX}/".encode()),
        _scope(b"p.example", f"/x/3000-{SANDBOX}/".encode()),
    ],
)
def test_other_requests_name_none(scope: dict[str, Any]) -> None:
    assert place_of(scope, "p.example", OTHERS) is None


def test_the_token_leaves_the_query() -> None:
    assert without_token(b"a=1&hutch_token=x%5Fy&b=%2F&&c") == (b"a=1&b=%2F&&c", "x_y")
    assert without_token(b"hutch%5ftoken=a&hutch_token=b") == (b"", "b")
    assert without_token(b"") == (b"", None)


@given(some.binary(max_size=60))
def test_a_location_never_gains_meaning(text: bytes) -> None:
    """Whatever a sandbox says, it is passed on or refused, and never names another preview afterwards."""
    try:
        seen = location(text, PLACE, FRONT, OTHERS)
    except Forbidden:
        return
    assert b"\t" not in seen
    other = location(b"http://localhost:1/" + text, PLACE, FRONT, OTHERS)
    assert other.startswith(f"https://1-{SANDBOX}.p.example/".encode())


def test_headers_that_are_ours_or_of_the_connection_stay_behind() -> None:
    key, token = new_key().text, new_token().text
    given_ = [
        (b"authorization", f"Bearer {key}".encode()),
        (b"x-mine", b"kept"),
        (b"x-any", token.encode()),
        (b"connection", b"X-Hop"),
        (b"x-hop", b"1"),
        (b"cookie", f"__Host-hutch_preview={token}; a=1".encode()),
    ]
    assert inwards(given_, PLACE, FRONT) == [
        (b"host", PLACE.host.encode()),
        (b"x-mine", b"kept"),
        (b"cookie", b"a=1"),
        (b"x-forwarded-host", PLACE.host.encode()),
        (b"x-forwarded-proto", b"https"),
    ]
    answer = [(b"Connection", b"X-Hop"), (b"X-Hop", b"1"), (b"X-Mine", b"kept"), (b"Keep-Alive", b"timeout=1")]
    assert outwards(answer, PLACE, FRONT, OTHERS) == [(b"x-mine", b"kept")]


def test_with_tls_the_cookie_is_one_that_no_other_host_can_set() -> None:
    entry = Entry(Admission("t", "local", SANDBOX, 3000, time.time() + 60), "query", "hutchp_x")
    scope = _scope(PLACE.host.encode(), b"//evil.example/a")
    answer = exchange(scope, entry, PLACE, FRONT)
    name, *attributes = [part.strip() for part in answer.headers["set-cookie"].split(";")]
    assert name == "__Host-hutch_preview=hutchp_x"
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(attributes)
    assert answer.headers["location"] == f"https://{PLACE.host}//evil.example/a"  # a path, and no host
