"""What a model may send and a sandbox may hold: every answer is an answer, and can be stored as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deepagents.backends.protocol import BackendProtocol

from hutch import AsyncSandboxClient
from hutch.tools.deepagents import HutchDrive, HutchSandbox
from tests.client_rig import settings_of

pytestmark = pytest.mark.once

NASTY = [
    "",
    "/",
    "relative",
    "~/x",
    "/workspace/\0",
    "/workspace/\ud800",
    "/tmp/\udcff",
    "/workspace/" + "n" * 300,
    "/workspace" + "/d" * 3000,
    "/workspace/../etc/shadow",
    "/workspace/a'; touch /workspace/PWNED; '",
    "/tmp/$(touch /workspace/PWNED)",
    "/tmp/`touch /workspace/PWNED`\n",
    "/workspace/-rf",
    "/proc/self/mem",
    "/proc/1/environ",
    "/dev/tty",
]
ASK: dict[str, Callable[[BackendProtocol, str], Any]] = {
    "ls": lambda one, text: one.ls(text),
    "read": lambda one, text: one.read(text),
    "write": lambda one, text: one.write(text, "x") if text != "/workspace/-rf" else None,
    "edit": lambda one, text: one.edit(text, "a", "b"),
    "edit with": lambda one, text: one.edit("/workspace/a.txt", text, "b"),
    "glob in": lambda one, text: one.glob("*.none", text) if text != "/" else None,
    "glob for": lambda one, text: one.glob(text),
    "grep in": lambda one, text: one.grep("no such text", text) if text != "/" else None,
    "grep for": lambda one, text: one.grep(text, "/workspace", max_count=5),
    "grep files": lambda one, text: one.grep("x", "/workspace", text),
    "upload": lambda one, text: one.upload_files([(text, b"x")]) if text != "/workspace/-rf" else None,
    "download": lambda one, text: one.download_files([text]),
    "delete": lambda one, text: one.delete(text + "/none"),
    "execute": lambda one, text: one.execute(f"true {text!r}") if isinstance(one, HutchSandbox) else None,
    "execute as it is": lambda one, text: (
        one.execute(f"echo {text} >&-") if "touch" not in text and isinstance(one, HutchSandbox) else None
    ),
}


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BackendProtocol]]:
    with settings_of(tmp_path_factory.mktemp("data")):
        client = AsyncSandboxClient(policy="open")
        box = HutchSandbox(client, user_id="mallory", thread_id="hostile")
        made = box.execute(
            "echo a > a.txt; echo x > ./-rf; touch $'\\xff\\xfe.txt'; mkdir $'d\\xff'; echo x > $'d\\xff/x.txt'"
        )
        assert made.exit_code == 0
        yield {"sandbox": box, "drive": HutchDrive(client, user_id="mallory")}


def storable(answer: Any) -> bool:
    json.dumps(answer, default=lambda one: one.decode("latin1") if isinstance(one, bytes) else vars(one)).encode()
    text = (
        repr(answer)
        if answer is None
        else json.dumps(
            answer,
            default=lambda one: one.decode("latin1") if isinstance(one, bytes) else vars(one),
            ensure_ascii=False,
        )
    )
    text.encode()  # as a database or a provider of models would
    return True


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("which", ["sandbox", "drive"])
def test_nothing_that_is_sent_breaks_a_run(backends: dict[str, BackendProtocol], which: str, ask: str) -> None:
    for text in NASTY:
        answer = ASK[ask](backends[which], text)
        for one in answer if isinstance(answer, list) else [answer]:
            if hasattr(one, "path"):
                one.path = None  # an upload's answer names the path as it was sent
            assert storable(one), text
    box = backends["sandbox"]
    assert "PWNED" not in box.ls("/workspace").__repr__()
    assert isinstance(box, HutchSandbox)
    assert box.execute("cat /workspace/a.txt").output == "a\n"  # and goes on as before


def test_names_that_are_no_text_can_be_shown(backends: dict[str, BackendProtocol]) -> None:
    box = backends["sandbox"]
    for answer in (box.ls("/workspace"), box.glob("*.txt"), box.grep("x"), box.grep("x", None, "*.txt")):
        assert storable(answer)
    assert "/workspace/\ufffd\ufffd.txt" in [one["path"] for one in box.glob("*.txt").matches or []]
    assert [one["path"] for one in box.grep("x", None, "x.txt").matches or []] == ["/workspace/d\ufffd/x.txt"]
