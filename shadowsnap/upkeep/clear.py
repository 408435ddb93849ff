"""Deleting for good: all checkpoints of a project or of all projects, and a path from every checkpoint.

There are records beside the store: the operation log, session files of hooks, logs of failures. Clearing a project
removes it from them, too, so that nothing of it is left below the base.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline, step
from shadowsnap.errors import (
    ClearRefused,
    DamagedObject,
    LockTimeout,
    MalformedObject,
    NotHeld,
    PathRefused,
    UnsafeTree,
)
from shadowsnap.files import parse_json, read_json, remove_tree, session_file, write_bytes
from shadowsnap.git.maintenance import PackIndex, loose_file, loose_problem
from shadowsnap.git.objects import EMPTY_BLOB, count_objects, object_id
from shadowsnap.git.reading import Graph, ObjectReader, kinds_of, missing_objects, reachable, read_many
from shadowsnap.git.refs import delete_refs, read_refs
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, Leaf, TreeReader, TreeSearch
from shadowsnap.results import ClearedItem, ClearReport, PurgeResult
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.checkpoints import CHECKPOINTS, PINS, all_refs, take_inventory
from shadowsnap.store.history import FORMAT_1_RECORDS, finish_migration
from shadowsnap.store.lanes import FOLDER as REMOTES
from shadowsnap.store.lanes import forget_remote
from shadowsnap.store.layout import LOGS, Store, archives, create_store, is_due
from shadowsnap.store.locks import alone, is_free, locked
from shadowsnap.store.log import append_trouble, remove_log
from shadowsnap.store.projects import (
    PURGED,
    Project,
    Purged,
    forget_writes,
    is_at_any,
    known_projects,
    locked_project,
    note_emptied,
    read_purged,
    write_purged,
)
from shadowsnap.store.stat_cache import forget_contents
from shadowsnap.upkeep.check_store import QUARANTINE, Commit, read_commit
from shadowsnap.upkeep.doctor import record_again, redirect_records, redirect_refs, shorten
from shadowsnap.upkeep.reclaim import (
    Holder,
    begin_upkeep,
    disk_sizes,
    measure,
    read_memory,
    reclaim_now,
    upkeep_lock,
    write_memory,
)

# Files of hooks beside the store, named here because this room must not import theirs.
TURNS, HOOK_LOG, LOG = "run", "hook.log.jsonl", "log.jsonl"
_BESIDE_STORE = (LOGS, *FORMAT_1_RECORDS, LOG, HOOK_LOG, TURNS, REMOTES, ".last_prune")
# Removed first: a store with projects but without refs would look like one that lost its checkpoints.
_REMOVED_FIRST = ("projects", "refs", "packed-refs")
# Processes may be waiting for the locks in it.
_KEPT_FOLDERS = ("locks",)

# A hook that takes a snapshot holds the lock of its turn file; it writes the file again afterwards.
_TURN_LOCK_SECONDS = 2.0


# --- one project -----------------------------------------------------------------------------


def plan_clear(store: Store, project: Project, deadline: Deadline) -> ClearReport:
    """The plan of `clear`."""
    git = store.git(deadline)
    groups: dict[str, list[Holder]] = {"own": [], "others": []}
    for ref, tip in all_refs(git).items():
        groups["own" if _is_of(ref, project) else "others"].append(Holder(ref, tip))
    size = measure(git, groups).alone("own")
    item = ClearedItem(str(project.workdir), *_count_refs(holder.name for holder in groups["own"]), bytes=size)
    return ClearReport((item,), pending_bytes=size)


def _is_of(ref: str, project: Project) -> bool:
    """Whether a ref is a checkpoint, pin, label or attachment of a project."""
    parts = ref.split("/")
    return len(parts) > 3 and parts[1].startswith("shadowsnap") and parts[2] == project.id


def _count_refs(refs: Iterable[str]) -> tuple[int, int]:
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
    # Before the checkpoints: if this process dies, the project can still be found and cleared again.
    forget_mentions(store, project, sessions, deadline)
    with locked_project(store, project, "clear", deadline):
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
    """Raise ClearRefused if a restore was interrupted, because finishing it needs the checkpoints."""
    for path in journals:
        begun = (read_json(path) or {}).get("open")
        if isinstance(begun, dict) and begun.get("applying"):
            workdir = (read_json(store.project_file(path.stem)) or {}).get("workdir", path.stem)
            raise ClearRefused(workdir=workdir)


def _clear_quarantine(store: Store, project: Project, git: Git, refs: Mapping[str, str]) -> list[str]:
    """Remove a project from the quarantine; returns unreadable packs, which may hold some of it."""
    if not any(store.base.glob(f"{QUARANTINE}*")):
        return []
    own = _reachable(git, {name for ref, name in refs.items() if _is_of(ref, project)})
    others = _reachable(git, {name for ref, name in refs.items() if not _is_of(ref, project)})
    mentions = Mentions(store, project)

    def is_of_project(path: Path) -> bool:
        if any(project.id in part for part in path.relative_to(store.base).parts):
            return True
        return path.suffix != ".idx" and mentions(_read_as_text(path))

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
    """Remove a project from the records beside the store: session files of hooks, and logs of failures. `sessions`
    are those that its checkpoints name. The caller holds neither its lock nor the store's."""
    mentions = Mentions(store, project)
    logged = [entry for line in _lines(store.base / HOOK_LOG) if isinstance(entry := _parsed(line), dict)]
    involved = {*sessions, *(str(each["session"]) for each in logged if each.get("session") and mentions(each))}
    turn_files = {session_file(name) for name in (*involved, f"in {project.workdir}")}
    _forget_in_turns(store.base / TURNS, mentions, turn_files)
    _forget_in_log(store.base / HOOK_LOG, mentions)
    with locked(store.base / ".log.lock", "log", deadline):
        _forget_in_log(store.base / LOG, mentions)


class Mentions:
    """Whether a value (text, or JSON) mentions a project: its id, its directory, or a path below it that
    belongs to no other project."""

    def __init__(self, store: Store, project: Project) -> None:
        self._id = project.id
        self._workdir = str(project.workdir)
        # The end of the name: `/a/project` is not `/a/project-2`.
        self._pattern = re.compile(re.escape(self._workdir) + r"(?=$|[/\\\s\"'`:;,)\]}>]|\.(?:$|\s))")
        others = (each.workdir for each in known_projects(store))
        self._below = [str(each) for each in others if project.workdir in each.parents]

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


def _forget_in_turns(folder: Path, mentions: Mentions, names: set[str]) -> None:
    """Remove the files of sessions that worked in the project. A session that goes on elsewhere takes a
    superfluous snapshot there, which does no harm."""
    for path in _files(folder):
        if path.suffix == ".lock" or not (path.stem in names or mentions(read_json(path) or _read_as_text(path))):
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


def _read_as_text(path: Path) -> str:
    return b"".join(_lines(path)).decode("utf-8", "replace")


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


# --- all projects ------------------------------------------------------------------------------


def plan_clear_all(store: Store, deadline: Deadline) -> ClearReport:
    refs = all_refs(store.git(deadline))
    paths = [*_in_store(store), *_beside_store(store)]
    note = "archives of older tools and the quarantine of damaged files stay"
    item = ClearedItem(str(store.base), *_count_refs(refs), bytes=sum(map(bytes_of, paths)), note=note)
    return ClearReport((item,), bytes_freed=item.bytes)


def clear_all(store: Store, deadline: Deadline) -> ClearReport:
    """Drop every checkpoint of every project."""
    trash = store.git_dir / f"trash-{os.getpid()}-all"
    with _whole_store_locked(store, "clear", deadline):
        plan = plan_clear_all(store, deadline)
        going = sorted(_in_store(store), key=lambda path: path.name not in _REMOVED_FIRST)
        _move_to(trash, [*going, *_beside_store(store)])
        # The lock files stay, so that a process that waits for one continues in the empty store.
        create_store(store)
    remove_tree(trash)
    return replace(plan, applied=True)


@contextmanager
def _whole_store_locked(store: Store, doing: str, deadline: Deadline) -> Iterator[None]:
    with locked(upkeep_lock(store), doing, deadline), alone(store.store_lock(), doing, deadline):
        _refuse_if_restoring(store, (store.git_dir / "journal").glob("*.json"))
        yield


def together(reports: Iterable[ClearReport]) -> ClearReport:
    """Merge reports into one."""
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
    with _whole_store_locked(store, "remove", deadline):
        plan = plan_clear_all(store, deadline)
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
    return sorted(path for path in store.git_dir.iterdir() if path.name not in _KEPT_FOLDERS)


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
    """The bytes of all files at or below a path, without those that disappear meanwhile or cannot be read."""
    if not os.path.isdir(path) or os.path.islink(path):
        return _size(os.fspath(path))
    return sum(_size(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


# --- purging a path ----------------------------------------------------------------------------
# A checkpoint that holds the path is recorded again without it, with the same time and the same facts. The process
# may die at any step: every checkpoint can be restored, as it was or without the path. The next operation that
# reads checkpoints of the project finishes the first four steps, because recording a checkpoint again always gives
# the same result. Running the same purge again finishes the last step.
#
# 1. The paths are noted. The new checkpoints are recorded, beside the old ones.
# 2. The new id of each old one is noted, and the contents that have to be reclaimed.
# 3. Pins, labels, conversations, the journal and the log are redirected to the new ones; the stat cache is
#    forgotten.
# 4. The old refs are deleted.
# 5. What no checkpoint holds any more is reclaimed, also from the quarantine.

WHY = "purged"
"""The reason of a purged path in `skipped`."""

_LOOSE_OBJECT = re.compile(r"([0-9a-f]{2})/([0-9a-f]{38})(?:\.~\d+)?$")


def path_in_history(workdir: Path, path: str | os.PathLike[str]) -> bytes:
    """A path as checkpoints hold it, whatever it is on disk now."""
    given = os.fspath(path)
    if not given or "\0" in given:
        raise PathRefused(path=given, why="it is not a path")
    folder, name = os.path.split(os.path.normpath(os.path.join(workdir, given)))
    for parent in (folder, os.path.realpath(folder)):  # unresolved first: a folder may have become a link
        inside = os.path.relpath(os.path.join(parent, name), workdir)
        if inside == os.curdir:
            raise PathRefused(path=given, why="it is the whole project; use `clear` for that")
        if inside != os.pardir and not inside.startswith(os.pardir + os.sep):
            return os.fsencode(Path(inside).as_posix())
    raise PathRefused(path=given, why="it escapes the working directory")


@dataclass(frozen=True)
class _Held:
    """A checkpoint that holds some of the purged paths."""

    name: str
    """The last part of its ref."""
    id: str
    commit: Commit
    found: Mapping[bytes, bool]
    """Those paths, and whether each is a directory."""


@dataclass(frozen=True)
class _Plan:
    project: Project
    paths: tuple[bytes, ...]
    held: tuple[_Held, ...] = ()
    files: frozenset[bytes] = frozenset()
    blobs: frozenset[str] = frozenset()
    """The contents of these files, without the empty content."""

    def result(self) -> PurgeResult:
        return PurgeResult(
            str(self.project.workdir),
            tuple(os.fsdecode(path) for path in self.paths),
            tuple(os.fsdecode(path) for path in sorted(self.files)),
            tuple(each.id for each in self.held),
        )


def plan_purge(store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline) -> PurgeResult:
    """The plan of `purge`."""
    plan = _plan(store, project, paths, deadline)
    blobs = plan.blobs | set(read_purged(store, project.id).blobs)
    elsewhere, notes = _find_elsewhere(store, plan, blobs, deadline)
    size = sum(size for _, size in disk_sizes(store.git(deadline), blobs - elsewhere))
    return replace(plan.result(), bytes=size, notes=(*_purge_notes(store, plan), *notes))


def _plan(store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline) -> _Plan:
    held: list[_Held] = []
    files: set[bytes] = set()
    blobs: set[str] = set()
    with ObjectReader(store.git(deadline)) as reader:
        read = cache(reader.tree)
        for name, commit_id in sorted(read_refs(store.git_dir, project.refs).items()):
            commit = read_commit(reader, commit_id)
            if commit is None:
                continue  # a dangling ref is for the doctor
            tree, rules = TreeReader(commit.tree, read), commit.body.get("rules") or {}
            found: dict[bytes, bool] = {}
            for path in paths:
                leaf = tree.find(path)
                if leaf is not None:
                    found[path] = leaf[0] == DIRECTORY
                    below = list(tree.files_below(path)) if found[path] else [path]
                    files.update(below)
                    blobs.update(leaf[1] for leaf in map(tree.find, below) if leaf is not None)
                elif any(is_at_any(os.fsencode(each), (path,)) for each in rules):
                    found[path] = not any(os.fsencode(each) == path for each in rules)
            if found:
                held.append(_Held(name, commit_id, commit, found))
    known = {path for each in held for path in each.found}
    known |= {os.fsencode(path) for path in read_purged(store, project.id).paths}  # of an unfinished purge
    for path in paths:
        if path not in known:
            raise NotHeld(path=os.fsdecode(path), workdir=project.workdir)
    return _Plan(project, tuple(paths), tuple(held), frozenset(files), frozenset(blobs - {EMPTY_BLOB}))


def _purge_notes(store: Store, plan: _Plan) -> Iterator[str]:
    for path in plan.paths:
        if os.path.lexists(plan.project.workdir / os.fsdecode(path)):
            yield (
                f"{os.fsdecode(path)} is still on disk: the next snapshot captures it again, unless you move it "
                "away or exclude it"
            )
    if archives(store.base):
        yield "archives of older tools were not searched; `shadowsnap clear-legacy` removes them"


def _find_elsewhere(
    store: Store, plan: _Plan, blobs: Iterable[str], deadline: Deadline
) -> tuple[set[str], list[str]]:
    """The contents that other paths of the project or other projects hold too, and notes about them."""
    wanted = set(blobs)
    git = store.git(deadline)
    refs = {ref: name for ref, name in all_refs(git).items() if ref.startswith(f"{CHECKPOINTS}/")}
    commits = {name: data for name, kind, data in read_many(git, set(refs.values())) if kind == b"commit"}
    paths: set[bytes] = set()
    projects: set[str] = set()
    elsewhere: set[str] = set()
    unreadable = 0
    with ObjectReader(git) as reader:
        search = TreeSearch(reader.tree, lambda _name, _mode, blob: blob in wanted)
        for ref, name in refs.items():
            tree = commits.get(name, b"")[5:45].decode("ascii", "replace")
            project = ref.split("/")[2]
            try:
                seen = search.find(tree) if tree else []
            except (DamagedObject, MalformedObject, UnsafeTree):
                unreadable += 1
                continue
            for each in seen:
                if each.id not in wanted:
                    continue
                if project != plan.project.id:
                    projects.add(project)
                elif is_at_any(each.path, plan.paths):
                    continue
                else:
                    paths.add(each.path)
                elsewhere.add(each.id)
    notes = []
    if unreadable:
        notes.append(f"{unreadable} damaged checkpoints could not be searched: run `shadowsnap doctor`")
    if paths:
        notes.append(f"the same content is also at {shorten(map(os.fsdecode, sorted(paths)))}, and stays there")
    if projects:
        workdirs = [(read_json(store.project_file(each)) or {}).get("workdir", each) for each in projects]
        where = shorten(sorted(map(str, workdirs)))
        notes.append(f"checkpoints of {where} hold the same content and keep it: purge it there too")
    return elsewhere, notes


# --- steps 1 to 4 ----------------------------------------------------------------------------


def take_out(
    store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline
) -> PurgeResult:
    """Steps 1 to 4: remove the paths from every checkpoint of the project. Their contents stay in the store."""
    with locked_project(store, project, "purge", deadline):
        plan = _plan(store, project, paths, deadline)
        purging = {os.fsdecode(path) for path in plan.paths}
        _note_pending(store, project, {*read_purged(store, project.id).pending, *purging})
        step("purge:begun")
        ids: dict[str, str] = {}
        renamed: dict[str, str] = {}
        with ObjectReader(store.git(deadline)) as reader:
            for old in plan.held:
                deadline.check("recording checkpoints again")
                renamed[old.name], ids[old.id] = _record_without(store, project, old, reader)
                step("purge:recorded-one")
        _note_replaced(store, plan, ids)
        step("purge:noted")
        replaced = redirect_refs(store, store.git(deadline), project, renamed, ids)
        step("purge:led")
        redirect_records(store, project, renamed, ids)
        forget_contents(store, project, plan.paths)
        forget_writes(store, project, plan.paths)
        step("purge:records")
        delete_refs(store.git(deadline), replaced)
        step("purge:dropped")
        _note_pending(store, project, {*read_purged(store, project.id).pending} - purging)
    if ids:
        what = f"{shorten(sorted(purging))} was purged from {len(ids)} checkpoints"
        append_trouble(store.base, kind="purged", workdir=str(project.workdir), what=what, ids=ids)
    return replace(plan.result(), ids=ids, notes=tuple(_purge_notes(store, plan)))


def finish_interrupted(store: Store, project: Project, deadline: Deadline) -> None:
    """Finish steps 1 to 4 of an interrupted purge. Does nothing while a purge is under way."""
    pending = read_purged(store, project.id).pending
    if not pending or not is_free(store.project_lock(project.id)):
        return
    with suppress(NotHeld):  # nothing was removed yet, and the checkpoints with the paths were dropped since
        take_out(store, project, [os.fsencode(path) for path in pending], deadline)
        return
    with locked_project(store, project, "purge", deadline):
        _note_pending(store, project, ())


def _note_pending(store: Store, project: Project, paths: Iterable[str]) -> None:
    known = read_purged(store, project.id)
    write_purged(store, project.id, replace(known, pending=tuple(sorted(paths))))


def _record_without(store: Store, project: Project, old: _Held, reader: ObjectReader) -> tuple[str, str]:
    """Record a checkpoint again without the purged paths; the last part of its new ref, and its new id."""
    before = TreeReader(old.commit.tree, reader.tree)
    removed: dict[bytes, Leaf | None] = {path: None for path in old.found if before.find(path) is not None}
    tree = reader.changed_tree(old.commit.tree, removed, store.objects)
    after = TreeReader(tree, reader.tree)
    body = _facts_without(old.commit.body, old.found, lambda path: after.find(path) is not None)
    new = record_again(store, project, old.name, tree, old.commit.reason, body)
    return new.name.rpartition("/")[2], new.value


def _facts_without(
    body: Mapping[str, Any], found: Mapping[bytes, bool], is_left: Callable[[bytes], bool]
) -> dict[str, Any]:
    """The facts of a checkpoint without the purged paths, which are listed as skipped."""

    def is_purged(path: str) -> bool:
        return is_at_any(os.fsencode(path.rstrip("/")), tuple(found))

    new = dict(body)
    skipped = [row for row in body.get("skipped", ()) if not is_purged(str(row[0]))]
    skipped += [[os.fsdecode(path) + ("/" if is_folder else ""), WHY] for path, is_folder in found.items()]
    new["skipped"] = sorted(skipped)
    new[WHY] = sorted({*body.get(WHY, ()), *(os.fsdecode(path) for path in found)})
    new["named"] = [path for path in body.get("named", ()) if not is_purged(path)]
    new["rules"] = {path: text for path, text in (body.get("rules") or {}).items() if not is_purged(path)}
    modes = body.get("modes")
    if isinstance(modes, dict) and modes.get("other"):
        other = {path: bits for path, bits in modes["other"].items() if not is_purged(path)}
        new["modes"] = {**{name: bits for name, bits in modes.items() if name != "other"}, "other": other}
    empty = {path for path in body.get("empty_dirs", ()) if not is_purged(path)}
    if body.get("scope", "tree") == "tree":  # a directory that held nothing else is empty now
        above = {parent for path in found for parent in parents(path)}
        empty |= {os.fsdecode(parent) for parent in above if not is_left(parent)}
    new["empty_dirs"] = sorted(empty)
    return new


def _note_replaced(store: Store, plan: _Plan, ids: Mapping[str, str]) -> None:
    """Step 2: note the new id of each old one, and the contents that have to be reclaimed."""
    known = read_purged(store, plan.project.id)
    present = {*read_refs(store.git_dir, plan.project.refs).values()}
    replaced = {**{old: ids.get(new, new) for old, new in known.ids.items()}, **ids}
    paths = {*known.paths, *(os.fsdecode(path) for path in plan.paths)}
    blobs = {*known.blobs, *plan.blobs}
    left = {old: new for old, new in replaced.items() if new in present}  # others were dropped since
    write_purged(store, plan.project.id, Purged(left, tuple(sorted(paths)), tuple(sorted(blobs)), known.pending))


# --- step 5 ----------------------------------------------------------------------------------


def finish(
    store: Store,
    project: Project,
    result: PurgeResult,
    deadline: Deadline,
    on_wait: Callable[[], None],
    bytes_before: int,
) -> PurgeResult:
    """Step 5: reclaim the contents, and check that they are gone. `bytes_before`: the size of the store before
    step 1."""
    purged = read_purged(store, project.id)
    plan = _Plan(project, tuple(os.fsencode(path) for path in purged.paths), blobs=frozenset(purged.blobs))
    git = store.git(deadline)
    elsewhere, notes = _find_elsewhere(store, plan, plan.blobs, deadline)
    going = plan.blobs - elsewhere
    size = sum(size for _, size in disk_sizes(git, going))
    unreadable = remove_from_quarantine(store.base, going)
    reclaimed = reclaim_now(store, deadline, on_wait)
    _remove_damaged(store, going, deadline)
    step("purge:reclaimed")
    left = plan.blobs - set(missing_objects(git, plan.blobs))
    done = reclaimed.complete and left <= elsewhere
    if done:
        with suppress(LockTimeout), locked_project(store, project, "purge", deadline):
            now = read_purged(store, project.id)
            write_purged(store, project.id, Purged(now.ids, pending=now.pending))
    notes = [*result.notes, *notes]
    notes += [f"{each} is damaged and may hold it: remove it by hand" for each in unreadable]
    if not reclaimed.complete:
        notes.append(f"the bytes are still on disk ({reclaimed.why}): run the same purge again")
    elif left - elsewhere:
        notes.append("it was captured again meanwhile: purge it again when nothing writes it any more")
    return replace(
        result,
        bytes=size,
        # Not what reclaiming freed: that includes the objects of the checkpoints that were recorded again.
        bytes_freed=max(0, bytes_before - count_objects(git).bytes),
        contents_left=len(left),
        notes=tuple(notes),
        reclaimed=done,
        error=reclaimed.error,
        applied=True,
    )


def _remove_damaged(store: Store, blobs: Iterable[str], deadline: Deadline) -> None:
    """Remove damaged loose objects. A repack leaves them, because they cannot be packed."""
    files = {name: loose_file(store.git_dir, name) for name in blobs}
    if any(path.exists() for path in files.values()):
        with alone(store.store_lock(), "purge", deadline):  # a snapshot may be writing it again
            for name, path in files.items():
                if path.exists() and loose_problem(path, name) is not None:
                    path.unlink()


def remove_from_quarantine(
    base: Path, objects: Collection[str], is_wanted: Callable[[Path], bool] = lambda _: False
) -> list[str]:
    """Remove files with one of these objects from the quarantine, and every file that `is_wanted` accepts. Returns
    the packs that cannot be read, which may hold one too."""
    unreadable: list[str] = []
    for path in [each for folder in sorted(base.glob(f"{QUARANTINE}*")) for each in _files_below(folder)]:
        if ".pack" in path.suffixes or path.name.startswith("tmp_pack_"):
            holds = _pack_holds(path, objects)
            if holds is None:
                unreadable.append(path.relative_to(base).as_posix())
            elif holds:
                for each in path.parent.glob(f"{path.stem}.*"):
                    each.unlink(missing_ok=True)
        elif is_wanted(path) or _object_in(path) in objects:
            path.unlink(missing_ok=True)
    for folder in base.glob(f"{QUARANTINE}*"):
        for top, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):  # something is left in it
                os.rmdir(top)
    return unreadable


def _files_below(folder: Path) -> Iterator[Path]:
    for top, _, names in os.walk(folder):
        yield from (Path(top, name) for name in sorted(names))


def _pack_holds(pack: Path, objects: Collection[str]) -> bool | None:
    """Whether a pack holds one of the objects; None if its index is missing or damaged."""
    try:
        index = PackIndex(pack.parents[2], pack.stem)
    except (OSError, ValueError, IndexError, MalformedObject):
        return None
    try:
        return any(name in objects for name in index)
    finally:
        index.close()


def _object_in(path: Path) -> str:
    """The id of an object file by its name; of any other file, the id that its content would have."""
    named = _LOOSE_OBJECT.search(path.as_posix())
    if named:
        return named[1] + named[2]
    try:
        data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
    except OSError:
        return ""
    return object_id(b"blob", data)
