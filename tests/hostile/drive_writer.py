"""A process that writes a large file into a drive and says when it is in the middle of it; to be killed then."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from hutch.client.async_client import AsyncSandboxClient


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(40):
        yield bytes(262_144)
    print("half", flush=True)
    await asyncio.sleep(3600)


async def main() -> None:
    drive = AsyncSandboxClient(data_dir=Path(sys.argv[1])).drive_of("ann")
    await drive.write_file("/kept.txt", "walrus")
    await drive.write_file("/half.bin", pieces())


asyncio.run(main())
