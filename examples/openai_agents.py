"""An agent of the OpenAI Agents SDK with a sandbox, which is found again after its program has ended.

pip install 'hutch[openai-agents]'; python examples/openai_agents.py

With OPENAI_API_KEY a model decides what is done; without, a script plays its part.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from agents import RunConfig, Runner
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.testing import ScriptedModel, assistant_message, function_call

from hutch.tools.openai_agents import HutchSandboxClient

SALES = b"month,total\n1,120.5\n2,80\n3,45.25\n"
QUESTION = "What is the sum of the totals in sales.csv? Write it to answer.txt."
COMMAND = "awk -F, 'NR > 1 { sum += $2 } END { print sum }' sales.csv | tee answer.txt"


def model() -> Any:
    if os.environ.get("OPENAI_API_KEY"):
        return os.environ.get("OPENAI_MODEL", "gpt-5")
    return ScriptedModel(
        [
            [function_call("exec_command", {"cmd": COMMAND}, call_id="1")],
            [assistant_message("The sum is in answer.txt.")],
        ]
    )


async def main() -> None:
    client = HutchSandboxClient()
    agent = SandboxAgent(name="analyst", model=model(), instructions="Work with the files of the sandbox.")
    session = await client.create(manifest=Manifest(entries={"sales.csv": File(content=SALES)}))
    await session.start()
    config = RunConfig(sandbox=SandboxRunConfig(session=session), tracing_disabled=True)
    result = await Runner.run(agent, QUESTION, run_config=config)
    print("agent:      ", result.final_output)

    # What a backend keeps between two requests, or over a crash.
    kept = json.dumps(client.serialize_session_state(session.state))
    resumed = await client.resume(client.deserialize_session_state(json.loads(kept)))
    await resumed.start()
    print("answer.txt: ", (await resumed.exec("cat answer.txt")).stdout.decode().strip())
    await client.delete(resumed)


if __name__ == "__main__":
    asyncio.run(main())
