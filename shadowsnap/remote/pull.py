"""Pulling a lane: from the remote into a scratch directory, from there into the store once everything was checked.

A pulled lane is listed with its machine; undo, revert and prune of the projects here do not affect it. `resume`
takes a state of it over into a directory here.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline, step
from shadowsnap.errors import DamagedObject, LaneRefused, MalformedObject, NoSuchLane, OtherProject, UnsafeTree
from shadowsnap.files import remove_tree, scratch_folder
from shadowsnap.git.maintenance import put_in_place, take_packs
from shadowsnap.git.refs import create_ref
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import name_problem
from shadowsnap.model import Checkpoint, Conversation, Record
from shadowsnap.remote.carrier import read_chain_carrier, write_carrier_rows
from shadowsnap.remote.checking import ArrivedObjects, CheckedCarrier, index_pack
from shadowsnap.remote.git_storage import GitStorage
from shadowsnap.remote.lanes import identity_of
from shadowsnap.remote.manifest import (
    MOST_BYTES,
    Manifest,
    Opener,
    digest_of,
    is_encrypted,
    lane_folder,
    manifest_name,
    manifest_number,
    pack_name,
    parse_manifest,
)
from shadowsnap.remote.storage import Storage, TooLarge
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import attachment_of, record_checkpoint
from shadowsnap.store.conversations import conversation_in
from shadowsnap.store.history import fold, note, take_number
from shadowsnap.store.lanes import (
    PulledLane,
    folder,
    keep_pulled,
    lines_in,
    marks_in,
    new_lane,
    pull_lock,
    pulled_lane,
    read_own_lane,
    readable,
    write_own_lane,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import project_of, touch_record

# The facts that a restore needs. The others in a checkpoint are about its own machine.
_RESTORE_FACTS = ("modes", "empty_dirs", "absent", "rules", "excludes", "git_head", "git_branch")


@dataclass(frozen=True)
class PullReport(Record):
    """What a pull brought. `status`: `pulled`, `up-to-date`, or `unreadable` with the key that was named."""

    json_names = {"project": "project_name", "number": "manifest_number", "checkpoints": "checkpoint_count"}

    status: str
    lane: str
    project: str
    machine: str
    number: int
    checkpoints: int
    bytes: int = 0


class _LaneChanged(Exception):
    """The lane's machine began a new generation while it was read."""


def pull_lane(
    store: Store, storage: Storage, lane: str, opener: Opener, deadline: Deadline
) -> tuple[PullReport, PulledLane]:
    """Bring a lane of another machine up to date here."""
    with locked(pull_lock(store), "pull", deadline):
        for _ in range(3):
            try:
                is_chain = isinstance(storage, GitStorage) and storage.is_chain(lane)
                return (_ChainPull if is_chain else _Pull)(store, storage, lane, opener, deadline).run()
            except _LaneChanged as changed:
                problem = changed
            except LaneRefused:
                if isinstance(storage, GitStorage):
                    storage.forget()
                raise
            finally:
                remove_tree(folder(store) / "arriving")
        raise LaneRefused(lane=lane, why=str(problem))


class _Pull:
    def __init__(self, store: Store, storage: Any, lane: str, opener: Opener, deadline: Deadline) -> None:
        self._store = store
        self._storage: Storage = storage
        self._lane = lane
        self._opener = opener
        self._deadline = deadline
        self._known = pulled_lane(store, lane, deadline)
        self._arriving = folder(store) / "arriving"
        remove_tree(self._arriving)  # left by an interrupted pull
        self._arriving.mkdir(mode=0o700)

    def run(self) -> tuple[PullReport, PulledLane]:
        newest = self._newest_number()
        manifests = self._chain(newest)
        last = manifests[-1]
        if self._known is not None and self._known.number == last[0].number:
            return self._report("up-to-date", self._known, 0), self._known
        due = [each for each in manifests if self._known is None or each[0].number > self._known.number]
        if self._known is not None and last[0].first > self._known.number:
            due = manifests  # a new generation needs nothing older
        # The network first: the store is not locked meanwhile.
        came = [(manifest, self._fetch_pack(manifest)) for manifest, _ in due]
        step("pull:fetched")
        busy = locked(self._store.store_lock(), "pull", self._deadline, shared=True)
        with busy, scratch_folder(self._store.git_dir, "pull", inside="pack") as scratch:
            git = self._store.git(self._deadline).bound(scratch_objects=scratch)
            allowed = self._known_objects()
            for _, file in came:
                pack = scratch / "came"
                self._opener.open_file(file, pack, self._lane)
                file.unlink(missing_ok=True)
                allowed |= index_pack(git, pack, self._lane, allowed)
                pack.unlink()
            if last[0].carrier not in allowed:
                raise self._refused("its carrier did not come with it")
            carrier = CheckedCarrier.read(git, last[0].carrier, self._lane, allowed)
            self._check(git, carrier, allowed)
            put_in_place(git)
            step("pull:stored")
            found = self._record_lane(carrier, last[0].carrier, last[0].number, last[1], _key_digest(last[0]))
        step("pull:kept")
        return self._report("pulled", found, sum(manifest.pack_bytes for manifest, _ in came)), found

    def _check(self, git: Git, carrier: CheckedCarrier, allowed: set[str]) -> None:
        """Check the checkpoints and conversations that a carrier names."""
        arrived = ArrivedObjects(git, self._lane, allowed)
        arrived.check_checkpoints(carrier.marks)
        arrived.check_trees({*carrier.attachments.values()})
        step("pull:checked")

    def _record_lane(
        self, carrier: CheckedCarrier, tree: str, number: int, digest: str, key_digest: str
    ) -> PulledLane:
        found = PulledLane(
            lane=self._lane,
            commit="",
            carrier=tree,
            checkpoints=tuple(mark.id for mark in carrier.marks),
            identity=carrier.identity,
            machine=carrier.machine,
            number=number,
            digest=digest,
            key_digest=key_digest,
            url=self._storage.url,
            parent=carrier.parent,
        )
        return keep_pulled(self._store, found, self._deadline)

    # --- manifests ------------------------------------------------------------------------------------

    def _newest_number(self) -> int:
        numbers = (manifest_number(item.name) for item in self._storage.items(lane_folder(self._lane)))
        newest = max((number for number in numbers if number is not None), default=0)
        if self._known is not None and newest < self._known.number:
            raise self._rolled_back(newest, self._known.number)
        if not newest:
            raise NoSuchLane(lane=self._lane, url=self._storage.url)
        return newest

    def _chain(self, newest: int) -> list[tuple[Manifest, str]]:
        """The manifests and their digests, from the first of the generation, or the known one, to the newest. Each
        has the digest of the one before it, so none can be inserted, left out or replaced."""
        found = [self._manifest(newest)]
        first = found[0][0].first
        stop = max(first, self._known.number) if self._known is not None else first
        while found[0][0].number > stop:
            manifest, digest = self._manifest(found[0][0].number - 1)
            if digest != found[0][0].previous:
                raise self._refused(f"manifest {manifest.number} is not the one that the next one was built on")
            if manifest.first != first:
                raise self._refused(f"manifest {manifest.number} is of another generation than the next one")
            found.insert(0, (manifest, digest))
        known = self._known
        if known is not None and found[0][0].number == known.number and found[0][1] != known.digest:
            raise self._refused(f"manifest {known.number} is another than the one that was seen before")
        self._check_writer({_key_digest(manifest) for manifest, _ in found})
        return found

    def _check_writer(self, keys: set[str]) -> None:
        """Check that all manifests have the same secret of their machine; in a plain lane they have none."""
        known = set() if self._known is None else {self._known.key_digest}
        if len(keys | known) > 1:
            raise self._refused("not all of its manifests were written by the same machine")

    def _manifest(self, number: int) -> tuple[Manifest, str]:
        try:
            stored = self._storage.get(manifest_name(self._lane, number), MOST_BYTES)
        except TooLarge:
            raise self._refused(f"manifest {number} is too large") from None
        if stored is None:
            raise _LaneChanged(f"manifest {number} is missing")
        opened = self._opener.open(stored, self._lane)
        manifest = parse_manifest(opened, self._lane, number)
        if bool(manifest.key) != is_encrypted(stored):
            raise self._refused(f"manifest {number} is not encrypted as it should be")
        return manifest, digest_of(stored)

    # --- objects --------------------------------------------------------------------------------------

    def _known_objects(self) -> set[str]:
        """Every object that came with this lane before."""
        if self._known is None:
            return set()
        listed = self._store.git(self._deadline).run(
            "rev-list", "--objects", "--no-object-names", self._known.commit
        )
        return set(listed.decode("ascii").split()) - {self._known.commit}

    def _fetch_pack(self, manifest: Manifest) -> Path:
        """Fetch the pack of a manifest into a file."""
        sealed = self._arriving / str(manifest.number)
        name = f"the pack of manifest {manifest.number}"
        try:
            there = self._storage.get_file(pack_name(self._lane, manifest.pack), sealed, manifest.pack_bytes)
        except TooLarge:
            raise self._refused(f"{name} is larger than the manifest says") from None
        if not there:
            raise _LaneChanged(f"{name} is missing")
        with sealed.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != manifest.pack:
                raise self._refused(f"{name} is another one, was damaged, or is not complete")
            file.seek(0)
            if bool(manifest.key) != is_encrypted(file.read(64)):
                raise self._refused(f"{name} is not encrypted as it should be")
        return sealed

    def _report(self, status: str, lane: PulledLane, size: int) -> PullReport:
        name = lane.identity.name or lane.identity.id
        return PullReport(status, lane.lane, name, lane.machine.name, lane.number, len(lane.checkpoints), size)

    def _rolled_back(self, newest: int, known: int) -> LaneRefused:
        seen = f"the remote shows manifest {newest}, and {known} was seen there before"
        return self._refused(f"{seen}: it was set back to an older state")

    def _refused(self, why: str) -> LaneRefused:
        return LaneRefused(lane=self._lane, why=why)


class _ChainPull(_Pull):
    """A pull of a plain lane on a git server (the chain in `carrier`). The fetch hashes and checks every object,
    into a repository of its own. The lane is checked there; then its packs become the store's."""

    _storage: GitStorage

    def run(self) -> tuple[PullReport, PulledLane]:
        git, tip = self._storage.fetched(self._lane)
        git = git.bound(deadline=self._deadline)
        step("pull:fetched")
        self._check_writer({""})
        known = self._known
        if known is not None and known.digest == tip:
            return self._report("up-to-date", known, 0), known
        allowed = set(git.run("rev-list", "--objects", "--no-object-names", tip).decode("ascii").split())
        carrier, number = read_chain_carrier(git, tip, self._lane, allowed)
        if known is not None and number < known.number:
            raise self._rolled_back(number, known.number)
        if known is not None and number == known.number:
            raise self._refused(f"manifest {number} is another than the one that was seen before")
        self._check(git, carrier, allowed)
        with locked(self._store.store_lock(), "pull", self._deadline, shared=True):
            size = take_packs(git, self._store.git(self._deadline), allowed)
            rows = (carrier.about, carrier.rows, carrier.lines, carrier.attachments)
            tree, _ = write_carrier_rows(self._store.objects, *rows)
            step("pull:stored")
            found = self._record_lane(carrier, tree, number, tip, "")
        step("pull:kept")
        return self._report("pulled", found, size), found


def _key_digest(manifest: Manifest) -> str:
    return digest_of(manifest.key.encode()) if manifest.key else ""


# --- resuming: the directory --------------------------------------------------------------------------------


def place_to_resume(
    store: Store, lane: PulledLane, here: Path, directory: Path | None, deadline: Deadline
) -> tuple[Path, bool]:
    """The directory that a lane is resumed in, and whether it is a new one."""
    if directory is None:
        if _other_project_reason(store, lane, here, deadline) is None:
            return here, False
        name = lane.identity.name.rpartition("/")[2]
        usable = name and name_problem(os.fsencode(name)) is None and not name.startswith((".", "-"))
        directory = Path(name if usable else lane.identity.id)
    directory = here / directory
    if not os.path.lexists(directory) or (directory.is_dir() and not os.listdir(directory)):
        return directory, True
    why = _other_project_reason(store, lane, directory, deadline)
    if why is not None:
        project = lane.identity.name or lane.identity.id
        raise OtherProject(workdir=directory, project=project, why=why)
    return directory, False


def _other_project_reason(store: Store, lane: PulledLane, directory: Path, deadline: Deadline) -> str | None:
    """Why a directory does not belong to the lane's project; None if it does."""
    if not directory.is_dir():
        return "it is no directory"
    project = project_of(directory)
    own = read_own_lane(store, project.id)
    here = own.identity if own is not None else identity_of(store, project.workdir, deadline)
    if here is None:
        return "it has files, and nothing says which project they are of"
    return None if here.is_same(lane.identity) else "it has another first commit or is cloned from elsewhere"


# --- resuming: the last conversation ---------------------------------------------------------------------------


@dataclass(frozen=True)
class LastConversation:
    """The newest conversation that a lane holds for a state."""

    tree: str
    """The tree of the attachments."""
    agent: str | None
    conversation: Conversation


def last_conversation(
    store: Store, lane: PulledLane, target: Checkpoint, deadline: Deadline
) -> LastConversation | None:
    """The conversation up to a state of a pulled lane. It is kept with that state, or with an earlier one."""
    marks = {mark.id: mark for mark in marks_in(store, lane, deadline)}
    moment = marks[target.id].moment
    kept = [mark for mark in marks.values() if mark.attachment is not None and mark.moment <= moment]
    tree = max(kept, key=lambda mark: mark.moment).attachment if kept else None
    if tree is None:
        return None
    try:
        found = conversation_in(store, tree, (), deadline, foreign=True)
    except (DamagedObject, MalformedObject, UnsafeTree):
        return None  # it is malformed; the files can be restored without it
    if found is None or not found.session_id:
        return None
    turns = fold(lane.project, lines_in(store, lane, deadline)).turns.values()
    agents = [turn.agent for turn in turns if turn.session_id == found.session_id and turn.agent]
    return LastConversation(tree, readable(agents[-1]) if agents else None, found)


# --- resuming: taking it over ----------------------------------------------------------------------------------


def adopt(space: Workspace, lane: PulledLane, target: Checkpoint, state: str) -> tuple[Checkpoint, dict[str, Any]]:
    """Record a state of a pulled lane as a checkpoint of the project here; returns it and the facts of its log
    line."""
    number = take_number(space.store, space.project, space.deadline)
    reason = f"resumed from {lane.machine.name or lane.machine.id}: {state}"
    body: dict[str, Any] = {name: target.metadata[name] for name in _RESTORE_FACTS if name in target.metadata}
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
    # Without this line, the checkpoint would get an entry of its own, before that of the restore.
    note(space.store, space.project, "adopt", checkpoint=checkpoint.id, original=target.id, lane=lane.lane)
    touch_record(space.store, space.project)
    return checkpoint, {"number": number, "checkpoint": checkpoint.id, "reason": reason}


def log_adopted(
    space: Workspace, checkpoint: Checkpoint, facts: dict[str, Any], last: LastConversation | None
) -> None:
    """Write the log lines of a state that was taken over, after it was restored."""
    store, project = space.store, space.project
    note(store, project, "snapshot", session=checkpoint.session_id, **facts)
    if last is None:
        return
    ref = attachment_of(checkpoint.ref)
    create_ref(store.git_dir, ref, last.tree, fsync=store.fsync)
    about: dict[str, Any] = {"session": last.conversation.session_id, "refs": [ref], "agent": last.agent}
    about |= {"messages": last.conversation.message_count, "key": f"resumed-{last.tree[:12]}"}
    note(store, project, "attach", checkpoint=checkpoint.id, began=checkpoint.created_at.timestamp(), **about)


def go_on_as_child(space: Workspace, lane: PulledLane) -> None:
    """Make a pulled lane the parent of the project's own."""
    store, project = space.store, space.project
    own = read_own_lane(store, project.id)
    if own is None:
        identity = identity_of(store, project.workdir, space.deadline) or lane.identity
        own = new_lane(identity)
    if own.lane != lane.lane:
        write_own_lane(store, project.id, replace(own, parent=lane.lane))
