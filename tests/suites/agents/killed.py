"""A process of its own that does something, prints one line, and dies by kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

SECONDS = 60


def says_and_dies(body: str, data_dir: Path) -> str:
    """`body` is the inside of an async function; what it returns is the answer."""
    inside = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
    program = (
        f"import asyncio, io, json, os\nasync def main():\n{inside}\n"
        "print(asyncio.run(main()), flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    environ = {**os.environ, "HUTCH_DATA_DIR": str(data_dir)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == -9, done.stderr
    return done.stdout.strip()
