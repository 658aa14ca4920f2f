"""What a hostile sandbox or host says to the proxy: smuggled requests, upgrades, secrets, answers that lie."""

from __future__ import annotations

import base64
import io
import re
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing

import pytest

from hutch import SandboxClient
from hutch.model.errors import HutchError, InvalidRequest
from tests.egress_rig import (
    OK,
    Certificates,
    Origin,
    Stage,
    certificates,
    connect,
    get,
    last,
    origin,
    rule,
    say,
    staged,
    status,
)

CANARY = "s3cret-canary-0123456789"
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"), "good.test", "api.test")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, signed: Certificates) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data"), trust=signed.trust) as made:
        made.names.known = {name: ["127.0.0.1"] for name in ("good.test", "api.test", "other.test")}
        yield made


@pytest.fixture(scope="module")
def host() -> Iterator[Origin]:
    with origin() as made:
        yield made


@pytest.fixture
def client(stage: Stage, host: Origin) -> SandboxClient:
    host.seen.clear()
    return stage.client("t", rule("good.test", host.port))


# -- N7: requests that two readers read differently


def test_n7_what_can_be_read_in_two_ways_is_refused(client: SandboxClient, host: Origin) -> None:
    inner = f"GET http://good.test:{host.port}/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
    at = f"good.test:{host.port}"
    for headers in (
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", f"content-length: {len(inner)}"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: +5",),
        ("content-length: 0x5",),
        ("content-length: 5, 6",),
        ("transfer-encoding: xchunked",),
        ("transfer-encoding: chunked, identity",),
        ("transfer-encoding: identity",),
        ("transfer-encoding : chunked",),
        ("content-length: 0\r\n\r", "x: y"),
        ("host: good.test", "host: evil.test"),
        ("x y: z",),
        ("x: a\0b",),
        ("x: " + "y" * 100_000,),
    ):
        answer = say(client, get(at, "/", *headers, method="POST") + b"0\r\n\r\n" + inner.encode())
        assert status(answer) in (400, 431, 501), (headers, answer)
        assert answer.count(b"HTTP/1.1") == 1, (headers, answer)
    old = f"POST http://{at}/ HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
    assert status(say(client, old.encode())) == 400
    for said in (
        b"\x16\x03\x01\x02\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x05\x01\x00",
        b"GET /\r\n\r\n",
        b"\r\n" * 9,
    ):
        assert status(say(client, said + b"\r\n\r\n")) == 400, said
    for target in (b"/", b"*", b"good.test/", b"https://good.test/", b"ftp://good.test/", b"http:///", b"//good.test/"):
        assert status(say(client, b"GET " + target + b" HTTP/1.1\r\nhost: good.test\r\n\r\n")) == 400, target
    assert host.seen == []


def test_n7_requests_one_behind_the_other_are_judged_one_by_one(client: SandboxClient, host: Origin) -> None:
    at = f"good.test:{host.port}"
    first = f"POST http://{at}/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi".encode()
    chunked = (
        f"POST http://{at}/2 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2;e=x\r\nhi\r\n0\r\na: b\r\n\r\n"
    )
    answer = say(client, first + chunked.encode() + get("evil.test", "/3") + get(at, "/4"))
    assert [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]{3})", answer)] == [200, 200, 403]
    assert [one.split(b" ")[1] for one in host.seen] == [b"/1", b"/2"]
    assert b"\r\n\r\n2\r\nhi\r\n0\r\n\r\n" in host.seen[1], "extensions of chunks and trailers end here"


def test_n7_the_host_of_a_request_is_the_one_that_was_judged(client: SandboxClient, host: Origin) -> None:
    at = f"good.test:{host.port}"
    hop = ("connection: close, x-named", "x-named: 1", "proxy-authorization: Basic eDp5", "proxy-connection: close",
           "te: trailers", "keep-alive: 5", "x-kept: yes")  # fmt: skip
    said = f"GET http://{at}/ HTTP/1.1\r\nhost: evil.test\r\n" + "\r\n".join(hop) + "\r\n\r\n"
    assert status(say(client, said.encode())) == 200
    head = host.seen[0].lower()
    assert f"\r\nhost: {at}\r\n".encode() in head
    assert b"evil.test" not in head
    assert b"x-kept: yes" in head
    for name in (b"x-named", b"proxy-", b"te:", b"keep-alive"):
        assert name not in head, name


def test_n7_a_connection_is_turned_into_a_websocket_and_nothing_else(stage: Stage, client: SandboxClient) -> None:
    def turned(request: bytes) -> bytes | None:
        if b"upgrade: websocket" in request.lower():
            return b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nframes"
        return b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" + OK

    with origin(turned) as host:
        client.egress.set([rule("good.test", host.port)])
        at = f"good.test:{host.port}"
        for headers in (
            ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"),
            ("connection: upgrade", "upgrade: h2c"),
            ("connection: upgrade", "upgrade: websocket, h2c"),
            ("connection: upgrade", "upgrade: websocket", "upgrade: h2c"),
            ("upgrade: TLS/1.0", "connection: upgrade"),
            ("http2-settings: AAMAAABkAAQAAP__",),
        ):
            assert status(say(client, get(at, "/", *headers))) == 400, headers
        assert host.seen == []
        assert status(say(client, get(at))) == 502, "nobody asked for another protocol"
        plain = f"GET http://{at}/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        answer = say(client, plain.encode() + b"sec-websocket-key: x\r\n\r\n", then=[b"connection: close\r\n\r\n"])
        assert status(answer) == 101
        assert b"\r\n\r\nframes" in answer
        assert answer.endswith(b"hello"), "both ways"
        assert b"sec-websocket-key: x" in host.seen[-2].lower()
        assert b"upgrade: websocket" in host.seen[-2].lower()


def test_a_trace_shows_nobody_a_header(client: SandboxClient, host: Origin) -> None:
    assert status(say(client, get(f"good.test:{host.port}", method="TRACE"))) == 400
    assert host.seen == []


# -- secrets


def test_a_secret_reaches_its_host_by_tls_and_nothing_else(stage: Stage, signed: Certificates) -> None:
    with origin(tls=signed.server) as api, origin() as other:
        secret = {"Authorization": f"Bearer {CANARY}"}
        client = stage.client("secret", rule("api.test", api.port, headers=secret), rule("other.test", other.port))
        at = f"api.test:{api.port}"
        answer = say(client, get(at, "/v1", "authorization: Bearer mine", "connection: authorization", "x: y"))
        assert status(answer) == 200, answer
        assert status(say(client, get(at, "/v1", "AUTHORIZATION: Bearer mine", "Authorization: Bearer too"))) == 200
        assert [one.lower().count(b"authorization:") for one in api.seen] == [1, 1]
        assert f"authorization: Bearer {CANARY}".encode() in api.seen[0]
        assert b"Bearer mine" not in b"".join(api.seen)
        refused = say(client, connect(at))
        assert status(refused) == 403, "in a tunnel the sandbox could show a key of its own"
        assert b"http://api.test/" in refused
        assert status(say(client, get(f"other.test:{other.port}"))) == 200
        assert CANARY.encode() not in b"".join(other.seen)
        everything = client.execute(
            "env; cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo 2>/dev/null | tr '\\0' '\\n'; "
            "grep -rsI canary /etc /workspace /tmp /run /opt /dev/shm 2>/dev/null; true"
        )
        assert everything["exit_code"] == 0
        kept = [everything["stdout"], str(client.egress.rules()), str(client.egress.log()), str(client.info())]
        kept += [str(stage.engine.settings), refused.decode(), repr(stage.engine.egress._seats)]
        assert not [text for text in kept if CANARY in text or base64.b64encode(CANARY.encode()).decode() in text]
        assert client.egress.rules()[0]["headers"] == ["authorization"]
        database = (stage.folder / "hutch.db").stat()
        assert database.st_mode & 0o077 == 0, "it holds the secret"


def test_a_secret_goes_to_nobody_whose_certificate_is_not_believed(stage: Stage, signed: Certificates) -> None:
    with origin(tls=signed.server) as wrong, origin() as plain:
        client = stage.client(
            "unbelieved",
            rule("other.test", wrong.port, headers={"x-key": CANARY}),  # the certificate names others
            rule("api.test", plain.port, headers={"x-key": CANARY}),  # no TLS there
        )
        for at in (f"other.test:{wrong.port}", f"api.test:{plain.port}"):
            answer = say(client, get(at))
            assert status(answer) == 502, answer
            assert CANARY.encode() not in answer
        assert wrong.seen == []
        assert CANARY.encode() not in b"".join(plain.seen)
        assert {record["verdict"] for record in client.egress.log()} == {"failed"}


def test_secrets_of_rules_are_in_no_error(client: SandboxClient) -> None:
    for headers in (
        {"x-key": f"{CANARY}\r\nx: y"},
        {"x-key": CANARY + "\0"},
        {"host": CANARY},
        {"x y": CANARY},
        [CANARY],
    ):
        with pytest.raises(InvalidRequest) as caught:
            client.egress.set([{"host": "api.test", "headers": headers}])
        assert CANARY not in str(caught.value) + str(caught.value.details)
    with pytest.raises(HutchError) as caught_too:
        client.egress.set([{"host": "*", "headers": {"x-key": CANARY}}])
    assert CANARY not in str(caught_too.value)


def test_a_removed_sandbox_leaves_no_secret_in_the_database(stage: Stage) -> None:
    gone = stage.client("gone", rule("api.test", headers={"x-key": CANARY}))
    sandbox = gone.info()["sandbox_id"]

    with closing(sqlite3.connect(stage.folder / "hutch.db")) as database:
        kept = "SELECT count(*) FROM egress_rules WHERE sandbox_id = ?", (sandbox,)
        assert database.execute(*kept).fetchone() == (1,)
        gone.close_session()
        assert database.execute(*kept).fetchone() == (0,)


# -- programs that know nothing of us


def test_curl_python_git_and_pip_find_their_way(stage: Stage, signed: Certificates) -> None:
    commit = b"1" * 40 + b"\trefs/heads/main\n"
    pages = {
        b"/": b"hello",
        b"/r.git/info/refs?service=git-upload-pack": commit,
        b"/r.git/HEAD": b"ref: refs/heads/main\n",
        b"/simple/tiny/": b"<a href='/tiny-1.0-py3-none-any.whl'>tiny-1.0-py3-none-any.whl</a>",
        b"/tiny-1.0-py3-none-any.whl": tiny_wheel(),
    }

    def serve(request: bytes) -> bytes:
        page = pages.get(request.split(b" ")[1], b"")
        return b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page)

    with origin(serve, tls=signed.server) as host:
        client = stage.client("programs", rule("good.test", host.port))
        client.files.write("ca.pem", signed.authority.read_bytes())
        at = f"https://good.test:{host.port}"
        client.set_env({"SSL_CERT_FILE": "/workspace/ca.pem", "GIT_SSL_CAINFO": "/workspace/ca.pem"})
        python = f"import urllib.request as r; print(r.urlopen('{at}/').read().decode())"
        pip = "pip --isolated --disable-pip-version-check download -q --no-deps --cert ca.pem"
        for command, said in (
            (f"curl -sS --cacert ca.pem {at}/", "hello"),
            (f'python3 -c "{python}"', "hello"),
            (f"git ls-remote {at}/r.git", "refs/heads/main"),
            (f"{pip} --index-url {at}/simple/ tiny && ls *.whl", "tiny-1.0-py3-none-any.whl"),
        ):
            done = client.execute(command)
            assert done["exit_code"] == 0, (command, done)
            assert said in done["stdout"], (command, done)
        assert {one["method"] for one in client.egress.log()} == {"CONNECT"}


def tiny_wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    return made.getvalue()


# -- hosts that lie


ANSWERS: dict[str, bytes] = {
    "nothing": b"",
    "no http": b"SSH-2.0-x\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nx: ",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30_000,
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a header of two lines": b"HTTP/1.1 200 OK\r\nx\r: y\r\n\r\n",
}


@pytest.mark.parametrize("what", sorted(ANSWERS))
def test_a_host_that_does_not_speak_http_is_a_502(stage: Stage, what: str) -> None:
    with origin(lambda _: ANSWERS[what]) as liar:
        client = stage.client("liars", rule("good.test", liar.port))
        said = say(client, get(f"good.test:{liar.port}"))
        assert status(said) == 502, said[:300]
        assert last(client)["verdict"] == "failed"


def test_half_an_answer_never_looks_whole(stage: Stage) -> None:
    for half in (b"content-length: 100\r\n\r\nhalf", b"transfer-encoding: chunked\r\n\r\n5\r\nhel"):
        with origin(lambda _, half=half: b"HTTP/1.1 200 OK\r\n" + half) as liar:  # type: ignore[misc]
            client = stage.client("half", rule("good.test", liar.port))
            done = client.execute(f"curl -s --max-time 10 http://good.test:{liar.port}/")
            assert done["exit_code"] not in (0, 28), done


def test_what_a_host_says_behind_its_answer_reaches_nobody(stage: Stage) -> None:
    with origin(lambda _: OK + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nstolen") as liar:
        client = stage.client("behind", rule("good.test", liar.port))
        request = f"GET http://good.test:{liar.port}/ HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        answer = say(client, request + get(f"good.test:{liar.port}"))
        assert answer.count(b"hello") == 2
        assert b"stolen" not in answer


def test_large_bodies_pass(stage: Stage) -> None:
    size = 3_000_000
    with origin(lambda request: OK if len(request) > size else b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n") as host:
        client = stage.client("large", rule("good.test", host.port))
        done = client.execute(
            f"head -c {size} /dev/zero | curl -sS --max-time 20 -T - http://good.test:{host.port}/ "
            f"&& head -c {size} /dev/zero | curl -sS --max-time 20 --data-binary @- http://good.test:{host.port}/"
        )
        assert done["stdout"] == "hellohello", done
