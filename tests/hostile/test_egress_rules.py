"""Rules in force: an empty list, a change while running, restarts, neighbours, floods. Never silently ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hutch import SandboxClient
from hutch.engine.assemble import assemble
from hutch.engine.homes import HOMES, EngineHome
from hutch.model.egress import PROXY_PORT, HostRule
from hutch.model.errors import (
    FileConflict,
    Forbidden,
    InvalidRequest,
    NotSupported,
    PortUnreachable,
    SandboxUnavailable,
)
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.egress_rig import Origin, Stage, connect, get, greeting, last, origin, rule, say, staged, status
from tests.hostile.bad_luck_stage import resident_bytes

pytestmark = pytest.mark.once
LISTENING = "grep -c ' 0A ' /proc/net/tcp"  # sockets that listen in the sandbox


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data")) as made:
        made.names.known = {"good.test": ["127.0.0.1"], "slow.test": ["127.0.0.1"]}
        yield made


@pytest.fixture(scope="module")
def host() -> Iterator[Origin]:
    with origin() as made:
        yield made


def reaches(client: SandboxClient, port: int, name: str = "good.test") -> str:
    done = client.execute(f"curl -s --max-time 10 -o /dev/null -w '%{{http_code}}' http://{name}:{port}/")
    return done["stdout"]


def test_n8_an_empty_list_is_nothing_at_all(stage: Stage, host: Origin) -> None:
    client = stage.client("empty")
    stage.names.asked.clear()
    assert client.execute("env | grep -ic proxy")["stdout"].strip() == "0"
    assert client.execute(LISTENING)["stdout"].strip() == "0"
    with pytest.raises(PortUnreachable):
        client.connect(PROXY_PORT)
    assert reaches(client, host.port) == "000"
    client.egress.set([rule("good.test", host.port)])
    assert reaches(client, host.port) == "200"
    client.egress.set([])
    assert client.egress.rules() == []
    assert client.execute(LISTENING)["stdout"].strip() == "0"
    assert reaches(client, host.port) == "000"
    client.egress.set([rule("good.test", host.port)])
    assert reaches(client, host.port) == "200"


def test_n9_what_cannot_be_enforced_is_refused(tmp_path: Path) -> None:
    home = EngineHome(Settings(data_dir=tmp_path), lambda settings: assemble(settings, FakeProvider(listen=False)))
    HOMES.use(home)
    try:
        client = SandboxClient(data_dir=tmp_path).for_thread("u", "t")
        with pytest.raises(NotSupported):
            client.egress.set([{"host": "example.org"}])
        assert client.egress.rules() == []
        assert client.egress.set([]) == []
    finally:
        home.close()


A: dict[str, Any] = {"host": "a"}


@pytest.mark.parametrize("given", [
    "a.test", A, None, 5, [5], ["a.test"], [{}], [{"host": 5}], [{"host": ""}], [A] * 201, [{"host": "http://a.test"}],
    [{"host": "a.test/x"}], [{"host": "a:80"}], [{"host": "a b"}], [{"host": "*.*.a"}], [{"host": "a.*"}],
    [{"host": "*a.b"}], [{"host": "1.2.3.4"}], [{"host": "**"}], [{"host": "a" * 300}],
    [{"host": "10.1", "private": True}], [{"host": "*.10.0.0.1", "private": True}], [{"host": "*", "private": True}],
    [A | {"port": 80}], [A | {"ports": []}], [A | {"ports": [0]}], [A | {"ports": [65536]}], [A | {"ports": [True]}],
    [A | {"ports": "80"}], [A | {"ports": ["80"]}], [A | {"private": "no"}], [A | {"tls": "yes"}],
    [A | {"headers": {"x": ""}}], [A | {"headers": {"x": 5}}],
])  # fmt: skip
def test_n9_a_rule_that_cannot_be_read_is_no_rule(stage: Stage, given: object) -> None:
    client = stage.client("unread", {"host": "kept.test"})
    with pytest.raises(InvalidRequest):
        client.egress.set(given)  # type: ignore[arg-type]
    assert [one["host"] for one in client.egress.rules()] == ["kept.test"]


def test_n9_rules_hold_in_every_kind_of_sandbox(tmp_path: Path, host: Origin) -> None:
    """Strict ones, and those that were made ahead."""
    code = (
        "import sys, urllib.request as r\n"
        f"try: print(r.urlopen('http://' + sys.argv[1] + ':{host.port}/').read().decode())\n"
        "except OSError as error: print(getattr(error, 'code', 'out of reach'))"
    )
    with pytest.MonkeyPatch.context() as patch, staged(tmp_path) as stage:
        patch.setenv("POOL_SIZE", "1")
        stage.names.known = {"good.test": ["127.0.0.1"]}
        for thread in ("first", "second"):
            client = stage.client(thread, policy="strict")
            client.files.write("get.py", code)
            said = [client.execute("python3 get.py good.test")["stdout"].strip()]
            client.egress.set([rule("good.test", host.port)])
            said += [client.execute(f"python3 get.py {name}")["stdout"].strip() for name in ("good.test", "evil.test")]
            assert said == ["out of reach", "hello", "403"]


def test_n10_a_neighbour_has_no_part_in_it(stage: Stage, host: Origin) -> None:
    mine = stage.client("mine", rule("good.test", host.port))
    other = stage.client("other", rule("slow.test", host.port))
    none = stage.client("none")
    assert [reaches(one, host.port) for one in (mine, other, none)] == ["200", "403", "000"]
    assert [reaches(one, host.port, "slow.test") for one in (mine, other, none)] == ["403", "200", "000"]
    assert {one["host"] for one in mine.egress.log()} == {one["host"] for one in other.egress.log()}
    assert none.egress.log() == []
    assert len(mine.egress.log()) == 2


def test_n10_who_ignores_the_proxy_has_no_network_and_the_host_itself_is_out_of_reach(stage: Stage) -> None:
    with origin() as api:  # as the server's own API would listen
        client = stage.client(
            "ignores", {"host": "*"}, {"host": "localhost"}, {"host": "good.test", "ports": [api.port]}
        )
        stage.names.known["localhost"] = ["127.0.0.1"]
        for url in (f"http://127.0.0.1:{api.port}/", f"http://localhost:{api.port}/", f"http://good.test:{api.port}/"):
            for options in ("--noproxy '*'", "--noproxy ''"):
                done = client.execute(f"curl -s --max-time 10 {options} -o /dev/null -w '%{{http_code}}' {url}")
                assert done["stdout"] in ("000", "403"), (url, options)
        assert api.connections == 0


def test_n10_private_networks_are_for_tenants_that_are_named(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, egress_private_tenants=frozenset({"trusted"}))
    home = EngineHome(settings, lambda settings: assemble(settings, FakeProvider()))
    HOMES.use(home)
    try:
        client = SandboxClient(data_dir=tmp_path).for_thread("u", "t")
        for change in (client.egress.set, lambda rules: client.egress.allow(*rules)):
            with pytest.raises(Forbidden):
                change([rule("db.internal", 5432)])
        assert [one["host"] for one in client.egress.set([{"host": "example.org"}])] == ["example.org"]
    finally:
        home.close()


def test_n11_rules_are_for_sandboxes_not_for_names_of_programs(stage: Stage, host: Origin) -> None:
    client = stage.client("named", rule("good.test", host.port))
    for name in ("hutch", "pip", "/usr/bin/git", "hutch-guest", "-bash"):
        for asked, code in (("good.test", "200"), ("evil.test", "403")):
            ask = f"exec -a {name} curl -s --max-time 10 -o /dev/null -w '%{{http_code}}' http://{asked}:{host.port}/"
            assert client.execute(ask)["stdout"] == code


def test_programs_are_told_unless_they_were_told_otherwise(stage: Stage) -> None:
    client = stage.client("told", {"host": "example.org"})
    here = f"http://127.0.0.1:{PROXY_PORT}"
    said = client.execute("env")["stdout"].split("\n")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert f"{name}={here}" in said
    assert "no_proxy=localhost,127.0.0.1" in said
    said = client.execute("env", env={"HTTPS_PROXY": "http://mine:1"})["stdout"].split("\n")
    assert "HTTPS_PROXY=http://mine:1" in said
    assert not [one for one in said if one.startswith("https_proxy=")], "curl would heed that one"
    client.set_env({"no_proxy": "x"})
    assert "no_proxy=x" in client.execute("env")["stdout"].split("\n")


# -- changes


def test_what_a_new_list_forbids_is_cut_and_the_rest_goes_on(stage: Stage) -> None:
    with origin(lambda _: None) as held:
        rules = [rule("good.test", held.port, tls=False), rule("slow.test", held.port)]
        client = stage.client("changing", *rules)
        ends: dict[str, bytes] = {}

        def hold(name: str, said: bytes) -> None:
            ends[name] = say(client, said, then=[b"x\r\n\r\n"])

        said = {"tunnel": connect(f"good.test:{held.port}"), "request": get(f"slow.test:{held.port}")}
        threads = {name: threading.Thread(target=hold, args=(name, one)) for name, one in said.items()}
        for thread in threads.values():
            thread.start()
        _until(lambda: len(held.seen) == 2)
        client.egress.set(rules[1:])
        threads["tunnel"].join(10)
        assert ends["tunnel"].startswith(b"HTTP/1.1 200")
        time.sleep(0.2)
        assert threads["request"].is_alive(), "its rule stands"
        client.egress.set([rule("slow.test", held.port, headers={"x-key": "other"}, tls=False)])
        threads["request"].join(10)
        assert not threads["request"].is_alive(), "it went out under another rule"
        assert {one["reason"][:3] for one in client.egress.log()} == {"cut"}


def test_allow_adds_and_replaces_without_losing_secrets(stage: Stage) -> None:
    client = stage.client("adds", {"host": "a.test", "headers": {"x-key": "1"}})
    client.egress.allow("b.test", HostRule("*.c.test", ports=(443,)))
    assert [one["host"] for one in client.egress.rules()] == ["a.test", "b.test", "*.c.test"]
    client.egress.allow({"host": "b.test", "ports": [8080]})
    assert [(one["host"], one["ports"], one["headers"]) for one in client.egress.rules()] == [
        ("a.test", [80, 443], ["x-key"]),
        ("*.c.test", [443], []),
        ("b.test", [8080], []),
    ]


def test_a_port_that_is_taken_is_an_error_and_nothing_passes(stage: Stage, host: Origin) -> None:
    client = stage.client("taken")
    code = (
        f"import socket, time; s = socket.create_server(('127.0.0.1', {PROXY_PORT})); print('on', flush=True); "
        "time.sleep(60)"
    )
    squatter = client.start(f'python3 -c "{code}"')
    next(iter(client.attach(squatter["process_id"])))
    with pytest.raises(FileConflict):
        client.egress.set([rule("good.test", host.port)])
    client.kill(squatter["process_id"])
    assert len(client.egress.set([rule("good.test", host.port)])) == 1
    assert reaches(client, host.port) == "200"


def test_rules_survive_a_rest_and_the_death_of_the_machine(stage: Stage, host: Origin) -> None:
    client = stage.client("rests", rule("good.test", host.port))
    sandbox = client.info()["sandbox_id"]
    home = HOMES.get(Settings(data_dir=stage.folder))
    for end in ("stop", "kill"):
        live = stage.engine.sandboxes.live[sandbox]
        if end == "stop":
            home.thread.run(stage.engine.sandboxes.stop(live))
        else:
            os.kill(live.machine.init.pid, signal.SIGKILL)  # type: ignore[union-attr]
            _until(lambda live=live: not live.running)
        assert reaches(client, host.port) == "200", end
        assert status(say(client, get("evil.test"))) == 403


SERVER = """
import sys, time
from hutch import SandboxClient
client = SandboxClient(policy="open", data_dir=sys.argv[1]).for_thread("u", "t")
rule = {"host": "127.0.0.1", "ports": [int(sys.argv[2])], "private": True, "headers": {"x-key": "K"}, "tls": False}
client.egress.set([rule])
print("ready", flush=True)
time.sleep(60)
"""


def test_rules_survive_kill_9_and_are_changed_from_another_process(tmp_path: Path) -> None:
    with origin() as host:
        ask = f"curl -s --noproxy '' --max-time 10 -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{host.port}/"
        running = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tmp_path), str(host.port)], stdout=subprocess.PIPE
        )
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == b"ready\n"
            with staged(tmp_path):
                client = SandboxClient(policy="open", data_dir=tmp_path).for_thread("u", "t")
                assert client.execute(ask)["stdout"] == "200", "by the proxy of the process that runs it"
                assert b"x-key: K" in host.seen[-1]
                assert client.egress.set([]) == []
                with pytest.raises(PortUnreachable):
                    client.connect(PROXY_PORT)
                assert client.execute(ask)["stdout"] == "000", "in force when the call returns"
                client.egress.set([rule("127.0.0.1", host.port, headers={"x-key": "K2"}, tls=False)])
                assert client.execute(ask)["stdout"] == "200"
                _until(lambda: len(client.egress.log()) == 2)
                running.kill()
                running.wait()
                with suppress(SandboxUnavailable):  # its end may come in the middle of a command
                    client.execute("sleep 5")
                assert client.execute(ask)["stdout"] == "200", "its new home has the rules"
                assert b"x-key: K2" in host.seen[-1]
                _until(lambda: len(client.egress.log()) == 3)
        finally:
            running.kill()
            running.stdout.close()
            running.wait()


# -- floods

CROWD = """
import socket, sys
crowd = []
for number in range(1000):
    one = socket.socket()
    one.setblocking(False)
    try: one.connect(("127.0.0.1", 3128))
    except BlockingIOError: pass
    crowd.append(one)
import select, time
end = time.time() + float(sys.argv[1])
sent = 0
while time.time() < end:
    for one in select.select([], crowd, [], 0.1)[1]:
        try: sent += one.send(b"GET http://evil.test/" + b"a" * 20000)
        except OSError: pass
print("sent", sent)
"""


@pytest.mark.serial
def test_a_thousand_connections_of_one_sandbox_are_hardly_felt(stage: Stage, host: Origin) -> None:
    hostile = stage.client("hostile", rule("good.test", host.port))
    neighbour = stage.client("neighbour", rule("good.test", host.port))
    hostile.files.write("crowd.py", CROWD)
    assert reaches(neighbour, host.port) == "200"
    proxy = stage.engine.egress._seats[hostile.info()["sandbox_id"]].proxy
    assert proxy is not None
    before = resident_bytes()
    flood = hostile.start("ulimit -n 2000; python3 crowd.py 3")
    most = 0
    while hostile.wait(flood["process_id"], timeout=0.01) is None:
        assert reaches(neighbour, host.port) == "200"
        most = max(most, resident_bytes())
        assert len(proxy._under_way) <= 64, "the rest waits in its own kernel"
    done = hostile.wait(flood["process_id"])
    assert done is not None
    assert done["stdout"].startswith("sent "), done
    assert most - before < 32 * 1024 * 1024
    assert reaches(hostile, host.port) == "200", "it works again when they are gone"


def test_refusals_without_end_neither_fill_the_log_nor_stop_the_engine(stage: Stage) -> None:
    client = stage.client("refused", {"host": "good.test"})
    answers = say(client, b"".join(get("evil.test").replace(b"close", b"keep-alive") for _ in range(50)))
    assert answers.count(b"HTTP/1.1 403") == 1, "a refused connection is over"
    assert last(client)["verdict"] == "refused"
    assert client.egress.log(after=last(client)["record_id"]) == []
    with pytest.raises(InvalidRequest):
        client.egress.log(limit=0)


def test_who_leaves_in_the_middle_leaves_nothing(stage: Stage, host: Origin) -> None:
    client = stage.client("leaves", rule("good.test", host.port))
    for said in (
        b"",
        b"GET http://good",
        connect(f"good.test:{host.port}"),
        connect(f"good.test:{host.port}") + greeting("x"),
    ):
        with client.connect(PROXY_PORT) as connection:
            connection.send(said or b"\r")
    sandbox = client.info()["sandbox_id"]
    proxy = stage.engine.egress._seats[sandbox].proxy
    assert proxy is not None
    _until(lambda: not proxy._under_way)
    assert reaches(client, host.port) == "200"


def _until(condition: object) -> None:
    end = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
