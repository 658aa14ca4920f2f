"""Finds providers by name: each is an entry point of the group `hutch.providers`, so that others can bring theirs."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

from hutch.model.errors import NotSupported, SettingsInvalid
from hutch.providers.base import Provider

GROUP = "hutch.providers"
DEFAULT = "bubblewrap"


class ProviderFactory(Protocol):
    """What an entry point names."""

    def __call__(
        self, data_folder: Path, *, allow_missing: frozenset[str], uid_range: tuple[int, int] | None
    ) -> Provider: ...


def provider_names() -> tuple[str, ...]:
    return tuple(sorted({DEFAULT, *(entry.name for entry in entry_points(group=GROUP))}))


def make_provider(
    name: str,
    data_folder: Path,
    allow_missing: frozenset[str] = frozenset(),
    uid_range: tuple[int, int] | None = None,
) -> Provider:
    """Raises: SettingsInvalid for an unknown name, NotSupported for one whose package cannot be loaded."""
    factory = _factory(name)
    return factory(data_folder, allow_missing=allow_missing, uid_range=uid_range)


def _factory(name: str) -> ProviderFactory:
    if name == DEFAULT:  # without a look through every installed package: it is what nearly everybody uses
        from hutch.providers.bubblewrap import BubblewrapProvider

        return BubblewrapProvider
    for entry in entry_points(group=GROUP, name=name):
        try:
            return cast(ProviderFactory, entry.load())
        except ImportError as failure:
            raise NotSupported(
                f"The provider {name!r} cannot be loaded: {failure}. Install what it needs."
            ) from failure
    raise SettingsInvalid(f"HUTCH_PROVIDER={name!r}: there is no such provider; use {', '.join(provider_names())}.")
