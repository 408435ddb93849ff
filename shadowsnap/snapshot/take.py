"""Taking a snapshot: capture, compare with the newest checkpoint, record, and write the log line."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from shadowsnap.deadline import step
from shadowsnap.errors import CheckpointsLost
from shadowsnap.git.index import Known
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.trees import Leaf, TreeReader, is_directory
from shadowsnap.model import Checkpoint
from shadowsnap.snapshot.capture import Capture, files_named, fingerprint
from shadowsnap.snapshot.scan import comparing, is_settled
from shadowsnap.snapshot.states import State, ignored_by_checkpoint, open_tree, tree_differences
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.checkpoints import (
    find_checkpoint,
    find_if_kept,
    list_checkpoints,
    newest_checkpoint,
    newest_name,
    read_checkpoint,
    record_checkpoint,
    text_to_remember,
)
from shadowsnap.store.history import (
    Turn,
    begun_turn,
    complete_log,
    ensure_log,
    logged_end,
    note,
    read_history,
    take_number,
)
from shadowsnap.store.projects import may_lack_checkpoints, read_record, touch_record
from shadowsnap.store.stat_cache import Modes, load_cache

_BEGIN_FACTS = ("agent", "parent", "prompt", "key")
_STILL_RUNNING = 86400.0
"""Seconds after which a turn that never ended no longer counts as under way."""


@dataclass(frozen=True)
class Request:
    """Why a snapshot is taken, and for whom."""

    reason: str
    kind: str = "manual"
    """`turn` (before a tool call), `turn-end`, `manual`, `stage`, `pre-restore`, or `warm-up` (ahead of time)."""
    turn: int | None = None
    """The turn it belongs to; None in a snapshot of kind `turn` begins the project's next."""
    facts: tuple[tuple[str, Any], ...] = ()
    always: bool = False
    """A new checkpoint even if the newest holds just the same."""


class Taken(NamedTuple):
    """The checkpoint that holds the state, whether it is new, and the number of its turn or snapshot."""

    checkpoint: Checkpoint
    new: bool
    number: int | None
    before: str | None = None
    """The state before the turn, if it is another checkpoint: an earlier attempt to begin the turn had taken one,
    or files that were named now had to be added to it."""


def take_snapshot(space: Workspace, request: Request, named: Iterable[bytes] = ()) -> Taken:
    """A checkpoint that holds the whole directory as it is now."""
    return keep_capture(begin_capture(space, named), request)


def take_paths(space: Workspace, request: Request, paths: Iterable[bytes]) -> Taken:
    """A checkpoint of these paths alone."""
    capture = Capture(space, scope="paths")
    capture.include(paths)
    return keep_capture(capture, request)


def begin_capture(space: Workspace, named: Iterable[bytes] = ()) -> Capture:
    with comparing(space) as comparison:
        capture = Capture(space, comparison=comparison)
        capture.scan(named, _usual_modes(space) if capture.is_first else None)
    return capture


def all_held(space: Workspace, paths: Iterable[bytes]) -> bool:
    """Whether the last capture holds every file at these paths and below them. Where it does not, the file may be
    from after it. But it may as well have been ignored, by rules that have changed since or in another place."""
    files = files_named(space, paths)
    held = load_cache(space.store, space.project).index.lookup(files)
    others = (path for path in files if path not in held and space.worktree.reaches(path))
    return all(space.worktree.look(path) is None for path in others)


def holding_checkpoint(space: Workspace, capture: Capture) -> Checkpoint | None:
    """The newest checkpoint that holds just what was captured, if there is one."""
    state = capture.fingerprint()
    same = _newest_if_same(space, capture, state)
    if same is not None:
        return same
    past = list_checkpoints(space.store, space.project, space.deadline, statistics=False)
    return next((each for each in past if each.scope == "tree" and state_of(each) == state), None)


def state_of(checkpoint: Checkpoint) -> str:
    """The fingerprint of what a checkpoint holds: equal for equal states of the files."""
    skipped = [[item.path, item.why] for item in checkpoint.skipped]
    return fingerprint(checkpoint.tree, {**checkpoint.metadata, "scope": checkpoint.scope, "skipped": skipped})


def same_state(capture: Capture, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint holds just what was captured."""
    return checkpoint.scope == capture.scope and state_of(checkpoint) == capture.fingerprint()


def capture_same_scope(space: Workspace, state: State) -> Capture:
    """Capture now what a state is about: the whole directory, or its paths alone."""
    if state.scope == "tree":
        return begin_capture(space)
    capture = Capture(space, scope="paths")
    with ObjectReader(space.git) as reader:
        listed = [*open_tree(reader, state.tree).files_below(b"")]
    # A directory that was made at an absent path is not taken in: it would not be deleted either.
    absent = (path for path in state.absent if not space.worktree.is_directory(path.rstrip(b"/")))
    capture.include({*listed, *absent}, unfiltered=True)
    return capture


def keep_capture(capture: Capture, request: Request) -> Taken:
    """Record what was captured, unless the newest checkpoint holds just that, and write the log line."""
    space, facts = capture.space, capture.facts()
    state = fingerprint(capture.tree(), facts)
    step("snapshot:captured")
    ensure_log(space.store, space.project, space.deadline)
    same = _newest_if_same(space, capture, state)
    begun = _begun(space, request)
    if (ended := _ended(space, request)) is not None:
        return Taken(ended, False, request.turn)
    # What a person takes has an entry, also where the state was captured ahead of time, which has none.
    is_ahead = same is not None and same.kind == "warm-up" and request.kind == "manual"
    if same is not None and not request.always and not is_ahead:
        capture.remember()
        number, begins = _number(space, request, begun, new=False)
        before = _state_before(capture, request, begun) if begun else None
        touch_record(space.store, space.project)
        _log(capture, request, same, number, begins=begins, held=True, before=_if_other(before, begun))
        return Taken(same, False, number, before)
    late, older, turns = _find_late(capture, request)
    # What only new rules let in may be from the turn, unless a tool of the same turn names it.
    capture.late, capture.older = late if _amends(request) else capture.late & late, older
    number, begins = _number(space, request, begun, new=True)
    step("snapshot:numbered")
    amended = _amend(capture, turns, late)
    own = amended.pop(number or 0, None) if request.kind == "turn" else None
    before = _state_before(capture, request, begun) if begun else own
    for other, more in amended.items():
        note(space.store, space.project, "more", turn=other, checkpoint=more, before=more)
    checkpoint = record_checkpoint(
        space.store,
        space.project,
        capture.tree(),
        request.reason,
        _body(capture, facts, request, number),
        objects=space.objects,
    )
    step("snapshot:recorded")
    _log(capture, request, checkpoint, number, begins=begins, held=False, before=_if_other(before, begun))
    step("snapshot:logged")
    if capture.scope == "tree":
        capture.cache.newest = _remembered(space, checkpoint, state)
        capture.remember()
    step("snapshot:remembered")
    touch_record(space.store, space.project, newest=checkpoint.id)
    return Taken(checkpoint, True, number, before)


# --- late files --------------------------------------------------------------------------------------

# A late file is captured for the first time although it may have existed before: the last state skipped it, or its
# rules ignore it, until a tool named it or the rules changed. The states before the turns under way lack it for
# the same reason. It is added to them, unless it changed since they began.


def find_older(capture: Capture) -> set[bytes]:
    """The late files that are older than every turn under way."""
    return _find_late(capture, Request("")).older


class _Late(NamedTuple):
    files: set[bytes]
    """Every late file. Other new files were made since the last state."""
    older: set[bytes]
    """Those that did not change since the last turn under way began, or that a tool names."""
    turns: list[Turn]
    """The turns under way whose states may lack them."""


def _find_late(capture: Capture, request: Request) -> _Late:
    space = capture.space
    newest = _newest(space, capture) if capture.scope == "tree" else None
    new = capture.added() if newest is not None else {}
    if newest is None or not new:
        return _Late(capture.late, capture.late, [])
    state = State.of_checkpoint(newest)
    were_skipped = {path for path in new if state.left_out(path) is not None} if state.skipped else set()
    if not (capture.late or capture.rules_changed or were_skipped):
        return _Late(set(), set(), [])
    own, others = _turns_under_way(space, request)
    turns = [*others, *([own] if own is not None and _goes_on(request) else [])]
    if newest.scope != "tree":
        return _Late(capture.late, capture.late, turns)
    began = max((turn.as_of_ns for turn in (*others, *([own] if own is not None else []))), default=0)
    settled = {path for path in new if is_settled(new[path].ctime_ns, began)}
    doubtful = were_skipped | capture.late
    if capture.rules_changed:
        doubtful |= new.keys() if _amends(request) else settled
    late = _unknown_to(state, doubtful, capture)
    return _Late(late, late & (capture.late | {path for path in settled if _has_same_clock(space, path)}), turns)


def _turns_under_way(space: Workspace, request: Request) -> tuple[Turn | None, list[Turn]]:
    """The turn of the request, and those of other sessions that may still write. A turn that never ended counts as
    over after a day."""
    history, recent = read_history(space.store, space.project, space.deadline), time.time() - _STILL_RUNNING
    own = history.turns.get(request.turn or 0)
    session = own.session_id if own is not None else dict(request.facts).get("session_id")
    of_turn = request.kind in ("turn", "turn-end")
    others = (turn for turn in history.running.values() if not (of_turn and turn.session_id == session))
    return own, [turn for turn in others if turn.began_at > recent]


def _goes_on(request: Request) -> bool:
    """Whether more tools of the same turn may follow: it is about to run one, or one ended."""
    return _amends(request) or (request.kind == "turn-end" and "ended" not in dict(request.facts))


def _amends(request: Request) -> bool:
    return any(name == "amends" for name, _ in request.facts)


def _amend(capture: Capture, turns: list[Turn], late: set[bytes]) -> dict[int, str]:
    """Add late files to the states before the turns under way, so that they are held whichever turn writes to
    them. Returns the new states by turn."""
    space, states = capture.space, dict[int, str]()
    for turn in turns if late else ():
        before = find_if_kept(space.store, space.project, turn.before, space.deadline) if turn.before else None
        unknown = _unknown_before(capture, turn, before, late) if before and before.scope == "tree" else {}
        if before is not None and unknown:
            states[turn.number] = _amended(capture, turn, before, unknown)
    return states


def _unknown_before(capture: Capture, turn: Turn, before: Checkpoint, late: set[bytes]) -> dict[bytes, Known]:
    """The late files that the state before a turn lacks and that did not change since it began."""
    unknown = _unknown_to(State.of_checkpoint(before), late, capture)
    # A file that changed since may be the work of an earlier tool of the turn. Whether it did, only the file
    # system's own clock says: that of the machine may be ahead of it, by a tick or by hours.
    return {
        path: known
        for path, known in capture.known_among(unknown).items()
        if is_settled(known.ctime_ns, turn.as_of_ns) and _has_same_clock(capture.space, path)
    }


def _unknown_to(state: State, paths: set[bytes], capture: Capture) -> set[bytes]:
    """The paths that a state would not hold even if there were files: it skipped them, or its rules ignore
    them."""
    if not paths:
        return set()
    with ObjectReader(capture.space.git) as reader:
        tree = open_tree(reader, state.tree)
        missing = [path for path in sorted(paths) if path not in state.absent and not _decides(tree, path)]
    skipped = {path for path in missing if state.left_out(path) is not None}
    return skipped | ignored_by_checkpoint(capture.space, State.of_capture(capture), state, missing)


def _decides(tree: TreeReader, path: bytes) -> bool:
    """Whether a tree says what was at a path: it holds it, or a file in the place of a directory above it."""
    if tree.find(path) is not None:
        return True
    above = (tree.find(parent) for parent in parents(path))
    return any(leaf is not None and not is_directory(leaf) for leaf in above)


def _amended(capture: Capture, turn: Turn, before: Checkpoint, files: dict[bytes, Known]) -> str:
    """The state before a turn with more files in it. Returns its id."""
    leaves: dict[bytes, Leaf | None] = {path: (known.mode, known.id) for path, known in files.items()}
    skipped = [[item.path, item.why] for item in before.skipped]
    about = {"kind": before.kind, "turn": turn.number, "session_id": turn.session_id, "tool": before.tool}
    about |= {name: getattr(turn, name) for name in _BEGIN_FACTS}
    body = {**before.metadata, **about, "scope": "tree", "skipped": skipped, "amends": before.id}
    body["added"] = sorted(map(os.fsdecode, files))
    body.pop("ms", None)
    tree, body = _with_files(capture.space, before.tree, body, leaves, capture.modes)
    space = capture.space
    return record_checkpoint(space.store, space.project, tree, before.reason, body, objects=space.objects).id


def _has_same_clock(space: Workspace, path: bytes) -> bool:
    """Whether a file is on the file system of the project; another one may have a clock of its own."""
    seen = space.worktree.look(path)
    return seen is not None and seen.st_dev == os.stat(space.project.workdir).st_dev


# --- the turn of a request -----------------------------------------------------------------------------


def _begun(space: Workspace, request: Request) -> Turn | None:
    """The turn of a request that does not know it, if an earlier attempt began it."""
    if request.kind != "turn" or request.turn is not None:
        return None
    return begun_turn(space.store, space.project, dict(request.facts).get("key"))


def _ended(space: Workspace, request: Request) -> Checkpoint | None:
    """The state at the end of a turn, if an earlier attempt ended it: what changed since is not its work."""
    facts = dict(request.facts)
    if request.kind != "turn-end" or "ended" not in facts:
        return None
    line = logged_end(space.store, space.project, request.turn, facts.get("again", 0))
    if line is None or not isinstance(line.get("after"), str):
        return None
    return find_checkpoint(space.store, space.project, line["after"], space.deadline)


def _state_before(capture: Capture, request: Request, begun: Turn) -> str | None:
    """The state before a turn that an earlier attempt began. Where that had time for named files alone, it is the
    whole directory as it is now, with those files as they were then."""
    space = capture.space
    if begun.before is None or capture.scope != "tree":
        return begun.before
    first = find_if_kept(space.store, space.project, begun.before, space.deadline)
    if first is None or first.scope == "tree":
        return begun.before
    tree, facts = capture.tree(), capture.facts()
    for each in reversed([begun.before, *begun.more]):  # what was captured first is the oldest
        part = find_if_kept(space.store, space.project, each, space.deadline)
        if part is not None and part.scope == "paths":
            files = State.of_checkpoint(part)
            leaves: dict[bytes, Leaf | None] = {path.rstrip(b"/"): None for path in files.absent}
            leaves |= {each.path: each.new for each in tree_differences(space.git, EMPTY_TREE, files.tree)}
            tree, facts = _with_files(space, tree, facts, leaves, files.modes)
    body = {**_body(capture, facts, request, begun.number), "amends": begun.before}
    return record_checkpoint(space.store, space.project, tree, first.reason, body, objects=space.objects).id


def _with_files(
    space: Workspace, tree: str, facts: dict[str, Any], leaves: dict[bytes, Leaf | None], their_modes: Modes
) -> tuple[str, dict[str, Any]]:
    """The tree and the facts of a whole directory, with some files as they are in another state."""
    modes = Modes.from_json(facts.get("modes", {}))
    modes.other = {path: bits for path, bits in modes.other.items() if path not in leaves}
    folders: set[bytes] = set()
    for path, leaf in leaves.items():
        if leaf is None:
            continue
        folders.update(parents(path))
        bits = their_modes.other.get(path, their_modes.usual(leaf[0]))
        if bits != modes.usual(leaf[0]):
            modes.other[path] = bits
    full = {os.fsdecode(path) for path in folders | leaves.keys()}
    bare = [path for path in facts.get("empty_dirs", ()) if path not in full]
    skipped = [item for item in facts["skipped"] if os.fsencode(item[0]) not in leaves]
    facts = {**facts, "modes": modes.to_json(), "empty_dirs": bare, "skipped": skipped}
    return _patched(space, tree, leaves), facts


def _patched(space: Workspace, tree: str, leaves: dict[bytes, Leaf | None]) -> str:
    space.objects.flush()
    with ObjectReader(space.git) as reader:
        return reader.changed_tree(tree, leaves, space.objects)


def _if_other(before: str | None, begun: Turn | None) -> str | None:
    """The state before a turn, if the log does not have it yet."""
    return before if begun is None or before != begun.before else None


def _number(space: Workspace, request: Request, begun: Turn | None, *, new: bool) -> tuple[int | None, bool]:
    """The number of the turn or snapshot, and whether a turn begins. A turn has a number even if the state before
    it is held already."""
    if begun is not None:
        return begun.number, False
    begins = request.kind == "turn" and request.turn is None
    if begins or request.kind == "stage" or (request.kind == "manual" and new):
        return take_number(space.store, space.project, space.deadline), begins
    return request.turn, False


def _log(
    capture: Capture,
    request: Request,
    checkpoint: Checkpoint,
    number: int | None,
    *,
    begins: bool,
    held: bool,
    before: str | None = None,
) -> None:
    store, project, facts = capture.space.store, capture.space.project, dict(request.facts)
    session = facts.get("session_id")
    if begins:
        about = {name: facts.get(name) for name in _BEGIN_FACTS} | {"as_of_ns": capture.now_ns or None}
        note(store, project, "begin", turn=number, before=checkpoint.id, held=held, session=session, **about)
    elif request.kind == "turn" and (before or not (held or facts.get("call"))):
        # A call has a line of its own for what was captured now.
        captured = before if before and facts.get("call") else checkpoint.id
        note(store, project, "more", turn=number, checkpoint=captured, before=before)
    if request.kind == "turn" and facts.get("call"):
        note(store, project, "call", turn=number, before=checkpoint.id, tool=facts.get("tool"))
    elif request.kind == "turn-end" and facts.get("call"):
        note(store, project, "call-end", turn=number, before=facts.get("before"), after=checkpoint.id)
    elif request.kind == "turn-end":
        ended, tools = facts.get("ended", "done"), facts.get("tools")
        about = {"tree": checkpoint.tree, "status": ended, "tools": tools, "again": facts.get("again")}
        note(store, project, "end", turn=number, after=checkpoint.id, **about)
    elif request.kind == "manual" and not held:
        about = {"session": session, "reason": request.reason}
        note(store, project, "snapshot", number=number, checkpoint=checkpoint.id, **about)
    elif request.kind == "stage":
        about = {name: facts.get(name) for name in ("before", "edit_id", "risk_tier")}
        about |= {"session": session, "reason": request.reason, "status": "committed"}
        note(store, project, "stage", number=number, after=checkpoint.id, **about)


def _newest_if_same(space: Workspace, capture: Capture, state: str) -> Checkpoint | None:
    if capture.scope != "tree":
        return None
    known, newest = capture.cache.newest, newest_name(space.store, space.project)
    if newest is None:
        store, project = space.store, space.project
        if known and not may_lack_checkpoints(store, project.id, read_record(store, project)):
            raise CheckpointsLost(workdir=project.workdir)
        return None
    if known.get("ref") == newest:
        return _newest(space, capture) if known["state"] == state else None
    # Another process recorded it, or one died before it could remember, perhaps even before the log line.
    complete_log(space.store, space.project, space.deadline)
    checkpoint = newest_checkpoint(space.store, space.project, space.deadline)
    if checkpoint is None or checkpoint.scope != "tree" or state_of(checkpoint) != state:
        return None
    capture.cache.newest = _remembered(space, checkpoint, state)
    return checkpoint


def _newest(space: Workspace, capture: Capture) -> Checkpoint | None:
    """The newest checkpoint. What is remembered of it need not be read again."""
    known, newest = capture.cache.newest, newest_name(space.store, space.project)
    if newest is None or known.get("ref") != newest:
        return newest_checkpoint(space.store, space.project, space.deadline)
    return read_checkpoint(space.store, space.project, newest, space.deadline, known.get("commit", ""))


def _remembered(space: Workspace, checkpoint: Checkpoint, state: str) -> dict[str, str]:
    text = text_to_remember(space.store, checkpoint)
    return {"ref": checkpoint.ref, "state": state, "commit": text}


def _usual_modes(space: Workspace) -> Modes | None:
    """The permission bits that this project's checkpoints leave out."""
    newest = newest_checkpoint(space.store, space.project, space.deadline)
    return Modes.from_json(newest.metadata["modes"]) if newest and newest.metadata.get("modes") else None


def _body(capture: Capture, facts: dict[str, Any], request: Request, number: int | None) -> dict[str, Any]:
    """What the checkpoint says of itself: enough to tell its log line again."""
    head, branch = capture.space.repository.head() if capture.space.repository else (None, None)
    of_turn = request.kind in ("turn", "turn-end")
    return {
        **{name: value for name, value in request.facts if name not in ("tools", "amends")},
        **facts,
        "late": sorted(os.fsdecode(path) for path in capture.late),
        "older": sorted(os.fsdecode(path) for path in capture.older - capture.late),
        "released": sorted(os.fsdecode(path) for path in capture.released),
        "kind": request.kind,
        "turn": number if of_turn else None,
        "number": None if of_turn else number,
        "git_head": head,
        "git_branch": branch,
    }
