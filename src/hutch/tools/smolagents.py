"""Sandboxes for smolagents: a `CodeAgent` whose Python runs in a sandbox.

    from hutch.tools.smolagents import HutchExecutor

    CodeAgent(tools=[], model=model, executor=HutchExecutor())

Needs the extra `smolagents`. What comes out of the sandbox is data: nothing of it is ever unpickled.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import re
import shlex
import uuid
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

try:
    import PIL.Image
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger, LogLevel
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import AgentError
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("hutch.tools.smolagents needs smolagents: pip install 'hutch[smolagents]'") from missing

from hutch.client.sync_client import SandboxClient
from hutch.model.code import CodeOutput as Shown
from hutch.model.code import CodeResult
from hutch.model.errors import HutchError, SessionExpiredError
from hutch.tools import pip
from hutch.tools.answers import cut

INSTALL = re.compile(r"^\s*[!%]\s*pip3? install (.+)$", re.MULTILINE)
HOW = (
    "A sandbox reaches only hosts that a rule allows. To allow those of the package index: "
    "client.egress.set([{'host': 'packages.example.com'}]), with its names."
)
NOT_FOUND = 127
IMAGES = ("image/png", "image/jpeg")
TEXTS = ("application/json", "text/html", "text/markdown", "text/latex", "image/svg+xml", "text/plain")
PNG = b"\x89PNG\r\n\x1a\n"
# A final answer is raised as an exception, and the text of one is cut where an answer may be long: it is shown instead.
FINAL = "application/x-smolagents-final-answer"
SHOW_FINAL = f"""
def _show_final(shell, kind, error, trace, tb_offset=None):
    if kind.__name__ == "FinalAnswerException":
        shell.display_pub.publish({{"{FINAL}": error.value}})
    else:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
get_ipython().set_custom_exc((BaseException,), _show_final)
del _show_final
"""
# `final_answer` looks whether it has one of theirs; smolagents takes each import for a package to be installed.
DISPENSABLE = {
    "import PIL.Image\n": 'PIL = __import__("PIL.Image")\n',
    "import numpy as np\n": 'np = __import__("numpy")\n',
}


class HutchExecutor(RemotePythonExecutor):
    """Runs an agent's code in an interpreter of its own in a sandbox, which keeps its state between steps.

    Args:
        additional_imports: packages to install at the start; the index must be allowed by a rule.
        logger: the agent's; default is a quiet one.
        client: a handle bound to a conversation (`client.for_thread(…)`), whose files it shares and leaves alone.
            Without one the executor has a sandbox for itself, until `cleanup`.
        timeout: seconds for the code of one step.
    """

    def __init__(
        self,
        additional_imports: Sequence[str] = (),
        logger: Any = None,
        *,
        client: SandboxClient | None = None,
        timeout: float = 120.0,
    ) -> None:
        """Raises: AgentError when a package cannot be installed, HutchError when there can be no sandbox."""
        super().__init__(list(additional_imports), logger if logger is not None else AgentLogger(level=LogLevel.OFF))
        self._owns_sandbox = client is None
        name = f"smolagents-{uuid.uuid4().hex}"
        self._client = client if client is not None else SandboxClient(policy="open").for_thread("smolagents", name)
        self._timeout = timeout
        self._set_up: dict[str, list[str]] = {}  # what a new interpreter must be told again
        self._recording: list[str] | None = None
        self._context = self._client.code.create_context()["context_id"]
        with self._as_set_up("answers"):
            self.run_code_raise_errors(SHOW_FINAL)
        self.installed_packages = self.install_packages(self.additional_imports)

    # -- what smolagents calls

    def send_tools(self, tools: dict[str, Any]) -> None:
        with self._as_set_up("tools"):
            super().send_tools(tools)

    def send_variables(self, variables: dict[str, Any]) -> None:
        with self._as_set_up("variables"):
            super().send_variables(variables)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Raises: AgentError naming the rule that is missing."""
        if additional_imports:
            self._install(additional_imports)
        return additional_imports

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Raises: AgentError: the code failed, or there was no sandbox to run it."""
        try:
            code, wanted = _without_installs(code)
        except ValueError as error:
            raise AgentError(f"A line that installs packages cannot be read: {error}.", self.logger) from error
        try:
            note = self._renew_if_stopped()
            for packages in wanted:
                self._install(packages)
            result = self._client.code.run(code, context=self._context, timeout=self._timeout)
            if self._recording is not None:
                self._recording.append(code)
            return self._output(result, note + _logs(result))
        except HutchError as error:
            raise AgentError(f"The sandbox failed: {error.code}: {error}", self.logger) from error

    def cleanup(self) -> None:
        """End the interpreter; and the sandbox, if it was made for this executor."""
        with contextlib.suppress(HutchError):
            if self._owns_sandbox:
                self._client.close_session()
            else:
                self._client.code.close_context(self._context)

    def _patch_final_answer_with_exception(self, final_answer_tool: Any) -> None:
        # It comes before each run of an agent; patched twice, the tool would call itself without end.
        if type(final_answer_tool).__name__ == "_FinalAnswerTool":
            return
        super()._patch_final_answer_with_exception(final_answer_tool)
        forward = type(final_answer_tool).forward
        for statement, instead in DISPENSABLE.items():
            forward.__source__ = forward.__source__.replace(statement, instead)

    # -- the interpreter

    @contextlib.contextmanager
    def _as_set_up(self, what: str) -> Iterator[None]:
        self._recording = self._set_up[what] = []
        try:
            yield
        finally:
            self._recording = None

    def _renew_if_stopped(self) -> str:
        """A new interpreter knows the tools and variables again; what the agent's own steps made is gone."""
        gone = "variables and imports of earlier steps are gone"
        try:
            known = {one["context_id"]: one["status"] for one in self._client.code.contexts()}
        except SessionExpiredError:
            self._client.execute("true")  # in a new session
            known, gone = {}, f"{gone}, and the files"
        status = known.get(self._context)
        if status in ("idle", "busy"):
            return ""
        if status is None:
            self._context = self._client.code.create_context()["context_id"]
        for code in (code for codes in list(self._set_up.values()) for code in codes):
            self._client.code.run(code, context=self._context, timeout=self._timeout)
        return f"[a new interpreter: {gone}]\n"

    def _install(self, packages: Sequence[str]) -> None:
        command = pip.install_command(packages, cut_off=not self._client.egress.rules())
        done = self._client.execute(command, timeout=pip.INSTALL_SECONDS, env=pip.OPTIONS)
        if done["exit_code"] == NOT_FOUND:
            raise AgentError("The sandbox has no pip: install python3-pip on the machine that runs it.", self.logger)
        if done["exit_code"] != 0:
            said = cut(done["stderr"] or done["stdout"], "", 4_000)
            raise AgentError(f"pip could not install {shlex.join(packages)}: {said}\n{HOW}", self.logger)
        self._client.code.run(pip.LOOK_AGAIN, context=self._context, timeout=self._timeout)

    # -- results

    def _output(self, result: CodeResult, logs: str) -> CodeOutput:
        answers = [one["data"][FINAL] for one in result["outputs"] if FINAL in one["data"]]
        if answers:
            return CodeOutput(output=self._final_answer(answers[0]), logs=logs, is_final_answer=True)
        for happened, told in (
            (result["timed_out"], f"it took longer than {self._timeout:g} seconds"),
            (result["limit"] is not None, f"it hit the limit '{result['limit']}' of its sandbox"),
            (result["state_lost"], "the interpreter ended"),
        ):
            if happened:
                raise AgentError(f"{logs}\nExecuting code was ended: {told}.", self.logger)
        error = result["error"]
        if error is not None:
            said = f"{error['name']}\n{error['value']}\n{cut(error['traceback'], '', 20_000)}"
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{said}", self.logger)
        return CodeOutput(output=_value(result["outputs"]), logs=logs, is_final_answer=False)

    def _final_answer(self, value: str) -> Any:
        try:
            _check_pictures(json.loads(value.removeprefix("safe:")))
            return self._deserialize_final_answer(value)
        except Exception as error:  # the sandbox decides what stands there, and so what reading it raises
            raise AgentError(f"The final answer cannot be read: {error!r:.500}", self.logger) from error


def _check_pictures(value: Any) -> None:
    """PIL guesses a picture's format, and for some of them it starts programs: only what smolagents sends is opened.

    Raises: ValueError.
    """
    if isinstance(value, dict):
        if value.get("__type__") == "PIL.Image" and not base64.b64decode(value["data"]).startswith(PNG):
            raise ValueError("a picture is no PNG")
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            _check_pictures(one)


def _logs(result: CodeResult) -> str:
    logs = cut(result["stdout"], "Print less, or write it to a file.")
    return f"{logs}\n[stderr]\n{cut(result['stderr'], '', 20_000)}" if result["stderr"] else logs


def _value(outputs: Sequence[Shown]) -> Any:
    """What the last line was worth; without that, the last picture that was shown."""
    results = [one["data"] for one in outputs if one["type"] == "result"]
    for data in results[-1:] or [one["data"] for one in reversed(outputs)]:
        for kind in IMAGES:
            if isinstance(data.get(kind), str):
                return _image(data[kind])
        if results:
            return next((data[kind] for kind in TEXTS if kind in data), None)
    return None


def _image(encoded: str) -> Any:
    try:
        return PIL.Image.open(BytesIO(base64.b64decode(encoded)), formats=("PNG", "JPEG"))
    except (ValueError, OSError, PIL.Image.DecompressionBombError):
        return "[a picture that cannot be read]"


def _without_installs(code: str) -> tuple[str, list[list[str]]]:
    """The code without its lines `!pip install …`, and what each wants. Text that is plain Python has none.

    Raises: ValueError when its quotes do not match.
    """
    with contextlib.suppress(SyntaxError, ValueError):
        ast.parse(code)
        return code, []
    return INSTALL.sub("", code), [shlex.split(found) for found in INSTALL.findall(code)]
