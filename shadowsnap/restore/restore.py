"""Restoring: plan, journal, a checkpoint of the present, apply, and the log line. (`undo` is built on it.)"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from shadowsnap.errors import (
    GitFailed,
    NoSuchCheckpoint,
    NoSuchPath,
    PresentNotSaved,
    RestoreFailed,
    RestoreRefused,
    RestoreStranded,
    ShadowsnapError,
)
from shadowsnap.git.index import Known
from shadowsnap.git.objects import object_id, stream_id
from shadowsnap.git.reading import ObjectReader, check_stored, missing_objects, object_sizes
from shadowsnap.git.trees import Leaf, TreeReader, patch_tree
from shadowsnap.model import Checkpoint, Kept, RestoreResult
from shadowsnap.records import Any, dataclass, replace
from shadowsnap.restore.apply import Application, told
from shadowsnap.restore.plan import Plan, add_what_a_crash_left, plan_restore
from shadowsnap.restore.staging import Staging, is_staging, remove_staging
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.content import is_left_out
from shadowsnap.snapshot.states import Selection, State, compare
from shadowsnap.snapshot.take import Request, capture_same_scope, keep_capture
from shadowsnap.snapshot.tools import path_inside
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, parents
from shadowsnap.steps import step
from shadowsnap.store.checkpoints import find_checkpoint
from shadowsnap.store.history import note
from shadowsnap.store.journal import Journal, OpenRestore, read_journal, write_journal

EVERYTHING = Selection()
_MOST_PATHS = 1000
_MOST_COMPARED = 1000


@dataclass(frozen=True)
class Why:
    """What a restore is part of, for its log line."""

    kind: str = "restore"
    """`restore`, `undo`, `redo` or `revert`."""
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
    """Bring a state back, of everything or of some paths. In a workspace that is not lasting,
    only the plan is made. When a restore that died is finished, `begun_at` is the state before it."""
    with _nothing_done_yet():
        anything = why.returns or recovering
        capture, plan, known = _prepare(space, target, chosen, why.returns, anything=anything)
        if begun_at is not None:
            states = State.of_checkpoint(begun_at), State.of_checkpoint(target)
            add_what_a_crash_left(plan, capture, *states, chosen)
    result = _result(target, plan)
    if not space.lasting:
        return _with_changes(space, result, State.of_capture(capture), State.of_checkpoint(target))
    if plan.conflicts:
        raise RestoreRefused(conflicts=_listed(plan.conflicts))
    if plan.empty and not recovering:
        return replace(result, applied=True)
    step("restore:planned")
    # Whatever else happened in the chosen directories is not taken back with it.
    touched = _names(plan.everything) if chosen else ()
    came_from = "" if begun_at is None else begun_at.id
    before = _carry_out(space, capture, plan, known, came_from, touched, target, why, chosen)
    return replace(result, applied=True, undo_id=before)


def obstacles(space: Workspace, target: Checkpoint, chosen: Selection) -> dict[bytes, str]:
    """What stands in the way of a restore, and why; nothing is changed."""
    with _nothing_done_yet():
        return _prepare(space, target, chosen, False, anything=True)[1].conflicts


def choose_paths(space: Workspace, target: Checkpoint, given: Iterable[str | os.PathLike[str]]) -> list[bytes]:
    """The paths of the project that are meant. Where a directory of the checkpoint is a link by now,
    its name still means the directory."""
    chosen = []
    state = State.of_checkpoint(target)
    with ObjectReader(space.git) as reader:
        lookup = TreeReader(state.tree, partial(reader.read, kind=b"tree"))
        for path in given:
            found = path_inside(space.project.workdir, path, absolute=False)
            as_written = os.fsencode(os.path.normpath(path))
            if as_written != found and b".." not in os.fsencode(path).split(b"/"):
                found = as_written if lookup.find(as_written) or as_written in state.bare else found
            chosen.append(found)
    return chosen


@contextmanager
def _nothing_done_yet() -> Iterator[None]:
    try:
        yield
    except (OSError, GitFailed) as problem:
        why = told(problem) if isinstance(problem, OSError) else problem
        raise PresentNotSaved(why=why) from problem


def _prepare(
    space: Workspace, target: Checkpoint, chosen: Selection, returns: bool, *, anything: bool
) -> tuple[Capture, Plan, dict[bytes, Known]]:
    """Capture the present with everything that is about to change, and plan from there; also what was
    captured of that. Paths that name nothing are an error, unless `anything` may be there."""
    state = State.of_checkpoint(target)
    if chosen.exact and returns:
        state = _knowing_what_was_absent(space, state, chosen)
    capture = capture_same_scope(space, state)
    capture.include(_present_though_absent(capture, state, chosen), unfiltered=True)
    capture.include_directories(_directories_though_absent(capture, state, chosen))
    plan = plan_restore(capture, state, chosen)
    unsaved = plan.unsaved | _left_out_later(capture, plan)
    if unsaved or plan.unsaved_directories:
        capture.include(unsaved, unfiltered=True)
        capture.include_directories(plan.unsaved_directories)
        plan = plan_restore(capture, state, chosen)
        for path in unsaved & capture.skipped.keys():
            plan.conflicts[path] = f"it cannot be saved first: {capture.skipped[path]}"
    capture.absent |= plan.hidden
    if chosen and not anything:
        for path in sorted(chosen.paths - _known_paths(chosen.paths, capture, plan, state)):
            raise NoSuchPath(path=os.fsdecode(path), ref=target.short_id)
    known = capture.known_among(plan.touched)
    if not space.lasting:
        _check_stored(space, plan, known)
    return capture, plan, known


def _knowing_what_was_absent(space: Workspace, state: State, chosen: Selection) -> State:
    """A state that was saved before exactly these paths were changed: what it lacks of them did not exist."""
    with ObjectReader(space.git) as reader:
        lookup = TreeReader(state.tree, partial(reader.read, kind=b"tree"))
        lacking = {path for path in chosen.paths if path not in state.bare and lookup.find(path) is None}
    folders = {path + b"/" for path in lacking}  # whichever of the two is there now
    return replace(state, absent=state.absent | lacking | folders)


def _present_though_absent(capture: Capture, state: State, chosen: Selection) -> set[bytes]:
    """What the state knows not to have existed, and what is there now though no scan reports it."""
    worktree = capture.space.worktree
    files = {path for path in state.absent if not path.endswith(b"/") and path in chosen}
    there = {path for path in files if worktree.lstat(path) is not None and not worktree.is_directory(path)}
    return there - capture.known_among(there).keys()


def _directories_though_absent(capture: Capture, state: State, chosen: Selection) -> set[bytes]:
    """As above, but directories, which a restore made where they are ignored."""
    if state.scope != "tree":
        return set()
    folders = {path[:-1] for path in state.absent if path.endswith(b"/") and path[:-1] in chosen}
    unseen = folders - capture.directories
    return {path for path in unseen if capture.space.worktree.is_directory(path)}


def _left_out_later(capture: Capture, plan: Plan) -> set[bytes]:
    """Files about to appear that later captures leave out: an undo must know that they did not exist."""
    names = {path: plan.write[path][0][1] for path in plan.appearing}
    sizes = object_sizes(capture.space.git, sorted({*names.values()}))
    limit = capture.space.settings.max_file_bytes or max(sizes.values(), default=0)
    settings = capture.space.settings
    # One that is missing is noticed later.
    found = {path for path in names if sizes.get(names[path], 0) > limit or is_left_out(path, settings)}
    return found - capture.absent


def _check_stored(space: Workspace, plan: Plan, known: dict[bytes, Known]) -> None:
    """See to it that the store has what there is to write, and what is to be overwritten."""
    wanted = {leaf[1] for leaf, _ in plan.write.values()}
    check_stored(space.git, wanted, {each.id for path, each in known.items() if path not in plan.chmod})


def _save(
    capture: Capture, plan: Plan, known: dict[bytes, Known], reason: str, facts: dict[str, Any]
) -> str | None:
    """The checkpoint that makes everything recoverable; None if nothing is about to change."""
    with _nothing_done_yet():
        _check_stored(capture.space, plan, known)
        if plan.empty:
            return None
        # Enough to tell the log line again if the log is lost; not if that would be many megabytes.
        told_again = (("restore", facts),) if len(facts.get("paths", ())) <= _MOST_PATHS else ()
        request = Request(reason, kind="pre-restore", facts=told_again)
        return keep_capture(capture, request).checkpoint.id


def _known_paths(paths: frozenset[bytes], capture: Capture, plan: Plan, state: State) -> set[bytes]:
    """Those of the chosen paths that name anything, then or now."""
    deeds = (plan.write, plan.delete, plan.make, plan.clear, plan.chmod, plan.chmod_directories, plan.kept)
    mentioned = {path.rstrip(b"/") for each in deeds for path in each}
    mentioned |= {parent for path in mentioned for parent in parents(path)}
    known = {b""} | mentioned | state.bare | capture.directories
    known |= capture.known_among(paths - known).keys()
    with ObjectReader(capture.space.git) as reader:
        lookup = TreeReader(state.tree, partial(reader.read, kind=b"tree"))
        return {path for path in paths if path in known or lookup.find(path) is not None}


def _carry_out(
    space: Workspace, capture: Capture, plan: Plan, known: dict[bytes, Known], came_from: str,
    touched: tuple[str, ...], target: Checkpoint, why: Why, chosen: Selection,
) -> str | None:  # fmt: skip
    """Everything that changes files, between two entries of the journal; the checkpoint of what was there
    before. The new files are written beside the old ones while those are saved."""
    journal = read_journal(space.store, space.project)
    staging = Staging(space, plan)
    application = Application(capture, plan, known, staging)
    folders = tuple(os.fsdecode(folder) for folder in staging.folders)
    unfinished = journal.open
    # What an unfinished restore had moved aside goes when this one is done.
    every_folder = (*(unfinished.staging if unfinished else ()), *folders)
    if unfinished is not None:
        came_from = came_from or unfinished.before
        if chosen:  # what it had done before it died is taken back with the rest
            touched = tuple(sorted({*touched, *unfinished.touched}))
    half_done = unfinished is not None and unfinished.applying
    operation = why.facts()
    begun = OpenRestore(
        came_from, target.id, _names(chosen.paths), every_folder, half_done, chosen.exact, touched, operation
    )
    with _nothing_done_yet():
        write_journal(space.store, space.project, replace(journal, open=begun), lasting=False)
    ended, done = replace(journal, open=None), False
    try:
        step("restore:begun")
        if staging.by_git:
            with _nothing_done_yet():
                space.objects.settle()  # what was captured has to be there before git looks
        with _nothing_moved_yet():
            staging.begin()
        facts = {"target": target.id, **operation}
        if touched:
            facts |= {"paths": list(touched), "exact": True}
        before = _save(capture, plan, known, f"before {why.kind} to {target.short_id}", facts)
        step("restore:saved")
        begun = replace(begun, before=came_from or before or target.id, applying=True)
        after = _tree_after(capture, plan, touched, target)
        with _nothing_moved_yet():
            staged = staging.finish()
            step("restore:staged")
            write_journal(space.store, space.project, replace(journal, open=begun))
        step("restore:applying")

        def settle() -> None:
            paths = {"paths": list(touched), "exact": True} if touched else {}
            line = {**operation, "target": target.id, "before": begun.before, "after": after, **paths}
            note(space.store, space.project, "restore", **line)
            step("restore:logged")
            write_journal(space.store, space.project, replace(ended, leftover=every_folder))

        _apply(application, staged, begun, settle)
        done = True
        step("restore:settled")
    finally:
        try:
            if done:
                application.asides.remove()
        finally:
            staging.close()
        if done:
            clean_up(space, ended, every_folder, lasting=False)  # otherwise it is done once more
        elif application.untouched:
            clean_up(space, journal, folders)
        # Otherwise the journal stays open and the staging directory stays: nothing is lost.
    step("restore:cleaned")
    return before


@contextmanager
def _nothing_moved_yet() -> Iterator[None]:
    try:
        yield
    except (OSError, ShadowsnapError) as problem:
        raise RestoreFailed(why=told(problem) if isinstance(problem, OSError) else problem) from problem


def _apply(
    application: Application, staged: dict[bytes, os.stat_result], begun: OpenRestore, settle: Callable[[], None]
) -> None:
    try:
        application.carry_out(staged, settle)
    except OSError as problem:  # raised on the way back: what was put back is put back
        raise RestoreStranded(
            why=told(problem), before=begun.before[:8], target=begun.target[:8], staging=", ".join(begun.staging)
        ) from problem


def clean_up(space: Workspace, ended: Journal, staging: Iterable[str], *, lasting: bool = True) -> Journal:
    """Remove staging directories and close the journal, in this order: on a full disk, the
    first makes room for the second. What could not be removed is left to the next operation."""
    remove_staging(space, [os.fsencode(folder) for folder in staging])
    left = tuple(folder for folder in staging if space.worktree.lstat(os.fsencode(folder)) is not None)
    ended = replace(ended, leftover=left)
    try:
        write_journal(space.store, space.project, ended, lasting=lasting)
    except OSError:
        pass  # the next operation finds it as it is, and does this again
    return ended


def _tree_after(capture: Capture, plan: Plan, touched: tuple[str, ...], target: Checkpoint) -> str:
    """The tree that a capture finds once the plan is carried out. Only its name is wanted."""
    if target.scope == "tree" and not touched and not plan.kept:
        return target.tree
    changes: dict[bytes, Leaf | None] = dict.fromkeys(plan.delete)
    changes.update((path, leaf) for path, (leaf, _) in plan.write.items())
    with ObjectReader(capture.space.git) as reader:
        return patch_tree(
            capture.tree(),
            changes,
            lambda name: reader.read(name, b"tree"),
            lambda data: object_id(b"tree", data),
        )


def _names(paths: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path) for path in sorted(paths))


def _result(target: Checkpoint, plan: Plan) -> RestoreResult:
    written = [os.fsdecode(path) for path in (*plan.write, *plan.chmod)]
    written += [os.fsdecode(path) + "/" for path in {*plan.make, *plan.chmod_directories} - _implied(plan)]
    deleted = [os.fsdecode(path) for path in plan.delete] + [os.fsdecode(path) + "/" for path in plan.clear]
    return RestoreResult(
        target=target,
        written=tuple(sorted(written)),
        deleted=tuple(sorted(deleted)),
        kept=_kept(plan.kept),
        conflicts=_kept(plan.conflicts),
    )


def _with_changes(space: Workspace, planned: RestoreResult, now: State, then: State) -> RestoreResult:
    """A plan with line counts and the text of its changes, unless the paths are too many to look at anyway."""
    paths = [os.fsencode(path.rstrip("/")) for path in (*planned.written, *planned.deleted)]
    if not 0 < len(paths) <= _MOST_COMPARED:
        return planned
    changes, patch = compare(space.git, now, then, paths)
    return replace(planned, changes=changes, patch=patch)


def _implied(plan: Plan) -> set[bytes]:
    """Directories that are made because a file comes into them."""
    return {parent for path in plan.write for parent in parents(path)} & plan.make.keys()


def _kept(reasons: dict[bytes, str]) -> tuple[Kept, ...]:
    return tuple(Kept(os.fsdecode(path), why) for path, why in sorted(reasons.items()))


def _listed(reasons: dict[bytes, str]) -> str:
    shown = [f"{os.fsdecode(path)} ({why})" for path, why in sorted(reasons.items())]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return ", ".join(shown[:10]) + more


def recover(space: Workspace) -> str:
    """Finish a restore that died half way; says what was done, if anything was. If it cannot be
    finished, that is said too: it must not keep anyone from taking snapshots."""
    journal = read_journal(space.store, space.project)
    begun, told = journal.open, journal.note
    if journal.leftover:
        journal = clean_up(space, journal, journal.leftover)
        told = told if journal.leftover else "a restore had been finished, and what it left behind was removed"
    if begun is None:
        return told
    if not begun.applying:
        clean_up(space, replace(journal, open=None), begun.staging)
        return f"a restore to {begun.target[:8]} had been interrupted before it changed any file"
    if begun.staging and not _staging_is_there(space, begun):
        write_journal(space.store, space.project, replace(journal, open=None))
        return (
            f"a restore to {begun.target[:8]} had been interrupted, and what it moved aside is gone, so it was not"
            f" finished; the files before it are checkpoint {begun.before[:8]}"
        )
    try:
        return _finish(space, journal, begun)
    except (ShadowsnapError, OSError) as problem:
        return f"an interrupted restore to {begun.target[:8]} could not be finished yet: {problem}"


def _finish(space: Workspace, journal: Journal, begun: OpenRestore) -> str:
    """Go on where a restore died, or back if the state it led to was deleted meanwhile."""
    chosen = Selection(map(os.fsencode, begun.paths), exact=begun.exact)
    rescued = _rescue_unsaved(space, begun)
    target, before = _if_kept(space, begun.target), _if_kept(space, begun.before)
    if target is not None:
        result = restore(space, target, chosen, Why.from_facts(begun.operation), recovering=True, begun_at=before)
        told = f"a restore to {target.short_id} had been interrupted and was finished"
    elif before is not None:
        result = restore(space, before, chosen, recovering=True, begun_at=before)
        told = f"a restore to {begun.target[:8]} had been interrupted; that is deleted, so the files were put back"
    else:
        write_journal(space.store, space.project, replace(journal, open=None))
        folders = ", ".join(begun.staging)
        return f"an interrupted restore cannot be finished; what it moved aside is in {folders}{rescued}"
    found = f"; the files as they were found are checkpoint {result.undo_id[:8]}" if result.undo_id else ""
    return told + found + rescued


def _rescue_unsaved(space: Workspace, begun: OpenRestore) -> str:
    """Whoever changes a file in the moment before it is moved aside is noticed, but not by a process that
    dies in the next one. So what was moved aside goes only if the store has it."""
    kept: set[bytes] = set()
    for folder in filter(is_staging, map(os.fsencode, begun.staging)):
        try:
            with space.worktree.within(folder) as top:
                inner = [item.name for item in top.items(b"") if item.is_directory]
        except NotADirectoryError:
            continue
        for place in (folder, *(folder + b"/" + name for name in inner)):
            with space.worktree.within(place) as here:
                names = [item.name for item in here.items(b"") if not item.is_directory and not item.is_special]
                ids = {name: _content_id(here, name) for name in names}
                lost = {*missing_objects(space.git, {*ids.values()})}
                for name in (name for name in names if ids[name] in lost):
                    _move_to(space, here, name, folder + b"-unsaved")
                    kept.add(folder + b"-unsaved")
    return f"; what was not saved is in {', '.join(map(os.fsdecode, sorted(kept)))}" if kept else ""


def _move_to(space: Workspace, here: Worktree, name: bytes, folder: bytes) -> None:
    top, _, last = folder.rpartition(b"/")
    with space.worktree.within(top) as above:
        if above.lstat(last) is None:
            above.mkdir(last, 0o700)
    with space.worktree.within(folder) as there:
        here.move(name, name, there)


def _content_id(here: Worktree, name: bytes) -> str:
    seen = here.lstat(name)
    if seen is not None and stat.S_ISLNK(seen.st_mode):
        return object_id(b"blob", here.readlink(name))
    descriptor = here.open(name)
    try:
        return stream_id(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _staging_is_there(space: Workspace, begun: OpenRestore) -> bool:
    """If not, the files were put back, or somebody made the directory anew: then its files are
    none that a restore of ours left."""
    folders = [folder for folder in map(os.fsencode, begun.staging) if is_staging(folder)]
    return any(space.worktree.is_directory(folder) for folder in folders)


def _if_kept(space: Workspace, checkpoint: str) -> Checkpoint | None:
    try:
        return find_checkpoint(space.store, space.project, checkpoint, space.deadline)
    except NoSuchCheckpoint:
        return None
