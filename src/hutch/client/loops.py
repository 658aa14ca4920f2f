"""Threads with event loops, for rooms that stand on the client and never see the engine."""

from hutch.engine.loop import LoopThread, close_items, closing_items

__all__ = ["LoopThread", "close_items", "closing_items"]
