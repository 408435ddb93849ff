"""Finding out what retention has to know of each project: is its directory there, when was it
used last, what does its journal still lead to."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from shadowsnap.store.atomic import read_json
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project
from shadowsnap.store.tips import needed_by_journal
from shadowsnap.upkeep.memory import Memory
from shadowsnap.upkeep.retention import GONE, HERE, UNREACHABLE, ProjectFacts

_END_OF_TIME = 1e11
"""Seconds; the calendar does not go much further."""


def gather_facts(
    store: Store, projects: Iterable[Project], memory: Memory, now: float | None = None
) -> tuple[dict[str, ProjectFacts], Memory]:
    """The facts, and what is to be remembered of them for the next time."""
    now = time.time() if now is None else now
    facts: dict[str, ProjectFacts] = {}
    gone_since: dict[str, float] = {}
    devices: dict[str, int] = {}
    for project in projects:
        touched = _seconds((read_json(store.project_file(project.id)) or {}).get("last_touch"))
        place, device = find_place(project.workdir, memory.devices.get(project.id))
        if device is not None:
            devices[project.id] = device
        since = None
        if place == GONE:
            since = _seconds(memory.gone_since.get(project.id))
            if since is None or since > now or (touched or 0) > since:
                since = now  # just now, or the clock was wrong, or it came back in between: its grace begins
            gone_since[project.id] = since
        needed = needed_by_journal(store.journal_file(project.id))
        facts[project.id] = ProjectFacts(place, _moment(since), _moment(touched), needed)
    return facts, replace(memory, gone_since=gone_since, devices=devices)


def find_place(workdir: Path, device: int | None) -> tuple[str, int | None]:
    """Whether a directory is here, gone or out of reach, and the file system it is (or was) in.
    An empty mount point looks like a directory that lost its contents; its file system differs."""
    try:
        above = os.stat(workdir.parent).st_dev
    except OSError:
        return UNREACHABLE, device
    try:
        if stat.S_ISDIR(os.stat(workdir).st_mode):
            return HERE, above
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return UNREACHABLE, device
    return (GONE, device) if device is None or device == above else (UNREACHABLE, device)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _seconds(value: object) -> float | None:
    """A time that can be one; None for what a damaged record says."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < _END_OF_TIME else None
