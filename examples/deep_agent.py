"""A deep agent with a sandbox and a drive. Its model is a script, so that it runs without an account: put yours there.

pip install "hutch[deepagents]"
python examples/deep_agent.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from hutch import SandboxClient
from hutch.tools.deepagents import ARTIFACTS_ROOT, HutchDrive, HutchSandbox

ORDERS = '[{"amount": 45.5}, {"amount": 67}, {"amount": 30}]'


class Script(GenericFakeChatModel):
    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Script:
        return self


def call(name: str, **arguments: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"{name}-1"}])


def main() -> None:
    model = Script(
        messages=iter(
            [
                call("write_file", file_path="/workspace/orders.json", content=ORDERS),
                call("execute", command="jq 'map(.amount) | add' orders.json"),
                call("write_file", file_path="/memories/sales.md", content="Sold: 142.5"),
                AIMessage("142.5 were sold; I made a note of it."),
            ]
        )
    )
    client = SandboxClient(policy="open").for_thread(user_id="ada", thread_id="deep-agent")
    agent: Any = create_deep_agent(
        model,
        backend=CompositeBackend(
            default=HutchSandbox(client),
            routes={"/memories/": HutchDrive(client, root="/memories")},
            artifacts_root=ARTIFACTS_ROOT,
        ),
        interrupt_on={"execute": True},
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "deep-agent"}}
    asked = agent.invoke({"messages": [("user", "What was sold?")]}, config)
    wanted = asked["__interrupt__"][0].value["action_requests"][0]
    print(f"may it run?    {wanted['args']['command']}   (yes)")
    done = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    for message in done["messages"]:
        print(f"{message.type:<14} {message.text.splitlines()[0] if message.text else ''}")
    print(f"in the drive   {client.drive.read_text('/memories/sales.md')}")
    client.close_session()


if __name__ == "__main__":
    main()
