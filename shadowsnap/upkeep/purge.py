"""Purging: removing a path from every checkpoint of a project, for example a key that was captured.

A checkpoint that holds the path is recorded again without it, with the same time and the same facts. The
process may die at any step: every checkpoint can be restored, as it was or without the path. The next call that
looks for checkpoints of the project finishes the first four steps, because a checkpoint is always recorded again
in the same way. The same purge finishes the last one.

1. What is to be purged is noted. The new checkpoints are recorded, beside the old ones.
2. Which new id replaces which old one is noted, with what is still to be reclaimed.
3. Pins, labels, conversations, the journal and the log are redirected to the new ones; the stat cache is
   forgotten.
4. The old refs are deleted.
5. What no checkpoint holds any more is reclaimed, also from the quarantine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, LockTimeout, MalformedObject, NotHeld, PathRefused, UnsafeTree
from shadowsnap.files import read_json
from shadowsnap.git.maintenance import PackIndex, loose_file, loose_problem
from shadowsnap.git.objects import EMPTY_BLOB, object_id
from shadowsnap.git.reading import ObjectReader, missing_objects, read_many
from shadowsnap.git.refs import delete_refs, read_refs
from shadowsnap.git.trees import DIRECTORY, Leaf, TreeReader, TreeSearch, patch_tree
from shadowsnap.model import _Record
from shadowsnap.store.checkpoints import ATTACHMENTS, CHECKPOINTS, all_refs
from shadowsnap.store.layout import Store, archives
from shadowsnap.store.locks import alone, is_free
from shadowsnap.store.log import append_trouble, rename_ids
from shadowsnap.store.projects import (
    Project,
    Purged,
    forget_writes,
    is_at_any,
    locked_project,
    read_purged,
    read_record,
    touch_record,
    write_purged,
)
from shadowsnap.store.stat_cache import forget_contents
from shadowsnap.upkeep.check_checkpoints import (
    Commit,
    read_commit,
    record_again,
    redirect_journal,
    redirect_refs,
    shorten,
)
from shadowsnap.upkeep.check_store import QUARANTINE
from shadowsnap.upkeep.reclaim import disk_sizes, reclaim_now

WHY = "purged"
"""The reason that a purged path has in `skipped`."""

_LOOSE_OBJECT = re.compile(r"([0-9a-f]{2})/([0-9a-f]{38})(?:\.~\d+)?$")
OnStep = Callable[[str], None]


@dataclass(frozen=True)
class PurgeResult(_Record):
    """What was purged (`applied`) or would be."""

    json_names = {"checkpoints": "checkpoint_ids"}

    workdir: str
    paths: tuple[str, ...]
    """The paths to purge."""
    files: tuple[str, ...] = ()
    """Every file at or below them that some checkpoint held."""
    checkpoints: tuple[str, ...] = ()
    """The checkpoints that held any of them, by their old ids, oldest first."""
    ids: dict[str, str] = field(default_factory=dict)
    """Old id -> new id. The old ones can still be used."""
    bytes: int = 0
    """Bytes in the store of those contents that nothing else holds."""
    bytes_freed: int = 0
    """How much smaller the store became. This includes everything else that no checkpoint held."""
    contents_left: int = 0
    """How many of the contents are still in the store, because something else holds them or they could not be
    reclaimed yet; see the notes."""
    notes: tuple[str, ...] = ()
    reclaimed: bool = False
    """Whether the contents are gone from the disk, except those that something else holds. If not, the same purge
    tries again."""
    error: Exception | None = None
    applied: bool = False


def path_in_history(workdir: Path, path: str | os.PathLike[str]) -> bytes:
    """A path as checkpoints hold it, whatever is there on disk now."""
    given = os.fspath(path)
    if not given or "\0" in given:
        raise PathRefused(path=given, why="it is not a path")
    folder, name = os.path.split(os.path.normpath(os.path.join(workdir, given)))
    for parent in (folder, os.path.realpath(folder)):  # as it is written first: a folder may have become a link
        inside = os.path.relpath(os.path.join(parent, name), workdir)
        if inside == os.curdir:
            raise PathRefused(path=given, why="it is the whole project; use `clear` for that")
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
    """What `purge` would do. Changes nothing."""
    plan = _plan(store, project, paths, deadline)
    blobs = plan.blobs | set(read_purged(store, project.id).blobs)
    elsewhere, notes = _find_elsewhere(store, plan, blobs, deadline)
    size = sum(size for _, size in disk_sizes(store.git(deadline), blobs - elsewhere))
    return replace(plan.result(), bytes=size, notes=(*_notes(store, plan), *notes))


def _plan(store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline) -> _Plan:
    held: list[_Held] = []
    files: set[bytes] = set()
    blobs: set[str] = set()
    with ObjectReader(store.git(deadline)) as reader:

        @cache
        def read(name: str) -> bytes:
            return reader.read(name, b"tree")

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


def _notes(store: Store, plan: _Plan) -> Iterator[str]:
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
    """Those of the contents that other paths of the project or other projects hold, and notes about that."""
    wanted = set(blobs)
    git = store.git(deadline)
    refs = {ref: name for ref, name in all_refs(git).items() if ref.startswith(f"{CHECKPOINTS}/")}
    commits = {name: data for name, kind, data in read_many(git, set(refs.values())) if kind == b"commit"}
    paths: set[bytes] = set()
    projects: set[str] = set()
    elsewhere: set[str] = set()
    unreadable = 0
    with ObjectReader(git) as reader:
        search = TreeSearch(lambda name: reader.read(name, b"tree"), lambda _name, _mode, blob: blob in wanted)
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
    store: Store, project: Project, paths: Sequence[bytes], deadline: Deadline, on_step: OnStep
) -> PurgeResult:
    """Remove the paths from every checkpoint of the project. Their contents are still in the store after that."""
    with locked_project(store, project, "purge", deadline):
        plan = _plan(store, project, paths, deadline)
        purging = {os.fsdecode(path) for path in plan.paths}
        _note_pending(store, project, {*read_purged(store, project.id).pending, *purging})
        on_step("purge:begun")
        ids: dict[str, str] = {}
        renamed: dict[str, str] = {}
        with ObjectReader(store.git(deadline)) as reader:
            for old in plan.held:
                deadline.check("recording checkpoints again")
                renamed[old.name], ids[old.id] = _record_without(store, project, old, reader)
                on_step("purge:recorded-one")
        _note(store, plan, ids)
        on_step("purge:noted")
        replaced = redirect_refs(store, store.git(deadline), project, renamed, ids)
        on_step("purge:led")
        _redirect_records(store, project, renamed, ids)
        forget_contents(store, project, plan.paths)
        forget_writes(store, project, plan.paths)
        on_step("purge:records")
        delete_refs(store.git(deadline), replaced)
        on_step("purge:dropped")
        _note_pending(store, project, {*read_purged(store, project.id).pending} - purging)
    if ids:
        what = f"{shorten(sorted(purging))} was purged from {len(ids)} checkpoints"
        append_trouble(store.base, kind="purged", workdir=str(project.workdir), what=what, ids=ids)
    return replace(plan.result(), ids=ids, notes=tuple(_notes(store, plan)))


def finish_interrupted(store: Store, project: Project, deadline: Deadline, on_step: OnStep) -> None:
    """Finish steps 1 to 4 of a purge that died. Does nothing while a purge is under way."""
    pending = read_purged(store, project.id).pending
    if not pending or not is_free(store.project_lock(project.id)):
        return
    with suppress(NotHeld):  # nothing was taken out yet, and the checkpoints that held it were dropped since
        take_out(store, project, [os.fsencode(path) for path in pending], deadline, on_step)
        return
    with locked_project(store, project, "purge", deadline):
        _note_pending(store, project, ())


def _note_pending(store: Store, project: Project, paths: Iterable[str]) -> None:
    known = read_purged(store, project.id)
    write_purged(store, project.id, replace(known, pending=tuple(sorted(paths))))


def _record_without(store: Store, project: Project, old: _Held, reader: ObjectReader) -> tuple[str, str]:
    """Record a checkpoint again without what is purged; the last part of its new ref, and its new id."""

    def read(name: str) -> bytes:
        return reader.read(name, b"tree")

    def write(data: bytes) -> str:
        return store.objects.write(b"tree", data)

    before = TreeReader(old.commit.tree, read)
    removed: dict[bytes, Leaf | None] = {path: None for path in old.found if before.find(path) is not None}
    tree = patch_tree(old.commit.tree, removed, read, write) if removed else old.commit.tree
    after = TreeReader(tree, read)
    body = _body_without(old.commit.body, old.found, lambda path: after.find(path) is not None)
    new = record_again(store, project, old.name, tree, old.commit.reason, body)
    return new.name.rpartition("/")[2], new.value


def _body_without(
    body: Mapping[str, Any], found: Mapping[bytes, bool], is_left: Callable[[bytes], bool]
) -> dict[str, Any]:
    """The facts of a checkpoint, with the paths as purged."""

    def is_purged(path: str) -> bool:
        return is_at_any(os.fsencode(path.rstrip("/")), tuple(found))

    new = dict(body)
    skipped = [row for row in body.get("skipped", ()) if not is_purged(str(row[0]))]
    skipped += [[os.fsdecode(path) + ("/" if is_folder else ""), WHY] for path, is_folder in found.items()]
    new["skipped"] = sorted(skipped)
    new[WHY] = sorted({*body.get(WHY, ()), *(os.fsdecode(path) for path in found)})
    new["rules"] = {path: text for path, text in (body.get("rules") or {}).items() if not is_purged(path)}
    modes = body.get("modes")
    if isinstance(modes, dict) and modes.get("other"):
        other = {path: bits for path, bits in modes["other"].items() if not is_purged(path)}
        new["modes"] = {**{name: bits for name, bits in modes.items() if name != "other"}, "other": other}
    empty = {path for path in body.get("empty_dirs", ()) if not is_purged(path)}
    if body.get("scope", "tree") == "tree":  # a directory that held nothing else is empty now
        parents = {parent for path in found for parent in _parents(path)}
        empty |= {os.fsdecode(parent) for parent in parents if not is_left(parent)}
    new["empty_dirs"] = sorted(empty)
    return new


def _parents(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _note(store: Store, plan: _Plan, ids: Mapping[str, str]) -> None:
    """Note which new id replaces which old one, and what is still to be reclaimed."""
    known = read_purged(store, plan.project.id)
    present = {*read_refs(store.git_dir, plan.project.refs).values()}
    replaced = {**{old: ids.get(new, new) for old, new in known.ids.items()}, **ids}
    paths = {*known.paths, *(os.fsdecode(path) for path in plan.paths)}
    blobs = {*known.blobs, *plan.blobs}
    left = {old: new for old, new in replaced.items() if new in present}  # others were dropped since
    write_purged(store, plan.project.id, Purged(left, tuple(sorted(paths)), tuple(sorted(blobs)), known.pending))


def _redirect_records(store: Store, project: Project, renamed: Mapping[str, str], ids: Mapping[str, str]) -> None:
    """Let journal, project record and log name the new checkpoints."""
    redirect_journal(store, project, ids)
    newest = read_record(store, project).get("newest")
    if isinstance(newest, str) and newest in ids:
        touch_record(store, project, newest=ids[newest])
    attached = f"{ATTACHMENTS}/{project.id}"
    refs = {f"{attached}/{old}": f"{attached}/{new}" for old, new in renamed.items()}
    if ids:
        rename_ids(store, project.id, {**ids, **refs})


# --- step 5 ----------------------------------------------------------------------------------


def finish(
    store: Store,
    project: Project,
    result: PurgeResult,
    deadline: Deadline,
    on_wait: Callable[[], None],
    on_step: OnStep,
) -> PurgeResult:
    """Reclaim the contents, and check that they are gone."""
    purged = read_purged(store, project.id)
    plan = _Plan(project, tuple(os.fsencode(path) for path in purged.paths), blobs=frozenset(purged.blobs))
    git = store.git(deadline)
    elsewhere, notes = _find_elsewhere(store, plan, plan.blobs, deadline)
    going = plan.blobs - elsewhere
    size = sum(size for _, size in disk_sizes(git, going))
    unreadable = remove_from_quarantine(store.base, going)
    reclaimed = reclaim_now(store, deadline, on_wait)
    _remove_damaged(store, going, deadline)
    on_step("purge:reclaimed")
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
        bytes_freed=reclaimed.bytes_freed,
        contents_left=len(left),
        notes=tuple(notes),
        reclaimed=done,
        error=reclaimed.error,
        applied=True,
    )


def _remove_damaged(store: Store, blobs: Iterable[str], deadline: Deadline) -> None:
    """Remove damaged loose objects. They cannot be packed, so a repack leaves them where they are."""
    files = {name: loose_file(store.git_dir, name) for name in blobs}
    if any(path.exists() for path in files.values()):
        with alone(store.store_lock(), "purge", deadline):  # a snapshot may be writing it again
            for name, path in files.items():
                if path.exists() and loose_problem(path, name) is not None:
                    path.unlink()


def remove_from_quarantine(
    base: Path, objects: Collection[str], is_wanted: Callable[[Path], bool] = lambda _: False
) -> list[str]:
    """Remove what holds one of these objects from the quarantine, and every file that `is_wanted` accepts. Returns
    the packs that cannot be read: they may hold one too."""
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
