"""Clearing: dropping all checkpoints of a project, or of all projects, and what else is kept about them.

Other rooms keep records beside the store (the operation log, turn files of hooks, logs of failures). Clearing a
project removes it from them, too: nothing of it is left below the base.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import ClearRefused, DamagedObject, LockTimeout
from shadowsnap.files import parse_json, read_json, remove_tree, write_bytes
from shadowsnap.git.reading import Graph, kinds_of, reachable
from shadowsnap.git.refs import delete_refs
from shadowsnap.git.repository import Git
from shadowsnap.results import ClearedItem, ClearReport
from shadowsnap.store.checkpoints import CHECKPOINTS, PINS, all_refs, take_inventory
from shadowsnap.store.history import FORMAT_1_RECORDS, finish_migration
from shadowsnap.store.lanes import FOLDER as REMOTES
from shadowsnap.store.lanes import forget_remote
from shadowsnap.store.layout import Store, archives, create_store, is_due
from shadowsnap.store.locks import alone, locked
from shadowsnap.store.log import FOLDER as OPERATION_LOGS
from shadowsnap.store.log import remove_log
from shadowsnap.store.projects import PURGED, Project, known_projects, note_emptied
from shadowsnap.upkeep.check_store import QUARANTINE
from shadowsnap.upkeep.purge import remove_from_quarantine
from shadowsnap.upkeep.reclaim import (
    Holder,
    begin_upkeep,
    measure,
    read_memory,
    reclaim_now,
    upkeep_lock,
    write_memory,
)

# What hooks keep beside the store. (Their modules are above this one.)
TURNS, HOOK_LOG, LOG = "run", "hook.log.jsonl", "log.jsonl"
_BESIDE_STORE = (OPERATION_LOGS, *FORMAT_1_RECORDS, LOG, HOOK_LOG, TURNS, REMOTES, ".last_prune")
# These first: a store without refs, but with projects, looks like one that lost its checkpoints.
_FIRST = ("projects", "refs", "packed-refs")
# Processes may wait for these.
_STAYS = ("locks",)

# A hook that takes a snapshot holds the lock of its turn file; it writes the file again afterwards.
_TURN_LOCK_SECONDS = 2.0


# --- one project -----------------------------------------------------------------------------


def plan_clear(store: Store, project: Project, deadline: Deadline) -> ClearReport:
    """What `clear` would drop."""
    git = store.git(deadline)
    refs = all_refs(git)
    own = [ref for ref in refs if _is_of(ref, project)]
    groups: dict[str, list[Holder]] = {"own": [], "others": []}
    for ref, tip in refs.items():
        groups["own" if _is_of(ref, project) else "others"].append(Holder(ref, tip))
    size = measure(git, groups).alone("own")
    item = ClearedItem(str(project.workdir), *_count(own), bytes=size)
    return ClearReport((item,), pending_bytes=size)


def _is_of(ref: str, project: Project) -> bool:
    """Whether it is a checkpoint, pin, label or attachment of a project."""
    parts = ref.split("/")
    return len(parts) > 3 and parts[1].startswith("shadowsnap") and parts[2] == project.id


def _count(refs: Iterable[str]) -> tuple[int, int]:
    """How many checkpoints and how many pins there are."""
    folders = ["/".join(ref.split("/")[:2]) for ref in refs]
    return folders.count(CHECKPOINTS), folders.count(PINS)


def clear(
    store: Store, project: Project, deadline: Deadline, upkeep_deadline: Deadline, on_wait: Callable[[], None]
) -> ClearReport:
    """Drop every checkpoint of a project, pinned or not, and all that is known about it; then reclaim the
    space."""
    plan = plan_clear(store, project, deadline)
    _refuse_if_restoring(store, [store.journal_file(project.id)])
    finish_migration(store, deadline)
    listed = take_inventory(store, deadline).checkpoints.get(project.id, [])
    sessions = {str(each.session_id) for each in listed if each.session_id is not None}
    # Before the checkpoints: if this process dies, there must be something that can be cleared again.
    forget_mentions(store, project, sessions, deadline)
    with (
        locked(store.store_lock(), "clear", deadline, shared=True),
        locked(store.project_lock(project.id), "clear", deadline),
    ):
        _refuse_if_restoring(store, [store.journal_file(project.id)])
        git = store.git(deadline)
        refs = all_refs(git)
        unreadable = _clear_quarantine(store, project, git, refs)
        note_emptied(store, project)
        delete_refs(git, [ref for ref in refs if _is_of(ref, project)])
        forget_project(store, project)
    forget_mentions(store, project, sessions, deadline)  # what hooks wrote meanwhile
    reclaimed = reclaim_now(store, upkeep_deadline, on_wait)
    _forget_in_memory(store, project, upkeep_deadline)
    if unreadable:
        note = f"{', '.join(unreadable)} cannot be read and may hold some of it: remove it by hand"
        plan = replace(plan, items=(replace(plan.items[0], note=note),))
    left = 0 if reclaimed.complete else plan.pending_bytes
    return replace(plan, bytes_freed=reclaimed.bytes_freed, pending_bytes=left, applied=True)


def _refuse_if_restoring(store: Store, journals: Iterable[Path]) -> None:
    """An interrupted restore needs its checkpoints, to be finished or taken back."""
    for path in journals:
        begun = (read_json(path) or {}).get("open")
        if isinstance(begun, dict) and begun.get("applying"):
            workdir = (read_json(store.project_file(path.stem)) or {}).get("workdir", path.stem)
            raise ClearRefused(workdir=workdir)


def _clear_quarantine(store: Store, project: Project, git: Git, refs: Mapping[str, str]) -> list[str]:
    """Remove what is the project's from the quarantine; returns what may be but cannot be read."""
    if not any(store.base.glob(f"{QUARANTINE}*")):
        return []
    own = _reachable(git, {name for ref, name in refs.items() if _is_of(ref, project)})
    others = _reachable(git, {name for ref, name in refs.items() if not _is_of(ref, project)})
    mentions = Mentions(project, (each.workdir for each in known_projects(store)))

    def is_of_project(path: Path) -> bool:
        if any(project.id in part for part in path.relative_to(store.base).parts):
            return True
        return path.suffix != ".idx" and mentions(_text_of(path))

    return remove_from_quarantine(store.base, own - others, is_of_project)


def _reachable(git: Git, tips: Iterable[str]) -> set[str]:
    found: set[str] = set()
    kinds = kinds_of(git, tips)
    with Graph(git) as graph:
        graph.prefetch(kinds)
        for name, kind in kinds.items():
            with suppress(DamagedObject):
                found.update(reachable(graph, name, kind, found))
    return found


def forget_project(store: Store, project: Project) -> None:
    """Remove record, journal, log and stat cache of a project without checkpoints. The caller holds its lock.
    (The lock file stays: another process may wait for it.)"""
    for folder in ("indexes", "journal", PURGED, "projects"):  # the record last: the others are found by it
        for path in (store.git_dir / folder).glob(f"*{project.id}*"):  # also what an interrupted write left
            path.unlink(missing_ok=True)
    remove_log(store, project.id)
    forget_remote(store, project.id, lane=True)


def _forget_in_memory(store: Store, project: Project, deadline: Deadline) -> None:
    with begin_upkeep(store, deadline, lambda: None) as upkeep:
        if upkeep is not None:
            memory = read_memory(store)
            gone_since = {name: since for name, since in memory.gone_since.items() if name != project.id}
            write_memory(store, replace(memory, gone_since=gone_since, measured=None))


# --- records beside the store ----------------------------------------------------------------


def forget_mentions(store: Store, project: Project, sessions: Iterable[str], deadline: Deadline) -> None:
    """Remove a project from what is kept beside the store: turn files of hooks, and logs of failures.
    `sessions` are those that its checkpoints name. The caller holds neither its lock nor the store's."""
    mentions = Mentions(project, (each.workdir for each in known_projects(store)))
    involved = {*sessions, *_sessions_logged(store.base / HOOK_LOG, mentions)}
    turn_files = {turn_file(name) for name in (*involved, f"in {project.workdir}")}
    _forget_in_turns(store.base / TURNS, mentions, turn_files)
    _forget_in_log(store.base / HOOK_LOG, mentions)
    with locked(store.base / ".log.lock", "log", deadline):
        _forget_in_log(store.base / LOG, mentions)


class Mentions:
    """Whether a value (text, or JSON) mentions a project: its id, its directory, or a path below it that
    belongs to no other project."""

    def __init__(self, project: Project, projects: Iterable[Path]) -> None:
        self._id = project.id
        self._workdir = str(project.workdir)
        # The end of the name: `/a/project` is not `/a/project-2`.
        self._pattern = re.compile(re.escape(self._workdir) + r"(?=$|[/\\\s\"'`:;,)\]}>]|\.(?:$|\s))")
        self._below = [str(each) for each in projects if project.workdir in each.parents]

    def __call__(self, value: Any) -> bool:
        if isinstance(value, str):
            if self._workdir not in value:
                return value == self._id
            return any(not self._is_others(value[found.start() :]) for found in self._pattern.finditer(value))
        if isinstance(value, dict):
            return any(self(each) for pair in value.items() for each in pair)
        return isinstance(value, list) and any(map(self, value))

    def _is_others(self, path: str) -> bool:
        return any(path == each or path.startswith(each + os.sep) for each in self._below)


def _sessions_logged(log: Path, mentions: Mentions) -> Iterator[str]:
    for line in _lines(log):
        entry = _parsed(line)
        if isinstance(entry, dict) and mentions(entry) and isinstance(entry.get("session"), str):
            yield entry["session"]


def turn_file(session: str) -> str:
    """The name of the file that the hooks of a session share, without its suffix (see `hook.session`)."""
    if len(session) <= 100 and session.replace("-", "").replace("_", "").isalnum() and session.isascii():
        return f"s-{session}"
    return f"x-{hashlib.sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def _forget_in_turns(folder: Path, mentions: Mentions, names: set[str]) -> None:
    """Remove the files of sessions that worked in the project. A session that goes on elsewhere takes one more
    snapshot there, which does no harm."""
    for path in _files(folder):
        if path.suffix == ".lock" or not (path.stem in names or mentions(read_json(path) or _text_of(path))):
            continue
        try:
            with locked(path.with_suffix(".lock"), "clear", Deadline(_TURN_LOCK_SECONDS)):
                path.unlink(missing_ok=True)
        except LockTimeout:
            path.unlink(missing_ok=True)
        names.add(path.stem)
    for name, suffix in itertools.product(names, (".tools", ".lock")):
        Path(folder, name + suffix).unlink(missing_ok=True)


def _forget_in_log(log: Path, mentions: Mentions) -> None:
    lines = _lines(log)
    left = [line for line in lines if not mentions(_parsed(line))]
    if len(left) < len(lines):
        write_bytes(log, b"".join(left))


def _parsed(line: bytes) -> Any:
    """The value of a line; its text if it is damaged."""
    try:
        return parse_json(line)
    except ValueError:
        return line.decode("utf-8", "replace")


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True)
    except OSError:
        return []


def _text_of(path: Path) -> str:
    return b"".join(_lines(path)).decode("utf-8", "replace")


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


# --- everything ------------------------------------------------------------------------------


def plan_clear_all(store: Store, deadline: Deadline) -> ClearReport:
    refs = all_refs(store.git(deadline))
    paths = [*_in_store(store), *_beside_store(store)]
    note = "archives of older tools and the quarantine of damaged files stay"
    item = ClearedItem(str(store.base), *_count(refs), bytes=sum(map(bytes_of, paths)), note=note)
    return ClearReport((item,), bytes_freed=item.bytes)


def clear_all(store: Store, deadline: Deadline) -> ClearReport:
    """Drop every checkpoint of every project."""
    trash = store.git_dir / f"trash-{os.getpid()}-all"
    with (
        locked(upkeep_lock(store), "clear", deadline),
        alone(store.store_lock(), "clear", deadline),
    ):
        plan = plan_clear_all(store, deadline)
        _refuse_if_restoring(store, (store.git_dir / "journal").glob("*.json"))
        going = sorted(_in_store(store), key=lambda path: path.name not in _FIRST)
        _move_to(trash, [*going, *_beside_store(store)])
        # The lock files are the same as before, so a process that waits for one goes on in an empty store.
        create_store(store)
    remove_tree(trash)
    return replace(plan, applied=True)


def together(reports: Iterable[ClearReport]) -> ClearReport:
    """One report of several."""
    every = list(reports)
    return ClearReport(
        tuple(item for report in every for item in report.items),
        sum(report.bytes_freed for report in every),
        sum(report.pending_bytes for report in every),
        applied=all(report.applied for report in every),
    )


def remove_store(store: Store, deadline: Deadline) -> ClearReport:
    """Remove the store with every checkpoint, and the archives of older tools; the base too, if nothing else is
    in it. A process that waits to take a snapshot makes a new store."""
    trash = store.base / f"trash-{os.getpid()}"
    with (
        locked(upkeep_lock(store), "remove", deadline),
        alone(store.store_lock(), "remove", deadline),
    ):
        plan = plan_clear_all(store, deadline)
        _refuse_if_restoring(store, (store.git_dir / "journal").glob("*.json"))
        _move_to(trash, [*_beside_store(store), *archives(store.base), store.git_dir])
    size = bytes_of(trash)
    for folder in store.base.glob("trash-*"):  # also those of a process that died
        remove_tree(folder)
    for name in (".older.lock", ".log.lock"):
        (store.base / name).unlink(missing_ok=True)
    with suppress(OSError):  # other files in it are not ours to remove
        store.base.rmdir()
    item = replace(plan.items[0], bytes=size, note="")
    return ClearReport((item,), bytes_freed=size, applied=True)


def _in_store(store: Store) -> list[Path]:
    return sorted(path for path in store.git_dir.iterdir() if path.name not in _STAYS)


def _beside_store(store: Store) -> list[Path]:
    return [path for path in (store.base / name for name in _BESIDE_STORE) if os.path.lexists(path)]


def _move_to(folder: Path, paths: Iterable[Path]) -> None:
    folder.mkdir()
    for path in paths:
        os.replace(path, folder / path.name)


# --- archives --------------------------------------------------------------------------------


def plan_clear_legacy(store: Store) -> ClearReport:
    items = tuple(
        ClearedItem(str(path), bytes=bytes_of(path), note="not imported yet" if is_due(path) else "")
        for path in archives(store.base)
    )
    return ClearReport(items, bytes_freed=sum(item.bytes for item in items))


def clear_legacy(store: Store) -> ClearReport:
    """Remove the archives of older tools."""
    plan = plan_clear_legacy(store)
    for item in plan.items:
        remove_tree(Path(item.subject))
    left = sum(bytes_of(Path(item.subject)) for item in plan.items)
    return replace(plan, bytes_freed=plan.bytes_freed - left, applied=True)


def bytes_of(path: Path) -> int:
    """The bytes of all files at or below a path. What disappears meanwhile, or cannot be read, counts as
    nothing."""
    if not os.path.isdir(path) or os.path.islink(path):
        return _size(os.fspath(path))
    return sum(_size(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
