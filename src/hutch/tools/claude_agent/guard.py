"""The hook that keeps the CLI's own tools off this machine and names the sandbox's instead."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from claude_agent_sdk import HookMatcher

# What acts on nothing but the conversation. Whatever else comes with the CLI, now or later, is turned away.
HARMLESS = frozenset(
    {"Agent", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "StructuredOutput", "Task", "TodoWrite", "ToolSearch"}
)
INSTEAD = {
    "Bash": "execute",
    "Edit": "edit_file",
    "Glob": "execute",
    "Grep": "execute",
    "MultiEdit": "edit_file",
    "Read": "read_file",
    "Write": "write_file",
}


def host_guard(server: str = "sandbox", *, also: Collection[str] = ()) -> HookMatcher:
    """A PreToolUse hook: tools of MCP servers pass, those of the CLI that reach this machine are denied.

    A guard that fails blocks the call (`on_failure="block"`).

    Args:
        server: the name that the sandbox's tools have in `mcp_servers`.
        also: tools of the CLI that may act on this machine all the same.
    """
    passing = HARMLESS | frozenset(also)

    async def decide(asked: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        name = asked["tool_name"]
        if name in passing or name.startswith("mcp__"):
            return {}
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": _reason(name, server),
            }
        }

    return HookMatcher(matcher=None, hooks=[decide], on_failure="block")


def _reason(name: str, server: str) -> str:
    instead = INSTEAD.get(name)
    hint = f"use mcp__{server}__{instead}" if instead else f"use the tools named mcp__{server}__…"
    return f"{name} would act on the host, which is off limits; {hint}: it acts in your sandbox."
