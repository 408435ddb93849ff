"""The lanes of a project on a remote, as `CheckpointManager` offers and describes them: pushing, pulling, and
going on from another machine's state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shadowsnap import timeline as timelines
from shadowsnap.access import Access, PathLike, retry_after_repair
from shadowsnap.errors import DirectoryRefused, KeyNeeded, LaneRefused, NoSuchCheckpoint
from shadowsnap.git.refs import ref_folders
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.remote import lanes as remotes
from shadowsnap.remote import pull as pulling
from shadowsnap.remote import push as pushing
from shadowsnap.remote.lanes import Lane
from shadowsnap.remote.manifest import Opener
from shadowsnap.remote.pull import LastConversation, PullReport
from shadowsnap.remote.push import PushReport
from shadowsnap.remote.storage import Storage, open_storage
from shadowsnap.restore.restore import restore
from shadowsnap.results import LaneEntries, RemoteStatus, Resumed
from shadowsnap.snapshot.ignore_rules import find_repository
from shadowsnap.snapshot.tools import refusal
from shadowsnap.store import lanes as records
from shadowsnap.store.checkpoints import files_of
from shadowsnap.store.lanes import PulledLane, Remote
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, project_of
from shadowsnap.timeline import Timeline


class Lanes:
    """What a manager does with other machines."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def set_remote(
        self,
        working_dir: PathLike,
        name: str,
        url: str,
        recipients: Sequence[str] = (),
        *,
        plain: bool = False,
        conversations: bool = False,
    ) -> Remote:
        return remotes.add_remote(
            self._access.store(), project_of(working_dir), name, url, recipients,
            plain=plain, conversations=conversations, deadline=self._access.deadline(),
        )  # fmt: skip

    def remote(self, working_dir: PathLike) -> Remote | None:
        return records.read_remote(self._access.store(), project_of(working_dir).id)

    def remove_remote(self, working_dir: PathLike) -> Remote:
        return remotes.remove_remote(self._access.store(), project_of(working_dir), self._access.deadline())

    @retry_after_repair
    def push(self, working_dir: PathLike) -> PushReport:
        store = self._access.store()
        self._access.catch_up(store)
        return pushing.push(store, project_of(working_dir), self._access.long_deadline())

    def remote_status(self, working_dir: PathLike | None = None) -> list[RemoteStatus]:
        project = None if working_dir is None else project_of(working_dir).id
        return records.remotes_at_a_glance(self._access.store(), project)

    def pull(
        self, working_dir: PathLike, lanes: Sequence[str] = (), key: PathLike | None = None
    ) -> list[PullReport]:
        store, project = self._access.store(), project_of(working_dir)
        storage, opener = remotes.storage_of(store, project), _opener(key)
        own = pushing.own_lane(store, project, self._access.deadline())
        if lanes:
            wanted = [remotes.find_lane(storage, opener, lane) for lane in lanes]
        else:
            found = remotes.lanes_of(storage, opener, own.identity)
            wanted = [each.lane for each in found if each.lane != own.lane]
        reports: list[PullReport] = []
        unread: list[PullReport] = []
        refused: list[LaneRefused | KeyNeeded] = []
        for lane in wanted:
            try:
                reports.append(self._pull_lane(project, storage, lane, opener)[0])
            except LaneRefused as problem:
                refused.insert(0, problem)
            except KeyNeeded as problem:
                refused.append(problem)
                unread.append(pulling.PullReport("unreadable", lane, "", "", 0, 0))
        if refused and (lanes or not reports or isinstance(refused[0], LaneRefused)):
            raise refused[0]  # after the others: none keeps them away
        return reports + unread

    @retry_after_repair
    def _pull_lane(
        self, project: Project, storage: Storage, lane: str, opener: Opener
    ) -> tuple[PullReport, PulledLane]:
        deadline = self._access.long_deadline()
        return pulling.pull_lane(self._access.store(), storage, lane, opener, deadline)

    def lanes(
        self, url: str | None = None, working_dir: PathLike | None = None, key: PathLike | None = None
    ) -> list[Lane]:
        return remotes.list_lanes(_storage_at(self._access.store(), url, working_dir), _opener(key))

    def pulled(self, working_dir: PathLike, limit: int | None = None) -> list[LaneEntries]:
        store, deadline = self._access.store(), self._access.deadline()
        found = []
        for lane in self.pulled_of(store, project_of(working_dir)):
            newest_first = timelines.read_lane_timeline(store, lane, deadline).entries[::-1]
            entries = [each for each in newest_first if each.kind != "restore"][:limit]
            name = lane.identity.name or lane.identity.id
            found.append(LaneEntries(lane.lane, name, lane.machine.name, tuple(entries)))
        return found

    def forget_pulled(self, store: Store, project: Project) -> None:
        """Drop what was pulled of this project: it may hold what the person wants to be rid of."""
        if lanes := self.pulled_of(store, project):
            records.forget_pulled(store, lanes, self._access.deadline())

    def pulled_of(self, store: Store, project: Project) -> list[PulledLane]:
        """The lanes of other machines that were pulled of this project."""
        if not ref_folders(store.git_dir, records.LANES):
            return []  # before anything is asked about the project
        own = records.read_own_lane(store, project.id)
        mine = own.identity if own else remotes.identity_of(store, project.workdir, self._access.deadline())
        if mine is None:
            return []
        found = records.pulled_lanes(store, self._access.deadline())
        return [each for each in found if each.identity.is_same(mine)]

    def resume(
        self,
        lane: str,
        directory: PathLike | None = None,
        *,
        url: str | None = None,
        working_dir: PathLike | None = None,
        key: PathLike | None = None,
        dry_run: bool = False,
    ) -> Resumed:
        store, opener, deadline = self._access.store(), _opener(key), self._access.long_deadline()
        storage = _storage_at(store, url, working_dir)
        lane, _, ref = lane.partition(":")
        name = remotes.find_lane(storage, opener, lane)
        here, chosen = Path(working_dir or os.getcwd()), Path(directory) if directory else None
        _, pulled = self._pull_lane(project_of(here), storage, name, opener)
        place, new = pulling.place_to_resume(store, pulled, here, chosen, deadline)
        project = project_of(place)
        why = refusal(project.workdir, store.base)
        if why is not None:
            raise DirectoryRefused(workdir=project.workdir, why=why)
        if ref:
            target, state = timelines.state_in_lane(store, pulled, ref, deadline), ref
        else:
            timeline = timelines.read_lane_timeline(store, pulled, deadline, counted=False)
            target, state = _last_safe_state(pulled, timeline)
        conversation = pulling.last_conversation(store, pulled, target, deadline)
        result = self._resume(store, project, pulled, target, state, conversation, dry_run=dry_run, new=new)
        return Resumed(
            lane=pulled.lane,
            project=pulled.identity.name or pulled.identity.id,
            machine=pulled.machine.name,
            workdir=str(project.workdir),
            state=state,
            captured_at=target.created_at,
            result=result,
            new=new,
            missing=target.skipped,
            commit=target.metadata.get("git_head"),
            branch=target.metadata.get("git_branch"),
            commit_here=_head_of(project),
            agent=conversation.agent if conversation is not None else None,
            conversation=conversation.conversation if conversation is not None else None,
        )

    def _resume(
        self, store: Store, project: Project, lane: PulledLane, target: Checkpoint, state: str,
        conversation: LastConversation | None, *, dry_run: bool, new: bool,
    ) -> RestoreResult:  # fmt: skip
        if dry_run and new:  # nothing is there that could be in the way
            files = tuple(files_of(store, target, self._access.deadline()))
            return RestoreResult(target, written=files)
        if new:
            project.workdir.mkdir(parents=True, exist_ok=True)
        with self._access.opened(store, project, "resume", lasting=not dry_run) as (space, recovered):
            if dry_run:
                return replace(restore(space, target), note=recovered)
            checkpoint, facts = pulling.adopt(space, lane, target, state)
            result = restore(space, checkpoint)
            pulling.log_adopted(space, checkpoint, facts, conversation)
            pulling.go_on_as_child(space, lane)
        return replace(result, note=recovered)


def _storage_at(store: Store, url: str | None, working_dir: PathLike | None) -> Storage:
    """The storage at an address, or without one, the remote of the project of a directory."""
    if url:
        return open_storage(url, store)
    return remotes.storage_of(store, project_of(working_dir or os.getcwd()))


def _opener(key: PathLike | None) -> Opener:
    return Opener(None if key is None else Path(key))


def _last_safe_state(lane: PulledLane, timeline: Timeline) -> tuple[Checkpoint, str]:
    """The newest state of a lane that a checkpoint holds as a whole, and what it is."""
    newest = timeline.newest
    whole = [each for each in timeline.checkpoints if each.scope == "tree"]
    for each in whole:
        if newest is not None and (each.id == newest.checkpoint or each.tree == newest.tree):
            return each, newest.name
    if not whole:
        raise NoSuchCheckpoint(ref="last", workdir=lane.lane)
    return whole[0], f"checkpoint {whole[0].short_id}"


def _head_of(project: Project) -> str | None:
    repository = find_repository(project.workdir)
    return repository.head()[0] if repository is not None else None
