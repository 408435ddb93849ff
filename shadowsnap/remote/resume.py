"""Resuming: taking a state of another machine over into a directory of this one, and what was said until then."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, MalformedObject, OtherProject, UnsafeTree
from shadowsnap.git.refs import create_ref
from shadowsnap.git.trees import name_problem
from shadowsnap.model import Checkpoint, Conversation
from shadowsnap.remote.identity import identity_of
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import attachment_of, record_checkpoint
from shadowsnap.store.conversations import conversation_in
from shadowsnap.store.history import fold, note, take_number
from shadowsnap.store.lanes import (
    PulledLane,
    lines_in,
    marks_in,
    new_lane,
    read_own_lane,
    readable,
    write_own_lane,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of, touch_record

# What a restore needs to know about a state. Everything else in a checkpoint is about its own machine.
_FACTS = ("modes", "empty_dirs", "absent", "rules", "excludes", "git_head", "git_branch")


# --- where to ----------------------------------------------------------------------------------------


def place_to_resume(
    store: Store, lane: PulledLane, here: Path, directory: Path | None, deadline: Deadline
) -> tuple[Path, bool]:
    """The directory that a lane is resumed in, and whether it is a new one."""
    if directory is None:
        if _why_another(store, lane, here, deadline) is None:
            return here, False
        name = lane.identity.name.rpartition("/")[2]
        usable = name and name_problem(os.fsencode(name)) is None and not name.startswith((".", "-"))
        directory = Path(name if usable else lane.identity.id)
    directory = here / directory
    if not os.path.lexists(directory) or (directory.is_dir() and not os.listdir(directory)):
        return directory, True
    why = _why_another(store, lane, directory, deadline)
    if why is not None:
        project = lane.identity.name or lane.identity.id
        raise OtherProject(workdir=directory, project=project, why=why)
    return directory, False


def _why_another(store: Store, lane: PulledLane, directory: Path, deadline: Deadline) -> str | None:
    """Why a directory is not of the lane's project; None if it is."""
    if not directory.is_dir():
        return "it is no directory"
    project = project_of(directory)
    own = read_own_lane(store, project.id)
    mine = own.identity if own is not None else identity_of(store, project.workdir, deadline)
    if mine is None:
        return "it has files, and nothing says which project they are of"
    return None if mine.is_same(lane.identity) else "it has another first commit or is cloned from elsewhere"


# --- what was said -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastConversation:
    """The newest conversation that a lane holds for a state."""

    tree: str
    """Of the attachments of its checkpoint."""
    agent: str | None
    conversation: Conversation


def last_conversation(
    store: Store, lane: PulledLane, target: Checkpoint, deadline: Deadline
) -> LastConversation | None:
    """What was said until a state of a pulled lane: it is kept with that state, or with an earlier one."""
    marks = {mark.id: mark for mark in marks_in(store, lane, deadline)}
    moment = marks[target.id].moment
    kept = [mark for mark in marks.values() if mark.attachment is not None and mark.moment <= moment]
    tree = max(kept, key=lambda mark: mark.moment).attachment if kept else None
    if tree is None:
        return None
    try:
        found = conversation_in(store, tree, (), deadline, foreign=True)
    except (DamagedObject, MalformedObject, UnsafeTree):
        return None  # made up: the files are none the worse for it
    if found is None or not found.session_id:
        return None
    turns = fold(lane.project, lines_in(store, lane, deadline)).turns.values()
    agents = [turn.agent for turn in turns if turn.session_id == found.session_id and turn.agent]
    return LastConversation(tree, readable(agents[-1]) if agents else None, found)


# --- taking it over ----------------------------------------------------------------------------------


def adopt(space: Workspace, lane: PulledLane, target: Checkpoint, state: str) -> tuple[Checkpoint, dict[str, Any]]:
    """Record a state of a pulled lane as a checkpoint of the project here; it, and the facts of its log line."""
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
    return checkpoint, {"number": number, "checkpoint": checkpoint.id, "reason": reason}


def log_adopted(
    space: Workspace, checkpoint: Checkpoint, facts: dict[str, Any], said: LastConversation | None
) -> None:
    """Write the log lines of a state that was taken over, after it was restored."""
    store, project = space.store, space.project
    note(store, project, "snapshot", session=checkpoint.session_id, **facts)
    if said is None:
        return
    ref = attachment_of(checkpoint.ref)
    create_ref(store.git_dir, ref, said.tree, fsync=store.fsync)
    about: dict[str, Any] = {"session": said.conversation.session_id, "refs": [ref], "agent": said.agent}
    about |= {"messages": said.conversation.message_count, "key": f"resumed-{said.tree[:12]}"}
    note(store, project, "attach", checkpoint=checkpoint.id, began=checkpoint.created_at.timestamp(), **about)


def go_on_as_child(space: Workspace, lane: PulledLane) -> None:
    """From here on the project's own lane knows which one it came from."""
    store, project = space.store, space.project
    own = read_own_lane(store, project.id)
    if own is None:
        identity = identity_of(store, project.workdir, space.deadline) or lane.identity
        own = new_lane(identity)
    if own.lane != lane.lane:
        write_own_lane(store, project.id, replace(own, parent=lane.lane))
