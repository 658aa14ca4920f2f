"""Which session a caller means.

The current session belongs to the calling task or thread, never to the client object: fifty users through one client
never touch each other. Bindings live in one context variable as an immutable mapping, so that a child task or a copied
context inherits what its parent had and changes only its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Binding:
    user_id: str | None = None
    thread_id: str | None = None
    session_id: str | None = None
    sandbox_id: str | None = None
    timeout_minutes: float | None = None


UNBOUND = Binding()
_NONE: Mapping[int, Binding] = MappingProxyType({})
BINDINGS: ContextVar[Mapping[int, Binding]] = ContextVar("hutch_bindings", default=_NONE)

_numbers = itertools.count(1)


class ContextSlot:
    """The binding of one client in the current context."""

    def __init__(self) -> None:
        self._number = next(_numbers)

    def get(self) -> Binding:
        return BINDINGS.get().get(self._number, UNBOUND)

    def set(self, binding: Binding) -> None:
        others = {number: other for number, other in BINDINGS.get().items() if number != self._number}
        if binding != UNBOUND:
            others[self._number] = binding
        BINDINGS.set(MappingProxyType(others))


class FixedSlot:
    """The binding of a handle made by `for_thread`: the same wherever it is used."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def get(self) -> Binding:
        return self._binding

    def set(self, binding: Binding) -> None:
        # The thread stays; only the sandbox behind it may change (made, expired, made again).
        self._binding = Binding(
            self._binding.user_id,
            self._binding.thread_id,
            binding.session_id,
            binding.sandbox_id,
            self._binding.timeout_minutes,
        )


Slot = ContextSlot | FixedSlot
