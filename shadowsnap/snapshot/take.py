"""Taking a snapshot: capture, compare with the newest checkpoint, record."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from shadowsnap.errors import CheckpointsLost, DamagedObject, GitFailed
from shadowsnap.git.refs import ref_names
from shadowsnap.model import Checkpoint
from shadowsnap.moments import datetime, timezone
from shadowsnap.records import Any, dataclass, replace
from shadowsnap.snapshot.capture import Capture, fingerprint
from shadowsnap.snapshot.content import NotCaptured, read_file
from shadowsnap.snapshot.scan import comparing
from shadowsnap.snapshot.states import State, tree_differences
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.steps import step
from shadowsnap.store.checkpoints import (
    list_checkpoints,
    newest_checkpoint,
    newest_name,
    read_checkpoint,
    record_checkpoint,
    text_to_remember,
)
from shadowsnap.store.journal import read_journal, write_journal
from shadowsnap.store.projects import (
    at_work,
    begun_work,
    forget_begun,
    known_turn,
    note_begun,
    note_quiet,
    read_record,
    touch_record,
    was_emptied,
)
from shadowsnap.store.stat_cache import Modes, load_cache

STILL_AT_WORK_SECONDS = 3600.0
"""A turn that nobody closed may still go on; after so long, a newer one does not wait for it to."""

_LATEST = 50


@dataclass(frozen=True)
class Request:
    """Why a snapshot is taken, and for whom."""

    reason: str
    kind: str = "manual"
    turn: int | None = None
    """The turn it belongs to; None in a snapshot of kind `turn` begins the project's next."""
    facts: tuple[tuple[str, Any], ...] = ()
    always: bool = False
    """A new checkpoint even if the newest holds just the same."""


def take_snapshot(space: Workspace, request: Request, named: Iterable[bytes] = ()) -> tuple[Checkpoint, bool]:
    """The checkpoint that holds the whole directory as it is now, and whether it is new."""
    capture = begin_capture(space, named)
    return keep_capture(capture, request)


def take_paths(space: Workspace, request: Request, paths: Iterable[bytes]) -> Checkpoint:
    """A checkpoint of these paths alone."""
    capture = Capture(space, scope="paths")
    capture.include(paths)
    return keep_capture(capture, request)[0]


def begin_capture(space: Workspace, named: Iterable[bytes] = ()) -> Capture:
    with comparing(space) as comparison:
        capture = Capture(space, comparison=comparison)
        capture.scan(named, _usual_modes(space) if capture.is_first else None)
    return capture


def unprotected(space: Workspace, paths: Iterable[bytes]) -> list[bytes]:
    """Which of these paths exist and are ignored, so that the snapshot of this turn does not hold
    them. (What exists, is not ignored and not held was made after it.)"""
    known = load_cache(space.store, space.project).index.lookup(paths := list(paths))
    doubtful = [path for path in paths if path not in known and space.worktree.reaches(path)]
    there = [path for path in doubtful if space.worktree.look(path) is not None]
    return sorted(space.rules.ignored(there))


def holding_checkpoint(space: Workspace, capture: Capture) -> Checkpoint | None:
    """The newest checkpoint that holds just what was captured, if there is one."""
    state = capture.fingerprint()
    same = _newest_if_same(space, capture, state)
    if same is not None:
        return same
    past = list_checkpoints(space.store, space.project, space.deadline, statistics=False)
    return next((each for each in past if each.scope == "tree" and _state_of(each) == state), None)


def capture_same_scope(space: Workspace, state: State) -> Capture:
    """Capture now what a state is about: the whole directory, or its paths alone."""
    if state.scope == "tree":
        return begin_capture(space)
    capture = Capture(space, scope="paths")
    listed = space.git.run("ls-tree", "-r", "-z", "--name-only", state.tree).split(b"\0")[:-1]
    # A directory that was made at an absent path is not taken in: it would not be deleted either.
    absent = (path for path in state.absent if not space.worktree.is_directory(path.rstrip(b"/")))
    capture.include({*listed, *absent}, unfiltered=True)
    return capture


def keep_capture(capture: Capture, request: Request) -> tuple[Checkpoint, bool]:
    """Record what was captured, unless the newest checkpoint holds just that."""
    space, state = capture.space, capture.fingerprint()
    step("snapshot:captured")
    same = _newest_if_same(space, capture, state)
    if same is not None and not request.always and not _ends_elsewhere(request, same):
        capture.remember()
        _note_if_quiet(space, request, same)
        _note_if_begun(space, request, same)
        touch_record(space.store, space.project)
        return same, False
    request = replace(request, turn=request.turn or _next_turn(space, request))
    body = {**_body(capture, request), "shared": _also_at_work(space, request)}
    checkpoint = record_checkpoint(
        space.store, space.project, capture.tree(), request.reason, body, objects=space.objects
    )
    step("snapshot:recorded")
    if capture.scope == "tree":
        capture.cache.newest = _remembered(space, checkpoint, state)
        capture.remember()
    step("snapshot:remembered")
    touch_record(space.store, space.project, **_to_note(space, checkpoint))
    if request.kind != "pre-restore":
        _end_redo(space, checkpoint.tree)
    return checkpoint, True


def _ends_elsewhere(request: Request, same: Checkpoint) -> bool:
    """Whether a turn did something although the newest checkpoint holds it already: one that somebody
    took meanwhile, and that does not say whose work it is."""
    facts = dict(request.facts)
    before, whose = facts.get("before"), facts.get("session_id")
    if request.kind != "turn-end" or before in (None, same.id):
        return False
    return (same.kind, same.metadata.get("before"), same.session_id) != ("turn-end", before, whose)


def _note_if_quiet(space: Workspace, request: Request, same: Checkpoint) -> None:
    facts = dict(request.facts)
    if request.kind != "turn-end" or facts.get("before") not in (None, same.id):
        return
    what = same.id if "call" in facts else request.turn
    if what is None and same.kind == "turn" and same.session_id == facts.get("session_id"):
        what = same.turn  # an earlier turn that nobody closed: it did nothing either, and is over
    if what is not None:
        note_quiet(space.store, space.project, what)


def _note_if_begun(space: Workspace, request: Request, same: Checkpoint) -> None:
    """A turn, or a call, that begins on what is held already has no checkpoint that says so."""
    whose = dict(request.facts).get("session_id")
    if whose is not None and request.kind == "turn":
        note_begun(space.store, space.project, str(whose), same.id)
    elif whose is not None and request.kind == "turn-end":
        forget_begun(space.store, space.project, str(whose), same.id)


def _newest_if_same(space: Workspace, capture: Capture, state: str) -> Checkpoint | None:
    if capture.scope != "tree":
        return None
    known, newest = capture.cache.newest, newest_name(space.store, space.project)
    if newest is None:
        if known and not was_emptied(read_record(space.store, space.project)):
            raise CheckpointsLost(workdir=space.project.workdir)
        return None
    if known.get("ref") == newest:
        if known["state"] != state:
            return None
        return read_checkpoint(space.store, space.project, newest, space.deadline, known.get("commit", ""))
    # Another process recorded it, or ours died before it could remember.
    checkpoint = newest_checkpoint(space.store, space.project, space.deadline)
    if checkpoint is None or checkpoint.scope != "tree" or _state_of(checkpoint) != state:
        return None
    capture.cache.newest = _remembered(space, checkpoint, state)
    return checkpoint


def _remembered(space: Workspace, checkpoint: Checkpoint, state: str) -> dict[str, str]:
    text = text_to_remember(space.store, checkpoint)
    return {"ref": checkpoint.ref, "state": state, "commit": text}


def _state_of(checkpoint: Checkpoint) -> str:
    skipped = [[item.path, item.why] for item in checkpoint.skipped]
    return fingerprint(checkpoint.tree, {**checkpoint.metadata, "scope": checkpoint.scope, "skipped": skipped})


def _usual_modes(space: Workspace) -> Modes | None:
    """The permission bits that this project's checkpoints are told against."""
    newest = newest_checkpoint(space.store, space.project, space.deadline)
    return Modes.from_json(newest.metadata["modes"]) if newest and newest.metadata.get("modes") else None


def _next_turn(space: Workspace, request: Request) -> int | None:
    if request.kind not in ("turn", "turn-end"):
        return None
    known = known_turn(read_record(space.store, space.project))
    if known:
        return 1 + known
    if newest_name(space.store, space.project) is None:
        return 1
    # The record was damaged: the checkpoints themselves know.
    past = list_checkpoints(space.store, space.project, space.deadline, statistics=False)
    return 1 + max((checkpoint.turn or 0 for checkpoint in past), default=0)


def _body(capture: Capture, request: Request) -> dict[str, Any]:
    head, branch = capture.space.repository.head() if capture.space.repository else (None, None)
    return {
        **dict(request.facts),
        **capture.facts(),
        "late": sorted(os.fsdecode(path) for path in capture.late),
        "released": sorted(os.fsdecode(path) for path in capture.released),
        "kind": request.kind,
        "turn": request.turn,
        "git_head": head,
        "git_branch": branch,
    }


def _also_at_work(space: Workspace, request: Request) -> list[str]:
    """Other sessions whose work may be in what a turn, or a call, seems to have done."""
    if request.kind != "turn-end":
        return []
    facts = dict(request.facts)
    mine = facts.get("session_id")
    if not at_work(read_record(space.store, space.project), time.time() - STILL_AT_WORK_SECONDS).keys() - {mine}:
        return []
    from shadowsnap.snapshot.attribution import others_at_work

    names = ref_names(space.store.git_dir, space.project.refs)[: -_LATEST - 1 : -1]
    latest = [
        read_checkpoint(space.store, space.project, f"{space.project.refs}/{name}", space.deadline)
        for name in names
    ]
    now, workdir = datetime.now(timezone.utc), str(space.project.workdir)
    closing = Checkpoint(
        "", space.project.id, workdir, now, request.reason, request.kind, session_id=mine, turn=request.turn,
        metadata={"before": facts.get("before")}, ref=f"{space.project.refs}/~",
    )  # fmt: skip
    return others_at_work(latest, closing, begun_work(read_record(space.store, space.project)))


def _to_note(space: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """What the record of the project is to know of a new checkpoint."""
    noted: dict[str, Any] = {"turn": checkpoint.turn} if checkpoint.turn else {"newest": checkpoint.id}
    if checkpoint.session_id is not None and checkpoint.kind in ("turn", "turn-end", "stage"):
        now = time.time()
        others = at_work(read_record(space.store, space.project), now - STILL_AT_WORK_SECONDS)
        noted["at_work"] = {**others, checkpoint.session_id: now}
    return noted


def _end_redo(space: Workspace, tree: str) -> None:
    """There is no way forth from files that were changed since the last step back."""
    journal = read_journal(space.store, space.project)
    if journal.redo and journal.at != tree and not _is_what_was_restored(space, journal.at, tree):
        write_journal(space.store, space.project, replace(journal, redo=()))


def _is_what_was_restored(space: Workspace, restored: str, captured: str) -> bool:
    """Whether a capture differs from a state that was restored only in files that captures leave out now, and
    that are as they were restored."""
    try:
        differing = tree_differences(space.git, restored, captured)
        return all(
            item.old is not None
            and item.new is None
            and read_file(space, item.path, unfiltered=True)[:2] == item.old
            for item in differing
        )
    except (NotCaptured, DamagedObject, GitFailed):
        return False
