"""Repositories that mean harm, and secrets that must stay where they are used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hutch import SandboxClient
from hutch.engine.git import service
from hutch.engine.homes import HOMES
from hutch.engine.observe import Observation
from hutch.model.errors import GitFailed, HutchError
from hutch.settings import read_settings
from tests.client_rig import client_of

pytestmark = pytest.mark.once

ME: dict[str, Any] = {"author": "Ada", "email": "ada@example.com"}
SECRET = "s3cr3t-p%40ss"
PORT = 8417
# A repository behind a password, by git's plain HTTP. It notes who asked, and the command lines of the moment.
SERVER = f"""exec python3 -u -c '
import base64, glob, http.server, json
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        lines = b"".join(open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/cmdline"))
        said = self.headers.get("Authorization", "")
        with open("/tmp/seen", "a") as file:
            file.write(json.dumps([said, lines.decode(errors="replace")]) + chr(10))
        if said != "Basic " + base64.b64encode(b"ada:" + open("/tmp/known", "rb").read()).decode():
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic realm=x")
            self.end_headers()
            return
        super().do_GET()
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", {PORT}), Handler)
print("ready")
server.serve_forever()
'"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxClient]:
    with client_of(tmp_path_factory.mktemp("git") / "data") as made:
        yield made


def test_a_password_is_used_and_found_nowhere(client: SandboxClient) -> None:
    seen: list[Observation] = []
    home = HOMES.get(read_settings())

    async def watch(engine: object) -> None:
        engine.watchers.add(seen.append)  # type: ignore[attr-defined]  # an Engine

    home.thread.run(home.do(watch))
    client.git.init("origin")
    client.files.write("origin/a", "1")
    client.git.add("a", "origin")
    client.git.commit("first", **ME, path="origin")
    client.execute("git clone -q --bare origin served.git && git -C served.git update-server-info")
    client.execute("git config --global credential.helper store")
    client.execute("cat > /tmp/known", stdin=SECRET.encode())
    server = client.start(SERVER)
    for event in client.attach(server["process_id"]):
        if b"ready" in event["data"]:
            break
    url = f"http://127.0.0.1:{PORT}/served.git"
    with pytest.raises(GitFailed, match="prompts disabled"):
        client.git.clone(url, "none")
    with pytest.raises(GitFailed) as wrong:
        client.git.clone(url, "wrong", username="ada", password=SECRET + "x")
    assert SECRET not in str(wrong.value) + json.dumps(wrong.value.details)
    client.git.clone(url, "by-argument", username="ada", password=SECRET)
    client.git.clone(url.replace("//", "//ada:" + SECRET.replace("%", "%25") + "@"), "by-address")
    client.git.pull("origin", "main", "by-address", username="ada", password=SECRET)
    assert client.git.remotes("by-address") == [{"name": "origin", "url": url}]
    asked = [json.loads(line) for line in client.execute("cat /tmp/seen")["stdout"].splitlines()]
    assert any(said for said, _ in asked)
    assert all("git" in lines and SECRET not in lines for _, lines in asked)
    assert client.execute(f"grep -rl '{SECRET}' /workspace /tmp --exclude=seen --exclude=known")["stdout"] == ""
    assert client.execute("ls -A ~/.git-credentials")["exit_code"] != 0
    told = [one.command for one in seen]
    assert any("clone" in one for one in told)
    assert not any(SECRET in one and "grep" not in one for one in told)
    client.kill(server["process_id"])


def test_any_name_a_file_can_have(client: SandboxClient) -> None:
    client.git.init("names")
    names = ["new\nline", " lead", "--all", ":(top)x", "*", "tab\t", 'quo"te', "é", "-", "a -> b"]
    for name in names:
        client.files.write(f"names/{name}", "x")
    assert sorted(one["path"] for one in client.git.status("names")["files"]) == sorted(names)
    client.git.add([name if not name.startswith("-") else f"./{name}" for name in names if name != "*"], "names")
    left = [one["path"] for one in client.git.status("names")["files"] if one["index"] == "?"]
    assert left == ["*"]  # a name, no pattern


def test_a_repository_that_is_elsewhere_or_none(client: SandboxClient) -> None:
    client.execute("mkdir linked plain file; ln -s /etc linked/.git; echo 'gitdir: /proc/1' > file/.git")
    for path in ("linked", "plain", "file"):
        for ask in (client.git.status, client.git.log, client.git.remotes):
            with pytest.raises(GitFailed):
                ask(path)
    with pytest.raises(HutchError):
        client.git.status("missing")


def test_reading_runs_no_program_that_a_repository_names(client: SandboxClient) -> None:
    client.git.init("evil")
    client.files.write("evil/a", "1\n")
    client.files.write("evil/.gitattributes", "a diff=evil filter=evil\n")
    client.git.add("a", "evil")
    client.git.commit("first", **ME, path="evil")
    client.files.write("evil/a", "2\n")
    touch = "touch /workspace/ran-"
    for key in ("core.fsmonitor", "diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager"):
        client.git.config(key, f"{touch}{key};:", path="evil")
    for ask in (client.git.status, client.git.log, client.git.diff, client.git.branches, client.git.remotes):
        ask("evil")
    assert client.execute("ls -d ran-*")["exit_code"] != 0


def test_hooks_that_hang_and_answers_without_end(client: SandboxClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.git.init("slow")
    client.files.write("slow/big", "line\n" * 2_500_000)
    client.git.add("big", "slow")
    diff = client.git.diff("slow", staged=True)
    assert diff["truncated"]
    assert len(diff["text"]) <= 10 * 1024 * 1024
    client.execute(
        "cd slow && git -c user.name=a -c user.email=b commit -qF - < big && "
        "printf '#!/bin/sh\\nsleep 60\\n' > .git/hooks/pre-commit || mkdir .git/hooks && "
        "printf '#!/bin/sh\\nsleep 60\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
    )
    with pytest.raises(GitFailed, match="more to say"):
        client.git.log("slow")
    monkeypatch.setattr(service, "SECONDS", 1.0)
    with pytest.raises(GitFailed, match="in time") as hung:
        client.git.commit("never", **ME, allow_empty=True, path="slow")
    assert hung.value.details["timed_out"]
    assert client.execute("pgrep -x sleep")["exit_code"] != 0
