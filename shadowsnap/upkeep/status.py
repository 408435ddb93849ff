"""The state of the store at a glance, cheaply: a handful of processes, no walk of the store."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.git.fixes import missing_fixes
from shadowsnap.git.reading import read_many
from shadowsnap.git.repository import count_objects
from shadowsnap.model import Checkpoint
from shadowsnap.settings import Settings
from shadowsnap.store.checkpoints import CHECKPOINTS, PINS, all_refs, decode_checkpoint, moment_of
from shadowsnap.store.lanes import remotes_at_a_glance
from shadowsnap.store.layout import Store, last_prune
from shadowsnap.store.projects import Project, all_records, was_emptied
from shadowsnap.store.troubles import read_log
from shadowsnap.upkeep.exposure import exposure
from shadowsnap.upkeep.prune import find_place
from shadowsnap.upkeep.results import Limit, ProjectStatus, StoreStatus, Trouble
from shadowsnap.upkeep.retention import HERE
from shadowsnap.upkeep.session import Look, read_memory
from shadowsnap.upkeep.size import archived_bytes, look_at


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
        remotes=tuple(remotes_at_a_glance(store)),
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


_NEAR = 0.8
_MOST_SHOWN = 20
_LITTLE_SPACE = 512 << 20
_MB = 1024 * 1024


def uncaptured(newest: Iterable[Checkpoint]) -> Iterator[Trouble]:
    """What the newest checkpoint of each project left out, by reason."""
    for checkpoint in newest:
        by_reason: dict[str, list[str]] = {}
        for skipped in checkpoint.skipped:
            by_reason.setdefault(skipped.why, []).append(skipped.path)
        for why, paths in sorted(by_reason.items()):
            shown = tuple(sorted(paths)[:_MOST_SHOWN])
            facts = (checkpoint.created_at, checkpoint.workdir, why, about_skipped(why), "uncaptured")
            yield Trouble(*facts, times=len(paths), paths=shown)


def failures(log: Sequence[dict[str, Any]]) -> list[Trouble]:
    """The last failures, newest first, each told once with how often it was noted."""
    found: dict[tuple[str, str], Trouble] = {}
    for entry in reversed(log):
        if entry.get("kind") == "purged":
            continue  # a person asked for it
        what, workdir = str(entry.get("what", "")), str(entry.get("workdir", ""))
        known = found.get((workdir, what))
        if known is not None:
            found[workdir, what] = replace(known, times=known.times + 1)
        elif len(found) < _MOST_SHOWN:
            found[workdir, what] = Trouble(
                at=datetime.fromtimestamp(entry["at"], UTC),
                workdir=workdir,
                what=what,
                advice=str(entry.get("advice") or about_failure(str(entry.get("error", "")), "")),
                kind=str(entry.get("kind", "failed")),
                paths=tuple(str(path) for path in _listed(entry.get("paths"))),
            )
    return list(found.values())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def used_limits(
    settings: Settings, look: Look | None, store_bytes: int, projects: Sequence[ProjectStatus]
) -> tuple[Limit, ...]:
    """How far each limit is used. What nobody holds any more does not count as used."""
    size = (look.live if look else store_bytes) / _MB
    attachments = look.attachments / _MB if look else None
    most = max((project.checkpoints for project in projects), default=0)
    return (
        _limit("max_total_size_mb", settings.max_total_size_mb, round(size, 3)),
        _limit("max_attachments_mb", settings.max_attachments_mb, attachments),
        Limit("max_snapshots", settings.max_snapshots, most),
        Limit("retention_days", settings.retention_days, None),
    )


def warnings(store: Store, limits: Iterable[Limit], projects: Sequence[ProjectStatus]) -> Iterator[str]:
    for limit in limits:
        if limit.name == "max_total_size_mb" and (limit.near or limit.exceeded):
            largest = max(projects, key=lambda project: project.bytes_alone or 0, default=None)
            named = f"; {largest.workdir} uses most" if largest and largest.bytes_alone else ""
            yield (
                f"the checkpoints use {limit.used:.0f} of {limit.limit:g} MB{named}: when the limit is reached, "
                "the oldest checkpoints of the projects that use most go first"
            )
    exposed = exposure(store.base, [project.workdir for project in projects if project.workdir])
    yield from filter(None, (exposed, missing_fixes(store.git())))
    free = shutil.disk_usage(store.base).free
    if free < _LITTLE_SPACE:
        yield f"the disk of {store.base} has only {free // _MB} MB left: snapshots will fail when it is full"
    held = {project.id for project in projects if project.checkpoints}
    for project, record in all_records(store).items():
        if project not in held and not was_emptied(record):
            where = record.get("workdir", project)
            yield f"the checkpoints of {where} are gone although nobody dropped them: run `shadowsnap doctor`"


def _limit(name: str, limit: float, used: float | None) -> Limit:
    if limit <= 0 or used is None:
        return Limit(name, limit, used)
    return Limit(name, limit, used, near=_NEAR * limit <= used <= limit, exceeded=used > limit)


SKIPPED = {
    "too-large": "raise max_file_size_mb if it should be captured",
    "unreadable": "let the agent's user read it, or exclude it",
    "special": "sockets, pipes and devices cannot be captured",
    "changing": "it was being written to; the next snapshot takes it in",
    "secret": "it looks like a secret; set include_secrets to capture such files",
    "unstorable": "git cannot store a path of this name",
    "undecided": "the ignore rules could not be had in time; look for patterns with many wildcards",
    "outside": "it lies outside the project: name the directory it belongs to",
    "repository": "the importer could not see into this repository",
    "damaged": "its content was lost; the checkpoints before it may still have it",
    "purged": "it was taken out of the checkpoints with `shadowsnap purge`",
}

FAILURES = {
    "GitMissing": "install git, or put it on the PATH of the agent",
    "DirectoryRefused": "work in a project's own directory, or name the files that matter",
    "DeadlineExceeded": "raise the deadline setting, or exclude what is large",
    "LockTimeout": "see what the process that holds the lock is doing; the lock goes with it",
    "StoreUnusable": "check the disk and the permissions of the store's directory",
    "DamagedObject": "run `shadowsnap doctor --repair`",
    "GitFailed": "run `shadowsnap doctor`",
    "OSError": "check the disk: free space, permissions",
    "PermissionError": "check who owns the store's directory",
}


def about_skipped(why: str) -> str:
    return SKIPPED.get(why, "")


def about_failure(kind: str, hint: str) -> str:
    """The error's own hint, or what usually helps."""
    return hint or FAILURES.get(kind, "run `shadowsnap doctor`")
