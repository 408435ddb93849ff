"""The state of the store at a glance, cheaply: a handful of processes, no walk of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.config import Settings
from shadowsnap.git.bulk import read_many
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.totals import count_objects
from shadowsnap.model import Checkpoint
from shadowsnap.store.checkpoints import decode_checkpoint
from shadowsnap.store.inventory import moment_of
from shadowsnap.store.layout import Store
from shadowsnap.store.log import read_log
from shadowsnap.store.marker import last_prune
from shadowsnap.store.projects import Project, all_records
from shadowsnap.store.tips import CHECKPOINTS, PINS, all_refs
from shadowsnap.upkeep.facts import find_place
from shadowsnap.upkeep.look import archived_bytes, look_at
from shadowsnap.upkeep.memory import Look, read_memory
from shadowsnap.upkeep.results import ProjectStatus, StoreStatus
from shadowsnap.upkeep.retention import HERE
from shadowsnap.upkeep.troubles import failures, uncaptured, used_limits, warnings


def read_status(store: Store, settings: Settings, deadline: Deadline) -> StoreStatus:
    git = store.git(deadline)
    refs, totals = all_refs(git), count_objects(git)
    look = look_at(store, refs, deadline)
    timelines = _by_project(refs)
    newest = _newest_checkpoints(store, refs, timelines, deadline)
    projects = _projects(store, refs, timelines, newest, look)
    limits = used_limits(settings, look, totals.bytes, projects)
    return StoreStatus(
        base=str(store.base),
        store_bytes=totals.bytes,
        attachments_bytes=look.attachments if look else None,
        legacy_bytes=archived_bytes(store),
        unreachable_bytes=look.unreachable if look else None,
        projects=projects,
        limits=limits,
        last_prune=last_prune(store.base),
        uncaptured=tuple(uncaptured(newest.values())),
        failures=tuple(failures(read_log(store.base))),
        warnings=tuple(warnings(store, limits, projects)),
    )


# --- projects ----------------------------------------------------------------------------------


def _by_project(refs: Iterable[str]) -> dict[str, list[str]]:
    """The refs of each project's checkpoints, newest first."""
    found: dict[str, list[str]] = {}
    for ref in sorted((ref for ref in refs if ref.startswith(f"{CHECKPOINTS}/")), reverse=True):
        found.setdefault(ref.split("/")[2], []).append(ref)
    return found


def _newest_checkpoints(
    store: Store, refs: Mapping[str, str], timelines: Mapping[str, list[str]], deadline: Deadline
) -> dict[str, Checkpoint]:
    newest = {refs[timeline[0]]: (project, timeline[0]) for project, timeline in timelines.items()}
    found: dict[str, Checkpoint] = {}
    for name, kind, commit in read_many(store.git(deadline), newest):
        project, ref = newest[name]
        if kind == b"commit":
            found[project] = decode_checkpoint(Project(project, Path()), ref, name, commit)
    return found


def _projects(
    store: Store,
    refs: Mapping[str, str],
    timelines: Mapping[str, list[str]],
    newest: Mapping[str, Checkpoint],
    look: Look | None,
) -> tuple[ProjectStatus, ...]:
    records, devices = all_records(store), read_memory(store).devices
    pins = [ref.split("/")[2] for ref in refs if ref.startswith(f"{PINS}/")]
    found = []
    for project in sorted({*records, *timelines}):
        record, timeline = records.get(project, {}), timelines.get(project, [])
        workdir = record.get("workdir") or (newest[project].workdir if project in newest else "")
        place = find_place(Path(workdir), devices.get(project))[0] if workdir else "unreachable"
        found.append(
            ProjectStatus(
                id=project,
                workdir=workdir,
                exists=place == HERE,
                checkpoints=len(timeline),
                pinned=pins.count(project),
                newest=_moment(moment_of(timeline[0]) / 1000) if timeline else None,
                created_at=_moment(record.get("created_at")),
                last_touch=_moment(record.get("last_touch")),
                bytes_alone=look.alone.get(project, 0) if look else None,
                place=place,
            )
        )
    return tuple(sorted(found, key=lambda each: each.newest.timestamp() if each.newest else 0, reverse=True))


def _moment(seconds: Any) -> datetime | None:
    if not isinstance(seconds, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
