"""Times as users see them: ISO 8601, UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
