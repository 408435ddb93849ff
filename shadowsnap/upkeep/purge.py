"""Purging: taking a path out of every checkpoint of a project, for the day a key was captured.

A checkpoint that holds the path is recorded anew without it, at the same moment and with the same facts. A process
may die at any of these steps: every checkpoint can be restored, as it was or without the path. The next call that
looks for checkpoints of the project finishes the first four steps, as the same checkpoint is always recorded anew
in the same way; running the purge again finishes the last one.

1. What is to be purged is noted. The new checkpoints are recorded, beside the old ones.
2. What leads from the old ids to the new ones is noted, with what is still to be reclaimed.
3. Pins, labels, conversations, sessions, undo and redo are led to the new ones; the stat cache is forgotten.
4. The old refs are deleted.
5. What no checkpoint holds any more is reclaimed, also from what was set aside as damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, LockTimeout, MalformedObject, NotHeld, PathRefused
from shadowsnap.files import read_json
from shadowsnap.git.maintenance import loose_file, loose_problem
from shadowsnap.git.objects import EMPTY_BLOB
from shadowsnap.git.reading import ObjectReader, missing_objects, read_many
from shadowsnap.git.refs import RefExists, create_ref, delete_refs, read_ref, read_refs, set_ref
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, Leaf, TreeReader, TreeSearch, patch_tree
from shadowsnap.model import _Record
from shadowsnap.store.checkpoints import (
    ATTACHMENTS,
    CHECKPOINTS,
    Purged,
    all_refs,
    read_purged,
    record_checkpoint,
    write_purged,
)
from shadowsnap.store.journal import Journal, read_journal, write_journal
from shadowsnap.store.layout import Store, archives
from shadowsnap.store.locks import alone, is_free
from shadowsnap.store.log import rename_ids
from shadowsnap.store.projects import Project, locked_project, read_record, touch_record
from shadowsnap.store.stat_cache import forget_contents
from shadowsnap.store.troubles import append_log
from shadowsnap.store.writes import forget_writes
from shadowsnap.upkeep.check_checkpoints import Commit, read_commit
from shadowsnap.upkeep.quarantine import remove_from_quarantine
from shadowsnap.upkeep.reclaim import reclaim_now
from shadowsnap.upkeep.size import disk_sizes

WHY = "purged"
"""The reason that a purged path is listed with in `skipped`."""

_SHOWN = 5
OnStep = Callable[[str], None]


@dataclass(frozen=True)
class PurgeResult(_Record):
    """What was purged (`applied`) or would be."""

    json_names = {"checkpoints": "checkpoint_ids"}

    workdir: str
    paths: tuple[str, ...]
    """What was asked for."""
    files: tuple[str, ...] = ()
    """Every file of it that some checkpoint held."""
    checkpoints: tuple[str, ...] = ()
    """The checkpoints that held any of it, by the ids they had, oldest first."""
    ids: dict[str, str] = field(default_factory=dict)
    """Old id -> new id. The old ones go on answering."""
    bytes: int = 0
    """What the contents take in the store that nothing else holds."""
    bytes_freed: int = 0
    """By how much the store became smaller: with the contents goes whatever else no checkpoint held."""
    contents_left: int = 0
    """How many of the contents are still in the store, because something else holds them or they could not be
    reclaimed yet; the notes say which."""
    notes: tuple[str, ...] = ()
    reclaimed: bool = False
    """Whether nothing is left on disk but what something else holds; if not, the same purge tries again."""
    error: Exception | None = None
    applied: bool = False


def path_in_history(workdir: Path, path: str | os.PathLike[str]) -> bytes:
    """A path as checkpoints hold it, whatever is at its place now."""
    given = os.fspath(path)
    if not given or "\0" in given:
        raise PathRefused(path=given, why="it is not a path")
    folder, name = os.path.split(os.path.normpath(os.path.join(workdir, given)))
    for place in (folder, os.path.realpath(folder)):  # as it is written first: a folder may have become a link
        inside = os.path.relpath(os.path.join(place, name), workdir)
        if inside == os.curdir:
            raise PathRefused(path=given, why="it is the whole project, which `clear` lets go of")
        if inside != os.pardir and not inside.startswith(os.pardir + os.sep):
            return os.fsencode(Path(inside).as_posix())
    raise PathRefused(path=given, why="it escapes the working directory")


# --- planning --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Held:
    """A checkpoint that holds some of what is purged."""

    name: str
    """The last part of its ref."""
    id: str
    commit: Commit
    found: Mapping[bytes, bool]
    """The paths that it holds, and whether each is a directory."""


@dataclass(frozen=True)
class _Plan:
    project: Project
    paths: tuple[bytes, ...]
    held: tuple[_Held, ...]
    files: frozenset[bytes]
    blobs: frozenset[str]
    """Everything that was in these files; the empty content is no content."""

    def covers(self, path: bytes) -> bool:
        return any(path == each or path.startswith(each + b"/") for each in self.paths)


def plan_purge(store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline) -> PurgeResult:
    """What `purge` would do. Nothing is changed."""
    plan = _plan(store, project, paths, deadline)
    unfinished = read_purged(store, project.id)
    blobs = plan.blobs | set(unfinished.blobs)
    elsewhere = _elsewhere(store, plan, blobs, deadline)
    size = _bytes_of(store.git(deadline), blobs - elsewhere.blobs)
    return replace(_told(plan), bytes=size, notes=(*_notes(store, plan), *elsewhere.notes))


def _bytes_of(git: Git, blobs: Iterable[str]) -> int:
    return sum(size for _, size in disk_sizes(git, blobs))


def _plan(store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline) -> _Plan:
    held: list[_Held] = []
    files: set[bytes] = set()
    blobs: set[str] = set()
    known_trees: dict[str, bytes] = {}
    with ObjectReader(store.git(deadline)) as reader:

        def read(name: str) -> bytes:
            if name not in known_trees:
                known_trees[name] = reader.read(name, b"tree")
            return known_trees[name]

        for name, commit_id in sorted(read_refs(store.git_dir, project.refs).items()):
            commit = read_commit(reader, commit_id)
            if commit is None:
                continue  # a dangling ref, which the doctor sets aside
            tree, rules = TreeReader(commit.tree, read), commit.body.get("rules") or {}
            found: dict[bytes, bool] = {}
            for path in paths:
                leaf = tree.find(path)
                if leaf is not None:
                    found[path] = leaf[0] == DIRECTORY
                    below = list(tree.files_below(path)) if found[path] else [path]
                    files.update(below)
                    blobs.update(leaf[1] for leaf in map(tree.find, below) if leaf is not None)
                elif any(_is_at(os.fsencode(each), path) for each in rules):
                    found[path] = not any(os.fsencode(each) == path for each in rules)
            if found:
                held.append(_Held(name, commit_id, commit, found))
    known = {path for each in held for path in each.found}
    unfinished = {os.fsencode(path) for path in read_purged(store, project.id).paths}
    for path in paths:
        if path not in known | unfinished:
            raise NotHeld(path=os.fsdecode(path), workdir=project.workdir)
    return _Plan(project, tuple(paths), tuple(held), frozenset(files), frozenset(blobs - {EMPTY_BLOB}))


def _is_at(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top + b"/")


def _told(plan: _Plan) -> PurgeResult:
    return PurgeResult(
        str(plan.project.workdir),
        tuple(os.fsdecode(path) for path in plan.paths),
        tuple(os.fsdecode(path) for path in sorted(plan.files)),
        tuple(each.id for each in plan.held),
    )


def _notes(store: Store, plan: _Plan) -> Iterator[str]:
    for path in plan.paths:
        if os.path.lexists(plan.project.workdir / os.fsdecode(path)):
            yield (
                f"{os.fsdecode(path)} is still on disk: the next snapshot captures it again, unless you move it "
                "away or exclude it"
            )
    if archives(store.base):
        yield "archives of older tools were not searched; `shadowsnap clear-legacy` removes them"


@dataclass(frozen=True)
class _Elsewhere:
    blobs: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def _elsewhere(store: Store, plan: _Plan, blobs: Iterable[str], deadline: Deadline) -> _Elsewhere:
    """Which of the contents something else holds: other paths of the project, or other projects."""
    wanted = set(blobs)
    git = store.git(deadline)
    refs = {ref: name for ref, name in all_refs(git).items() if ref.startswith(f"{CHECKPOINTS}/")}
    commits = {name: data for name, kind, data in read_many(git, set(refs.values())) if kind == b"commit"}
    paths: set[bytes] = set()
    others: set[str] = set()
    kept: set[str] = set()
    unreadable = 0
    with ObjectReader(git) as reader:
        search = TreeSearch(lambda name: reader.read(name, b"tree"), lambda _name, _mode, blob: blob in wanted)
        for ref, name in refs.items():
            tree = commits.get(name, b"")[5:45].decode("ascii", "replace")
            own = ref.split("/")[2] == plan.project.id
            try:
                seen = search.find(tree) if tree else []
            except (DamagedObject, MalformedObject):
                unreadable += 1
                continue
            for each in seen:
                if each.id in wanted and not (own and plan.covers(each.path)):
                    kept.add(each.id)
                    paths.update({each.path} if own else ())
                    others.update(() if own else {ref.split("/")[2]})
    notes = []
    if unreadable:
        notes.append(f"{unreadable} damaged checkpoints could not be searched: run `shadowsnap doctor`")
    if paths:
        notes.append(f"the same content is also at {_shown(map(os.fsdecode, sorted(paths)))}, and stays there")
    if others:
        where = sorted(str((read_json(store.project_file(each)) or {}).get("workdir", each)) for each in others)
        notes.append(f"checkpoints of {_shown(where)} hold the same content and keep it: purge it there too")
    return _Elsewhere(frozenset(kept), tuple(notes))


def _shown(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


# --- recording anew --------------------------------------------------------------------------


def take_out(
    store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline, on_step: OnStep
) -> PurgeResult:
    """Steps 1 to 4: from here on no checkpoint of the project holds the paths."""
    with locked_project(store, project, "purge", deadline):
        plan = _plan(store, project, paths, deadline)
        known = read_purged(store, project.id)
        pending = {*known.pending, *(os.fsdecode(path) for path in plan.paths)}
        write_purged(store, project.id, replace(known, pending=tuple(sorted(pending))))
        on_step("purge:begun")
        new = _record_anew(store, plan, deadline, on_step)
        ids = {old.id: new[old.name][1] for old in plan.held}
        _note(store, plan, ids)
        on_step("purge:noted")
        renamed = {old.name: new[old.name][0] for old in plan.held}
        gone = _lead_to_new(store, project, renamed, ids, deadline)
        on_step("purge:led")
        _lead_records(store, project, renamed, ids, deadline)
        forget_contents(store, project, plan.paths)
        forget_writes(store, project, plan.paths)
        on_step("purge:records")
        delete_refs(store.git(deadline), gone)
        on_step("purge:dropped")
        left = {*read_purged(store, project.id).pending} - {os.fsdecode(path) for path in plan.paths}
        write_purged(store, project.id, replace(read_purged(store, project.id), pending=tuple(sorted(left))))
    if ids:
        what = f"{_shown(os.fsdecode(path) for path in plan.paths)} was purged from {len(ids)} checkpoints"
        append_log(store.base, kind="purged", workdir=str(project.workdir), what=what, ids=ids)
    return replace(_told(plan), ids=ids, notes=tuple(_notes(store, plan)))


def finish_interrupted(store: Store, project: Project, deadline: Deadline, on_step: OnStep) -> None:
    """Steps 1 to 4 of a purge that died; nothing if one is under way."""
    pending = read_purged(store, project.id).pending
    if not pending or not is_free(store.project_lock(project.id)):
        return
    held = [os.fsencode(path) for path in pending]
    with suppress(NotHeld):  # nothing was taken out yet, and the checkpoints that held it were dropped since
        take_out(store, project, held, deadline, on_step)
        return
    with locked_project(store, project, "purge", deadline):
        write_purged(store, project.id, replace(read_purged(store, project.id), pending=()))


def _record_anew(store: Store, plan: _Plan, deadline: Deadline, on_step: OnStep) -> dict[str, tuple[str, str]]:
    """Name of an old ref -> name and id of the checkpoint that takes its place."""
    new: dict[str, tuple[str, str]] = {}
    with ObjectReader(store.git(deadline)) as reader:
        for old in plan.held:
            deadline.check("recording checkpoints anew")
            name, commit_id = _record_without(store, plan.project, old, reader)
            new[old.name] = (name, commit_id)
            on_step("purge:recorded-one")
    return new


def _record_without(store: Store, project: Project, old: _Held, reader: ObjectReader) -> tuple[str, str]:
    def read(name: str) -> bytes:
        return reader.read(name, b"tree")

    def write(data: bytes) -> str:
        return store.objects.write(b"tree", data)

    there = TreeReader(old.commit.tree, read)
    removed: dict[bytes, Leaf | None] = {path: None for path in old.found if there.find(path) is not None}
    tree = patch_tree(old.commit.tree, removed, read, write) if removed else old.commit.tree
    left = TreeReader(tree, read)
    body = _body_without(old.commit.body, old.found, lambda path: left.find(path) is not None)
    of = Project(project.id, Path(str(body.pop("workdir", project.workdir))))
    body.pop("ms", None)
    moment = int(old.name.partition("-")[0])
    try:
        ref = record_checkpoint(store, of, tree, old.commit.reason, body, moment).ref
    except RefExists as known:  # by a purge that was interrupted
        ref = str(known)
    return ref.rpartition("/")[2], str(read_ref(store.git_dir, ref))


def _body_without(
    body: Mapping[str, Any], found: Mapping[bytes, bool], is_left: Callable[[bytes], bool]
) -> dict[str, Any]:
    """The facts of a checkpoint, which now say that the paths were purged."""

    def is_purged(path: str) -> bool:
        return any(_is_at(os.fsencode(path.rstrip("/")), each) for each in found)

    told = dict(body)
    skipped = [row for row in body.get("skipped", ()) if not is_purged(str(row[0]))]
    skipped += [[os.fsdecode(path) + ("/" if is_folder else ""), WHY] for path, is_folder in found.items()]
    told["skipped"] = sorted(skipped)
    told[WHY] = sorted({*body.get(WHY, ()), *(os.fsdecode(path) for path in found)})
    told["rules"] = {path: text for path, text in (body.get("rules") or {}).items() if not is_purged(path)}
    modes = body.get("modes")
    if isinstance(modes, dict) and modes.get("other"):
        other = {path: bits for path, bits in modes["other"].items() if not is_purged(path)}
        told["modes"] = {**{name: bits for name, bits in modes.items() if name != "other"}, "other": other}
    bare = {path for path in body.get("empty_dirs", ()) if not is_purged(path)}
    if body.get("scope", "tree") == "tree":  # a directory that held nothing else is still one
        bare |= {os.fsdecode(up) for path in found for up in _above(path) if not is_left(up)}
    told["empty_dirs"] = sorted(bare)
    return told


def _above(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


# --- leading everything to the new checkpoints -----------------------------------------------


def _note(store: Store, plan: _Plan, ids: Mapping[str, str]) -> None:
    known = read_purged(store, plan.project.id)
    there = {*read_refs(store.git_dir, plan.project.refs).values()}
    led = {**{old: ids.get(new, new) for old, new in known.ids.items()}, **ids}
    paths = {*known.paths, *(os.fsdecode(path) for path in plan.paths)}
    blobs = {*known.blobs, *plan.blobs}
    left = {old: new for old, new in led.items() if new in there}  # others were dropped since
    found = Purged(left, tuple(sorted(paths)), tuple(sorted(blobs)), known.pending)
    write_purged(store, plan.project.id, found)


def _lead_to_new(
    store: Store, project: Project, renamed: Mapping[str, str], ids: Mapping[str, str], deadline: Deadline
) -> list[str]:
    """Let pins, labels and conversations lead to the new checkpoints; the refs that can go then."""
    gone = [f"{project.refs}/{old}" for old in renamed]
    for folder in (project.pins, f"{ATTACHMENTS}/{project.id}"):
        for name, value in read_refs(store.git_dir, folder).items():
            if name in renamed:
                _create(store, f"{folder}/{renamed[name]}", ids.get(value, value))
                gone.append(f"{folder}/{name}")
    for key, value in read_refs(store.git_dir, project.labels).items():
        if value in ids:
            set_ref(store.git(deadline), f"{project.labels}/{key}", ids[value])
    return gone


def _create(store: Store, ref: str, value: str) -> None:
    try:
        create_ref(store.git_dir, ref, value, fsync=store.fsync)
    except RefExists:
        pass  # by a purge that was interrupted


def _lead_records(
    store: Store, project: Project, renamed: Mapping[str, str], ids: Mapping[str, str], deadline: Deadline
) -> None:
    """Journal, project record and sessions name checkpoints by their ids."""
    journal = read_journal(store, project)
    led = _led_journal(journal, ids)
    if led != journal:
        write_journal(store, project, led)
    record = read_record(store, project)
    facts = {name: _led(record[name], ids) for name in ("newest",) if name in record}
    if any(value != record[name] for name, value in facts.items()):
        touch_record(store, project, **facts)
    attached = f"{ATTACHMENTS}/{project.id}"
    refs = {f"{attached}/{old}": f"{attached}/{new}" for old, new in renamed.items()}
    if ids:
        rename_ids(store, project.id, {**ids, **refs})


def _led_journal(journal: Journal, ids: Mapping[str, str]) -> Journal:
    begun = journal.open
    if begun is not None:
        before, target = (ids.get(name, name) for name in (begun.before, begun.target))
        begun = replace(begun, before=before, target=target)
    stages = tuple(replace(stage, before=ids.get(stage.before, stage.before)) for stage in journal.stages)
    return replace(journal, open=begun, stages=stages)


def _led(value: Any, ids: Mapping[str, str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_led(each, ids) for each in value]
    return ids.get(value, value) if isinstance(value, str) else value


# --- reclaiming ------------------------------------------------------------------------------


def finish(
    store: Store,
    project: Project,
    result: PurgeResult,
    deadline: Deadline,
    on_wait: Callable[[], None],
    on_step: OnStep,
) -> PurgeResult:
    """Step 5: reclaim the contents, and look whether they are gone."""
    purged = read_purged(store, project.id)
    paths = tuple(os.fsencode(path) for path in purged.paths)
    plan = _Plan(project, paths, (), frozenset(), frozenset(purged.blobs))
    git = store.git(deadline)
    elsewhere = _elsewhere(store, plan, purged.blobs, deadline)
    going = plan.blobs - elsewhere.blobs
    size = _bytes_of(git, going)
    doubtful = remove_from_quarantine(store.base, going)
    reclaimed = reclaim_now(store, deadline, on_wait)
    _remove_damaged(store, going, deadline)
    on_step("purge:reclaimed")
    left = plan.blobs - set(missing_objects(git, plan.blobs))
    done = reclaimed.complete and left <= elsewhere.blobs
    if done:
        with suppress(LockTimeout), locked_project(store, project, "purge", deadline):
            now = read_purged(store, project.id)
            write_purged(store, project.id, Purged(now.ids, pending=now.pending))
    notes = [*result.notes, *elsewhere.notes]
    notes += [f"{each} was set aside as damaged and may hold it: remove it by hand" for each in doubtful]
    if not reclaimed.complete:
        notes.append(f"the bytes are still on disk ({reclaimed.why}): run the same purge again")
    elif left - elsewhere.blobs:
        notes.append("it was captured again meanwhile: purge it again when nothing writes it any more")
    return replace(
        result,
        bytes=size,
        bytes_freed=reclaimed.bytes_freed,
        contents_left=len(left),
        notes=tuple(notes),
        reclaimed=done,
        error=reclaimed.error,
        applied=True,
    )


def _remove_damaged(store: Store, blobs: Iterable[str], deadline: Deadline) -> None:
    """A damaged loose object cannot be packed, so repacking leaves it where it is."""
    files = {name: loose_file(store.git_dir, name) for name in blobs}
    if any(path.exists() for path in files.values()):
        with alone(store.store_lock(), "purge", deadline):  # a snapshot may be writing it anew
            for name, path in files.items():
                if path.exists() and loose_problem(path, name) is not None:
                    path.unlink()
