"""Which list a person saw last, between one process that answers /rollback and the next."""

from __future__ import annotations

from pathlib import Path

from shadowsnap.manager import CheckpointManager
from shadowsnap.store.atomic import read_json, write_json
from shadowsnap.store.projects import project_of


def read_shown(manager: CheckpointManager, workdir: Path) -> list[str]:
    record = read_json(_file(manager, workdir)) or {}
    shown = record.get("shown")
    return [each for each in shown if isinstance(each, str)] if isinstance(shown, list) else []


def write_shown(manager: CheckpointManager, workdir: Path, shown: list[str]) -> None:
    if shown != read_shown(manager, workdir):
        write_json(_file(manager, workdir), {"workdir": str(workdir), "shown": shown})


def _file(manager: CheckpointManager, workdir: Path) -> Path:
    return manager.settings.resolved_base() / "shown" / f"{project_of(workdir).id}.json"
