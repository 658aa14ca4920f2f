"""A chat model that says what it was told to say, and remembers what it was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import Field

Turn = str | Sequence[tuple[str, dict[str, Any]]]  # words, or calls of tools


class ScriptedModel(BaseChatModel):
    """Each answer is the next of `turns`: the last word of a conversation, or tools to be called."""

    turns: list[Any]
    seen: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.seen.append(list(messages))
        number = len(self.seen)
        turn = self.turns.pop(0)
        if isinstance(turn, str):
            return _said(AIMessage(turn))
        calls = [
            {"name": name, "args": arguments, "id": f"call_{number}_{at}", "type": "tool_call"}
            for at, (name, arguments) in enumerate(turn)
        ]
        return _said(AIMessage("", tool_calls=calls))

    def told(self) -> list[BaseMessage]:
        """What came last before the latest answer: the results of tools."""
        messages = self.seen[-1]
        last = max(at for at, message in enumerate(messages) if message.type in ("ai", "human"))
        return messages[last + 1 :]


def _said(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])
