"""The state of the store: sizes, projects, limits, and recent failures.

Reading it is cheap: a handful of git processes, and no walk of the store unless refs changed since the last one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.objects import count_objects
from shadowsnap.git.reading import read_many
from shadowsnap.git.repository import missing_fixes
from shadowsnap.model import Checkpoint
from shadowsnap.results import Limit, ProjectStatus, StoreStatus, Trouble
from shadowsnap.settings import Settings
from shadowsnap.snapshot.copies import verified_at
from shadowsnap.store.checkpoints import (
    ATTACHMENTS,
    CHECKPOINTS,
    PINS,
    all_refs,
    decode_checkpoint,
    moment_of,
)
from shadowsnap.store.history import fold
from shadowsnap.store.lanes import remotes_at_a_glance
from shadowsnap.store.layout import ARCHIVE, Store, last_prune
from shadowsnap.store.log import read_lines, read_troubles
from shadowsnap.store.projects import (
    HERE,
    UNREACHABLE,
    Project,
    all_records,
    as_moment,
    find_place,
    may_lack_checkpoints,
)
from shadowsnap.store.stat_cache import CachedTrees
from shadowsnap.upkeep.check_store import QUARANTINE
from shadowsnap.upkeep.clear import bytes_of
from shadowsnap.upkeep.prune import turn_states
from shadowsnap.upkeep.reclaim import (
    Holder,
    Measurement,
    begin_upkeep,
    fingerprint,
    measure,
    read_memory,
    summarize,
    write_memory,
)
from shadowsnap.upkeep.retention import counted

_NEAR = 0.8
_MOST_SHOWN = 20
_LITTLE_SPACE = 512 << 20
_MB = 1024 * 1024
_ADVICE_TO_MOVE = (
    "a sandboxed agent could change or delete checkpoints. Move it out (shadowsnap docs settings: base, or "
    "SHADOWSNAP_HOME)"
)
# What sandboxes let every command write to: temporary files (Codex, Gemini, Cursor), caches (Gemini).
_TEMPORARY = ("/tmp", "/var/tmp", "/private/tmp", "/dev/shm")
_CACHES = (".cache", ".npm", ".gemini")

# What to do about files that were left out, by the reason.
SKIPPED = {
    "too-large": "raise max_file_size_mb if it should be captured",
    "large-directory": "it is ignored; name single files in it, or take it out of the ignore rules",
    "unreadable": "let the agent's user read it, or exclude it",
    "special": "sockets, pipes and devices cannot be captured",
    "changing": "it was being written; the next snapshot captures it",
    "secret": "it looks like a secret; set include_secrets to capture such files",
    "unstorable": "git cannot store a path of this name",
    "undecided": "the ignore rules took too long; look for patterns with many wildcards",
    "outside": "it is outside the project: name the directory it belongs to",
    "repository": "the import could not read this repository",
    "damaged": "its content was lost; the checkpoints before it may still have it",
    "purged": "it was removed from the checkpoints with `shadowsnap purge`",
}
# What to do about failures, by the class of the error.
FAILURES = {
    "GitMissing": "install git, or put it on the PATH of the agent",
    "DirectoryRefused": "work in a project's own directory, or name the files that matter",
    "DeadlineExceeded": "raise the deadline setting, or exclude what is large",
    "LockTimeout": "see what the process that holds the lock is doing; the lock ends with it",
    "StoreUnusable": "check the disk and the permissions of the store's directory",
    "DamagedObject": "run `shadowsnap doctor --repair`",
    "GitFailed": "run `shadowsnap doctor`",
    "BadArguments": "correct the call in the program that made it",
    "OSError": "check the disk: free space, permissions",
    "PermissionError": "check who owns the store's directory",
}


def read_status(store: Store, settings: Settings, deadline: Deadline) -> StoreStatus:
    git = store.git(deadline)
    refs, totals = all_refs(git), count_objects(git)
    measured = _measurement(store, refs, deadline)
    timelines: dict[str, list[str]] = {}  # the refs of each project's checkpoints, newest first
    for ref in sorted((ref for ref in refs if ref.startswith(f"{CHECKPOINTS}/")), reverse=True):
        timelines.setdefault(ref.split("/")[2], []).append(ref)
    listed = _checkpoints(store, refs, timelines, deadline)
    newest = {project: found[0] for project, found in listed.items()}
    projects = _projects(store, refs, timelines, newest, measured)
    limits = _limits(settings, measured, totals.bytes, _most_turns(store, listed))
    return StoreStatus(
        base=str(store.base),
        store_bytes=totals.bytes,
        attachments_bytes=measured.attachments if measured else None,
        legacy_bytes=_archived_bytes(store),
        unreachable_bytes=measured.unreachable if measured else None,
        projects=projects,
        limits=limits,
        last_prune=last_prune(store.base),
        uncaptured=tuple(_uncaptured(newest.values())),
        failures=tuple(failures(read_troubles(store.base))),
        warnings=tuple(_warnings(store, limits, projects)),
        remotes=tuple(remotes_at_a_glance(store)),
    )


# --- sizes -------------------------------------------------------------------------------------


def _measurement(store: Store, refs: Mapping[str, str], deadline: Deadline) -> Measurement | None:
    """The sizes under these refs; None if measuring takes too long."""
    known = read_memory(store).measured
    if known is not None and known.refs == fingerprint(refs):
        return known
    try:
        measured = _measure(store, refs, deadline)
    except DeadlineExceeded:
        return None
    with begin_upkeep(store, deadline) as upkeep:
        if upkeep is not None:  # otherwise the process that does upkeep writes what it measured
            write_memory(store, replace(read_memory(store), measured=measured))
    return measured


def _measure(store: Store, refs: Mapping[str, str], deadline: Deadline) -> Measurement:
    groups: dict[str, list[Holder]] = {ATTACHMENTS: []}
    for project, tree in CachedTrees(store).read().items():
        groups.setdefault(project, []).append(Holder(f"cache of {project}", tree))
    for ref, name in refs.items():
        top, _, project = ref.rpartition("/")[0].rpartition("/")
        if top == CHECKPOINTS:
            groups.setdefault(project, []).append(Holder(ref, name))
        elif top == ATTACHMENTS:
            groups[ATTACHMENTS].append(Holder(ref, name))
    git = store.git(deadline)
    usage = measure(git, groups)
    return summarize(usage, usage.live, refs, count_objects(git).bytes)


def _archived_bytes(store: Store) -> int:
    """Bytes in archives of older layouts and in the quarantine. They do not change, so they are measured once."""
    paths = [path for path in store.base.iterdir() if path.name.startswith((ARCHIVE, QUARANTINE))]
    versions = {f"{path.name} {path.lstat().st_mtime_ns}": path for path in paths}
    known = read_memory(store).archives
    if versions.keys() <= known.keys():
        return sum(known[version] for version in versions)
    found = {version: bytes_of(path) for version, path in versions.items()}
    with begin_upkeep(store, Deadline(1)) as upkeep:
        if upkeep is not None:
            write_memory(store, replace(read_memory(store), archives=found))
    return sum(found.values())


# --- projects ----------------------------------------------------------------------------------


def _checkpoints(
    store: Store, refs: Mapping[str, str], timelines: Mapping[str, list[str]], deadline: Deadline
) -> dict[str, list[Checkpoint]]:
    """The checkpoints of each project, newest first."""
    wanted = [(project, ref) for project, timeline in timelines.items() for ref in timeline]
    commits = {
        name: commit
        for name, kind, commit in read_many(store.git(deadline), {refs[ref]: None for _, ref in wanted})
        if kind == b"commit"
    }
    found: dict[str, list[Checkpoint]] = {}
    for project, ref in wanted:
        if refs[ref] in commits:
            whole = decode_checkpoint(Project(project, Path()), ref, refs[ref], commits[refs[ref]])
            found.setdefault(project, []).append(whole)
    return found


def _projects(
    store: Store,
    refs: Mapping[str, str],
    timelines: Mapping[str, list[str]],
    newest: Mapping[str, Checkpoint],
    measured: Measurement | None,
) -> tuple[ProjectStatus, ...]:
    records = all_records(store)
    pins = [ref.split("/")[2] for ref in refs if ref.startswith(f"{PINS}/")]
    found = []
    for project in sorted({*records, *timelines}):
        record, timeline = records.get(project, {}), timelines.get(project, [])
        workdir = record.get("workdir") or (newest[project].workdir if project in newest else "")
        place = find_place(Path(workdir), record) if workdir else UNREACHABLE
        found.append(
            ProjectStatus(
                id=project,
                workdir=workdir,
                exists=place == HERE,
                checkpoints=len(timeline),
                pinned=pins.count(project),
                newest=as_moment(moment_of(timeline[0]) / 1000) if timeline else None,
                created_at=as_moment(record.get("created_at")),
                last_touch=as_moment(record.get("last_touch")),
                bytes_alone=measured.alone.get(project, 0) if measured else None,
                place=place,
                verified_at=as_moment(verified_at(record)),
            )
        )
    return tuple(sorted(found, key=lambda each: each.newest.timestamp() if each.newest else 0, reverse=True))


# --- limits and troubles -----------------------------------------------------------------------


def _uncaptured(newest: Iterable[Checkpoint]) -> Iterator[Trouble]:
    """The paths that the newest checkpoint of each project left out, by reason."""
    for checkpoint in newest:
        by_reason: dict[str, list[str]] = {}
        for skipped in checkpoint.skipped:
            by_reason.setdefault(skipped.why, []).append(skipped.path)
        for why, paths in sorted(by_reason.items()):
            shown = tuple(sorted(paths)[:_MOST_SHOWN])
            facts = (checkpoint.created_at, checkpoint.workdir, why, SKIPPED.get(why, ""), "uncaptured")
            yield Trouble(*facts, times=len(paths), paths=shown)


def failures(log: Sequence[dict[str, Any]]) -> list[Trouble]:
    """The last failures, newest first, each once with how often it was logged."""
    found: dict[tuple[str, str], Trouble] = {}
    for entry in reversed(log):
        if entry.get("kind") == "purged":
            continue  # not a failure
        what, workdir = str(entry.get("what", "")), str(entry.get("workdir", ""))
        known = found.get((workdir, what))
        if known is not None:
            found[workdir, what] = replace(known, times=known.times + 1)
        elif len(found) < _MOST_SHOWN:
            found[workdir, what] = Trouble(
                at=datetime.fromtimestamp(entry["at"], UTC),
                workdir=workdir,
                what=what,
                advice=str(entry.get("advice") or FAILURES.get(str(entry.get("error")), FAILURES["GitFailed"])),
                kind=str(entry.get("kind", "failed")),
                paths=tuple(str(path) for path in _listed(entry.get("paths"))),
            )
    return list(found.values())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _most_turns(store: Store, listed: Mapping[str, Sequence[Checkpoint]]) -> int:
    """How many turns and snapshots the project with most has, as pruning counts them."""
    return max(
        (
            counted(checkpoints, turn_states(fold(Project(project, Path()), read_lines(store, project))))
            for project, checkpoints in listed.items()
        ),
        default=0,
    )


def _limits(
    settings: Settings, measured: Measurement | None, store_bytes: int, turns: int
) -> tuple[Limit, ...]:
    """How much of each limit is used. Objects that no checkpoint needs any more do not count."""
    size = (measured.live if measured else store_bytes) / _MB
    attachments = measured.attachments / _MB if measured else None
    exceeded = 0 < settings.max_snapshots < turns
    return (
        _limit("max_total_size_mb", settings.max_total_size_mb, round(size, 3)),
        _limit("max_attachments_mb", settings.max_attachments_mb, attachments),
        Limit("max_snapshots", settings.max_snapshots, turns, exceeded=exceeded),  # a full one is nothing special
        Limit("retention_days", settings.retention_days, None),
    )


def _limit(name: str, limit: float, used: float | None) -> Limit:
    if limit <= 0 or used is None:
        return Limit(name, limit, used)
    return Limit(name, limit, used, near=_NEAR * limit <= used <= limit, exceeded=used > limit)


def _warnings(store: Store, limits: Iterable[Limit], projects: Sequence[ProjectStatus]) -> Iterator[str]:
    for limit in limits:
        if limit.name == "max_total_size_mb" and (limit.near or limit.exceeded):
            largest = max(projects, key=lambda project: project.bytes_alone or 0, default=None)
            most = f"; {largest.workdir} uses most" if largest and largest.bytes_alone else ""
            yield (
                f"the checkpoints use {limit.used:.0f} of {limit.limit:g} MB{most}: when the limit is reached, "
                "the oldest checkpoints of the projects that use most go first"
            )
    exposed = exposure(store.base, [project.workdir for project in projects if project.workdir])
    yield from filter(None, (exposed, missing_fixes(store.git())))
    free = shutil.disk_usage(store.base).free
    if free < _LITTLE_SPACE:
        yield f"the disk of {store.base} has only {free // _MB} MB left: snapshots will fail when it is full"
    held = {project.id for project in projects if project.checkpoints}
    for project, record in all_records(store).items():
        if project not in held and not may_lack_checkpoints(store, project, record):
            where = record.get("workdir", project)
            yield f"the checkpoints of {where} are gone although they were not dropped: run `shadowsnap doctor`"


# --- sandboxes ---------------------------------------------------------------------------------


def exposure(base: Path, projects: Iterable[str | Path], more: Iterable[str | Path] = ()) -> str:
    """Why an agent in a sandbox may be able to write to the store, as a sentence; empty if no reason is known.
    `projects`: directories that agents work in. `more`: other directories that their settings let sandboxed
    commands write to."""
    base = Path(os.path.realpath(base))
    for project in projects:
        if _contains(project, base):
            return f"the store lies inside the project {project}, where agents write: {_ADVICE_TO_MOVE}"
    for folder in more:
        if _contains(folder, base):
            return f"the store lies in {folder}, which the settings of an agent let it write to: {_ADVICE_TO_MOVE}"
    for folder in (*_TEMPORARY, tempfile.gettempdir()):
        if _contains(folder, base):
            return f"the store lies in {folder}, which most sandboxes let agents write to: {_ADVICE_TO_MOVE}"
    for folder in (Path(os.path.expanduser("~"), name) for name in _CACHES):
        if _contains(folder, base):
            return f"the store lies in {folder}, which some sandboxes let agents write to: {_ADVICE_TO_MOVE}"
    return ""


def _contains(folder: str | Path, base: Path) -> bool:
    return bool(os.fspath(folder)) and base.is_relative_to(os.path.realpath(folder))
