"""An agent that calculates in a sandbox: LangGraph runs the tools, here without a model that costs money.

python examples/langchain_bash_tool.py        needs langchain-core and langgraph
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from hutch.tools import abind, download_sandbox_file, end_conversation, execute_bash_command

RECEIPTS = [{"amount": 45.50}, {"amount": 67.00}, {"amount": 30.00}]
# What a model would ask for.
CALL = {
    "name": "execute_bash_command",
    "args": {
        "command": "jq '.[] | .amount' /workspace/receipts.json | awk '{sum += $1} END {print sum}'",
        "file_paths": ["/data-exports/receipts.json"],
    },
    "id": "call-1",
    "type": "tool_call",
}


@dataclass
class Context:
    user_id: str
    thread_id: str


async def main() -> None:
    graph = StateGraph(MessagesState, context_schema=Context)
    graph.add_node("tools", ToolNode([execute_bash_command, download_sandbox_file]))
    graph.add_edge(START, "tools").add_edge("tools", END)

    await abind("ada", "a-conversation").write_file("/data-exports/receipts.json", json.dumps(RECEIPTS))
    asked: Any = {"messages": [AIMessage("", tool_calls=[CALL])]}
    answer = await graph.compile().ainvoke(asked, context=Context("ada", "a-conversation"))
    result = json.loads(answer["messages"][-1].content)
    print(f"exit code {result['exit_code']}, sum {result['stdout'].strip()}, sent {result['uploaded_files']}")
    await asyncio.to_thread(end_conversation, "a-conversation")


if __name__ == "__main__":
    asyncio.run(main())
