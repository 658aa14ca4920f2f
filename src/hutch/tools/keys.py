"""Keys as the DevTools Protocol wants them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hutch.model.errors import InvalidRequest

MODIFIERS: Mapping[str, int] = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
_ALIASES: Mapping[str, str] = {
    "ctrl": "Control",
    "cmd": "Meta",
    "command": "Meta",
    "option": "Alt",
    "esc": "Escape",
    "return": "Enter",
    "del": "Delete",
    "space": " ",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "pgup": "PageUp",
    "pgdn": "PageDown",
}
_CODES: Mapping[str, int] = {
    "Alt": 18,
    "Control": 17,
    "Meta": 91,
    "Shift": 16,
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Insert": 45,
    "Delete": 46,
    **{f"F{number}": 111 + number for number in range(1, 13)},
}
_NAMES = {name.lower(): name for name in _CODES}
_TEXTS: Mapping[str, str] = {"Enter": "\r", "Tab": "\t"}


def key_events(chord: Sequence[str]) -> list[dict[str, Any]]:
    """All keys of a chord down in order, then up again. Raises: InvalidRequest."""
    names = [_name(key) for key in chord]
    held, events = 0, []
    for name in names:
        held |= MODIFIERS.get(name, 0)
        events.append(_event("keyDown", name, held))
    for name in reversed(names):
        held &= ~MODIFIERS.get(name, 0)
        events.append(_event("keyUp", name, held))
    return events


def text_events(text: str) -> Iterator[dict[str, Any]]:
    """Text goes in as from an input method, but for the ends of lines, which are keys that programs listen to."""
    for number, line in enumerate(text.split("\n")):
        if number:
            for event in key_events(["Enter"]):
                yield {"method": "Input.dispatchKeyEvent", **event}
        if line:
            yield {"method": "Input.insertText", "text": line}


def _name(key: str) -> str:
    low = key.lower() if len(key) > 1 else key
    name = _ALIASES.get(low) or _NAMES.get(low) or key
    if len(name) != 1 and name not in _CODES:
        raise InvalidRequest(
            f"There is no key {key!r:.50}; there are {', '.join(sorted(_CODES))} and single characters."
        )
    return name


def _event(kind: str, name: str, held: int) -> dict[str, Any]:
    code = _CODES.get(name) or (ord(name.upper()) if name.isascii() else 0)
    event: dict[str, Any] = {"type": kind, "key": name, "modifiers": held, "windowsVirtualKeyCode": code}
    text = _TEXTS.get(name, name if len(name) == 1 else "")
    if kind == "keyDown" and text and not held & ~MODIFIERS["Shift"]:
        event["text"] = text
    if held & MODIFIERS["Control"] and name.lower() == "a" and kind == "keyDown":
        event["commands"] = ["selectAll"]
    return event
