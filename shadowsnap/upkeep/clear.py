"""Forgetting a project: everything that is kept about it beside its checkpoints."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shadowsnap import lightjson as json
from shadowsnap.deadline import Deadline
from shadowsnap.digests import sha256
from shadowsnap.errors import ClearRefused, DamagedObject, LockTimeout
from shadowsnap.files import read_json, remove_tree, write_bytes
from shadowsnap.git.reading import Graph, kinds_of, reachable
from shadowsnap.git.refs import delete_refs
from shadowsnap.git.repository import Git
from shadowsnap.model import ClearedItem, ClearReport
from shadowsnap.records import Any
from shadowsnap.store.checkpoints import CHECKPOINTS, FOLDER, PINS, all_refs, take_inventory
from shadowsnap.store.history import finish_migration
from shadowsnap.store.lanes import FOLDER as REMOTES
from shadowsnap.store.lanes import forget_remote
from shadowsnap.store.layout import Store, archives, create_store, is_due
from shadowsnap.store.locks import alone, locked
from shadowsnap.store.log import remove_log
from shadowsnap.store.projects import Project, known_projects, note_emptied
from shadowsnap.upkeep.quarantine import is_used, remove_from_quarantine
from shadowsnap.upkeep.reclaim import reclaim_now
from shadowsnap.upkeep.session import read_memory, upkeep_lock, upkeep_session, write_memory
from shadowsnap.upkeep.size import Holder, Usage, measure

# What hooks and `/rollback` keep beside the store. (Their modules stand above this one.)
TURNS, HOOK_LOG, LOG = "run", "hook.log.jsonl", "log.jsonl"

# A hook that takes a snapshot holds the lock of its turn file; it writes the file anew afterwards.
_PATIENCE_SECONDS = 2.0


def forget_project(store: Store, project: Project) -> None:
    """Remove record, journal and stat cache of a project without checkpoints. The caller holds
    its lock. (The lock file stays: somebody may be waiting for it.)"""
    for folder in ("indexes", "journal", FOLDER, "projects"):  # the record last: it is what is looked for first
        for path in (store.git_dir / folder).glob(f"*{project.id}*"):  # also what an interrupted write left
            path.unlink(missing_ok=True)
    remove_log(store, project.id)
    forget_remote(store, project.id, lane=True)


def forget_mentions(store: Store, project: Project, sessions: Iterable[str], deadline: Deadline) -> None:
    """Take a project out of what is kept beside the store: turn files of hooks, and logs. The sessions are
    those that its checkpoints name. The caller holds neither its lock nor the store's."""
    is_of = Mentions(project, (each.workdir for each in known_projects(store)))
    involved = {*sessions, *_sessions_logged(store.base / HOOK_LOG, is_of)}
    _forget_in_turns(store.base / TURNS, is_of, {turn_file(name) for name in (*involved, f"in {project.workdir}")})
    _forget_lines(store.base / HOOK_LOG, is_of)
    with locked(store.base / ".log.lock", "log", deadline):
        _forget_lines(store.base / LOG, is_of)


class Mentions:
    """Whether something speaks of a project: of its directory, or of what lies below it and is no other
    project's."""

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


def turn_file(session: str) -> str:
    """The name of the file that the hooks of a session share, without its ending (see `agents.turns`)."""
    if len(session) <= 100 and session.replace("-", "").replace("_", "").isalnum() and session.isascii():
        return f"s-{session}"
    return f"x-{sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


# --- hooks -----------------------------------------------------------------------------------


def _sessions_logged(log: Path, is_of: Mentions) -> Iterator[str]:
    for line in _lines(log):
        entry = _parsed(line)
        if isinstance(entry, dict) and is_of(entry) and isinstance(entry.get("session"), str):
            yield entry["session"]


def _forget_in_turns(folder: Path, is_of: Mentions, names: set[str]) -> None:
    """Remove the files of sessions that worked in the project. A session that goes on elsewhere takes a further
    snapshot there, which does no harm."""
    for path in _files(folder):
        if path.suffix == ".lock" or not (path.stem in names or is_of(read_json(path) or _text_of(path))):
            continue
        try:
            with locked(path.with_suffix(".lock"), "clear", Deadline(_PATIENCE_SECONDS)):
                path.unlink(missing_ok=True)
        except LockTimeout:
            path.unlink(missing_ok=True)
        path.with_suffix(".tools").unlink(missing_ok=True)


# --- files -----------------------------------------------------------------------------------


def _forget_lines(log: Path, is_of: Mentions) -> None:
    lines = list(_lines(log))
    left = [line for line in lines if not is_of(_parsed(line))]
    if len(left) < len(lines):
        write_bytes(log, b"".join(left))


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True)
    except OSError:
        return []


def _parsed(line: bytes) -> Any:
    """What a line says; its text if it is damaged."""
    try:
        return json.loads(line)
    except ValueError:
        return line.decode("utf-8", "replace")


def _text_of(path: Path) -> str:
    return "".join(line.decode("utf-8", "replace") for line in _lines(path))


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def _rows(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = record.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


_IN_BASE = (
    "sessions", "index.db", "index.db-wal", "index.db-shm", "index.db-journal", LOG, HOOK_LOG, TURNS,
    "turns", "shown", "log", REMOTES, ".last_prune",
)  # fmt: skip
# First what would make a store that is half gone look like one that lost its checkpoints.
_FIRST = ("projects", "refs", "packed-refs")
_STAYS = ("locks",)
_OWN, _OTHERS = "own", "others"


# --- one project -----------------------------------------------------------------------------


def plan_clear(store: Store, project: Project, deadline: Deadline) -> ClearReport:
    """What `clear` would let go of."""
    git = store.git(deadline)
    refs = all_refs(git)
    own = {ref: name for ref, name in refs.items() if _is_of(ref, project)}
    size = _usage(git, own, refs).alone(_OWN)
    item = ClearedItem(
        str(project.workdir),
        checkpoints=sum(ref.startswith(f"{CHECKPOINTS}/") for ref in own),
        pinned=sum(ref.startswith(f"{PINS}/") for ref in own),
        bytes=size,
    )
    return ClearReport((item,), pending_bytes=size)


def clear(
    store: Store, project: Project, deadline: Deadline, upkeep_deadline: Deadline, on_wait: Callable[[], None]
) -> ClearReport:
    """Let go of every checkpoint of a project, pinned or not, and of all that is known about it; then reclaim the
    space."""
    plan = plan_clear(store, project, deadline)
    _refuse_if_begun(store, [store.journal_file(project.id)])
    finish_migration(store, deadline)
    sessions = _sessions_of(store, project, deadline)
    # Before the checkpoints: a clear that dies must leave something that can be cleared again.
    forget_mentions(store, project, sessions, deadline)
    with (
        locked(store.store_lock(), "clear", deadline, shared=True),
        locked(store.project_lock(project.id), "clear", deadline),
    ):
        _refuse_if_begun(store, [store.journal_file(project.id)])
        git = store.git(deadline)
        refs = all_refs(git)
        own = [ref for ref in refs if _is_of(ref, project)]
        doubtful = _forget_set_aside(store, project, git, refs)
        note_emptied(store, project)
        delete_refs(git, own)
        forget_project(store, project)
    forget_mentions(store, project, sessions, deadline)  # what hooks wrote meanwhile
    reclaimed = reclaim_now(store, upkeep_deadline, on_wait)
    _forget_in_memory(store, project, upkeep_deadline)
    if doubtful:
        note = f"{', '.join(doubtful)} cannot be read and may hold some of it: remove it by hand"
        plan = replace(plan, items=(replace(plan.items[0], note=note),))
    left = 0 if reclaimed.complete else plan.pending_bytes
    return replace(plan, bytes_freed=reclaimed.bytes_freed, pending_bytes=left, applied=True)


def _sessions_of(store: Store, project: Project, deadline: Deadline) -> set[str]:
    listed = take_inventory(store, deadline).checkpoints.get(project.id, [])
    return {str(each.session_id) for each in listed if each.session_id is not None}


def _forget_set_aside(store: Store, project: Project, git: Git, refs: Mapping[str, str]) -> list[str]:
    """Remove what was set aside as damaged and is the project's; what may be but cannot be read is returned."""
    if not is_used(store.base):
        return []
    others = {name for ref, name in refs.items() if not _is_of(ref, project)}
    own = _reachable(git, {name for ref, name in refs.items() if _is_of(ref, project)})
    mentions = Mentions(project, (each.workdir for each in known_projects(store)))

    def is_of(path: Path) -> bool:
        inside = path.relative_to(store.base).parts
        return any(project.id in part for part in inside) or (path.suffix != ".idx" and mentions(_text(path)))

    return remove_from_quarantine(store.base, own - _reachable(git, others), is_of)


def _reachable(git: Git, tips: Iterable[str]) -> set[str]:
    """Everything that is found below some objects."""
    found: set[str] = set()
    kinds = kinds_of(git, tips)
    with Graph(git) as graph:
        graph.prefetch(kinds)
        for name, kind in kinds.items():
            with suppress(DamagedObject):
                found.update(reachable(graph, name, kind, found))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _forget_in_memory(store: Store, project: Project, deadline: Deadline) -> None:
    """Upkeep remembers projects by their ids."""
    with upkeep_session(store, deadline, lambda: None) as session:
        if session is not None:
            memory = read_memory(store)
            gone_since = {name: since for name, since in memory.gone_since.items() if name != project.id}
            devices = {name: device for name, device in memory.devices.items() if name != project.id}
            write_memory(store, replace(memory, gone_since=gone_since, devices=devices, look=None))


def _is_of(ref: str, project: Project) -> bool:
    """Checkpoints, pins, labels and attachments all have the project in the same place."""
    parts = ref.split("/")
    return len(parts) > 3 and parts[1].startswith("shadowsnap") and parts[2] == project.id


def _usage(git: Git, own: Iterable[str], refs: Mapping[str, str]) -> Usage:
    """What a project holds, and what the others do."""
    groups: dict[str, list[Holder]] = {_OWN: [], _OTHERS: []}
    for ref, tip in refs.items():
        groups[_OWN if ref in own else _OTHERS].append(Holder(ref, tip))
    return measure(git, groups)


def _refuse_if_begun(store: Store, journals: Iterable[Path]) -> None:
    """A restore that died half way needs its checkpoints to be finished or taken back."""
    for path in journals:
        begun = (read_json(path) or {}).get("open")
        if isinstance(begun, dict) and begun.get("applying"):
            workdir = (read_json(store.project_file(path.stem)) or {}).get("workdir", path.stem)
            raise ClearRefused(workdir=workdir)


# --- everything ------------------------------------------------------------------------------


def plan_clear_all(store: Store, deadline: Deadline) -> ClearReport:
    refs = all_refs(store.git(deadline))
    inside = [path for path in _inside_store(store) if path.name not in _STAYS]
    item = ClearedItem(
        str(store.base),
        checkpoints=sum(ref.startswith(f"{CHECKPOINTS}/") for ref in refs),
        pinned=sum(ref.startswith(f"{PINS}/") for ref in refs),
        bytes=sum(bytes_of(path) for path in (*inside, *_beside_store(store))),
        note="archives of older tools and what was set aside as damaged stay",
    )
    return ClearReport((item,), bytes_freed=item.bytes)


def clear_all(store: Store, deadline: Deadline) -> ClearReport:
    """Let go of every checkpoint of every project."""
    trash = store.git_dir / f"trash-{os.getpid()}-all"
    with (
        locked(upkeep_lock(store), "clear", deadline),
        alone(store.store_lock(), "clear", deadline),
    ):
        plan = plan_clear_all(store, deadline)
        _refuse_if_begun(store, (store.git_dir / "journal").glob("*.json"))
        trash.mkdir()
        going = [path for path in _inside_store(store) if path.name not in _STAYS and path != trash]
        for path in sorted(going, key=lambda path: path.name not in _FIRST):
            os.replace(path, trash / path.name)
        for path in _beside_store(store):
            os.replace(path, trash / path.name)
        # The locks are the same as before, so whoever waits for one goes on in an empty store.
        create_store(store)
    remove_tree(trash)
    return replace(plan, applied=True)


def remove_store(store: Store, deadline: Deadline) -> ClearReport:
    """Remove the store itself with every checkpoint, and the archives of older tools; the base too, if
    nothing else is in it. Whoever waits to take a snapshot meanwhile makes a new store for it."""
    trash = store.base / f"trash-{os.getpid()}"
    with (
        locked(upkeep_lock(store), "remove", deadline),
        alone(store.store_lock(), "remove", deadline),
    ):
        plan = plan_clear_all(store, deadline)
        _refuse_if_begun(store, (store.git_dir / "journal").glob("*.json"))
        trash.mkdir()
        going = [*_beside_store(store), *archives(store.base), store.git_dir]
        for path in going:
            os.replace(path, trash / path.name)
    size = bytes_of(trash)
    for folder in store.base.glob("trash-*"):  # also those of a process that died
        remove_tree(folder)
    for name in (".older.lock", ".log.lock"):
        (store.base / name).unlink(missing_ok=True)
    try:
        store.base.rmdir()
    except OSError:
        pass  # something else is in it, which is not ours to remove
    item = replace(plan.items[0], bytes=size, note="")
    return ClearReport((item,), bytes_freed=size, applied=True)


def _inside_store(store: Store) -> list[Path]:
    return sorted(store.git_dir.iterdir())


def _beside_store(store: Store) -> list[Path]:
    return [path for path in (store.base / name for name in _IN_BASE) if os.path.lexists(path)]


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
    """The bytes of all files at or below a path. What vanishes meanwhile, or cannot be seen, is nothing."""
    if not os.path.isdir(path) or os.path.islink(path):
        return _size(os.fspath(path))
    return sum(_size(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
