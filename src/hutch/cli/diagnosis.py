"""What doctor finds out: settings, data folder, provider. It needs none of them to be in order."""

from __future__ import annotations

import os
import platform
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hutch.cli import mcp
from hutch.cli.place import Place
from hutch.model.errors import HutchError
from hutch.model.wall import WALLS, WallReport
from hutch.providers.base import ProviderReport
from hutch.settings import Explained, Settings, read_settings
from hutch.settings.reading import unknown_variables


@dataclass(frozen=True, slots=True)
class DataFolder:
    path: str | None  # None: the settings do not say
    sandboxes: int | None  # None: the database cannot be read
    free_bytes: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    version: str
    settings: tuple[Explained, ...]  # those that are set
    unknown: tuple[str, ...]  # variables that are most likely misspelt
    data: DataFolder
    report: ProviderReport | None
    problems: tuple[str, ...]  # each with its remedy
    absent: tuple[str, ...] = ()  # what could be had here, and how

    @property
    def healthy(self) -> bool:
        return not self.problems

    def document(self) -> dict[str, Any]:
        report = self.report
        return {
            "healthy": self.healthy,
            "problems": list(self.problems),
            "versions": {"hutch": self.version, **(report.versions if report else {})},
            "provider": report.provider if report else None,
            "walls": [wall_row(report, at) for at in range(len(report.walls))] if report else [],
            "limits": dict(report.limits) if report else {},
            "missing_programs": list(report.missing_programs) if report else [],
            "notes": list(report.notes) if report else [],
            "settings": [{"variable": one.source, "value": one.value, "meaning": one.meaning} for one in self.settings],
            "unknown_variables": list(self.unknown),
            "absent": list(self.absent),
            "data_folder": {
                "path": self.data.path,
                "problem": self.data.problem,
                "sandboxes": self.data.sandboxes,
                "free_bytes": self.data.free_bytes,
            },
        }


def wall_row(report: ProviderReport, at: int) -> dict[str, str]:
    found = report.walls[at]
    wall = next(wall for wall in WALLS if wall.name == found.name)
    return {
        "name": wall.name,
        "need": wall.need,
        "state": found.state,
        "detail": found.detail,
        "keeps_from": wall.keeps,
    }


async def diagnose() -> Diagnosis:
    from hutch import __version__

    problems: list[str] = []
    settings: Settings | None = None
    data = DataFolder(None, None, None, None)
    try:
        settings = read_settings()
        data = await _data_folder(settings.data_dir)
    except HutchError as error:
        problems.append(error.message)
    if data.problem is not None:
        problems.append(data.problem)
    report, trouble = await _ask_provider(settings or Settings(), data)
    return Diagnosis(
        version=__version__,
        settings=tuple(one for one in settings.explain() if one.source != "default") if settings else (),
        unknown=tuple(unknown_variables()),
        data=data,
        report=report,
        problems=(*problems, *trouble),
        absent=tuple(filter(None, [mcp.absent()])),
    )


def diagnosis_of_server(place: Place) -> Diagnosis:
    """What a server says of its machine. Raises: HutchError."""
    found = place.ask("GET", "/v1/doctor")["provider"]
    report = ProviderReport(
        provider=found["provider"],
        usable=found["usable"],
        walls=tuple(WallReport(**wall) for wall in found["walls"]),
        limits=found["limits"],
        missing_programs=tuple(found["missing_programs"]),
        versions=found["versions"],
        notes=tuple(found["notes"]),
    )
    return Diagnosis(
        version=place.ask("GET", "/v1/version")["version"],
        settings=(),
        unknown=(),
        data=DataFolder(None, None, None, None),
        report=report,
        problems=tuple(_troubles(report)),
    )


async def _data_folder(path: Path) -> DataFolder:
    from hutch.store.store import Store

    try:
        _write_in(path)
        store = await Store.open(path / "hutch.db")
        try:
            sandboxes = len(await store.sandboxes())
        finally:
            await store.aclose()
    except OSError as error:
        remedy = "Set HUTCH_DATA_DIR to a folder that this user may write."
        problem = f"The data folder {str(path)!r} cannot be used: {error.strerror}. {remedy}"
        return DataFolder(str(path), None, _free_bytes(path), problem)
    except HutchError as error:
        return DataFolder(str(path), None, _free_bytes(path), error.message)
    return DataFolder(str(path), sandboxes, _free_bytes(path), None)


def _write_in(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _free_bytes(path: Path) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


async def _ask_provider(settings: Settings, data: DataFolder) -> tuple[ProviderReport | None, list[str]]:
    """The report, and what is wrong. A data folder that cannot be used does not keep the walls from being looked at."""
    if data.path is not None and data.problem is None:
        return await _report(settings)
    with tempfile.TemporaryDirectory(prefix="hutch-doctor-") as folder:
        return await _report(replace(settings, data_dir=Path(folder)))


async def _report(settings: Settings) -> tuple[ProviderReport | None, list[str]]:
    from hutch.engine.interpreter.trees import Trees, trees_folder
    from hutch.providers.registry import make_provider

    if platform.system() != "Linux" and settings.provider == "bubblewrap":
        return None, [f"The provider bubblewrap needs Linux; this is {platform.system()}."]
    try:
        provider = make_provider(settings.provider, settings.data_dir, settings.allow_missing, settings.uid_range)
        try:
            report = await provider.report()
        finally:
            await provider.aclose()
    except HutchError as error:
        return None, [error.message]
    gap = Trees(trees_folder(settings.data_dir)).gap()
    return replace(report, notes=(*report.notes, *([gap] if gap else []))), _troubles(report)


def _troubles(report: ProviderReport) -> list[str]:
    if report.usable:
        return []
    needed = {wall.name for wall in WALLS if wall.need != "best_effort"}
    down = [wall for wall in report.walls if wall.state == "down" and wall.name in needed]
    # Where no sandbox starts at all nothing is known of its walls; the notes say why it does not.
    return list(report.notes) or [f"The wall {wall.name} is down: {wall.detail}" for wall in down]
