"""A process of its own that looks for a regular expression, so that one which never ends can be ended.

Run as a script, by its path, without the rest of Hutch. In: a JSON line with the pattern, then for each batch a JSON
line of block sizes and the blocks. Out: a JSON line for each.
"""

from __future__ import annotations

import json
import re
import resource
import sys

MEMORY_BYTES = 512 * 1024 * 1024


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_seconds"], request["cpu_seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        answer({"error": str(error) or type(error).__name__})
        return
    answer({})
    while line := sys.stdin.buffer.readline():
        blocks = [sys.stdin.buffer.read(size) for size in json.loads(line)]
        answer([found(pattern, block, request["most"]) for block in blocks])


def found(pattern: re.Pattern[str], block: bytes, most: int) -> list[int]:
    """Numbers of lines, from 0."""
    numbers = []
    for number, line in enumerate(block.decode("utf-8", "replace").split("\n")):
        if pattern.search(line.removesuffix("\r")):
            numbers.append(number)
            if len(numbers) == most:
                break
    return numbers


def answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
