"""The records of OpenJarvis' learning loop, and how they are kept in a database."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass
class EditOutcome:
    """What became of one edit."""

    edit_id: str
    status: str
    benchmark_delta: float | None = None
    cluster_deltas: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    applied_at: datetime | None = None


@dataclass
class LearningSession:
    """One session of the learning loop."""

    id: str
    parent_session_id: str | None
    trigger: str
    trigger_metadata: dict[str, Any]
    status: str
    autonomy_mode: str
    started_at: datetime
    ended_at: datetime | None
    diagnosis_path: Path
    plan_path: Path
    benchmark_before: Any
    benchmark_after: Any
    git_checkpoint_pre: str
    git_checkpoint_post: str | None = None
    teacher_cost_usd: float = 0.0
    error: str | None = None
    edit_outcomes: list[Any] = field(default_factory=list)


SESSION = tuple(name for name in LearningSession.__dataclass_fields__ if name != "edit_outcomes")
REQUIRED = (
    "id", "trigger", "status", "autonomy_mode", "started_at", "diagnosis_path", "plan_path", "benchmark_before",
    "git_checkpoint_pre",
)  # fmt: skip
DEFAULTS: dict[str, Any] = {"trigger_metadata": {}, "teacher_cost_usd": 0.0}
OUTCOME = tuple(EditOutcome.__dataclass_fields__)
OF_EDIT = ("pillar", "op", "target", "risk_tier", "rationale")
_JSON = ("trigger_metadata", "benchmark_before", "benchmark_after", "cluster_deltas")
_TIMES = ("started_at", "ended_at", "applied_at")
_PATHS = ("diagnosis_path", "plan_path")


def stored(name: str, value: Any) -> Any:
    """A field as the database has it."""
    if name in _JSON:
        return None if value is None else json.dumps(value, default=plain)
    if name in _TIMES and isinstance(value, datetime):
        return value.isoformat()
    return str(value) if name in _PATHS else plain(value)


def plain(value: Any) -> Any:
    """What JSON or SQLite can hold of a value: of an enumeration its value, of a model its fields."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return getattr(value, "value", value) if not isinstance(value, SimpleNamespace) else vars(value)


def read_row(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    """The fields of a row, as they were handed in."""
    return {name: _value(name, value) for name, value in zip(names, row, strict=True)}


def _value(name: str, stored: Any) -> Any:
    if stored is None:
        return None
    if name in _JSON:
        return json.loads(stored)
    if name in _TIMES:
        return datetime.fromisoformat(stored.replace("Z", "+00:00"))
    return Path(stored) if name in _PATHS else stored
