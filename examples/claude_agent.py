"""An agent of the Claude Agent SDK that works in a sandbox and is kept off this machine.

pip install 'hutch[claude-agent]'; ANTHROPIC_API_KEY=… python examples/claude_agent.py
"""

from __future__ import annotations

import asyncio

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, ToolUseBlock, query

from hutch import AsyncSandboxClient
from hutch.tools.claude_agent import sandbox_options

PROMPT = "Write the first ten square numbers to squares.txt, one to a line, and tell their sum."


async def main() -> None:
    box = AsyncSandboxClient(policy="open").for_thread(user_id="ada", thread_id="squares")
    options = sandbox_options(box, ClaudeAgentOptions(max_turns=10))
    async for message in query(prompt=PROMPT, options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    print(f"{block.name}: {block.input}")
                elif isinstance(block, TextBlock):
                    print(block.text)
        elif isinstance(message, ResultMessage):
            print(f"{message.subtype} after {message.num_turns} turns")
    print("squares.txt:", (await box.files.read("squares.txt")).decode().split())
    await box.close_session()


if __name__ == "__main__":
    asyncio.run(main())
