"""Restoring: plan, save the present as a checkpoint, apply the plan, and write a line in the operation log.

The journal says which restore is under way, so that the next operation can finish one that died (`recover`).
Undo, redo and revert are restores too; `Why` says which, for the log.

A stage is edits that are committed or put back together. It begins on files that a checkpoint holds, so that
putting back loses nothing. It ends with `commit` (a checkpoint of kind `stage`) or by returning to its beginning.
The journal lists every open stage: one whose process died is put back by the next operation.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple

from shadowsnap.deadline import Deadline, step
from shadowsnap.errors import (
    DirtyWorkingTree,
    GitFailed,
    NoSuchPath,
    PresentNotSaved,
    RestoreFailed,
    RestoreRefused,
    RestoreStranded,
    ShadowsnapError,
    StageClosed,
)
from shadowsnap.git.index import Known
from shadowsnap.git.objects import EMPTY_TREE, object_id, stream_id
from shadowsnap.git.reading import ObjectReader, check_stored, missing_objects, object_sizes
from shadowsnap.git.trees import Leaf
from shadowsnap.model import Checkpoint, Kept, RestoreResult
from shadowsnap.restore.apply import Application, Staging, describe_error, is_staging, remove_staging
from shadowsnap.restore.plan import Plan, plan_repairs_after_crash, plan_restore
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.secrets import is_left_out
from shadowsnap.snapshot.states import (
    Selection,
    State,
    compare,
    ignored_by_checkpoint,
    open_tree,
    tree_differences,
)
from shadowsnap.snapshot.take import (
    Request,
    begin_capture,
    capture_same_scope,
    holding_checkpoint,
    keep_capture,
    take_snapshot,
)
from shadowsnap.snapshot.tools import path_inside
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, folders_above
from shadowsnap.store.checkpoints import find_checkpoint, find_if_kept, newest_checkpoint
from shadowsnap.store.history import is_logged, note, read_history
from shadowsnap.store.history import note as log_line
from shadowsnap.store.locks import is_free, locked
from shadowsnap.store.log import taken_back_on_failure
from shadowsnap.store.projects import Journal, OpenRestore, OpenStage, read_journal, write_journal

EVERYTHING = Selection()
_MOST_PATHS = 1000
"""Longer lists of paths are not repeated in the checkpoint before a restore."""
_MOST_COMPARED = 1000


@dataclass(frozen=True)
class Why:
    """What a restore is part of, for its log line."""

    kind: str = "restore"
    """`restore`, `undo`, `redo` or `revert`; empty if there is no log line, because nothing comes of it."""
    turn: int | None = None
    """The turn that a revert takes out."""
    session_id: str | None = None
    undoes: int | str | None = None
    """What an undo takes back: the number of a turn, or the id of an operation."""
    redoes: str | None = None
    """The undo that a redo takes back."""
    returns: bool = False
    """Whether `target` was saved right before the same paths were changed: what it lacks did not exist."""
    identity: str = ""
    """The id of an operation that a crash interrupted; a new one has a new id."""

    def facts(self) -> dict[str, Any]:
        identity = self.identity or f"{time.time_ns():x}-{os.getpid():x}"
        named: dict[str, Any] = {"turn": self.turn, "session": self.session_id, "undoes": self.undoes}
        named["redoes"] = self.redoes
        named["returns"] = self.returns or None
        known = {name: value for name, value in named.items() if value is not None}
        return {"id": identity, "kind": self.kind, **known}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Why:
        return cls(
            kind=str(facts.get("kind", "restore")),
            turn=facts.get("turn"),
            session_id=facts.get("session"),
            undoes=facts.get("undoes"),
            redoes=facts.get("redoes"),
            returns=facts.get("returns") is True,
            identity=str(facts.get("id", "")),
        )


RESTORE = Why()


def restore(
    space: Workspace,
    target: Checkpoint,
    chosen: Selection = EVERYTHING,
    why: Why = RESTORE,
    recovering: bool = False,
    begun_at: Checkpoint | None = None,
) -> RestoreResult:
    """Bring a state back, of everything or of the chosen paths. In a workspace that is not lasting, only the plan
    is made. To finish a restore that died, `recovering` is set and `begun_at` is the state before it."""
    with _failing_as(PresentNotSaved, GitFailed):
        prepared = _prepare(space, target, chosen, why.returns, allow_unknown=why.returns or recovering)
        plan = prepared.plan
        if begun_at is not None:
            states = State.of_checkpoint(begun_at), State.of_checkpoint(target)
            plan_repairs_after_crash(plan, prepared.capture, *states, chosen)
    result = _result(target, plan)
    if not space.lasting:
        return _with_changes(space, result, State.of_capture(prepared.capture), State.of_checkpoint(target))
    if plan.conflicts:
        raise RestoreRefused(conflicts=_listed(plan.conflicts))
    if plan.empty and not recovering:
        return replace(result, applied=True)
    step("restore:planned")
    # Other changes in the chosen directories are not undone with it.
    touched = _names(plan.changed_paths) if chosen else ()
    came_from = "" if begun_at is None else begun_at.id
    before = _carry_out(prepared, came_from, touched, target, why, chosen)
    return replace(result, applied=True, undo_id=before)


def find_conflicts(space: Workspace, target: Checkpoint, chosen: Selection) -> dict[bytes, str]:
    """What prevents a restore of these paths, and why. Nothing is changed."""
    with _failing_as(PresentNotSaved, GitFailed):
        return _prepare(space, target, chosen, False, allow_unknown=True).plan.conflicts


def is_as_restored(
    space: Workspace, target: Checkpoint, chosen: Selection, returns: bool, before: Checkpoint, after: str
) -> bool:
    """Whether the files are as a restore of these paths left them: another would change nothing. It may delete
    files that were ignored until the restore changed the rules: then the tree `after` it is still the same. And it
    may remove empty directories, which no tree shows: those that the rules `before` it ignored."""
    with _failing_as(PresentNotSaved, GitFailed):
        capture, plan, *_ = _prepare(space, target, chosen, returns, allow_unknown=True)
        if plan.empty or plan.conflicts:
            return not plan.conflicts
        if not plan.changed_paths <= plan.delete | plan.rmdir or begin_capture(space).tree() != after:
            return False
        now, then, folders = State.of_capture(capture), State.of_checkpoint(before), sorted(plan.rmdir)
        return plan.rmdir <= ignored_by_checkpoint(space, now, then, folders, folders)


def choose_paths(space: Workspace, target: Checkpoint, given: Iterable[str | os.PathLike[str]]) -> list[bytes]:
    """Paths as a person gives them, relative to the project. Where a directory of the checkpoint is a link now,
    its name still means the directory."""
    chosen = []
    state = State.of_checkpoint(target)
    with ObjectReader(space.git) as reader:
        tree = open_tree(reader, state.tree)
        for path in given:
            found = path_inside(space.project.workdir, path, absolute=False)
            as_written = os.fsencode(os.path.normpath(path))
            if as_written != found and b".." not in os.fsencode(path).split(b"/"):
                found = as_written if tree.find(as_written) or as_written in state.bare else found
            chosen.append(found)
    return chosen


@contextmanager
def _failing_as(error: type[ShadowsnapError], caught: type[ShadowsnapError]) -> Iterator[None]:
    """Raise this error in place of an OSError and of one kind of our own errors."""
    try:
        yield
    except (OSError, caught) as problem:
        why = describe_error(problem) if isinstance(problem, OSError) else problem
        raise error(why=why) from problem


# --- preparing -------------------------------------------------------------------------------


class _Prepared(NamedTuple):
    capture: Capture
    """The present, with everything that is about to change."""
    plan: Plan
    known: dict[bytes, Known]
    """The captured entries of the files that the plan changes."""
    seen: str
    """The fingerprint of the present without what is captured only because it is about to change."""


def _prepare(
    space: Workspace, target: Checkpoint, chosen: Selection, returns: bool, *, allow_unknown: bool
) -> _Prepared:
    """Capture the present and plan from there. Chosen paths that name nothing are an error, unless
    `allow_unknown` is set."""
    state = State.of_checkpoint(target)
    if chosen.exact and returns:
        state = _with_absent(space, state, chosen)
    capture = capture_same_scope(space, state)
    seen = capture.fingerprint()
    capture.include(_reappeared_files(capture, state, chosen), unfiltered=True)
    capture.include_directories(_reappeared_directories(capture, state, chosen))
    plan = plan_restore(capture, state, chosen)
    unsaved = plan.unsaved | _left_out_later(capture, plan, state)
    if unsaved or plan.unsaved_directories:
        capture.include(unsaved, unfiltered=True)
        capture.include_directories(plan.unsaved_directories)
        plan = plan_restore(capture, state, chosen)
        for path in unsaved & capture.skipped.keys():
            plan.conflicts[path] = f"it cannot be saved first: {capture.skipped[path]}"
    capture.absent |= plan.hidden_directories
    if chosen and not allow_unknown:
        for path in sorted(chosen.paths - _known_paths(chosen.paths, capture, plan, state)):
            raise NoSuchPath(path=os.fsdecode(path), ref=f"checkpoint {target.short_id}")
    prepared = _Prepared(capture, plan, capture.known_among(plan.changed_files), seen)
    if not space.lasting:
        _check_stored(prepared)
    return prepared


def _with_absent(space: Workspace, state: State, chosen: Selection) -> State:
    """A state that was saved before exactly these paths were changed: those that it lacks did not exist."""
    with ObjectReader(space.git) as reader:
        tree = open_tree(reader, state.tree)
        lacking = {path for path in chosen.paths if path not in state.bare and tree.find(path) is None}
    folders = {path + b"/" for path in lacking}  # there may be a file now, or a directory
    return replace(state, absent=state.absent | lacking | folders)


def _reappeared_files(capture: Capture, state: State, chosen: Selection) -> set[bytes]:
    """Files that the state knows not to have existed, and that exist now though the scan does not report
    them."""
    worktree = capture.space.worktree
    absent = {path for path in state.absent if not path.endswith(b"/") and path in chosen}
    files = {path for path in absent if worktree.lstat(path) is not None and not worktree.is_directory(path)}
    return files - capture.known_among(files).keys()


def _reappeared_directories(capture: Capture, state: State, chosen: Selection) -> set[bytes]:
    """The same for directories, which a restore made where they are ignored."""
    if state.scope != "tree":
        return set()
    absent = {path[:-1] for path in state.absent if path.endswith(b"/") and path[:-1] in chosen}
    return {path for path in absent - capture.directories if capture.space.worktree.is_directory(path)}


def _left_out_later(capture: Capture, plan: Plan, state: State) -> set[bytes]:
    """Files about to appear that later captures leave out, for their size or name, or by rules that do not come
    back with the files. An undo must know that they did not exist before."""
    settings = capture.space.settings
    ids = {path: plan.write[path][0][1] for path in plan.appearing}
    sizes = object_sizes(capture.space.git, sorted({*ids.values()}))  # a missing object is noticed later
    limit = settings.max_file_bytes or max(sizes.values(), default=0)
    found = {path for path in ids if sizes.get(ids[path], 0) > limit or is_left_out(path, settings)}
    patterns = tuple(capture.space.patterns)
    if patterns != state.patterns:
        rules = replace(state, patterns=patterns)
        found |= ignored_by_checkpoint(capture.space, State.of_capture(capture), rules, sorted(plan.appearing))
    return found - capture.absent


def _known_paths(paths: frozenset[bytes], capture: Capture, plan: Plan, state: State) -> set[bytes]:
    """The chosen paths that name anything, at the checkpoint or now."""
    mentioned = {path.rstrip(b"/") for path in plan.changed_paths | plan.kept.keys()}
    known = {b""} | mentioned | folders_above(mentioned) | state.bare | capture.directories
    known |= capture.known_among(paths - known).keys()
    with ObjectReader(capture.space.git) as reader:
        tree = open_tree(reader, state.tree)
        return {path for path in paths if path in known or tree.find(path) is not None}


def _check_stored(prepared: _Prepared) -> None:
    """Check that the store has what will be written, and what will be overwritten."""
    plan = prepared.plan
    wanted = {blob for (_, blob), _ in plan.write.values()}
    overwritten = {entry.id for path, entry in prepared.known.items() if path not in plan.chmod}
    check_stored(prepared.capture.space.git, wanted, overwritten)


# --- carrying out ----------------------------------------------------------------------------


def _carry_out(
    prepared: _Prepared, came_from: str, touched: tuple[str, ...], target: Checkpoint, why: Why, chosen: Selection
) -> str | None:
    """Change the files, between two entries of the journal. Returns the checkpoint of what was there before. New
    files are staged while the present is saved."""
    capture, plan, known, seen = prepared
    space = capture.space
    journal = read_journal(space.store, space.project)
    staging = Staging(space, plan)
    application = Application(capture, plan, known, staging)
    folders = tuple(os.fsdecode(folder) for folder in staging.folders)
    # What an unfinished restore had moved aside is removed when this one is done.
    unfinished = journal.open
    every_folder = (*(unfinished.staging if unfinished else ()), *folders)
    if unfinished is not None:
        came_from = came_from or unfinished.before
        if chosen:  # what it had changed before it died is undone with the rest
            touched = tuple(sorted({*touched, *unfinished.touched}))
        seen = str(unfinished.operation.get("seen", ""))
    operation = {**why.facts(), "seen": seen}
    begun = OpenRestore(
        before=came_from,
        target=target.id,
        paths=_names(chosen.paths),
        staging=every_folder,
        applying=unfinished is not None and unfinished.applying,
        exact=chosen.exact,
        touched=touched,
        operation=operation,
    )
    with _failing_as(PresentNotSaved, GitFailed):
        write_journal(space.store, space.project, replace(journal, open=begun), lasting=False)
    ended, done = replace(journal, open=None), False
    try:
        step("restore:begun")
        if staging.by_git:
            with _failing_as(PresentNotSaved, GitFailed):
                space.objects.flush()  # git must find what was captured
        with _failing_as(RestoreFailed, ShadowsnapError):
            staging.begin()
        paths = {"paths": list(touched), "exact": True} if touched else {}
        after = _tree_after(capture, plan, touched, target)
        facts = {**operation, "target": target.id, "after": after, **paths}
        before = _save(prepared, f"before {why.kind or 'restore'} to {target.short_id}", facts if why.kind else {})
        step("restore:saved")
        begun = replace(begun, before=came_from or before or target.id, applying=True)
        with _failing_as(RestoreFailed, ShadowsnapError):
            staged = staging.finish()
            step("restore:staged")
            write_journal(space.store, space.project, replace(journal, open=begun))
        step("restore:applying")

        def settle() -> None:
            with taken_back_on_failure(space.store, space.project.id):
                if why.kind and not (unfinished and is_logged(space.store, space.project, operation["id"])):
                    reason = f"after {why.kind} to {target.short_id}"
                    found, reached = _reached(space, plan, touched, target, after, reason)
                    about = {**facts, "before": begun.before, "after": found, "reached": reached}
                    note(space.store, space.project, "restore", lasting=True, **about)
                step("restore:logged")
                write_journal(space.store, space.project, replace(ended, leftover=every_folder))

        try:
            application.run(staged, settle)
        except OSError as problem:  # the rollback failed
            raise RestoreStranded(
                why=describe_error(problem),
                before=begun.before[:8],
                target=begun.target[:8],
                staging=", ".join(begun.staging),
            ) from problem
        done = True
        step("restore:settled")
    finally:
        try:
            if done:
                application.old_files.remove()
        finally:
            staging.close()
        if done:
            clean_up(space, ended, every_folder, lasting=False)  # if this is lost, the next operation repeats it
        elif application.untouched:
            clean_up(space, journal, folders)
        # Otherwise the journal stays open and the staging directories stay: nothing is lost.
    step("restore:cleaned")
    return before


def _save(prepared: _Prepared, reason: str, facts: dict[str, Any]) -> str | None:
    """Take the checkpoint that makes everything recoverable; None if nothing is about to change."""
    with _failing_as(PresentNotSaved, GitFailed):
        _check_stored(prepared)
        if prepared.plan.empty:
            return None
        # Enough to write the log line again if the log is lost; not if that would be many megabytes.
        repeated = (("restore", facts),) if facts and len(facts.get("paths", ())) <= _MOST_PATHS else ()
        request = Request(reason, kind="pre-restore", facts=repeated)
        return keep_capture(prepared.capture, request).checkpoint.id


def clean_up(space: Workspace, ended: Journal, staging: Iterable[str], *, lasting: bool = True) -> Journal:
    """Remove staging directories and what git wrote them from, and close the journal. In this order, because on a
    full disk the first makes room for the second. What cannot be removed is left to the next operation."""
    remove_staging(space, [os.fsencode(folder) for folder in staging])
    left = tuple(folder for folder in staging if space.worktree.lstat(os.fsencode(folder)) is not None)
    ended = replace(ended, leftover=left)
    try:
        write_journal(space.store, space.project, ended, lasting=lasting)
    except OSError:
        pass  # the next operation finds the old journal and does this again
    return ended


def _tree_after(capture: Capture, plan: Plan, touched: tuple[str, ...], target: Checkpoint) -> str:
    """The tree that a capture finds after the restore. It is stored with the state before it: later states are
    compared with it."""
    if target.scope == "tree" and not touched and not plan.kept:
        return target.tree
    changes: dict[bytes, Leaf | None] = dict.fromkeys(plan.delete)
    changes.update((path, leaf) for path, (leaf, _) in plan.write.items())
    with ObjectReader(capture.space.git) as reader:
        return reader.changed_tree(capture.tree(), changes, capture.space.objects)


def _reached(
    space: Workspace, plan: Plan, touched: tuple[str, ...], target: Checkpoint, after: str, reason: str
) -> tuple[str, str | None]:
    """The tree that a capture finds now that the files are in place, and the checkpoint that holds just that, if
    there is one. It is not as expected where ignore rules came back: files that were ignored are seen now."""
    capture = None
    try:
        if any(path.rpartition(b"/")[2] == b".gitignore" for path in plan.changed_files):
            capture = begin_capture(space)
            after = capture.tree()
            space.objects.flush()
        if after == target.tree:
            return after, target.id
        if touched or not read_history(space.store, space.project, space.deadline).running:
            return after, None
        # A turn may go on from here, and be taken back to here.
        capture = capture or begin_capture(space)
        return after, keep_capture(capture, Request(reason, kind="pre-restore")).checkpoint.id
    except (ShadowsnapError, OSError):
        return after, None  # it is only for the log


# --- the result ------------------------------------------------------------------------------


def _result(target: Checkpoint, plan: Plan) -> RestoreResult:
    # Directories that are made because a file comes into them are not worth a line.
    made = plan.mkdir.keys() - folders_above(plan.write)
    written = [os.fsdecode(path) for path in (*plan.write, *plan.chmod)]
    written += [os.fsdecode(path) + "/" for path in made | plan.chmod_directories.keys()]
    deleted = [os.fsdecode(path) for path in plan.delete] + [os.fsdecode(path) + "/" for path in plan.rmdir]
    return RestoreResult(
        target=target,
        written=tuple(sorted(written)),
        deleted=tuple(sorted(deleted)),
        kept=_with_reasons(plan.kept),
        conflicts=_with_reasons(plan.conflicts),
    )


def _with_changes(space: Workspace, planned: RestoreResult, now: State, then: State) -> RestoreResult:
    """A plan with line counts and the text of its changes, unless the paths are too many to look at anyway."""
    paths = [os.fsencode(path.rstrip("/")) for path in (*planned.written, *planned.deleted)]
    if not 0 < len(paths) <= _MOST_COMPARED:
        return planned
    changes, patch = compare(space.git, now, then, paths)
    return replace(planned, changes=changes, patch=patch)


def _with_reasons(reasons: dict[bytes, str]) -> tuple[Kept, ...]:
    return tuple(Kept(os.fsdecode(path), why) for path, why in sorted(reasons.items()))


def _listed(reasons: dict[bytes, str]) -> str:
    shown = [f"{each.path} ({each.why})" for each in _with_reasons(reasons)]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return ", ".join(shown[:10]) + more


def _names(paths: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path) for path in sorted(paths))


# --- recovery --------------------------------------------------------------------------------


def recover(space: Workspace) -> str:
    """Finish a restore that died half way. Returns a note about what was done; also if it cannot be finished,
    because that must not prevent new snapshots."""
    journal = read_journal(space.store, space.project)
    begun, message = journal.open, journal.note
    if journal.leftover:
        journal = clean_up(space, journal, journal.leftover)
        message = message if journal.leftover else "the files that a finished restore left behind were removed"
    if begun is None:
        return message
    if not begun.applying:
        clean_up(space, replace(journal, open=None), begun.staging)
        return f"a restore to {begun.target[:8]} had been interrupted before it changed any file"
    if begun.staging and not _has_staging(space, begun):
        clean_up(space, replace(journal, open=None), journal.leftover)
        return (
            f"a restore to {begun.target[:8]} had been interrupted and was not finished, because the files that it"
            f" moved aside are gone; the files before it are in checkpoint {begun.before[:8]}"
        )
    try:
        return _finish(space, journal, begun)
    except (ShadowsnapError, OSError) as problem:
        return f"an interrupted restore to {begun.target[:8]} could not be finished yet: {problem}"


def _has_staging(space: Workspace, begun: OpenRestore) -> bool:
    """Whether a staging directory of the restore is left. If not, it was rolled back, or the project directory
    was made anew: then its files are not those of a half-done restore."""
    folders = filter(is_staging, map(os.fsencode, begun.staging))
    return any(space.worktree.is_directory(folder) for folder in folders)


def _finish(space: Workspace, journal: Journal, begun: OpenRestore) -> str:
    """Continue where a restore died, or go back if its target was deleted meanwhile."""
    chosen = Selection(map(os.fsencode, begun.paths), exact=begun.exact)
    rescued = _rescue_unsaved(space, begun)
    target = find_if_kept(space.store, space.project, begun.target, space.deadline)
    before = find_if_kept(space.store, space.project, begun.before, space.deadline)
    if target is not None:
        result = restore(space, target, chosen, Why.from_facts(begun.operation), recovering=True, begun_at=before)
        message = f"a restore to {target.short_id} had been interrupted and was finished"
    elif before is not None:
        result = restore(space, before, chosen, Why(""), recovering=True, begun_at=before)
        message = (
            f"a restore to {begun.target[:8]} had been interrupted; that checkpoint was deleted, so the files were"
            " put back"
        )
    else:
        clean_up(space, replace(journal, open=None), journal.leftover)
        folders = ", ".join(begun.staging)
        return f"an interrupted restore cannot be finished; the files it moved aside are in {folders}{rescued}"
    found = f"; the files as they were found are in checkpoint {result.undo_id[:8]}" if result.undo_id else ""
    return message + found + rescued


def _rescue_unsaved(space: Workspace, begun: OpenRestore) -> str:
    """Move files out of staging that the store does not have; returns a note. A file that is changed right before
    it is moved aside is noticed, but not by a process that dies in the next moment."""
    rescued: set[bytes] = set()
    for folder in filter(is_staging, map(os.fsencode, begun.staging)):
        try:
            with space.worktree.within(folder) as top:
                inner = [item.name for item in top.items(b"") if item.is_directory]
        except NotADirectoryError:
            continue
        for each in (folder, *(folder + b"/" + name for name in inner)):
            with space.worktree.within(each) as here:
                names = [item.name for item in here.items(b"") if not item.is_directory and not item.is_special]
                ids = {name: _content_id(here, name) for name in names}
                lost = {*missing_objects(space.git, {*ids.values()})}
                for name in (name for name in names if ids[name] in lost):
                    _move_to(space, here, name, folder + b"-unsaved")
                    rescued.add(folder + b"-unsaved")
    folders = ", ".join(map(os.fsdecode, sorted(rescued)))
    return f"; files that were not saved are in {folders}" if rescued else ""


def _content_id(here: Worktree, name: bytes) -> str:
    seen = here.lstat(name)
    if seen is not None and stat.S_ISLNK(seen.st_mode):
        return object_id(b"blob", here.readlink(name))
    descriptor = here.open(name)
    try:
        return stream_id(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _move_to(space: Workspace, here: Worktree, name: bytes, folder: bytes) -> None:
    top, _, last = folder.rpartition(b"/")
    with space.worktree.within(top) as above:
        if above.lstat(last) is None:
            above.mkdir(last, 0o700)
    with space.worktree.within(folder) as there:
        here.move(name, name, there)


# --- stages ----------------------------------------------------------------------------------------


_MOST_SHOWN = 5

Opener = Callable[[str], AbstractContextManager[Workspace]]


class Stage:
    """One stage, as a context manager. Leaving it commits what was done; leaving it by an exception puts
    everything back."""

    def __init__(
        self,
        opener: Opener,
        facts: dict[str, Any],
        message: str,
        on_commit: Callable[[Checkpoint, bool], None] = lambda *_: None,
        on_discard: Callable[[RestoreResult], None] = lambda _: None,
    ) -> None:
        self._opener = opener
        self._on_commit = on_commit
        self._on_discard = on_discard
        self._facts = facts
        self._message = message
        self._open: OpenStage | None = None
        self._ended = ""
        self._lock = ExitStack()
        """Held as long as the stage is open: a free lock means that its process died."""
        self.checkpoint: Checkpoint | None = None
        """What was committed."""
        self.before: Checkpoint | None = None

    def __enter__(self) -> Stage:
        with self._opener("stage") as space:
            self.before = _beginning(space)
            name = f"stage-{space.project.id}-{os.getpid()}-{time.time_ns()}.lock"
            lock = space.store.git_dir / "locks" / name
            self._lock.enter_context(locked(lock, "stage", Deadline(1)))
            self._open = OpenStage(self.before.id, name)
            journal = read_journal(space.store, space.project)
            write_journal(space.store, space.project, replace(journal, stages=(*journal.stages, self._open)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit(self._message)
        else:
            self.discard()

    def commit(self, message: str | None = None) -> Checkpoint:
        """Keep what was done, as a checkpoint with this message."""
        with self._ending("committed") as space:
            before = self.before.id if self.before else None
            facts = tuple({**self._facts, "before": before}.items())
            request = Request(message or self._message, "stage", facts=facts)
            self.checkpoint, new, *_ = take_snapshot(space, request)
        self._on_commit(self.checkpoint, new)
        return self.checkpoint

    def discard(self) -> RestoreResult:
        """Put everything back as it was when the stage began."""
        assert self.before is not None
        with self._ending("discarded") as space:
            result = restore(space, self.before)
        self._on_discard(result)
        return result

    def leave(self) -> None:
        """End the stage without a checkpoint. The files stay as they are."""
        with self._ending("left"):
            pass

    @contextmanager
    def _ending(self, how: str) -> Iterator[Workspace]:
        """The workspace of the last operation of a stage. The stage is over only if that succeeds."""
        if self._ended:
            raise StageClosed(how=self._ended)
        with self._opener("stage") as space:
            yield space
            ended = [self._open] if self._open is not None else []
            _remove_from_journal(space, ended)
            self._ended = how
            self._lock.close()
            _remove_locks(space, ended)


def _remove_from_journal(space: Workspace, stages: list[OpenStage]) -> None:
    journal = read_journal(space.store, space.project)
    left = tuple(stage for stage in journal.stages if stage not in stages)
    write_journal(space.store, space.project, replace(journal, stages=left))


def _remove_locks(space: Workspace, stages: list[OpenStage]) -> None:
    for stage in stages:
        (space.store.git_dir / "locks" / stage.lock).unlink(missing_ok=True)


def _beginning(space: Workspace) -> Checkpoint:
    """The checkpoint that holds the files as they are. Inside another stage, one is taken."""
    capture = begin_capture(space)
    held = holding_checkpoint(space, capture)
    if held is not None:
        capture.remember()
        return held
    if read_journal(space.store, space.project).stages:
        return keep_capture(capture, Request("a stage within a stage begins", "manual"))[0]
    raise DirtyWorkingTree(workdir=space.project.workdir, changes=_changes(space, capture))


def _changes(space: Workspace, capture: Capture) -> str:
    newest = newest_checkpoint(space.store, space.project, space.deadline)
    then = State.of_checkpoint(newest).tree if newest is not None and newest.scope == "tree" else EMPTY_TREE
    paths = [os.fsdecode(item.path) for item in tree_differences(space.git, then, capture.tree())]
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    return (", ".join(paths[:_MOST_SHOWN]) + more) or "permission bits or directories"


def recover_stages(space: Workspace) -> str:
    """Put back stages whose process died. Returns a note about it; empty if there were none."""
    journal = read_journal(space.store, space.project)
    folder = space.store.git_dir / "locks"
    dead = [stage for stage in journal.stages if is_free(folder / stage.lock)]
    if not dead:
        return ""
    try:
        before = find_checkpoint(space.store, space.project, dead[0].before, space.deadline)
        restore(space, before)
        log_line(space.store, space.project, "stage", status="discarded", before=before.id)
        note = f"an interrupted stage was put back to {before.short_id}"
    except ShadowsnapError as problem:
        note = f"an interrupted stage could not be put back: {problem}"
    _remove_from_journal(space, dead)
    _remove_locks(space, dead)
    return note
