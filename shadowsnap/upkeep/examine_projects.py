"""What is kept about each project: its record, the journal of restores, the memory of the last
capture. None of it is the truth; all of it can be made anew."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shadowsnap.errors import GitFailed
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.reading import ObjectReader, missing_objects
from shadowsnap.git.refs import read_ref
from shadowsnap.git.runner import Git
from shadowsnap.model import Finding
from shadowsnap.store.atomic import read_json, write_json
from shadowsnap.store.journal import journal_from, read_journal
from shadowsnap.store.layout import FORMAT, Store
from shadowsnap.store.projects import Project
from shadowsnap.store.scancache import ScanCache, load_cache, objects_taken_for_stored
from shadowsnap.upkeep.examine_refs import checkpoint_refs, read_commit
from shadowsnap.upkeep.quarantine import Quarantine, inside, set_aside

_ID = re.compile(r"[0-9a-f]{16}")
_STAGING = ".shadowsnap-restore-*"
_CLOCK_SLACK = 120.0


def recorded_projects(store: Store) -> list[Project]:
    """Every project with a sound record."""
    found = []
    for path in sorted((store.git_dir / "projects").glob("*.json")):
        workdir = (read_json(path) or {}).get("workdir")
        if _ID.fullmatch(path.stem) and isinstance(workdir, str):
            found.append(Project(path.stem, Path(workdir)))
    return found


# --- records ---------------------------------------------------------------------------------


def find_records(store: Store, project: str | None = None) -> Iterator[Finding]:
    """Records that say nothing, and projects with checkpoints but without a record."""
    folder = store.git_dir / "projects"
    listed = {path.stem for path in folder.glob("*.json")}
    with_checkpoints = {ref.name.split("/")[2] for ref in checkpoint_refs(store)}
    for name in sorted(listed | with_checkpoints):
        if project is not None and name != project:
            continue
        problem = _record_problem(folder / f"{name}.json")
        if problem is not None:
            meaning = f"{problem}: limits do not know which directory the project is, nor when it was used"
            repair = "write it anew from the project's checkpoints; what is there now is set aside"
            yield Finding("record-damaged", "warning", f"store/projects/{name}.json", meaning, repair)


def _record_problem(path: Path) -> str | None:
    if not os.path.lexists(path):
        return "it is missing"
    record = read_json(path)
    if record is None:
        return "it cannot be read as a JSON object"
    if isinstance(record.get("format"), int) and record["format"] > FORMAT:
        return None  # of a newer version: not ours to judge
    fitting = isinstance(record.get("workdir"), str) and isinstance(record.get("last_touch"), (int, float))
    return None if fitting and _ID.fullmatch(path.stem) else "it lacks what belongs into it"


def write_record(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    path = store.base / finding.subject
    left = read_json(path) or {}
    if os.path.lexists(path):
        quarantine.take(path)
    record = _record_from_checkpoints(store, path.stem)
    if record is not None:
        known = {key: value for key, value in left.items() if _fits(key, value)}
        turn = max(record["turn"], int(known.get("turn", 0)))
        write_json(path, {**known, **record, "turn": turn}, fsync=store.fsync)


def _fits(key: str, value: Any) -> bool:
    return key in ("created_at", "turn", "newest") and isinstance(value, str if key == "newest" else (int, float))


def _record_from_checkpoints(store: Store, project: str) -> dict[str, Any] | None:
    """What the checkpoints of a project tell of it; None if there are none."""
    refs = [ref for ref in checkpoint_refs(store) if ref.name.split("/")[2] == project]
    workdir, turn = None, 0
    with ObjectReader(store.git()) as reader:
        for ref in refs:
            commit = read_commit(reader, ref.value)
            if commit is not None:
                workdir = commit.body.get("workdir", workdir)
                turn = max(turn, commit.body.get("turn") or 0)
    if not isinstance(workdir, str):
        return None
    first, last = (int(ref.name.rpartition("/")[2][:13]) / 1000 for ref in (refs[0], refs[-1]))
    return {"format": FORMAT, "workdir": workdir, "created_at": first, "last_touch": last, "turn": turn}


def find_clock(store: Store) -> Iterator[Finding]:
    """Things dated in the future: the clock was set back, or was wrong before."""
    now = time.time() + _CLOCK_SLACK
    refs = [ref.name.split("/") for ref in checkpoint_refs(store)]
    newest = {project: int(name[:13]) / 1000 for _, _, project, name in refs}
    for project in recorded_projects(store):
        touched = (read_json(store.project_file(project.id)) or {}).get("last_touch")
        if newest.get(project.id, 0.0) > now or (isinstance(touched, (int, float)) and touched > now):
            meaning = (
                "its newest checkpoint or last use lies in the future, so the clock was set back; new checkpoints "
                "are dated right after it until the clock has caught up, and keep their order"
            )
            yield Finding("clock-back", "info", str(project.workdir), meaning)


# --- journal ---------------------------------------------------------------------------------


def find_journals(store: Store, project: str | None = None) -> Iterator[Finding]:
    folder = store.git_dir / "journal"
    for path in sorted(folder.glob("*.json")):
        if (project is None or path.stem == project) and not _is_journal(path):
            meaning = "the record of undo and redo cannot be read; checkpoints are not affected"
            repair = "set it aside; undo and redo start anew"
            yield Finding("journal-damaged", "warning", inside(store, path), meaning, repair)
    for path in sorted(folder.glob("*.damaged")):
        meaning = "a record of undo and redo that could not be read, and was put out of use"
        yield Finding("journal-left", "info", inside(store, path), meaning, "move it to what was set aside")


def _is_journal(path: Path) -> bool:
    """Without `read_journal`, which puts a damaged one out of use at once."""
    record = read_json(path)
    return record is not None and journal_from(record) is not None


def find_staging(store: Store) -> Iterator[Finding]:
    """What a restore left in a project whose journal does not know of it any more."""
    for project in recorded_projects(store):
        journal = store.journal_file(project.id)
        begun = read_journal(store, project).open if _is_journal(journal) else None
        known = set(begun.staging) if begun is not None else set()
        for path in sorted(project.workdir.glob(_STAGING)) if project.workdir.is_dir() else ():
            if path.name not in known and path.is_dir():
                meaning = (
                    "files that a restore had moved aside when it died; the record of it was lost, but every "
                    "version is in the checkpoint taken before it"
                )
                yield Finding("staging-left", "warning", str(path), meaning, "move it to what was set aside")


# --- the memory of the last capture ----------------------------------------------------------


def find_caches(
    store: Store, git: Git, sound: set[str] | None = None, project: str | None = None
) -> Iterator[Finding]:
    """Caches that cannot be read, or that take objects for stored that are not."""
    for path in sorted((store.git_dir / "indexes").glob("*.json")):
        if not _ID.fullmatch(path.stem) or (project is not None and path.stem != project):
            continue
        of = Project(path.stem, Path())
        problem = _cache_problem(load_cache(store, of), git, sound)
        if problem is not None:
            meaning = f"{problem}: the next snapshot could rely on it"
            repair = "forget it; the next snapshot reads every file again"
            yield Finding("cache-damaged", "error", inside(store, path), meaning, repair)


def _cache_problem(cache: ScanCache, git: Git, sound: set[str] | None) -> str | None:
    if not cache.index.path.exists():
        return None  # forgotten before; only what a tool named is still known
    if not len(cache.index) and cache.tree == EMPTY_TREE and not cache.newest:
        return "what the last capture remembered cannot be read"
    try:
        names = objects_taken_for_stored(cache, git)
        lost = names - sound if sound is not None else set(missing_objects(git, sorted(names)))
        if lost:
            return f"{len(lost)} of the objects it takes for stored are missing or damaged"
        held = {path: (known.mode, known.id) for path, known in cache.index.items()}
        if held != _files_of(git, cache.tree):
            return "its index and its tree do not hold the same files"
        newest = read_ref(git.git_dir, cache.newest.get("ref", ""))
        if newest is not None and not held.items() <= _files_of(git, newest).items():
            return "the newest checkpoint does not hold what it takes for captured"
    except GitFailed:
        return "the tree of the last capture is not all there"
    return None


def _files_of(git: Git, tree: str) -> dict[bytes, tuple[int, str]]:
    rows = (row.partition(b"\t") for row in git.run("ls-tree", "-r", "-z", tree).split(b"\0")[:-1])
    return {path: (int(about[:6], 8), about.split()[2].decode()) for about, _, path in rows}


def forget(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    """What a tool named is kept, as far as it can be read: the files themselves do not tell."""
    index = store.index_file(Path(finding.subject).stem)
    if index.is_dir():
        quarantine.take(index)
    else:
        index.unlink(missing_ok=True)


MENDS = {
    "record-damaged": write_record,
    "journal-damaged": set_aside,
    "journal-left": set_aside,
    "staging-left": set_aside,
    "cache-damaged": forget,
}
