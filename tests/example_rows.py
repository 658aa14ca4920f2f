"""Every file of examples/, the environment that it runs in, and a line that it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SECONDS = 100

OF_DEV = {"first_session.py": "downloaded     report.csv"}
OF_AGENTS = {  # tests/suites/agents
    "claude_agent.py": "squares.txt: ['1', '4', '9', '16', '25', '36', '49', '64', '81', '100']",
    "openai_agents.py": "answer.txt:  245.75",
    "smolagents_agent.py": "answer: 129",
}
OF_OTHERS = {  # by a test of their own
    "deep_agent.py": "tests/suites/agents/test_pages.py",
    "langchain_bash_tool.py": "tests/acceptance/test_bash_tool_guides.py",
    "mcp_client.py": "tests/integration/test_mcp.py",
    "sandbox_session.py": "tests/acceptance/test_bash_tool_guides.py",
}


def run(name: str, data_dir: Path, **variables: str) -> str:
    """What it prints."""
    environ = {**os.environ, "HUTCH_DATA_DIR": str(data_dir), **variables}
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(
        command, env=environ, cwd=data_dir.parent, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
