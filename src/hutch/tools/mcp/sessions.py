"""Which sessions each key has open, the last used ones last. Pure."""

from __future__ import annotations

from collections import OrderedDict


class Sessions:
    """Clients come and go without a word: of those that one key opened, the longest unused make room for new ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[str, OrderedDict[str, None]] = {}

    def used(self, key_id: str, session: str) -> list[str]:
        """Returns those that are to end."""
        mine = self._of.setdefault(key_id, OrderedDict())
        mine[session] = None
        mine.move_to_end(session)
        return [mine.popitem(last=False)[0] for _ in range(len(mine) - self._most)]

    def ended(self, key_id: str, session: str) -> None:
        mine = self._of.get(key_id, OrderedDict())
        mine.pop(session, None)
        if not mine:
            self._of.pop(key_id, None)
