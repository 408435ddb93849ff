"""What went wrong lately, for `status`: one JSON object per line in `<base>/log.jsonl`, kept short."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import LockTimeout
from shadowsnap.files import append_bounded, append_line, ownership_problem, parse_json, parse_json_lines
from shadowsnap.model import Outcome
from shadowsnap.store.locks import locked

_MOST_BYTES = 200_000
_TAIL_BYTES = 20_000
_REPEAT_SECONDS = 600.0
_PATIENCE_SECONDS = 0.2
_LONGEST, _MOST_PATHS = 2000, 20
_END_OF_TIME = 253402300800
"""The year 10000: no calendar goes further."""


def note_trouble(base: Path, workdir: str, outcome: Outcome) -> None:
    """Note a snapshot that failed, was refused, or holds only some paths."""
    problem = outcome.error
    append_log(
        base,
        kind=outcome.status,
        workdir=workdir[:_LONGEST],
        error=type(problem).__name__,
        what=str(problem)[:_LONGEST],
        advice=str(getattr(problem, "hint", "")),
        paths=[skipped.path for skipped in outcome.skipped[:_MOST_PATHS]],
    )


def append_log(base: Path, **facts: Any) -> None:
    """Note something. What was noted just now in the same words is not noted again: an agent that
    works in a refused directory would fill the log by itself."""
    if not base.is_dir() or ownership_problem(base):
        return
    path = base / "log.jsonl"
    line = json.dumps({"at": time.time(), **facts}, separators=(",", ":")).encode("ascii")
    try:
        with locked(base / ".log.lock", "log", Deadline(_PATIENCE_SECONDS)):
            if _noted_lately(path, facts):
                return
            append_bounded(path, line, _MOST_BYTES)
    except LockTimeout:
        append_line(path, line)


def read_log(base: Path) -> list[dict[str, Any]]:
    """Oldest first; lines that cannot be read are left out."""
    try:
        data = (base / "log.jsonl").read_bytes()
    except OSError:
        return []
    return _parsed(data)


def _noted_lately(path: Path, facts: dict[str, Any]) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            recent = _parsed(file.read())
    except OSError:
        return False
    plain = parse_json(json.dumps(facts))
    since = time.time() - _REPEAT_SECONDS
    return any(
        since < entry["at"] <= time.time() and {key: entry[key] for key in entry if key != "at"} == plain
        for entry in recent
    )


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < _END_OF_TIME


def _parsed(data: bytes) -> list[dict[str, Any]]:
    return [entry for entry in parse_json_lines(data) if _is_time(entry.get("at"))]
