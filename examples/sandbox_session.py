"""A session with 36 tools: write a program, run it, look for what is in it.

python examples/sandbox_session.py        needs langchain-core
"""

from __future__ import annotations

import asyncio

from hutch import SandboxSession


async def main() -> None:
    async with await SandboxSession.create(session_id="chat_123") as session:
        tools = {tool.name: tool for tool in session.get_tools()}
        await tools["file_write"].ainvoke({"file": "app.py", "content": "print('Hello!')"})
        print(await tools["shell_exec"].ainvoke({"command": "python3 app.py"}))
        print(await tools["file_read"].ainvoke({"file": "nothing.txt"}))
        print(await tools["grep"].ainvoke({"pattern": "Hello"}))
        await session.delete()


if __name__ == "__main__":
    asyncio.run(main())
