"""A `CodeAgent` of smolagents whose Python runs in a sandbox.

pip install 'hutch[smolagents]'; python examples/smolagents_agent.py

With HF_TOKEN a model decides what is done; without, a script plays its part.
"""

from __future__ import annotations

import os
from typing import Any

from smolagents import ChatMessage, CodeAgent, InferenceClientModel, MessageRole, Model

from hutch.tools.smolagents import HutchExecutor

TASK = "What is the sum of the first ten prime numbers?"
STEPS = (
    "primes = [n for n in range(2, 40) if all(n % d for d in range(2, n))][:10]\nprint(primes)",
    "final_answer(sum(primes))",
)


class Script(Model):
    """Answers with one step after the other."""

    def __init__(self, steps: tuple[str, ...]) -> None:
        super().__init__()
        self.steps = list(steps)

    def generate(self, messages: list[ChatMessage], **_: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.steps.pop(0)}\n</code>")


def main() -> None:
    model = InferenceClientModel() if os.environ.get("HF_TOKEN") else Script(STEPS)
    with CodeAgent(tools=[], model=model, executor=HutchExecutor(), verbosity_level=0) as agent:
        print("answer:", agent.run(TASK))


if __name__ == "__main__":
    main()
