"""What a person should know: what was not captured, what failed, which limits are near; each with
what to do about it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shadowsnap.config import Settings
from shadowsnap.model import Checkpoint
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import all_records, was_emptied
from shadowsnap.upkeep.advice import about_failure, about_skipped
from shadowsnap.upkeep.memory import Look
from shadowsnap.upkeep.results import Limit, ProjectStatus, Trouble

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
                paths=tuple(str(path) for path in entry.get("paths", ())),
            )
    return list(found.values())


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
