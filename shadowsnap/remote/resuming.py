"""Taking a state of another machine over into a project of this one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.refs import create_ref
from shadowsnap.git.trees import parse_tree
from shadowsnap.model import Checkpoint
from shadowsnap.remote.identity import identity_of
from shadowsnap.snapshot.tools import bounded_id
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import attachment_of, record_checkpoint
from shadowsnap.store.conversations import read_conversation
from shadowsnap.store.history import note, take_number
from shadowsnap.store.lanes import PulledLane, marks_in, new_lane, read_own_lane, write_own_lane
from shadowsnap.store.projects import touch_record

# What a restore needs to know about a state. Everything else in a checkpoint is about its own machine.
_FACTS = ("modes", "empty_dirs", "absent", "rules", "excludes", "git_head", "git_branch")


@dataclass(frozen=True)
class Adopted:
    checkpoint: Checkpoint
    original: Checkpoint
    number: int
    reason: str


def adopt(space: Workspace, lane: PulledLane, target: Checkpoint, state: str) -> Adopted:
    """Record a state of a pulled lane as a checkpoint of the project here."""
    number = take_number(space.store, space.project, space.deadline)
    reason = f"resumed from {lane.machine.name or lane.machine.id}: {state}"
    body: dict[str, Any] = {name: target.metadata[name] for name in _FACTS if name in target.metadata}
    body |= {
        "kind": "manual",
        "scope": target.scope,
        "number": number,
        "session_id": target.session_id,
        "skipped": [[item.path, item.why] for item in target.skipped],
        "resumed_lane": lane.lane,
        "original_id": target.id,
    }
    checkpoint = record_checkpoint(space.store, space.project, target.tree, reason, body, objects=space.objects)
    # A checkpoint that no line mentions would become an entry before the restore.
    note(space.store, space.project, "adopt", checkpoint=checkpoint.id, original=target.id, lane=lane.lane)
    touch_record(space.store, space.project)
    return Adopted(checkpoint, target, number, reason)


def log_adopted(space: Workspace, lane: PulledLane, adopted: Adopted) -> tuple[str, ...]:
    """Write the log lines of a state that was taken over, after it was restored; the sessions whose conversations
    came with it."""
    store, project, checkpoint = space.store, space.project, adopted.checkpoint
    facts = {"number": adopted.number, "checkpoint": checkpoint.id, "reason": adopted.reason}
    note(store, project, "snapshot", session=checkpoint.session_id, **facts)
    marks = marks_in(store, lane, space.deadline)
    tree = next((mark.attachment for mark in marks if mark.id == adopted.original.id), None)
    if tree is None:
        return ()
    ref = attachment_of(checkpoint.ref)
    create_ref(store.git_dir, ref, tree, fsync=store.fsync)
    with ObjectReader(space.git) as reader:
        folders = len(parse_tree(reader.read(tree, b"tree")))
    found = read_conversation(store, checkpoint.ref, (), space.deadline) if folders else None
    if found is None or not found.session_id:
        return ()
    session = bounded_id(str(found.session_id))
    about = {"session": session, "refs": [ref], "messages": found.message_count, "key": f"resumed-{tree[:12]}"}
    note(store, project, "attach", checkpoint=checkpoint.id, began=checkpoint.created_at.timestamp(), **about)
    return (session,)


def go_on_as_child(space: Workspace, lane: PulledLane) -> None:
    """From here on the project's own lane knows which one it came from."""
    store, project = space.store, space.project
    own = read_own_lane(store, project.id)
    if own is None:
        identity = identity_of(store, project.workdir, space.deadline) or lane.identity
        own = new_lane(identity)
    if own.lane != lane.lane:
        write_own_lane(store, project.id, replace(own, parent=lane.lane))
