"""Who did what: one row of the audit trail."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

MAX_DETAIL = 500
_LOOKED_AT = 4 * MAX_DETAIL
_HIDDEN = "(hidden)"
_WORD = r"""(?:"[^"]*"?|'[^']*'?|\\.|[^\s"'\\])+"""
_SECRETS = (
    re.compile(r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}"),
    # NAME=value, --name value and "name": "value", where the name says that the value is secret
    re.compile(
        r"(?i)(?P<keep>(?:password|passwd|passphrase|secret|token|(?:api|access|private)[_-]?key|credential)"
        rf"""[\w-]{{0,40}}["']?(?:\s*[=:]\s*|\s+)){_WORD}"""
    ),
    re.compile(rf"""(?i)(?P<keep>(?:pass|pwd|auth)["']?\s*[=:]\s*){_WORD}"""),
    re.compile(r"(?P<keep>://[^/\s:@]{0,100}:)[^/\s@]+(?=@)"),
    re.compile(r"(?P<keep>(?:^|\s)(?:-u|--user)[=\s]?\s*[^\s:]{1,100}:)[^\s]+"),
    # what is secret by its looks
    re.compile(r"(?P<keep>\bhutch_k[a-z2-7]{16}_)[A-Za-z0-9_-]+"),
    re.compile(r"(?P<keep>\b(?:gh[opsur]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA|eyJ))[\w.~+/=-]{12,}"),
    re.compile(r"(?P<keep>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?:-----END|$)", re.DOTALL),
)


class AuditEntry(TypedDict):
    entry_id: int
    at: str
    tenant: str
    key_id: str
    user_id: str
    action: str  # an event's name, or a verb of the API
    sandbox_id: str
    detail: str  # the command, path or name; what looks like a secret is hidden
    outcome: str  # "ok", or an error's code
    exit_code: int | None
    duration_ms: float


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted; None: all."""

    tenant: str | None = None
    sandbox_id: str | None = None
    key_id: str | None = None
    user_id: str | None = None
    action: str | None = None
    failed: bool = False  # only those whose outcome is not ok
    before: int | None = None  # older than that entry
    after: int | None = None  # newer than that entry
    limit: int = 100


def redacted(text: str) -> str:
    """`text`, short, without what looks like a secret."""
    if len(text) > _LOOKED_AT:  # cut between words: half a secret would not look like one
        text = text[:_LOOKED_AT]
        text = text[: max(text.rfind(" "), text.rfind("\n"), 0)] or _HIDDEN
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match["keep"] + _HIDDEN, text)
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
