"""Writes docs/reference/openapi.json, the description of the API; `--check` fails when it is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import cast

from hutch.engine.assemble import Engine
from hutch.server.app import create_api
from hutch.server.services import ServerOptions

TARGET = Path(__file__).resolve().parent.parent / "docs/reference/openapi.json"


def describe() -> str:
    api = create_api(cast(Engine, None), ServerOptions())  # routes are described without anything behind them
    return json.dumps(api.openapi(), indent=1, sort_keys=True) + "\n"


def main() -> int:
    fresh = describe()
    if "--check" in sys.argv:
        if TARGET.is_file() and TARGET.read_text() == fresh:
            return 0
        print("docs/reference/openapi.json is stale: run scripts/generate_openapi.py", file=sys.stderr)
        return 1
    TARGET.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
