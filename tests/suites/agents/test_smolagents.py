"""smolagents: a `CodeAgent` whose Python runs in our sandbox."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from smolagents import ChatMessage, CodeAgent, MessageRole, Model, Tool
from smolagents.utils import AgentError

from hutch import SandboxClient
from hutch.tools import smolagents as adapter
from hutch.tools.smolagents import HutchExecutor
from tests.suites.agents.killed import says_and_dies
from tests.tools_rig import hosts

pytestmark = pytest.mark.once


class Script(Model):
    """Answers with one step after the other, and keeps what it was asked."""

    def __init__(self, *steps: str) -> None:
        super().__init__()
        self.steps = list(steps)
        self.seen = ""

    def generate(self, messages: list[ChatMessage], **_: Any) -> ChatMessage:
        self.seen = str(messages)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.steps.pop(0)}\n</code>")


class Doubler(Tool):
    name = "double"
    description = "Doubles a number."
    inputs = {"number": {"type": "integer", "description": "what is doubled"}}  # noqa: RUF012
    output_type = "integer"

    def forward(self, number: int) -> int:
        return 2 * number


@pytest.fixture
def box(shared_data_dir: Path) -> Iterator[SandboxClient]:
    handle = SandboxClient(policy="open").for_thread("ada", "t")
    yield handle
    handle.close_session()


@pytest.fixture
def executor(box: SandboxClient) -> Iterator[HutchExecutor]:
    one = HutchExecutor(client=box, timeout=60)
    yield one
    one.cleanup()


# -- from end to end


def test_an_agent_solves_its_task(shared_data_dir: Path) -> None:
    model = Script(
        "import os\nvalue = double(given) + 1\nprint('as', os.environ['USER'], value)",
        "raise ValueError('wrong')",
        "final_answer({'value': value, 'when': (1, 2)})",
        "final_answer(double(4))",
    )
    with CodeAgent(
        tools=[Doubler()],
        model=model,
        executor=HutchExecutor(),
        verbosity_level=0,
        additional_authorized_imports=["os"],
    ) as agent:
        assert agent.run("go", additional_args={"given": 20}) == {"value": 41, "when": (1, 2)}
        assert "as sandboxuser 41" in model.seen
        assert "ValueError" in model.seen
        assert agent.run("again") == 8, "its tools are good for a second run"
        assert len(SandboxClient(policy="open").sessions()) == 1
    assert SandboxClient(policy="open").sessions() == [], "its own sandbox went with it"


# -- state, and its loss


def test_an_interpreter_that_ended_is_told_everything_again(executor: HutchExecutor) -> None:
    executor.send_variables({"given": [1, {"a": (2, 3)}]})
    executor.send_tools({"double": Doubler()})
    executor("mine = 1")
    assert executor("mine + double(given[1]['a'][1])").output == "7"
    with pytest.raises(AgentError, match="ended"):
        executor("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    after = executor("print(double(given[0]), 'mine' in globals())")
    assert "2 False" in after.logs
    assert "variables and imports of earlier steps are gone" in after.logs
    assert "new interpreter" not in executor("1").logs


def test_a_session_that_expired_is_begun_again(executor: HutchExecutor, shared_data_dir: Path) -> None:
    executor.send_tools({"double": Doubler()})
    executor("open('f', 'w').write('x')")
    SandboxClient(policy="open").for_thread("ada", "t").close_session()
    after = executor("import os; print(double(4), os.path.exists('f'))")
    assert "8 False" in after.logs
    assert "and the files" in after.logs


def test_a_step_that_takes_too_long_ends(box: SandboxClient) -> None:
    executor = HutchExecutor(client=box, timeout=1)
    executor("x = 5")
    with pytest.raises(AgentError, match="longer than 1 seconds"):
        executor("print('begun', flush=True)\nwhile True: pass")
    executor.cleanup()


def test_after_kill_9_the_files_are_there(box: SandboxClient, shared_data_dir: Path) -> None:
    says_and_dies(
        """
        from hutch import SandboxClient
        from hutch.tools.smolagents import HutchExecutor
        def work():
            box = SandboxClient(policy="open").for_thread("ada", "t")
            HutchExecutor(client=box)("open('kept.txt', 'w').write('kept')")
        await asyncio.to_thread(work)
        """,
        shared_data_dir,
    )
    executor = HutchExecutor(client=box)
    assert executor("open('kept.txt').read()").output == "'kept'"
    executor.cleanup()
    assert box.download_file_to_bytes("kept.txt") == b"kept", "the conversation's sandbox is not the executor's to end"


def test_two_users_never_meet(shared_data_dir: Path) -> None:
    client = SandboxClient(policy="open")
    ada, bob = (HutchExecutor(client=client.for_thread(user, f"thread-of-{user}")) for user in ("ada", "bob"))
    ada("secret = 'hers'; open('mine', 'w').write(secret)")
    assert bob("import os; ('secret' in globals(), os.listdir('/workspace'))").output.startswith("(False, [")
    assert "mine" not in bob("os.listdir('/workspace')").output


# -- what comes back


def test_results_pictures_and_long_output(executor: HutchExecutor) -> None:
    assert executor("21 * 2").output == "42"
    assert executor("x = 1").output is None
    long = executor("print('a' * 3_000_000 + 'end')").logs
    assert len(long) < 101_000
    assert long.rstrip().endswith("end")
    buffer = BytesIO()
    PIL.Image.new("RGB", (3, 2), "red").save(buffer, "PNG")
    png = base64.b64encode(buffer.getvalue()).decode()
    shown = executor(
        f"from IPython.display import Image, display; import base64\ndisplay(Image(base64.b64decode('{png}')))"
    )
    assert shown.output.size == (3, 2)
    assert executor(f"Image(base64.b64decode('{png}'))").output.getpixel((0, 0)) == (255, 0, 0)


FINAL = """
class FinalAnswerException(BaseException):
    def __init__(self, value):
        self.value = value
"""


def answer(executor: HutchExecutor, value: str) -> Any:
    return executor(f"{FINAL}raise FinalAnswerException({value})")


def test_a_final_answer_may_be_long(executor: HutchExecutor) -> None:
    found = answer(executor, "'safe:\"' + 'é' * 400_000 + '\"'")
    assert (found.is_final_answer, found.output) == (True, "é" * 400_000)


def test_nothing_a_sandbox_sends_is_run_here(executor: HutchExecutor, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "pwned"),)

    import pickle

    evil = base64.b64encode(pickle.dumps(Evil())).decode()
    postscript = base64.b64encode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n").decode()
    picture = json.dumps({"a": [{"__type__": "PIL.Image", "data": postscript}]})
    for value in ("pickle:" + evil, evil, "safe:" + picture, "safe:{", "safe:" + "[" * 100_000):
        with pytest.raises(AgentError, match="cannot be read"):
            answer(executor, repr(value))
    assert list(tmp_path.glob("pwned")) == []
    shown = executor(f"from IPython.display import display\ndisplay({{'image/png': '{postscript}'}}, raw=True)")
    assert shown.output == "[a picture that cannot be read]"


def test_without_its_walls_a_picture_would_be_anything(
    executor: HutchExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_check_pictures", lambda _: None)
    postscript = base64.b64encode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n").decode()
    found = answer(executor, repr("safe:" + json.dumps({"__type__": "PIL.Image", "data": postscript})))
    assert found.output.format == "EPS"


# -- packages


def test_without_a_rule_no_package_comes_in(executor: HutchExecutor) -> None:
    with pytest.raises(AgentError, match=r"client\.egress\.set"):
        executor("!pip install no-such-package-here\nprint('never')")
    with pytest.raises(AgentError, match="cannot be read"):
        executor("!pip install 'x")
    assert executor("text = '''\n!pip install x\n'''\nlen(text)").output == "16"


def test_a_rule_lets_packages_in(executor: HutchExecutor, box: SandboxClient, tmp_path: Path) -> None:
    with hosts(tmp_path) as network:
        install = f"!pip install --index-url {network.url}/simple hutch-test-package"
        box.egress.set([network.rule])
        assert executor(f"{install}\nimport hutch_test_package as it\nit.VALUE").output == "'installed'"
        assert any("hutch-test-package" in path for path in network.seen)


def test_packages_that_are_there_are_seen(executor: HutchExecutor, box: SandboxClient) -> None:
    wheel = "import zipfile\nwith zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as z:\n"
    for name, text in (
        ("tiny.py", "WORTH = 7"),
        ("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n"),
        ("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"),
        ("tiny-1.0.dist-info/RECORD", ""),
    ):
        wheel += f"  z.writestr('{name}', '{text}')\n"
    executor(wheel)
    assert executor("!pip install ./tiny-1.0-py3-none-any.whl\nimport tiny\ntiny.WORTH").output == "7"
