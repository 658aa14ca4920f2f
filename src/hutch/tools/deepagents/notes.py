"""What a model is told below the output of a command, because no field of the answer says it. Pure."""

from __future__ import annotations

from hutch.model.process import ExecResult

RECREATED = "[The sandbox had expired and is a new, empty one: files written before this command are gone.]"
RESTARTED = "[The sandbox was restarted: its workspace is as it was; running processes and /tmp are gone.]"


def note_of(result: ExecResult, seconds: float | None) -> str:
    notes: list[str] = []
    if result["timed_out"]:
        after = "" if seconds is None else f" after {seconds:g} s"
        notes.append(f"[Timed out{after}: the command and all it had started were ended.]")
    if result["limit"] is not None:
        notes.append(f"[A limit of the sandbox was hit: {result['limit']}.]")
    if result["session_recreated"]:
        notes.append(RESTARTED if result["files_kept"] else RECREATED)
    return "".join(f"\n{note}" for note in notes)
