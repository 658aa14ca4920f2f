"""Where a sandbox must not get to, whatever its rules: past them, by numbers, by names that lie, by redirects."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from hutch import SandboxClient
from tests.egress_rig import Origin, Stage, connect, get, greeting, last, origin, rule, say, staged, status

METADATA = ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "168.63.129.16", "192.0.0.192")
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.fixture(scope="module")
def host() -> Iterator[Origin]:
    with origin() as made:
        yield made


@pytest.fixture
def reaches(stage: Stage, host: Origin) -> SandboxClient:
    """A sandbox that may reach `good.test` on this machine, and names it does not own."""
    stage.names.known = {"good.test": ["127.0.0.1"]}
    stage.names.asked.clear()
    host.seen.clear()
    return stage.client("reaches", rule("good.test", host.port), {"host": "*.world.test"}, {"host": "world.test"})


def test_what_is_allowed_is_reached(stage: Stage, reaches: SandboxClient, host: Origin) -> None:
    client = stage.client("plain", rule("good.test", host.port))
    done = client.execute(f"curl -sS --max-time 10 'http://good.test:{host.port}/a?b=c'")
    assert (done["stdout"], done["exit_code"]) == ("hello", 0), done
    assert host.seen[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")
    record = last(client)
    assert (record["verdict"], record["rule"], record["host"], record["port"], record["status"]) == (
        "passed",
        "good.test",
        "good.test",
        host.port,
        200,
    )
    assert record["received_bytes"] > 5
    assert "/a" not in str(record), "what is asked for beyond the host may be secret"


def test_n1_no_number_leads_out(stage: Stage, reaches: SandboxClient, host: Origin) -> None:
    for target in (f"127.0.0.1:{host.port}", "1.1.1.1:80", f"[::1]:{host.port}", f"[::ffff:127.0.0.1]:{host.port}"):
        assert status(say(reaches, get(target))) == 403, target
        assert status(say(reaches, connect(target))) == 403, target
    code = (
        "import socket\n"
        f"for address in ('1.1.1.1', 80), ('127.0.0.1', {host.port}), ('8.8.8.8', 53):\n"
        "    try:\n"
        "        socket.create_connection(address, 3); print('out')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    reaches.files.write("direct.py", code)
    done = reaches.execute("unset $(compgen -v | grep -i proxy); python3 direct.py")
    assert "out" not in done["stdout"], done
    assert len(done["stdout"].split()) == 3, done
    assert host.seen == []


def test_n2_names_that_are_not_allowed_are_never_looked_up(stage: Stage, reaches: SandboxClient) -> None:
    for name in ("secret.evil.test", "secret.good.test", "goodXtest", "test"):
        for said in (get(name), connect(f"{name}:443")):
            assert status(say(reaches, said)) == 403, name
    assert status(say(reaches, get("good.test:1"))) == 403, "a port that is not allowed"
    assert stage.names.asked == []
    code = (
        "import socket\n"
        "try: socket.getaddrinfo('secret.evil.test', 80); print('found')\n"
        "except OSError: print('no names')\n"
        "asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for at in ('127.0.0.1', 53), ('8.8.8.8', 53):\n"
        "    try: asker.sendto(b'x', at); asker.settimeout(1); asker.recv(1); print('heard')\n"
        "    except OSError: print('no answer')\n"
    )
    reaches.files.write("names.py", code)
    assert reaches.execute("python3 names.py")["stdout"].split("\n")[:3] == ["no names", "no answer", "no answer"]
    assert stage.names.asked == []


@pytest.mark.parametrize("private", [False, True])
def test_n3_metadata_is_out_of_reach(stage: Stage, reaches: SandboxClient, private: bool) -> None:
    """Also for a rule that may lead to private hosts: the name could be led there by others."""
    client = stage.client("metadata", {"host": "*.test", "private": private}, {"host": "here.test", "private": private})
    for number, address in enumerate(METADATA):
        stage.names.known |= {"here.test": [address], f"n{number}.test": [address]}
        literal = f"[{address}]" if ":" in address else address
        for said in (get("here.test"), get(f"n{number}.test"), connect("here.test:443"), get(literal)):
            answer = say(client, said)
            assert status(answer) == 403, (address, said, answer)
        assert address in say(client, get("here.test")).decode()


def test_n4_odd_spellings_of_numbers_are_no_hosts(stage: Stage, reaches: SandboxClient, host: Origin) -> None:
    stage.names.known |= {name: ["127.0.0.1"] for name in ("2130706433", "127.1", "0x7f.0.0.1")}
    client = stage.client("odd", {"host": "*", "ports": [host.port]}, rule("good.test", host.port))
    for name in (
        "2130706433", "0x7f000001", "017700000001", "127.1", "0177.0.0.1", "0x7f.1", "127.0.0.01", "127.0.0.1.",
        "[::127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[fe80::1%25lo]", "[::1%lo]", "127.0.0.1%20",
        "１２７.０.０.１", "①②⑦.0.0.1",
    ):  # fmt: skip
        for said in (get(f"{name}:{host.port}"), connect(f"{name}:{host.port}")):
            assert status(say(client, said)) in (400, 403), name
    assert host.seen == []
    assert not {"2130706433", "127.1", "0x7f.0.0.1"} & set(stage.names.asked)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "0.0.0.0", "10.1.2.3", "172.31.0.1", "192.168.1.1", "100.64.0.1", "::1", "::", "fd12::1", "fe80::1",
     "::ffff:127.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::1", "224.0.0.1", "255.255.255.255", "ff02::1",
     "198.18.0.1", "240.0.0.1", "2001::1", "fec0::1", "64:ff9b:1::1"],
)  # fmt: skip
def test_n4_a_name_leads_to_no_address_of_our_own(stage: Stage, reaches: SandboxClient, address: str) -> None:
    stage.names.known["world.test"] = [address]
    for said in (get("world.test"), connect("world.test:443")):
        answer = say(reaches, said)
        assert status(answer) == 403, answer
    assert last(reaches)["verdict"] == "refused"
    stage.names.known["world.test"] = [
        "93.184.215.14",
        address,
    ]  # beside one that is fine: the name is not to be trusted
    assert status(say(reaches, get("world.test"))) == 403


def test_n4_the_address_that_was_checked_is_the_one_connected_to(stage: Stage, host: Origin) -> None:
    """A name that leads elsewhere when it is asked again is asked once, and again only for the next request."""
    stage.names.turns["turns.test"] = [["127.0.0.1"], ["169.254.169.254"]]
    client = stage.client("turns", rule("turns.test", host.port))
    stage.names.asked.clear()
    assert status(say(client, get(f"turns.test:{host.port}"))) == 200
    assert stage.names.asked == ["turns.test"]
    assert status(say(client, get(f"turns.test:{host.port}"))) == 403


def test_n5_a_redirect_is_a_request_like_any_other(stage: Stage, host: Origin) -> None:
    def elsewhere(request: bytes) -> bytes:
        target = re.match(rb"GET /to\?([^ ]+) ", request)
        assert target is not None
        return b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: " + target[1] + b"\r\n\r\n"

    stage.names.known["leads.test"] = ["127.0.0.1"]
    host.seen.clear()
    with origin(elsewhere) as leader:
        client = stage.client("redirected", rule("leads.test", leader.port))
        for target in ("http://169.254.169.254/", f"http://127.0.0.1:{host.port}/", f"http://good.test:{host.port}/"):
            page = f"http://leads.test:{leader.port}/to?{target}"
            done = client.execute(
                f"curl -sL --noproxy '' --max-time 10 -w '%{{http_code}} %{{num_redirects}}' '{page}'"
            )
            assert done["stdout"].endswith("403 1"), done
    assert host.seen == []


def test_n6_a_name_has_one_reading(stage: Stage, reaches: SandboxClient, host: Origin) -> None:
    at = f":{host.port}"
    for name in (
        "good.test\0.evil.test", "evil.test\0good.test", "good.test@evil.test", "evil.test@good.test", "good.test%00",
        "evil.test#good.test", "evil.test\\good.test", "xgood.test", "good.test.evil.test", "good..test", ".good.test",
        "good.test..", "good.test:80", "good.test,evil.test", "evilworld.test", "good\u3002test", "xn--good.test", "",
    ):  # fmt: skip
        for said in (get(name + at), connect(name + at)):
            assert status(say(reaches, said)) in (0, 400, 403), name
    assert status(say(reaches, get(f"evil.test/good.test{at}"))) == 403
    for target in (
        b"good.test:080",
        b"good.test:+80",
        b"good.test: 80",
        b"good.test:99999",
        b"good.test",
        b"good.test:",
    ):
        assert status(say(reaches, b"CONNECT " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")) in (400, 403), target
    assert host.seen == []
    assert set(stage.names.asked) <= {"good.test"}
    for name in ("GOOD.test", "good.test.", "Good.Test."):
        assert status(say(reaches, get(name + at))) == 200, name
    assert [re.search(rb"(?i)\r\nhost: ([^\r]*)", one)[1] for one in host.seen] == [  # type: ignore[index]
        f"good.test:{host.port}".encode()
    ] * 3


def test_n6_a_wildcard_is_for_what_is_below_it(stage: Stage, reaches: SandboxClient, host: Origin) -> None:
    client = stage.client("below", rule("*.below.test", host.port))
    below = ("a.below.test", "a.b.below.test", "below.test", "evilbelow.test")
    stage.names.known |= {name: ["127.0.0.1"] for name in below}
    stage.names.asked.clear()
    found = [name for name in (*below, "*.below.test")
             if status(say(client, get(f"{name}:{host.port}"))) == 200]  # fmt: skip
    assert found == ["a.below.test", "a.b.below.test"] == stage.names.asked


def test_n6_the_name_in_a_tunnel_is_the_name_that_was_judged(stage: Stage, host: Origin) -> None:
    stage.names.known |= {"good.test": ["127.0.0.1"]}
    client = stage.client("tunnels", rule("good.test", host.port))
    host.seen.clear()
    target = connect(f"good.test:{host.port}")
    for first in (
        greeting("evil.test"),
        greeting("good.test.evil.test"),
        greeting(None),
        b"GET / HTTP/1.1\r\nhost: evil.test\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + b"x" * 70_000,
        b"\x16\x03\x01\x00\x05hello",
        b"SSH-2.0-OpenSSH\r\n",
    ):
        answer = say(client, target, then=[first])
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert answer.endswith(b"\r\n\r\n"), answer
        assert last(client)["verdict"] == "refused", (first[:20], last(client))
    assert host.seen == []
    lone = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    client.egress.set([rule("good.test", host.port, tls=False)])
    assert b"hello" in say(client, target, then=[lone])
    assert b"hello" in say(client, target + lone), "what comes with the CONNECT is not lost"
