"""Sandboxes by bubblewrap, on this machine."""

from hutch.providers.bubblewrap.provider import BubblewrapProvider

__all__ = ["BubblewrapProvider"]
