"""Planning a restore: what to write, delete and leave alone to get from the files as they are now to a
checkpoint, and what is in the way. Planning changes nothing.

A file is deleted only if the checkpoint knew that it did not exist. What the checkpoint could not know of,
because it was ignored, too large, secret or unreadable at the time, stays and is reported as kept.

A plan can also be kept for a person to confirm.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from shadowsnap.errors import DamagedObject, NoSuchPlan, UnsafeTree
from shadowsnap.files import make_folder, read_json, write_json
from shadowsnap.git.reading import ObjectReader, problem_of_link
from shadowsnap.git.trees import DIRECTORY, LINK, Leaf, TreeReader, is_directory
from shadowsnap.model import RestoreResult
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.states import (
    Difference,
    Selection,
    State,
    ignored_by_checkpoint,
    mode_differences,
    open_tree,
    tree_differences,
)
from shadowsnap.snapshot.worktree import Worktree, folders_above, parents
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

_NOT_CHOSEN = "it is in the way, and not among the chosen paths"


@dataclass
class Plan:
    """Everything that a restore does, by path."""

    write: dict[bytes, tuple[Leaf, int]] = field(default_factory=dict)
    """Files to write: git mode and object id, permission bits."""
    delete: set[bytes] = field(default_factory=set)
    chmod: dict[bytes, int] = field(default_factory=dict)
    """Files that differ in their permission bits only."""
    mkdir: dict[bytes, int] = field(default_factory=dict)
    """Missing directories, with their permission bits."""
    rmdir: set[bytes] = field(default_factory=set)
    """Directories to remove: they are empty once the deletions are done."""
    chmod_directories: dict[bytes, int] = field(default_factory=dict)
    keep_directories: set[bytes] = field(default_factory=set)
    """Directories that stay even if the deletions empty them."""
    kept: dict[bytes, str] = field(default_factory=dict)
    conflicts: dict[bytes, str] = field(default_factory=dict)
    unsaved: set[bytes] = field(default_factory=set)
    """Paths that the checkpoint before the restore must include although a capture leaves them out: they are in
    the way, or they are about to appear."""
    unsaved_directories: set[bytes] = field(default_factory=set)
    """Directories in the way that hold no file."""
    unverified: dict[bytes, tuple[Leaf, int]] = field(default_factory=dict)
    """What is in directories that cannot be read until their permission bits are changed. It must then prove to
    be this already, or the restore is rolled back."""
    appearing: list[bytes] = field(default_factory=list)
    """Files that are written where nothing exists."""
    hidden_directories: set[bytes] = field(default_factory=set)
    """Directories that are made where nothing exists, with a slash, and that a capture does not see or cannot look
    into: an undo must know of them."""

    @property
    def changed_files(self) -> set[bytes]:
        return {*self.write, *self.delete, *self.chmod}

    @property
    def changed_paths(self) -> set[bytes]:
        """The files and directories that do not stay as they are."""
        return self.changed_files | {*self.mkdir, *self.rmdir, *self.chmod_directories}

    @property
    def empty(self) -> bool:
        return not self.changed_paths


def plan_restore(capture: Capture, target: State, chosen: Selection) -> Plan:
    """Plan how to get from the captured files to the target, for everything or for the chosen paths."""
    with ObjectReader(capture.space.git) as reader:
        plan = _Planner(capture, target, chosen, open_tree(reader, target.tree)).plan()
        _check_links(plan, reader)
    return plan


def _check_links(plan: Plan, reader: ObjectReader) -> None:
    """Raise `UnsafeTree` for a link that cannot be made."""
    for path, ((mode, name), _) in plan.write.items():
        if mode == LINK:
            with suppress(DamagedObject):  # that is found, and perhaps repaired, when it is written
                if (why := problem_of_link(reader, name)) is not None:
                    raise UnsafeTree(name=os.fsdecode(path), why=why)


class _Planner:
    def __init__(self, capture: Capture, target: State, chosen: Selection, wanted: TreeReader) -> None:
        self._capture = capture
        self._space = capture.space
        self._worktree = capture.space.worktree
        self._current = State.of_capture(capture)
        self._chosen = chosen
        self._wanted = wanted
        """The tree of the target."""
        self._target = target if target.complete else self._completed(target)
        self._plan = Plan()

    def plan(self) -> Plan:
        plan, current, target = self._plan, self._current, self._target
        differing = [
            item
            for item in tree_differences(self._space.git, current.tree, target.tree, self._wanted)
            if item.path in self._chosen
        ]
        if target.scope == "paths":
            differing = _about_named_paths(differing, target)
        for item in differing:
            if item.new is not None:
                plan.write[item.path] = (item.new, target.bits(item.path, item.new[0]))
        self._plan_deletions([item.path for item in differing if item.new is None])
        self._plan_directories()
        self._plan_permission_bits([item.path for item in differing])
        new_directories = self._find_obstacles([item.path for item in differing if item.old is None])
        self._find_twins()
        self._note_hidden(new_directories)
        self._note_kept()
        return plan

    def _completed(self, target: State) -> State:
        """A checkpoint of another tool knows files only: take permission bits and empty directories from now."""
        other = {}
        for path, bits in self._current.modes.other.items():
            leaf = self._wanted.find(path)
            if leaf is not None:
                other[path] = _as_executable(leaf[0], bits)
        bare = {
            path for path in self._current.bare if self._wanted.find(path) is None and not self._file_above(path)
        }
        return replace(target, modes=replace(self._current.modes, other=other), bare=frozenset(bare))

    def _file_above(self, path: bytes) -> bool:
        found = (self._wanted.find(parent) for parent in parents(path))
        return any(leaf is not None and leaf[0] != DIRECTORY for leaf in found)

    # --- deletions -------------------------------------------------------------------------------

    def _plan_deletions(self, gone: list[bytes]) -> None:
        """Delete what the checkpoint knew not to exist; keep what it could not have known of."""
        plan, target = self._plan, self._target
        unknown: list[bytes] = []
        for path in gone:
            if path in target.absent or self._is_replaced(path):
                plan.delete.add(path)
            elif (why := target.left_out(path)) is not None:
                plan.kept[path] = f"{why} at the checkpoint"
            else:
                unknown.append(path)
        # `_plan_directories` asks about these directories later. If git runs at all, it can answer for both now.
        folders = self._current.bare - target.bare if unknown else frozenset()
        ignored = self._ignored_then([*unknown, *folders], folders) - folders
        plan.delete.update(path for path in unknown if path not in ignored)
        plan.kept.update((path, "ignored at the checkpoint") for path in ignored)

    def _is_replaced(self, path: bytes) -> bool:
        """Whether the target has a file in place of a directory above this path, or a directory in place of
        the path itself."""
        above = any(parent in self._plan.write for parent in parents(path))
        return above or path in self._target.bare or self._wanted.find(path) is not None

    def _ignored_then(self, paths: Sequence[bytes], folders: Collection[bytes] = ()) -> set[bytes]:
        return ignored_by_checkpoint(self._space, self._current, self._target, paths, folders)

    # --- directories and permission bits -----------------------------------------------------------

    def _plan_directories(self) -> None:
        plan, current, target = self._plan, self._current, self._target
        needed = folders_above(plan.write) | {path for path in target.bare if path in self._chosen}
        needed |= folders_above(needed)
        there = self._capture.directories
        plan.mkdir = {path: target.bits(path, DIRECTORY) for path in needed if path not in there}

        emptied = folders_above(plan.delete)
        chosen_bare = {path for path in current.bare if path in self._chosen}
        existed = target.bare | folders_above(path.rstrip(b"/") for path in (*target.bare, *target.skipped))
        plan.keep_directories = {
            path
            for path in emptied | current.bare | folders_above(chosen_bare)
            if path in existed or is_directory(self._wanted.find(path))
        }
        unknown = chosen_bare - plan.keep_directories
        in_the_way = {
            path for path in emptied | unknown if any(up in plan.write for up in (path, *parents(path)))
        }
        going, absent = in_the_way & unknown, set[bytes]()
        if target.scope == "paths":
            stay = (path for path in emptied - in_the_way if path + b"/" not in target.absent)
            plan.keep_directories.update(stay)
        else:
            absent = {path for path in unknown if path + b"/" in target.absent}
            doubtful = [path for path in unknown - in_the_way - absent if not target.left_out(path + b"/")]
            going |= absent | set(doubtful) - self._ignored_then(doubtful, doubtful)
        plan.rmdir = _empty_after(self._worktree, going, plan.delete, absent)

    def _plan_permission_bits(self, changed: list[bytes]) -> None:
        for item in mode_differences(self._space.git, self._current, self._target, changed):
            if item.path in self._chosen and item.new is not None:
                changes = self._plan.chmod_directories if is_directory(item.new) else self._plan.chmod
                changes[item.path] = self._target.bits(item.path, item.new[0])

    # --- obstacles -------------------------------------------------------------------------------

    def _find_obstacles(self, appearing: list[bytes]) -> list[bytes]:
        """Find what is on disk, but not captured, where the target has something else: it must be saved before
        it goes. Returns the directories (with a slash) that are made where nothing exists."""
        plan, new_directories = self._plan, []
        for path in [*appearing, *plan.mkdir]:
            try:
                found = self._obstacle(path)
            except PermissionError:
                self._plan_unreadable(path)
                continue
            if found is None:
                if path in plan.mkdir:
                    new_directories.append(path + b"/")
                else:
                    plan.appearing.append(path)
                continue
            obstacle, is_directory = found
            if is_directory and path in plan.mkdir:
                plan.unsaved_directories.add(path)  # it exists and is ignored: its permission bits must be saved
            elif obstacle not in self._chosen:
                plan.conflicts[obstacle] = _NOT_CHOSEN
            elif is_directory:
                self._save_directory(obstacle)
            elif self._capture.known(obstacle) is None:
                plan.unsaved.add(obstacle)
        return new_directories

    def _obstacle(self, path: bytes) -> tuple[bytes, bool] | None:
        """What is at the path, or the first thing on the way to it that is not a directory; and whether it is
        a directory."""
        for each in [*reversed([*parents(path)]), path]:
            seen = self._worktree.lstat(each)
            if seen is None:
                return None
            is_directory = stat.S_ISDIR(seen.st_mode)
            if each == path or not is_directory:
                return each, is_directory
        return None

    def _plan_unreadable(self, path: bytes) -> None:
        """A directory above the path cannot be entered. If the restore opens it, what it holds is checked
        then; otherwise what it holds cannot be saved."""
        plan = self._plan
        closed = next((up for up in parents(path) if up in plan.chmod_directories), None)
        if closed is None or plan.chmod_directories[closed] & 0o500 != 0o500:
            folder = path.rpartition(b"/")[0] + b"/"
            plan.conflicts[folder] = "it cannot be read, so its content cannot be saved first"
        elif path in plan.write:
            plan.unverified[path] = plan.write.pop(path)
        else:
            plan.unverified[path] = (DIRECTORY, ""), plan.mkdir.pop(path)

    def _save_directory(self, folder: bytes) -> None:
        """A directory makes way for a file: everything in it must be captured."""
        plan = self._plan
        for path, item in self._worktree.everything_below(folder):
            if item is None:
                plan.conflicts[path] = "it cannot be read, so it cannot be saved first"
            elif item.name.lower() == b".git":
                plan.conflicts[path] = "a repository would be lost with its directory"
            elif item.is_special:
                plan.conflicts[path] = "it is neither a file nor a link, so it cannot be saved"
            elif path not in self._chosen:
                plan.conflicts[path] = _NOT_CHOSEN
            elif self._capture.known(path) is None:
                plan.unsaved.add(path)
        plan.unsaved_directories |= _without_files(self._worktree, folder) - self._capture.bare

    def _find_twins(self) -> None:
        """Find entries of the target that this file system takes for one and the same: it cannot hold both. Where
        nothing is there yet, that shows when they are made."""
        plan, worktree = self._plan, self._worktree
        names: dict[bytes, set[bytes]] = {}
        """Directory -> names in it."""
        for path in (*plan.write, *plan.mkdir, *folders_above((*plan.write, *plan.delete))):
            folder, _, name = path.rpartition(b"/")
            names.setdefault(folder, set()).add(name)
        for folder in names:
            for pair in self._wanted.alike(folder, names[folder]):
                path, twin = (folder + b"/" + name if folder else name for name in pair)
                here, there = (worktree.lstat(each) if worktree.reaches(each) else None for each in (path, twin))
                if here is None or there is None or not os.path.samestat(here, there):
                    continue
                if here.st_nlink == 1 or stat.S_ISDIR(here.st_mode):  # else it may be a file with two names
                    plan.conflicts[path] = same_name(twin)

    def _note_hidden(self, new_directories: list[bytes]) -> None:
        """Note what appears out of sight of a capture: an undo must know that it did not exist before. It is
        ignored by the rules of now or by those of the checkpoint, or its directory cannot be listed now."""
        plan, rules = self._plan, self._space.rules
        coming = [*plan.appearing, *new_directories]
        ignored = rules.remembered("ignored now", coming, rules.ignored) | self._ignored_then(coming)
        unlisted = {path for path in plan.appearing if self._current.left_out(path) is not None}
        plan.unsaved |= (ignored.difference(new_directories) | unlisted) - self._capture.absent
        unseen = {path for path in new_directories if self._current.left_out(path) is not None}
        closed = {path for path in new_directories if plan.mkdir[path[:-1]] & 0o500 != 0o500}
        plan.hidden_directories = ignored.intersection(new_directories) | unseen | closed

    def _note_kept(self) -> None:
        """Report files that exist and that the target, or the capture of now, left out."""
        plan = self._plan
        for path, why in self._target.skipped.items():
            name = path.rstrip(b"/")
            if name in self._chosen and path not in plan.write and self._exists(name):
                plan.kept.setdefault(path, f"{why} at the checkpoint")
        if self._target.scope == "tree":
            for path, why in self._current.skipped.items():
                name = path.rstrip(b"/")
                if name in self._chosen and path not in plan.unsaved and name not in plan.rmdir:
                    plan.kept.setdefault(path, f"{why} now")

    def _exists(self, path: bytes) -> bool:
        try:
            return self._worktree.lstat(path) is not None
        except PermissionError:
            return True  # it is out of reach, so it may well exist


def _about_named_paths(differing: list[Difference], target: State) -> list[Difference]:
    """A checkpoint of single paths says nothing about others, unless they are in the way."""
    coming = {item.path for item in differing if item.new is not None}
    known = coming | target.absent | folders_above(coming)
    return [
        item
        for item in differing
        if item.path in known or any(parent in coming for parent in parents(item.path))
    ]


def same_name(twin: bytes) -> str:
    return f"on this file system it is the same name as {os.fsdecode(twin)}"


def _as_executable(mode: int, bits: int) -> int:
    """Permission bits that are executable exactly if the git mode is."""
    if mode == DIRECTORY:
        return bits
    return bits | (bits & 0o444) >> 2 if mode & 0o100 else bits & ~0o111




def _empty_after(
    worktree: Worktree, folders: set[bytes], deleted: set[bytes], ours: Collection[bytes] = ()
) -> set[bytes]:
    """The directories that hold nothing, captured or not, once these files are deleted. Those that a restore made
    count as empty if they cannot be read; if something is in them after all, they stay."""
    empty: set[bytes] = set()
    for folder in sorted(folders, reverse=True):  # subdirectories come before their parents
        try:
            inside = [folder + b"/" + item.name for item in worktree.items(folder)]
        except OSError:
            if folder not in ours:
                continue
            inside = []
        if all(path in empty or path in deleted for path in inside):
            empty.add(folder)
    return empty


def _without_files(worktree: Worktree, top: bytes) -> set[bytes]:
    """The directories at and below `top` that hold no file at any depth."""
    folders: set[bytes] = set()
    full: set[bytes] = set()
    stack = [top]
    while stack:
        folder = stack.pop()
        folders.add(folder)
        try:
            items = list(worktree.items(folder))
        except OSError:
            continue  # already reported as a conflict
        stack += [folder + b"/" + item.name for item in items if item.is_directory]
        if not all(item.is_directory for item in items):
            full.update((folder, *parents(folder)))
    return folders - full


def plan_repairs_after_crash(
    plan: Plan, capture: Capture, before: State, target: State, chosen: Selection
) -> None:
    """Add what a restore that died may have left in directories that the target or the chosen paths say nothing
    about: it opened closed ones, made new ones closed, and emptied some. Directories get the permission bits
    they had before, or those of the target if they are new; emptied ones are removed."""
    emptied: set[bytes] = set()
    with ObjectReader(capture.space.git) as reader:
        old, new = open_tree(reader, before.tree), open_tree(reader, target.tree)
        _keep_what_was_ignored(plan, capture, before, old)
        for path, (bits, _) in capture.cache.directories.items():
            is_wanted = path in target.bare or is_directory(new.find(path))
            had_files = is_directory(old.find(path))
            if not path or path in plan.mkdir or (is_wanted and path in chosen):
                continue
            if had_files or path in before.bare:
                plan.chmod_directories[path] = before.bits(path, DIRECTORY)
            elif is_wanted:
                plan.chmod_directories[path] = target.bits(path, DIRECTORY)
            if had_files and not is_wanted and path in capture.bare:
                emptied.add(path)
            if plan.chmod_directories.get(path) == bits:
                del plan.chmod_directories[path]
    plan.rmdir |= _empty_after(capture.space.worktree, emptied | plan.rmdir, plan.delete)


def _keep_what_was_ignored(plan: Plan, capture: Capture, before: State, old: TreeReader) -> None:
    """Leave alone what the restore that died would have left alone. It may have brought rules back already, and
    then files are captured now that were ignored before: they are not in the state that an undo goes back to."""
    files = {path for path in plan.delete if path not in before.absent and old.find(path) is None}
    folders = {path for path in plan.rmdir if path + b"/" not in before.absent and path not in before.bare}
    folders = {path for path in folders if not is_directory(old.find(path))}
    stay = {path for path in files if before.left_out(path) is not None}
    unsure = [*(files - stay), *folders]
    stay |= ignored_by_checkpoint(capture.space, State.of_capture(capture), before, unsure, folders)
    plan.delete -= stay
    plan.rmdir -= stay | folders_above(stay)
    plan.kept.update((path, "ignored before the restore") for path in stay & files)


# --- plans that wait for a person ------------------------------------------------------------------------
# Made by a program that may only propose, carried out by their token. A plan is kept for an hour in `run/` of the
# base. It is carried out only if the files are still as they were when it was made, so that what happens is what
# was shown.


_SECONDS = 3600.0
_TOKEN = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class WaitingPlan:
    """A restore that was proposed: the checkpoint, the paths, and what the files were like."""

    token: str
    target: str
    paths: tuple[str, ...]
    present: str
    """The tree of the files when it was made."""


def keep_plan(
    store: Store, project: Project, plan: RestoreResult, paths: Sequence[str], present: str
) -> WaitingPlan:
    """Keep a plan until a person confirms it. The same plan has the same token."""
    what = "\0".join((project.id, plan.target.id, present, *sorted(paths)))
    token = hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    _remove_old(store)
    facts = {"at": time.time(), "project": project.id, "target": plan.target.id, "present": present}
    make_folder(store.base / "run")
    write_json(_file(store, token), {**facts, "paths": list(paths)})
    return WaitingPlan(token, plan.target.id, tuple(paths), present)


def find_plan(store: Store, project: Project, token: str) -> WaitingPlan:
    record = (read_json(_file(store, token)) or {}) if _TOKEN.fullmatch(token) else {}
    at, paths = record.get("at"), record.get("paths")
    is_fresh = isinstance(at, (int, float)) and time.time() - at < _SECONDS
    if record.get("project") != project.id or not is_fresh or not isinstance(paths, list):
        raise NoSuchPlan(token=token, workdir=project.workdir)
    return WaitingPlan(token, str(record.get("target")), tuple(map(str, paths)), str(record.get("present")))


def forget_plan(store: Store, token: str) -> None:
    _file(store, token).unlink(missing_ok=True)


def _file(store: Store, token: str) -> Path:
    return store.base / "run" / f"plan-{token}.json"


def _remove_old(store: Store) -> None:
    for path in (store.base / "run").glob("plan-*.json"):
        try:
            if time.time() - path.stat().st_mtime > _SECONDS:
                path.unlink()
        except OSError:
            continue  # another process was quicker
