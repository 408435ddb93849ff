"""The one object for programs: a `CheckpointManager` takes snapshots, shows the timeline, and brings states back.

The calls of an agent loop (`new_turn`, `before_tool`, `after_tool`, `ensure_checkpoint`, `end_turn`) never raise;
everything else raises subclasses of `ShadowsnapError`. What those calls do is in `loop.py`, and the way to the
store and into a project in `access.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from shadowsnap import questions, results
from shadowsnap import timeline as timelines
from shadowsnap.access import Access, PathLike, Reference, check_there, retry_after_repair
from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    BadArguments,
    DamagedObject,
    GitFailed,
    NoConversation,
    NoSuchCheckpoint,
    NoSuchSession,
    NoSuchTurn,
    PlanOutdated,
    RestoreFailed,
    RevertRefused,
    ShadowsnapError,
)
from shadowsnap.git.objects import EMPTY_TREE, count_objects
from shadowsnap.git.refs import read_refs
from shadowsnap.loop import AgentLoop, TurnStatus, as_list, why_unusable
from shadowsnap.model import (
    Checkpoint,
    CheckpointKind,
    Conversation,
    Diff,
    Entry,
    Kept,
    Now,
    Outcome,
    RestoreResult,
    Session,
    SessionStatus,
    Skipped,
)
from shadowsnap.restore import plan as plans
from shadowsnap.restore import restore as restores
from shadowsnap.restore import undo as undos
from shadowsnap.restore.restore import Stage
from shadowsnap.results import (
    Bisection,
    BlamedLine,
    Checkup,
    ClearReport,
    Fork,
    ImportedItem,
    ImportReport,
    LaneEntries,
    Probe,
    PruneResult,
    PurgeResult,
    Reclaimed,
    RemoteStatus,
    Resumed,
    StoreStatus,
    SweepReport,
    Verification,
)
from shadowsnap.settings import Granularity, Settings, SettingValues
from shadowsnap.snapshot.attribution import Work, work_of_session, work_of_turn
from shadowsnap.snapshot.copies import note_verified, temporary_folder, verify, write_copy
from shadowsnap.snapshot.ignore_rules import find_repository
from shadowsnap.snapshot.states import Selection, State, compare
from shadowsnap.snapshot.take import Request, begin_capture, capture_same_scope, find_older, take_snapshot
from shadowsnap.snapshot.tools import bounded_id, path_inside, refusal
from shadowsnap.store import lanes as lane_records
from shadowsnap.store.checkpoints import (
    contents_now,
    contents_of,
    count_pairs,
    delete_checkpoints,
    files_of,
    list_checkpoints,
    newest_name,
    set_label,
    set_pinned,
    touching,
)
from shadowsnap.store.history import (
    History,
    compact_log,
    ensure_log,
    note,
    own_of_host,
    read_history,
    resolve,
)
from shadowsnap.store.lanes import Remote
from shadowsnap.store.layout import Store, has_store, is_prune_due, mark_pruned, open_store
from shadowsnap.store.projects import (
    Project,
    content_of,
    known_projects,
    last_writes,
    locked_project,
    note_emptied,
    note_writes,
    project_of,
)
from shadowsnap.turns import BackgroundJobs, attach_conversation, conversation_at
from shadowsnap.upkeep import clear as clearing
from shadowsnap.upkeep import doctor, importing
from shadowsnap.upkeep import prune as pruning
from shadowsnap.upkeep import reclaim as reclaiming
from shadowsnap.upkeep import status as store_status
from shadowsnap.upkeep.prune import SweepRules

if TYPE_CHECKING:  # for annotations: few programs listen, and few projects have a remote
    from shadowsnap.events import Event
    from shadowsnap.lanes import Lanes
    from shadowsnap.remote.lanes import Lane
    from shadowsnap.remote.pull import PullReport
    from shadowsnap.remote.push import PushReport

OnConflict = Literal["keep", "markers", "theirs"]
ReclaimMode = Literal["all", "when-it-pays", "always", "never"]
When = datetime | float | None

NOT_THE_AGENTS, NOT_REMOVED = "not what an agent wrote", "it cannot be removed"


class CheckpointManager:
    """Takes a snapshot of a directory before an agent's first writing tool call of a turn, and brings any
    state back. One manager serves any number of directories and threads.

    In an agent loop (nothing of this raises):

        manager.new_turn(session_id, prompt)            # the person's message
        manager.before_tool(name, arguments, cwd)       # before every tool call
        manager.end_turn()                              # the agent is done

    To look: `timeline`, `now`, `diff`, `files`, `contents`, `list_checkpoints`, `get`, `sessions`, `search`.
    To go back: `restore`, `undo`, `redo`, `revert`. To try something: `stage`.
    To keep: `pin`, `label`, `delete`, `purge`, `prune`, `doctor`, `status`.

    A state is named by a reference: the number of a turn (the state before it) or of a snapshot, `"3:after"`,
    `"last"`, `"last~2"`, a label, digits of an id, a `Checkpoint`, or an `Entry` of the timeline."""

    def __init__(
        self,
        enabled: bool = True,
        max_snapshots: int = 20,
        max_total_size_mb: float = 500,
        max_file_size_mb: float = 10,
        base: PathLike | None = None,
        on_event: Callable[[Event], None] | None = None,
        *,
        deadline: float = 30.0,
        excludes: Sequence[str] = (),
        include_secrets: bool = False,
        capture_secrets: Sequence[str] = (),
        fsync: bool = True,
        import_legacy: bool = True,
        retention_days: float = 30,
        orphan_grace_days: float = 7,
        attachment_days: float = 30,
        max_attachments_mb: float = 100,
        keep_conversations: bool = True,
        max_conversation_mb: float = 50,
        redact: Sequence[str] = (),
        min_interval_hours: float = 24,
        upkeep_deadline: float = 600.0,
        granularity: Granularity = "turn",
        background_upkeep: bool = True,
        resident: bool = True,
        sync: bool = False,
    ) -> None:
        settings = Settings(
            enabled=enabled,
            max_snapshots=max_snapshots,
            max_total_size_mb=max_total_size_mb,
            max_file_size_mb=max_file_size_mb,
            base=Path(base) if base else None,
            deadline=deadline,
            excludes=_texts(excludes),
            include_secrets=include_secrets,
            capture_secrets=_texts(capture_secrets),
            fsync=fsync,
            import_legacy=import_legacy,
            retention_days=retention_days,
            orphan_grace_days=orphan_grace_days,
            attachment_days=attachment_days,
            max_attachments_mb=max_attachments_mb,
            keep_conversations=keep_conversations,
            max_conversation_mb=max_conversation_mb,
            redact=_texts(redact),
            min_interval_hours=min_interval_hours,
            upkeep_deadline=upkeep_deadline,
            granularity=granularity,
            background_upkeep=background_upkeep,
            resident=resident,
            sync=sync,
        )
        self._set_up(Access(settings, on_event))

    @classmethod
    def from_settings(
        cls, on_event: Callable[[Event], None] | None = None, **flags: Unpack[SettingValues]
    ) -> CheckpointManager:
        """A manager with the person's own settings: their settings file, SHADOWSNAP_* variables, and `flags`
        above all. Each project may narrow them for itself."""
        manager = cls.__new__(cls)
        manager._set_up(Access.of_person(on_event, **flags))
        return manager

    def __copy__(self) -> CheckpointManager:
        """Another manager with a turn of its own, which shares everything else."""
        manager = type(self).__new__(type(self))
        manager._set_up(self._access, self._loop.jobs)
        return manager

    def _set_up(self, access: Access, jobs: BackgroundJobs | None = None) -> None:
        self._access = access
        self._loop = AgentLoop(access, jobs)

    @cached_property
    def _lanes(self) -> Lanes:
        from shadowsnap.lanes import Lanes  # here: few projects have a remote

        return Lanes(self._access)

    @property
    def settings(self) -> Settings:
        return self._access.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._access.settings = settings

    @property
    def warnings(self) -> list[str]:
        """What was ignored in settings files and variables, and why."""
        return self._access.warnings

    # --- the agent loop: nothing here raises ----------------------------------------------------------

    def new_turn(
        self,
        session_id: str | None = None,
        prompt: str | None = None,
        conversation: Any = None,
        *,
        agent: str | None = None,
        parent: str | None = None,
    ) -> None:
        """A new message of the person: the next writing tool call takes a new snapshot, and the timeline
        shows what was asked. `conversation` is what was said so far: JSON data, or the path of a
        transcript. `agent` and `parent` (the session that this one came from) describe the session."""
        self._loop.new_turn(session_id, prompt, conversation, agent, parent)

    def before_tool(
        self,
        tool_name: str,
        tool_input: Any = None,
        cwd: PathLike | None = None,
        roots: Iterable[PathLike] = (),
    ) -> Outcome:
        """Call this before each tool call: it makes everything safe that the tool may write to. That is the
        project around `cwd`, further `roots` of the workspace, and the projects of paths that the input names;
        of a named file outside any project, the file alone. A tool that only reads is `not-needed`; of several
        directories, the outcome that matters most is returned and its note names the others."""
        return self._loop.before_tool(tool_name, tool_input, cwd, roots)

    def after_tool(self, tool_name: str, tool_input: Any = None, cwd: PathLike | None = None) -> Outcome:
        """Call this after each tool call if the `granularity` is `tool`: what the call did is its work, and what
        happens until the next one is not the agent's. Of calls that run at the same time, the last one closes
        for all."""
        return self._loop.after_tool(tool_name, tool_input, cwd)

    def ensure_checkpoint(
        self,
        working_dir: PathLike,
        reason: str = "auto",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
        **labels: Any,
    ) -> Outcome:
        """Make sure that the directory as it was at the beginning of this turn is safe. `paths` are files that
        a tool names: they are captured even if ignored. `labels` are the host's own facts about the checkpoint,
        as in `snapshot`."""
        return self._loop.ensure_checkpoint(working_dir, reason, paths, tool, labels)

    def end_turn(self, conversation: Any = None, status: TurnStatus = "done") -> list[Outcome]:
        """Close the turn with a snapshot of each directory that it touched. `conversation` is what was said up
        to now, as in `new_turn`; `status` is `interrupted` if the agent did not finish."""
        return self._loop.end_turn(conversation, status)

    def end_session(self, session_id: str | None = None, status: SessionStatus = "completed") -> None:
        """Note how a session ended: `completed`, `failed` or `rolled_back`. A turn that comes later makes it
        `active` again. Without an id it is that of this turn."""

        def log() -> None:
            wanted = session_id if session_id is not None else self._loop.turn.session_id
            if status not in timelines.SESSION_STATUSES:
                raise BadArguments(what=f"{status!r} is not one of {', '.join(timelines.SESSION_STATUSES)}")
            store = Store(self.settings.resolved_base(), self.settings.fsync)
            if not wanted or not store.git_dir.is_dir():
                return
            wanted = bounded_id(str(wanted))
            projects = timelines.projects_of_session(store, self._access.deadline(), wanted)
            for project in projects:
                with locked_project(store, project, "ending a session", self._access.deadline()):
                    ensure_log(store, project, self._access.deadline())
                    note(store, project, "session", session=wanted, status=status)
            if self.settings.sync:
                self._loop.sync(projects)

        self._loop.jobs.wait()
        self._loop.safely(log)


    def turn_state(self) -> dict[str, Any]:
        """This turn as JSON, for another process of the same agent to go on with."""
        return self._loop.turn_state()

    def resume_turn(self, state: dict[str, Any]) -> None:
        """Go on with a turn of another process: what that one took is already taken. A state that cannot be
        read is a turn that just began."""
        self._loop.resume_turn(state)

    def warm_up(self, working_dir: PathLike) -> bool:
        """Let a process in the background do the work of the first snapshot, while the model is thinking; a
        snapshot that comes meanwhile joins it. Returns at once, and says whether it was started: not if there
        is a checkpoint already, nor where none would be taken."""
        return self._loop.warm_up(working_dir)

    def watch(self, working_dir: PathLike) -> bool:
        """Let the system report what happens in a directory from now on, so that a snapshot looks only at what
        was touched since the last one. The first snapshot from now on scans everything once more, and so does
        any for which that is not known: nothing else changes. Returns whether it is watched; not where the
        system cannot report, nor where no snapshot would be taken."""
        return self._access.watch(working_dir)

    def unwatch(self, working_dir: PathLike) -> None:
        """Stop watching a directory. (Everything that is watched ends with the manager, too.)"""
        self._access.unwatch(working_dir)

    # --- taking ---------------------------------------------------------------------------------------

    def snapshot(
        self,
        working_dir: PathLike,
        reason: str = "manual",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
        session_id: str | None = None,
        always: bool = False,
        *,
        host: str | None = None,
        **labels: Any,
    ) -> Outcome:
        """Take a checkpoint now, whatever the turn; `always`: even if nothing changed since the last. Unlike
        `ensure_checkpoint` it raises what goes wrong; `labels` are the host's own facts about it, kept in its
        metadata. A `host` that gives its name compares with its own last state (see `position`), whatever others
        took since; `max_snapshots` is for what it took alone, or the label `keep`, if that is more."""
        if not self.settings.enabled:
            return Outcome("disabled")
        project = project_of(working_dir)
        named = [path_inside(project.workdir, path) for path in as_list(paths)]
        session = None if session_id is None else bounded_id(str(session_id))
        facts = (*labels.items(), ("host", host), ("session_id", session), ("tool", tool))
        request = Request(str(reason), "manual", None, facts, always or host is not None)
        outcome = None if always or host is None else self._unchanged_for(project, host)
        if outcome is None:
            outcome, *_ = self._loop.take(project, request, list(filter(None, named)))
        self._loop.report(working_dir, outcome)
        if outcome.checkpoint is None and outcome.error is not None:
            raise outcome.error
        return outcome

    @retry_after_repair
    def _unchanged_for(self, project: Project, host: str) -> Outcome | None:
        """The outcome if the files are as a host last saved them or brought them back; at first, if there are
        none."""
        store = self._access.store()
        self._access.catch_up(store)
        if refusal(project.workdir, store.base) or why_unusable(project.workdir):
            return None
        at = self._position(store, project, host)
        if at is None:
            return Outcome("unchanged") if self._present(store, project) == EMPTY_TREE else None
        return None if self.diff(project.workdir, at.id) else Outcome("unchanged", at)

    def take_first(self, working_dir: PathLike) -> Outcome:
        """Take the first snapshot of a project ahead of time, as `warm_up` does. It is no entry of the timeline:
        the first turn begins on it."""
        return self._loop.take_first(working_dir)

    def stage(
        self,
        working_dir: PathLike,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        message: str = "stage",
    ) -> Stage:
        """Edits that are kept or put back as a whole: `with manager.stage(...) as s:`. It begins only on files
        that a checkpoint holds; an exception, or `s.discard()`, returns to that state."""
        store, project = self._access.store(), project_of(working_dir)
        facts = {"edit_id": edit_id, "session_id": session_id, "risk_tier": risk_tier}

        def committed(checkpoint: Checkpoint, new: bool) -> None:
            outcome = Outcome("taken" if new else "unchanged", checkpoint, skipped=checkpoint.skipped)
            self._loop.report(checkpoint.workdir, outcome)

        def discarded(result: RestoreResult) -> None:
            self._restored(result, "stage")
            self._loop.safely(lambda: self._log_discarded(store, project, facts, result))

        return restores.Stage(
            lambda doing: self._access.opened_alone(store, project, doing), facts, message, committed, discarded
        )

    @retry_after_repair
    def commit_since(
        self,
        working_dir: PathLike,
        before: str,
        message: str,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        **labels: Any,
    ) -> Checkpoint:
        """Keep what was done since a checkpoint as a stage, which `revert` and `revert_stage` can take back.
        Unlike `stage`, nothing is put back by itself if this is never called."""
        store, project = self._access.known(working_dir)
        with self._access.opened(store, project, "stage") as (space, _):
            beginning = resolve(store, project, before, space.deadline)
            facts = {**labels, "edit_id": edit_id, "session_id": session_id, "risk_tier": risk_tier}
            request = Request(message, "stage", facts=(*facts.items(), ("before", beginning.id)), always=True)
            return take_snapshot(space, request).checkpoint

    # --- looking --------------------------------------------------------------------------------------

    @retry_after_repair
    def timeline(
        self,
        working_dir: PathLike,
        limit: int | None = None,
        session_id: str | None = None,
        path: PathLike | None = None,
        *,
        restores: bool = False,
    ) -> list[Entry]:
        """What happened, newest first: turns with what was asked, the person's own edits between them,
        snapshots, and with `restores` also restores, undos and reverts. `path`: only entries that changed it."""
        self._loop.jobs.wait()
        store, project = self._access.known(working_dir)
        inside = None if path is None else path_inside(project.workdir, path)
        entries = timelines.read_timeline(store, project, self._access.deadline(), inside).entries[::-1]
        session = None if session_id is None else self._session_id(session_id, project)
        chosen = [
            entry
            for entry in entries
            if (restores or entry.kind != "restore") and session in (None, entry.session_id)
        ]
        return chosen[:limit]

    @retry_after_repair
    def tools_of(self, working_dir: PathLike, number: int) -> list[list[str]]:
        """The tools that ran in a turn: their names, and what each was about."""
        store, project = self._access.known(working_dir)
        turn = read_history(store, project, self._access.deadline()).turns.get(number)
        return [] if turn is None else turn.tools

    @retry_after_repair
    def exchanged(self, working_dir: PathLike, ref: Reference) -> tuple[list[Entry], list[Entry]]:
        """The turns, snapshots and edits that a restore to this state takes out of the files, and those that it
        brings back, newest first."""
        self._loop.jobs.wait()
        store, project = self._access.known(working_dir)
        target = self._access.resolve(store, project, ref)
        return timelines.read_timeline(store, project, self._access.deadline()).exchanged(target.id)

    @retry_after_repair
    def ways_back(self, working_dir: PathLike, entries: Sequence[Entry]) -> list[Entry]:
        """The same entries, with counts of what going back to each would change in the files as they are now."""
        store, project = self._access.known(working_dir)
        check_there(project)
        with self._access.looking(store, project, "comparing states") as space:
            now = begin_capture(space).tree()
            known = {each.id: each for each in list_checkpoints(store, project, space.deadline, statistics=False)}
            states = [known.get(entry.state or "") for entry in entries]
            pairs = [(now, each.tree) if each and each.scope == "tree" else None for each in states]
            numbers = count_pairs(store, project, space.git, filter(None, pairs), b"")
        return [
            timelines.with_counts(entry, numbers.get(pair) if pair else None)
            for entry, pair in zip(entries, pairs, strict=True)
        ]

    @retry_after_repair
    def next_undo(self, working_dir: PathLike) -> str | None:
        """What `undo` would take back, in words: `turn 3: clean the project up`; None if there is nothing."""
        store, project = self._access.known(working_dir)
        history = read_history(store, project, self._access.deadline())
        if not history.undoable():
            return None
        thing = history.undoable()[-1].thing
        return self._title(history, thing, timelines.describe_thing(thing, history))

    def now(self, working_dir: PathLike, paths: Sequence[PathLike] = ()) -> Now:
        """How the files on disk differ from the newest state that is known of them: all files, or some."""
        try:
            return self._now(working_dir, paths, contents=True)
        except (GitFailed, DamagedObject):  # content is lost for good; which files differ is known all the same
            return self._now(working_dir, paths, contents=False)

    @retry_after_repair
    def _now(self, working_dir: PathLike, paths: Sequence[PathLike], *, contents: bool) -> Now:
        store, project = self._access.known(working_dir)
        chosen = [path_inside(project.workdir, path) for path in as_list(paths)]
        newest = timelines.read_timeline(store, project, self._access.deadline(), counted=False).newest
        if newest is None:
            return Now()
        check_there(project)
        with self._access.looking(store, project, "looking") as space:
            capture = begin_capture(space)
            here = State.of_capture(capture)
            then = replace(here, tree=newest.tree)  # after a restore of some paths, only the tree is known
            if newest.operation is not None and newest.tree != here.tree:
                if undos.tree_after(space, newest.operation) is None:
                    return Now(name=newest.name)
            elif newest.checkpoint is not None:
                then = State.of_checkpoint(resolve(store, project, newest.checkpoint, space.deadline))
            changes, patch = compare(space.git, then, here, chosen, contents=contents)
            skipped = tuple(Skipped(os.fsdecode(path), why) for path, why in sorted(capture.skipped.items()))
        return Now(
            name=newest.name,
            number=newest.number,
            checkpoint_id=newest.checkpoint,
            files_changed=sum(not change.path.endswith("/") for change in changes),
            insertions=sum(change.insertions or 0 for change in changes),
            deletions=sum(change.deletions or 0 for change in changes),
            changes=changes,
            skipped=skipped,
            patch=patch,
        )

    @retry_after_repair
    def list_checkpoints(
        self,
        working_dir: PathLike,
        limit: int | None = None,
        session_id: str | None = None,
        path: PathLike | None = None,
        *,
        host: str | None = None,
    ) -> list[Checkpoint]:
        """The raw states, newest first; of one session or host, or only those in which one path changed (or, where
        there is nothing before them to compare with, that hold it)."""
        store, project = self._access.known(working_dir)
        inside = None if path is None else path_inside(project.workdir, path)
        narrow = session_id is not None or inside is not None or host is not None
        found = list_checkpoints(store, project, self._access.deadline(), None if narrow else limit, path=inside)
        if inside is not None:
            found = touching(store, found, inside, self._access.deadline())
        if session_id is not None:
            found = [checkpoint for checkpoint in found if checkpoint.session_id == session_id]
        return [checkpoint for checkpoint in found if host in (None, checkpoint.host)][:limit]

    @retry_after_repair
    def position(self, working_dir: PathLike, host: str | None = None) -> Checkpoint | None:
        """The snapshot that the files were last saved as, or brought back to, of those that a host took; None if
        it took none."""
        store, project = self._access.known(working_dir)
        return self._position(store, project, host)

    def _position(self, store: Store, project: Project, host: str | None) -> Checkpoint | None:
        listed = list_checkpoints(store, project, self._access.deadline(), statistics=False)
        taken = {each.id: each for each in listed if each.kind != "pre-restore" and host in (None, each.host)}
        found = timelines.read_timeline(store, project, self._access.deadline(), counted=False) if taken else None
        entries = found.entries[::-1] if found else []
        states = (entry.after for entry in entries if entry.kind in ("snapshot", "restore"))
        return next((taken[state] for state in states if state in taken), next(iter(taken.values()), None))

    @retry_after_repair
    def get(self, working_dir: PathLike, ref: Reference) -> Checkpoint:
        """The checkpoint that a reference stands for: the number of a turn (the state before it) or snapshot,
        `3:after`, `last`, `last~2`, a label, or digits of an id; with `MACHINE:` before it, there."""
        store, project = self._access.known(working_dir)
        return self._look_up(store, project, ref)

    def diff(
        self,
        working_dir: PathLike,
        ref: Reference,
        other: Reference | None = None,
        paths: Sequence[PathLike] = (),
    ) -> Diff:
        """What changed from one state to another, or (`other` None or `@`) to the files on disk now. If content is
        lost, only which files differ."""
        try:
            return self._diff(working_dir, ref, other, paths, contents=True)
        except (GitFailed, DamagedObject):
            return self._diff(working_dir, ref, other, paths, contents=False)

    @retry_after_repair
    def _diff(
        self,
        working_dir: PathLike,
        ref: Reference,
        other: Reference | None,
        paths: Sequence[PathLike],
        *,
        contents: bool,
    ) -> Diff:
        store, project = self._access.known(working_dir)
        chosen = [path_inside(project.workdir, path) for path in as_list(paths)]
        first = self._look_up(store, project, ref)
        old = State.of_checkpoint(first)
        if other is not None and other != "@":
            second = self._look_up(store, project, other)
            git, new = store.git(self._access.deadline()), State.of_checkpoint(second)
            changes, text = compare(git, old, new, chosen, contents=contents)
            return Diff(first.id, second.id, changes, text)
        check_there(project)
        with self._access.looking(store, project, "diff") as space:
            now = State.of_capture(capture_same_scope(space, old))
            return Diff(first.id, None, *compare(space.git, old, now, chosen, contents=contents))

    @retry_after_repair
    def files(self, working_dir: PathLike, ref: Reference) -> list[str]:
        """Every file that a checkpoint holds."""
        store, project = self._access.known(working_dir)
        return files_of(store, self._look_up(store, project, ref), self._access.deadline())

    @retry_after_repair
    def contents(self, working_dir: PathLike, ref: Reference, paths: Sequence[str]) -> dict[str, bytes]:
        """What files held at a checkpoint, or (`@`) hold now, by path; those that are not there are left out."""
        if ref == "@":
            workdir = project_of(working_dir).workdir
            return contents_now(workdir, [os.fsdecode(path_inside(workdir, path)) for path in paths])
        store, project = self._access.known(working_dir)
        return contents_of(store, self._look_up(store, project, ref), paths, self._access.deadline())

    def texts(self, working_dir: PathLike, ref: Reference, paths: Sequence[str]) -> dict[str, str]:
        """The same as text; what is not UTF-8 text is left out, too."""
        found = {}
        for path, content in self.contents(working_dir, ref, paths).items():
            with suppress(UnicodeDecodeError):
                if b"\0" not in content:
                    found[path] = content.decode()
        return found

    # --- questions ------------------------------------------------------------------------------------

    @retry_after_repair
    def blame(self, working_dir: PathLike, path: PathLike) -> list[BlamedLine]:
        """Each line of a file as it is now, with the turn that brought it in, or the person."""
        self._loop.jobs.wait()
        store, project = self._access.known(working_dir)
        check_there(project)
        inside = path_inside(project.workdir, path)
        with self._access.looking(store, project, "blame") as space:
            capture = begin_capture(space)
            story = questions.Story(store, project, space.deadline)
            return questions.blame(space, story, inside, State.of_capture(capture), find_older(capture))

    def bisect(
        self,
        working_dir: PathLike,
        good: Reference | None,
        bad: Reference | None = None,
        *,
        check: Callable[[Path, str], int | None],
        test_all: bool = False,
    ) -> Bisection:
        """Find the turn between a good state and a bad one (None: the files as they are now) that broke something.
        `check` gets a scratch directory with a state and what led to it; it returns 0 if that is good, 125 if it
        cannot be tested. With `test_all` every state is tested, from the oldest if `good` is None."""
        self._loop.jobs.wait()
        store, project = self._access.known(working_dir)
        good_id = None if good is None else self._access.resolve(store, project, good).id
        bad_id = None if bad in (None, "@") else self._access.resolve(store, project, bad).id
        with temporary_folder("bisect") as scratch:
            story = questions.Story(store, project, self._access.deadline())
            now = scratch / "now"
            if bad_id is None:
                check_there(project)
                # What no checkpoint holds is gone when the project's lock is: it is written out at once.
                with self._access.looking(store, project, "bisect") as space:
                    here = State.of_capture(begin_capture(space))
                    story.add_now(here)
                    now.mkdir()
                    write_copy(space.git.bound(deadline=self._access.long_deadline()), here, now)
            stops = questions.stops_of(story)
            if bad_id is None:
                stops[-1].copy = now
            way = questions.between(stops, good_id, bad_id)

            def test(stop: questions.Stop) -> Probe:
                return questions.run_probe(store.git(self._access.long_deadline()), stop, check)

            return (questions.test_all if test_all else questions.find_culprit)(way, test)

    def fork(self, working_dir: PathLike, ref: Reference, directory: PathLike, *, worktree: bool = False) -> Fork:
        """Write a state, uncommitted work included, into a new or empty directory. Its timeline begins there and
        knows where it came from. With `worktree` it is also a git work tree on a branch of its own."""
        store, project = self._access.known(working_dir)
        target, copy = self._access.resolve(store, project, ref), project_of(directory)
        questions.check_free(copy.workdir, store.base)
        git, branch = store.git(self._access.long_deadline()), None
        if worktree:
            repository = find_repository(project.workdir)
            if repository is None or repository.top != project.workdir:
                raise BadArguments(what=f"--worktree: {project.workdir} is not the top of a git repository")
            branch = questions.GitWorktree(git.executable, repository, copy.workdir, git.deadline)
        history = read_history(store, project, self._access.deadline())
        origin = {"workdir": str(project.workdir), "checkpoint": target.id, "number": _number_of(history, target)}
        reason = f"fork of {project.workdir}, {timelines.name_of_state(target.id, history)}"
        try:
            with questions.new_directory(copy.workdir):
                if branch is not None:
                    branch.add(target.metadata.get("git_head"))
                files = write_copy(git, State.of_checkpoint(target), copy.workdir)
                with self._access.looking(store, copy, "fork") as space:
                    ignored = space.rules.ignored(sorted(files))
                paths = [os.fsdecode(path) for path in sorted(ignored)]
                begun = self.snapshot(copy.workdir, reason, paths, always=True, forked_from=origin)
        except BaseException:
            if branch is not None:
                branch.remove()
            raise
        first = begun.checkpoint.id if begun.checkpoint is not None else None
        name = branch.branch if branch is not None else None
        return results.Fork(str(copy.workdir), first, origin, name, len(files))

    def verify(self, working_dir: PathLike, ref: Reference | None = None) -> Verification:
        """Restore a checkpoint (by default the newest) into a scratch directory and compare it byte for byte
        with what it says. `status` shows when that was last true."""
        store, project = self._access.known(working_dir)
        target = self._access.resolve(store, project, ref) if ref is not None else None
        if target is None:
            target = list_checkpoints(store, project, self._access.deadline(), 1, statistics=False)[0]
        result = verify(store, target, self._access.long_deadline())
        note_verified(store, project, result, self._access.deadline())
        return result

    def projects(self) -> list[Path]:
        """Every directory that has checkpoints."""
        store = self._access.store_to_look_in()
        if store is None:
            return []
        self._access.import_due(store)
        return [project.workdir for project in known_projects(store) if newest_name(store, project) is not None]

    def find_project(self, directory: PathLike) -> Path:
        """The project that a command in this directory is about: the nearest one at or above it that has
        checkpoints, as far up as its repository reaches. If there is none, the one that a snapshot would be
        taken of."""
        store = self._access.store_to_look_in() or Store(self.settings.resolved_base())
        start = project_of(directory).workdir
        for folder in (start, *start.parents):
            if folder != start and refusal(folder, store.base) is not None:
                break  # the home directory may have checkpoints of single files
            if newest_name(store, project_of(folder)) is not None:
                return folder
            if (folder / ".git").exists():
                break
        return self.get_working_dir_for_path(start) if start.is_dir() else start

    def get_working_dir_for_path(self, file_path: PathLike) -> Path:
        """The project a file belongs to: the nearest directory above it that looks like the root of one, never
        at or above the home directory; otherwise the file's own directory."""
        return self._access.project_around(file_path)

    # --- sessions and conversations ---------------------------------------------------------------------

    def session(self, session_id: str, working_dir: PathLike | None = None) -> Session:
        """All that is known of one session; its id may be shortened to a part of 4 characters or more that is
        unique among the sessions of `working_dir`, or among all."""
        self._loop.jobs.wait()
        store, whole = self._access.store(), str(session_id)
        if working_dir is not None:
            whole = self._session_id(whole, project_of(working_dir))
        found = timelines.read_sessions(store, self._access.deadline(), self._session_id(whole))
        if not found:
            raise NoSuchSession(session_id=str(session_id), hint=timelines.short_part_hint(str(session_id)))
        return found[0]

    def sessions(
        self,
        status: SessionStatus | None = None,
        *,
        working_dir: PathLike | None = None,
        path: PathLike | None = None,
        text: str | None = None,
        since: When = None,
        until: When = None,
        agent: str | None = None,
        parent: str | None = None,
        edit_id: str | None = None,
        limit: int | None = None,
    ) -> list[Session]:
        """The sessions that fit all of it, newest first. `path` is a file or directory that they changed, in
        `working_dir`; `text` is part of a prompt; `since` and `until` are times at which they went on."""
        if status is not None and status not in timelines.SESSION_STATUSES:
            raise BadArguments(what=f"a status is one of {', '.join(timelines.SESSION_STATUSES)}")
        self._loop.jobs.wait()
        project, inside = self._scope(working_dir, path)
        return timelines.find_sessions(
            self._access.store(), self._access.deadline(), project=project, path=inside, text=text, status=status,
            since=_seconds(since), until=_seconds(until), agent=agent, parent=parent, edit_id=edit_id, limit=limit,
        )  # fmt: skip

    def search(
        self,
        text: str | None = None,
        *,
        working_dir: PathLike | None = None,
        path: PathLike | None = None,
        session_id: str | None = None,
        status: SessionStatus | None = None,
        kind: CheckpointKind | None = None,
        since: When = None,
        until: When = None,
        limit: int | None = None,
        counted: bool = False,
    ) -> list[Checkpoint]:
        """The checkpoints that fit all of it, of every project or of one, newest first. `text` is part of a
        reason or prompt; `path` is what they changed against the one before; `status` is that of their
        session. `counted`: with the files and lines that each changed."""
        self._loop.jobs.wait()
        store = self._access.store_to_look_in()
        if store is None:
            return []
        self._access.import_due(store)
        project, inside = self._scope(working_dir, path)
        return timelines.find_checkpoints(
            store, self._access.deadline(), project=project, path=inside, text=text, session_id=session_id,
            kind=kind, status=status, since=_seconds(since), until=_seconds(until), limit=limit, counted=counted,
        )  # fmt: skip

    @retry_after_repair
    def attach(
        self,
        working_dir: PathLike,
        ref: str,
        conversation: Any,
        session_id: str | None = None,
        *,
        agent: str | None = None,
        prompt: str | None = None,
        began: datetime | None = None,
        key: str | None = None,
        replace_own: bool = True,
    ) -> Conversation | None:
        """Keep a conversation that came from elsewhere (JSON data, or the bytes of a transcript) with a
        checkpoint. None if the session itself had handed one over, unless `replace_own`."""
        store, project = self._access.known(working_dir)
        checkpoint, deadline = self._access.resolve(store, project, ref), self._access.deadline()
        return attach_conversation(
            store, project, checkpoint, conversation, session_id, deadline,
            patterns=self.settings.redact, replace_own=replace_own, prompt=prompt, began=began, agent=agent,
            key=key,
        )  # fmt: skip

    # --- going back and forth ---------------------------------------------------------------------------

    @retry_after_repair
    def restore(
        self,
        working_dir: PathLike,
        ref: Reference,
        paths: Sequence[PathLike] = (),
        dry_run: bool = False,
        *,
        conversation: bool = False,
        files: bool = True,
        session_id: str | None = None,
    ) -> RestoreResult:
        """Bring a state back, of everything or of some paths; `dry_run` returns the plan. What is overwritten or
        deleted is saved first. With `conversation` the result has what was said up to then, of this session, or
        the checkpoint's own; `files=False` leaves the files as they are."""
        if not files and not conversation:
            raise BadArguments(what="restore brings back files, a conversation, or both")
        self._loop.jobs.wait()  # before the lock, which they may need
        store, project = self._access.known(working_dir)
        if not files:
            target = self._access.resolve(store, project, ref)
            found, lacking = self._conversation_at(store, project, target, session_id)
            if found is None:
                raise NoConversation(ref=f"checkpoint {target.short_id}", why=lacking)
            return RestoreResult(target, applied=not dry_run, conversation=found)
        with self._access.opened(store, project, "restore", lasting=not dry_run) as (space, recovered):
            target = self._access.resolve(store, project, ref)
            chosen = restores.choose_paths(space, target, as_list(paths))
            result = restores.restore(space, target, Selection(chosen))
            if conversation:
                found, lacking = self._conversation_at(store, project, target, session_id)
                lack = "" if found else f"no conversation is kept with it{lacking}"
                result, recovered = replace(result, conversation=found), "; ".join(filter(None, (recovered, lack)))
        return self._restored(replace(result, note=recovered), "restore")

    def propose_restore(
        self, working_dir: PathLike, ref: Reference, paths: Sequence[PathLike] = ()
    ) -> tuple[RestoreResult, str]:
        """Plan a restore for a person to confirm: the plan, and the token by which `restore_as_planned` carries it
        out within an hour, if the files are still the same."""
        plan = self.restore(working_dir, ref, paths, dry_run=True)
        store, project = self._access.known(working_dir)
        named = [os.fspath(path) for path in as_list(paths)]
        return plan, plans.keep_plan(store, project, plan, named, self._present(store, project)).token

    def restore_as_planned(self, working_dir: PathLike, token: str, dry_run: bool = False) -> RestoreResult:
        """Carry out a plan that was proposed; `dry_run` returns it."""
        store, project = self._access.known(working_dir)
        plan = plans.find_plan(store, project, token)
        if self._present(store, project) != plan.present:
            raise PlanOutdated(token=token)
        result = self.restore(working_dir, plan.target, plan.paths, dry_run=dry_run)
        if result.applied:
            plans.forget_plan(store, token)
        return result

    def _present(self, store: Store, project: Project) -> str:
        """The tree of the files as they are now."""
        with self._access.looking(store, project, "restore") as space:
            return begin_capture(space).tree()

    @retry_after_repair
    def undo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Take back the last thing that happened: a restore, a revert, or a turn; again takes back the one
        before it. A turn goes exactly if nothing was edited since, else by a merge that keeps the edits."""
        self._loop.jobs.wait()
        store, project = self._access.known(working_dir)
        with self._access.opened(store, project, "undo", lasting=not dry_run) as (space, recovered):
            history = read_history(store, project, space.deadline)
            result, step_back = undos.undo(space)
            what = timelines.describe_thing(step_back.thing, history)
        notes = "; ".join(filter(None, (recovered, result.note)))
        result = replace(result, note=notes, what=self._title(history, step_back.thing, what))
        return self._restored(result, "undo")

    @retry_after_repair
    def redo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Take the last undo back."""
        store, project = self._access.known(working_dir)
        with self._access.opened(store, project, "redo", lasting=not dry_run) as (space, recovered):
            history = read_history(store, project, space.deadline)
            result, step_back = undos.redo(space)
            what = timelines.describe_thing(step_back.thing, history)
        result = replace(result, note=recovered, what=self._title(history, step_back.thing, what))
        return self._restored(result, "redo")

    @retry_after_repair
    def revert(
        self,
        working_dir: PathLike,
        turn: int | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
        on_conflict: OnConflict = "keep",
    ) -> RestoreResult:
        """Take the work of one turn, or of all turns of a session, out of the files as they are now; all other
        edits stay. Where others changed the same lines the file is left alone and reported; `on_conflict` may
        be `markers` or `theirs` (the state before the turn). So is what was changed while two sessions were at
        work, which may be the other's."""
        if (turn is None) == (session_id is None) or on_conflict not in ("keep", "markers", "theirs"):
            raise BadArguments(what="revert takes a turn or a session_id, and on_conflict keep, markers or theirs")
        self._loop.jobs.wait()
        store, project = self._access.known(working_dir)
        with self._access.opened(store, project, "revert", lasting=not dry_run) as (space, recovered):
            history = read_history(store, project, space.deadline)
            past = list_checkpoints(store, project, space.deadline, statistics=False)
            if session_id is not None:
                session_id = self._session_id(session_id, project)
                work, what = work_of_session(history, past, session_id), f"session {session_id}"
                if not work:
                    hint = timelines.short_part_hint(session_id) or NoSuchSession.hint
                    raise NoSuchTurn(workdir=project.workdir, what=f"a turn of {what}", hint=hint)
            else:
                work, what = work_of_turn(history, past, turn or 0), f"turn {turn}"
            why = restores.Why("revert", turn=turn, session_id=session_id)
            result = replace(undos.revert(space, work, f"revert of {what}", on_conflict, why=why), note=recovered)
            what = self._title(history, ("turn", turn), what) if turn else what
        result = replace(result, what=what)
        if result.applied:
            self._access.emit("Reverted", project.workdir, result=result, turn=turn, session_id=session_id)
        return result

    @retry_after_repair
    def revert_stage(
        self, working_dir: PathLike, ref: str, reason: str = "", dry_run: bool = False, **labels: Any
    ) -> RestoreResult:
        """Take the work of one stage out of the files as they are now; all other edits stay. The state that
        comes about is a checkpoint, with a reason and labels of its own."""
        store, project = self._access.known(working_dir)
        with self._access.opened(store, project, "revert", lasting=not dry_run) as (space, recovered):
            after = self._access.resolve(store, project, ref)
            if after.kind != "stage" or not after.metadata.get("before"):
                raise NoSuchTurn(workdir=project.workdir, what=f"a stage {ref}")
            before = self._access.resolve(store, project, after.metadata["before"])
            work, what = [Work(before, after)], reason or f"revert of stage {after.short_id}"
            result = undos.revert(space, work, what, facts=labels, why=restores.Why("revert"))
            return replace(result, note=recovered, what=what)

    def revert_stages(self, working_dir: PathLike, session_id: str, **labels: Any) -> list[Checkpoint]:
        """Take back every stage of a session that was not taken back yet, newest first. Each leaves a checkpoint,
        with these labels, that names it (`reverts`), also if its work was gone already. If others changed the
        same since, nothing is changed (`RevertRefused`)."""
        listed = self.list_checkpoints(working_dir)
        done = {each.metadata.get("reverts") for each in listed}
        stages = [each for each in listed if each.kind == "stage" and each.session_id == session_id]
        going = [each for each in stages if each.id not in done]
        if going:
            conflicts = self.revert(working_dir, session_id=session_id, dry_run=True).conflicts
            if conflicts:
                raise RevertRefused(paths=", ".join(conflict.path for conflict in conflicts))
        return [self._revert_one_stage(working_dir, stage, labels) for stage in going]

    def _revert_one_stage(self, working_dir: PathLike, stage: Checkpoint, labels: dict[str, Any]) -> Checkpoint:
        reason = f'Revert "{stage.reason.partition(chr(10))[0]}"'
        facts = {**labels, "reverts": stage.id}
        made = self.revert_stage(working_dir, stage.id, reason, **facts).target
        if not made.id:  # its work is gone already, by hand or by a later stage
            outcome = self.snapshot(working_dir, reason, always=True, **facts)
            assert outcome.checkpoint is not None
            made = outcome.checkpoint
        return made

    def record_write(self, working_dir: PathLike, path: PathLike) -> bool:
        """Note that an agent wrote this file just now, so that `restore_agent_work` can tell its work from what
        people write. False if there is no such file."""
        store, project = open_store(self.settings), project_of(working_dir)
        inside = path_inside(project.workdir, path)
        content = content_of(project.workdir / os.fsdecode(inside))
        if content is None:
            return False
        with locked_project(store, project, "noting a write", self._access.deadline()):
            note_writes(store, project, {os.fsdecode(inside): (content, time.time())})
        return True

    def recorded_writes(self, working_dir: PathLike) -> list[str]:
        """The files that an agent is known to have written."""
        store, project = self._access.known(working_dir)
        return sorted(last_writes(store, project))

    def restore_agent_work(self, working_dir: PathLike, ref: Reference, dry_run: bool = False) -> RestoreResult:
        """Bring back the files that still are as an agent left them (see `record_write`), or that are gone since.
        Every other file that changed since the checkpoint stays, and is reported as kept. Where files cannot be
        removed, all that were to go stay, too, and the others are brought back without them."""
        plan = self.restore(working_dir, ref, dry_run=True)
        store, project = self._access.known(working_dir)
        workdir, writes = project.workdir, last_writes(store, project)
        changed = [path for path in (*plan.written, *plan.deleted) if not path.endswith("/")]
        own = [path for path in changed if path in writes and content_of(workdir / path) in (None, writes[path])]
        others = tuple(Kept(path, NOT_THE_AGENTS) for path in changed if path not in set(own))
        if not own:
            return replace(plan, written=(), deleted=(), kept=(*plan.kept, *others), applied=not dry_run)
        try:
            result = self.restore(working_dir, ref, own, dry_run=dry_run)
        except RestoreFailed:
            going = [path for path in own if path in plan.deleted]
            if not going:
                raise
            others += tuple(Kept(path, NOT_REMOVED) for path in going)
            staying = [path for path in own if path not in going]
            nothing = replace(plan, written=(), deleted=(), applied=True)
            result = self.restore(working_dir, ref, staying) if staying else nothing
        return replace(result, kept=(*plan.kept, *others))

    # --- keeping ----------------------------------------------------------------------------------------

    @retry_after_repair
    def pin(self, working_dir: PathLike, ref: Reference) -> Checkpoint:
        """Keep a checkpoint whatever the limits say."""
        return self._change(working_dir, ref, lambda *known: set_pinned(*known, pinned=True))

    @retry_after_repair
    def unpin(self, working_dir: PathLike, ref: Reference) -> Checkpoint:
        """Let the limits drop a checkpoint again."""
        return self._change(working_dir, ref, lambda *known: set_pinned(*known, pinned=False))

    @retry_after_repair
    def label(self, working_dir: PathLike, ref: Reference, label: str | None) -> Checkpoint:
        """Give a checkpoint a name that can be used as a reference, or take it away."""
        return self._change(working_dir, ref, lambda *known: set_label(*known, label=label))

    def delete(
        self, working_dir: PathLike, refs: Reference | Iterable[Reference], now: bool = False
    ) -> list[Checkpoint]:
        """Drop checkpoints, pinned or not. Every other id stays what it is. With `now`, what no checkpoint holds
        any more is gone from the disk when this returns; otherwise upkeep reclaims it when that pays."""
        wanted = [refs] if isinstance(refs, (str, int, Checkpoint, Entry)) else list(refs)

        def resolve_all(store: Store, project: Project) -> list[Checkpoint]:
            return [self._access.resolve(store, project, ref) for ref in wanted]

        return self._delete(working_dir, resolve_all, now)

    def _delete(
        self, working_dir: PathLike, choose: Callable[[Store, Project], list[Checkpoint]], now: bool
    ) -> list[Checkpoint]:
        found = self._delete_chosen(working_dir, choose)
        if now:
            reclaimed = self.reclaim()
            if reclaimed.error is not None:
                raise reclaimed.error
        return found

    @retry_after_repair
    def _delete_chosen(
        self, working_dir: PathLike, choose: Callable[[Store, Project], list[Checkpoint]]
    ) -> list[Checkpoint]:
        """Delete what is chosen under the lock, so that no turn begins on it meanwhile."""
        store, project = self._access.known(working_dir)
        deadline = self._access.deadline()
        with locked_project(store, project, "delete", deadline):
            ensure_log(store, project, deadline)
            found = choose(store, project)
            delete_checkpoints(store, project, found, deadline)
            with suppress(OSError):  # on a full disk the log stays as it is until the next prune
                compact_log(store, project, set(read_refs(store.git_dir, project.refs).values()), deadline)
            if newest_name(store, project) is None:
                note_emptied(store, project)
        return found

    def keep_newest(self, working_dir: PathLike, count: int, host: str | None = None) -> list[Checkpoint]:
        """Drop the oldest snapshots of a directory, so that `count` stay of those that a host took, and return
        them. What is pinned stays. States that restores saved are counted apart."""
        if count < 1:
            raise BadArguments(what="keep_newest keeps at least one")

        def choose(store: Store, project: Project) -> list[Checkpoint]:
            own = own_of_host(store, project, host, self._access.deadline()).checkpoints
            saved = [each for each in own if each.kind != "pre-restore"]
            others = [each for each in own if each.kind == "pre-restore"]
            return [each for each in (*saved[count:], *others[count:]) if not each.pinned]

        return self._delete(working_dir, choose, now=False)

    def reclaim(self) -> Reclaimed:
        """Remove from the disk what no checkpoint holds any more, however little that is."""
        store = self._access.store()
        return reclaiming.reclaim_now(store, self._access.long_deadline(), self._access.waiting(store))

    def purge(
        self, working_dir: PathLike, paths: Sequence[PathLike] | PathLike, dry_run: bool = False
    ) -> PurgeResult:
        """Take files or directories out of every checkpoint of a project, and their bytes out of the store. The
        checkpoints are recorded anew without them, and their old ids go on answering. What is on disk stays as
        it is. `dry_run` returns the plan. An interrupted purge is finished by the same call."""
        self._loop.jobs.wait()  # they may be about to name a checkpoint
        store, project = self._access.known(working_dir)
        wanted = sorted({clearing.path_in_history(project.workdir, path) for path in as_list(paths)})
        if not wanted:
            raise BadArguments(what="purge takes at least one path")
        if dry_run:
            return clearing.plan_purge(store, project, wanted, self._access.deadline())
        if project.workdir.is_dir():
            with self._access.opened(store, project, "purge"):
                pass  # an interrupted restore is finished now
        self._lanes.forget_pulled(store, project)
        lane_records.note_removal(store, project.id)
        before = count_objects(store.git(self._access.deadline())).bytes
        taken = self._take_out(project.workdir, wanted)
        deadline = self._access.long_deadline()
        return clearing.finish(store, project, taken, deadline, self._access.waiting(store), before)

    @retry_after_repair
    def _take_out(self, working_dir: PathLike, paths: Sequence[bytes]) -> PurgeResult:
        store, project = self._access.known(working_dir)
        return clearing.take_out(store, project, paths, self._access.long_deadline())

    def status(self) -> StoreStatus:
        """The store at a glance: sizes, projects, limits, what was not captured, what failed."""
        store = self._access.store()
        self._access.import_due(store)
        self._access.finish_purges(store)
        return store_status.read_status(store, self.settings, self._access.deadline())

    def prune(
        self,
        dry_run: bool = False,
        *,
        orphans: bool = True,
        reclaim: ReclaimMode = "all",
        **limits: Unpack[SettingValues],
    ) -> PruneResult:
        """Keep the limits now: of the settings, or those given here (`max_snapshots`, `retention_days`,
        `max_total_size_mb` and so on). `dry_run` returns the plan. `reclaim`: `all` that no checkpoint holds,
        `when-it-pays` (as upkeep in the background does), `always` (repack even if there is nothing to reclaim)
        or `never`; `orphans=False` keeps checkpoints of lost directories. Upkeep that is under way is waited
        for, up to `upkeep_deadline`; then the status is `busy`."""
        given: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
        settings = replace(self.settings, **given)
        store = self._access.store()
        if dry_run:
            return pruning.plan_prune(store, settings, orphans=orphans)
        waiting = self._access.waiting(store)
        result = pruning.prune(store, settings, orphans=orphans, reclaim=reclaim, on_wait=waiting)
        if settings == self.settings and orphans and result.status == "done":
            with suppress(OSError):  # it only saves the next start-up from doing the same again
                mark_pruned(store.base)
        self._access.emit("Pruned", store.base, result=result)
        return result

    def auto_prune(self) -> PruneResult:
        """Keep the limits, at most once in `min_interval_hours`; for the start of a program. What takes time
        goes on in the background. Never raises."""
        try:
            result = pruning.auto_prune(self.settings)
        except Exception as problem:  # promise 4
            return results.PruneResult("failed", error=problem)
        if result.status == "done":
            self._access.emit("Pruned", self.settings.resolved_base(), result=result)
        return result

    def doctor(self, repair: bool = False) -> Checkup:
        """Examine everything the store consists of: what is wrong, what that means, and what would be done
        about it. With `repair` it is done; what cannot be saved is set aside, never deleted."""
        run = doctor.repair if repair else doctor.examine
        checkup = run(self.settings.resolved_base(), self._access.deadline(), fsync=self.settings.fsync)
        if checkup.repaired:
            self._access.emit("Healed", checkup.base, checkup=checkup)
        return checkup

    def clear(self, working_dir: PathLike, dry_run: bool = False, *, host: str | None = None) -> ClearReport:
        """Drop every checkpoint of a directory, pinned or not, and everything that is kept about it below the
        base: nothing of it is left. `dry_run` returns the plan. With a `host`, only what that one recorded goes,
        if others have checkpoints there, too."""
        store, project = self._access.known(working_dir)
        if host is not None:
            own, is_everything = own_of_host(store, project, host, self._access.deadline())
            if not is_everything:
                if own and not dry_run:

                    def choose(store: Store, project: Project) -> list[Checkpoint]:
                        return own_of_host(store, project, host, self._access.deadline()).checkpoints

                    own = self._delete(working_dir, choose, now=True)
                item = results.ClearedItem(str(project.workdir), len(own), sum(each.pinned for each in own))
                return results.ClearReport((item,), applied=not dry_run)
        if dry_run:
            return clearing.plan_clear(store, project, self._access.deadline())
        if project.workdir.is_dir():
            with self._access.opened(store, project, "clear"):
                pass  # an interrupted restore is finished now
        self._loop.jobs.wait()  # they may be about to write something of it
        self._loop.turn.projects.pop(project.id, None)  # what was safe in this turn is not any more
        self._lanes.forget_pulled(store, project)
        deadline = self._access.long_deadline()
        return clearing.clear(store, project, self._access.deadline(), deadline, self._access.waiting(store))

    def clear_all(self, dry_run: bool = False, *, host: str | None = None) -> ClearReport:
        """Drop every checkpoint of every directory, or of those that a `host` recorded; `dry_run` returns the
        plan."""
        if host is not None:
            own = [workdir for workdir in self.projects() if self.list_checkpoints(workdir, 1, host=host)]
            return clearing.together(self.clear(workdir, dry_run, host=host) for workdir in own)
        clear = clearing.plan_clear_all if dry_run else clearing.clear_all
        return clear(self._access.store(), self._access.deadline())

    def clear_legacy(self, dry_run: bool = False) -> ClearReport:
        """Remove the archived repositories of older tools; `dry_run` returns the plan."""
        store = Store(self.settings.resolved_base(), self.settings.fsync)  # it need not be opened for that
        return (clearing.plan_clear_legacy if dry_run else clearing.clear_legacy)(store)

    def sweep(
        self,
        unused_days: float = 0,
        *,
        gone: bool = True,
        host: str | None = None,
        only: Collection[str] | None = None,
        every_hours: float = 0,
    ) -> SweepReport:
        """Clear whole projects: those that were not used for `unused_days`, and those whose directory is known to
        be gone (by id, `only` these). Archives of older tools go by their age. A project that has something pinned
        stays. With a `host`, only what that one recorded goes; without, the size limit of the settings is kept,
        too. What fails is reported, and stops nothing else. With `every_hours`, for the start of a program: not
        if the last one of the host was less than so many hours ago (`skipped`). They are counted from before the
        sweep: one that dies must not be tried at every start."""
        base = self.settings.resolved_base()
        if every_hours and not is_prune_due(base, every_hours, host):
            return results.SweepReport(skipped=True)
        before, not_marked = clearing.bytes_of(base), ""
        try:
            if every_hours and base.is_dir():
                mark_pruned(base, host)
        except OSError as problem:
            not_marked = str(problem)
        try:
            swept = self._sweep(base, pruning.SweepRules(unused_days, gone, host, only))
        except (ShadowsnapError, OSError) as problem:
            swept = results.SweepReport(problems=(str(problem),))
        return replace(swept, bytes_freed=max(0, before - clearing.bytes_of(base)), not_marked=not_marked)

    def _sweep(self, base: Path, rules: SweepRules) -> SweepReport:
        def clear(project: Project) -> None:
            self.clear(project.workdir, host=rules.host)

        swept = pruning.sweep_archives(base, rules)
        if not has_store(base):
            return swept
        store, limit = self._access.store(), self.settings.max_total_size_mb
        self._access.import_due(store)
        swept = pruning.sweep_projects(store, rules, clear, self._access.deadline(), swept)
        if rules.host is None and limit > 0:
            pruned = self.prune(orphans=False)
            too_large = (pruned.bytes_after or 0) > limit * 1024 * 1024
            problems = (pruned.error, f"{base} is larger than {limit:g} MB" if too_large else None)
            swept = replace(swept, problems=(*swept.problems, *(str(each) for each in problems if each)))
        return swept

    def import_from(
        self,
        path: PathLike,
        dry_run: bool = False,
        on_progress: Callable[[int, int, ImportedItem], None] | None = None,
    ) -> ImportReport:
        """Take over the checkpoints of another tool: a store of Hermes or PraisonAI, or a repository with shadow
        branches of Entire. They keep their dates, reasons and trees; nothing is changed there. What was imported
        before is skipped. `on_progress` gets how many are done, of how many, and the last one."""
        where = Path(os.path.abspath(Path(path).expanduser()))
        report = importing.import_from(
            self._access.store(),
            where,
            self._access.long_deadline(),
            most_bytes=self.settings.max_file_bytes,
            dry_run=dry_run,
            on_progress=on_progress,
        )
        if report.applied:
            self._access.emit("Imported", where, report=report)
        return report

    # --- lanes on a remote ------------------------------------------------------------------------------

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
        """Choose the one remote of a project: a directory, `s3://`, `gs://`, `az://`, or a git server. Its lane is
        encrypted for the `recipients` (age or SSH public keys), unless `plain`. The remote is tried out."""
        return self._lanes.set_remote(working_dir, name, url, recipients, plain=plain, conversations=conversations)

    def remote(self, working_dir: PathLike) -> Remote | None:
        """The remote of a project."""
        return self._lanes.remote(working_dir)

    def remove_remote(self, working_dir: PathLike) -> Remote:
        """Forget the remote of a project, and what was pulled from it. What lies there stays there."""
        return self._lanes.remove_remote(working_dir)

    def push(self, working_dir: PathLike) -> PushReport:
        """Bring the project's lane at its remote up to date: the log and every checkpoint that is kept."""
        self._loop.jobs.wait()
        return self._lanes.push(working_dir)

    def remote_status(self, working_dir: PathLike | None = None) -> list[RemoteStatus]:
        """The remotes of all projects, or of one, and since when work is not pushed."""
        return self._lanes.remote_status(working_dir)

    def pull(
        self, working_dir: PathLike, lanes: Sequence[str] = (), key: PathLike | None = None
    ) -> list[PullReport]:
        """Get the lanes of other machines (by default, all of this project) from the project's remote. Their
        entries are listed with their machines; nothing here is changed."""
        return self._lanes.pull(working_dir, lanes, key)

    def lanes(
        self, url: str | None = None, working_dir: PathLike | None = None, key: PathLike | None = None
    ) -> list[Lane]:
        """The lanes at an address, or at the remote of a project: project, machine, last safe state, turns."""
        return self._lanes.lanes(url, working_dir, key)

    def pulled(self, working_dir: PathLike, limit: int | None = None) -> list[LaneEntries]:
        """What happened to this project on other machines, as far as it was pulled."""
        return self._lanes.pulled(working_dir, limit)

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
        """Restore the last safe state of a lane, or with `LANE:3` another one: into `directory`, or `working_dir`
        if that is a checkout of the same project, or a new directory of the project's name. As with any restore,
        what is there is saved first. The project goes on from there as a lane of its own, whose parent is this
        one."""
        resumed = self._lanes.resume(
            lane, directory, url=url, working_dir=working_dir, key=key, dry_run=dry_run
        )
        self._restored(resumed.result, "resume")
        return resumed

    def remove_store(self) -> ClearReport:
        """Remove the store itself with every checkpoint, the archives of older tools, and the base directory if
        nothing else is in it."""
        return clearing.remove_store(open_store(self.settings), self._access.deadline())

    # --- helpers ----------------------------------------------------------------------------------------

    def _log_discarded(
        self, store: Store, project: Project, facts: dict[str, str | None], result: RestoreResult
    ) -> None:
        about = {"edit_id": facts["edit_id"], "risk_tier": facts["risk_tier"], "session": facts["session_id"]}
        with locked_project(store, project, "stage", self._access.deadline()):
            note(store, project, "stage", status="discarded", before=result.target.id, **about)

    def _conversation_at(
        self, store: Store, project: Project, target: Checkpoint, session_id: str | None
    ) -> tuple[Conversation | None, str]:
        """What is kept with a checkpoint; if nothing, then why."""
        deadline, asked = self._access.deadline(), None if session_id is None else str(session_id)
        sessions = [str(each) for each in (self._loop.turn.session_id, target.session_id) if each]
        history = read_history(store, project, deadline)
        return conversation_at(store, target, history, sessions, asked, deadline)

    def _look_up(self, store: Store, project: Project, ref: Reference) -> Checkpoint:
        """The checkpoint that a reference stands for, here or on another machine: `MACHINE:3`, or its id."""
        try:
            return self._access.resolve(store, project, ref)
        except NoSuchCheckpoint as problem:
            machine, _, rest = str(ref.id if isinstance(ref, Checkpoint) else ref).rpartition(":")
            if rest == "after":
                machine, _, number = machine.rpartition(":")
                rest = f"{number}:after"
            for lane in self._lanes.pulled_of(store, project):
                if machine in ("", lane.machine.name, lane.machine.id, lane.lane):
                    try:
                        return timelines.state_in_lane(store, lane, rest, self._access.deadline())
                    except NoSuchCheckpoint:
                        continue
            raise problem

    def _session_id(self, part: str, project: Project | None = None) -> str:
        """The whole id of a session that is named by a unique part of it."""
        return timelines.session_by_part(self._access.store(), self._access.deadline(), part, project)

    def _scope(self, working_dir: PathLike | None, path: PathLike | None) -> tuple[Project | None, bytes | None]:
        """The project and the path in it that a question is about."""
        project, inside = None if working_dir is None else project_of(working_dir), None
        if path is not None:
            if project is None and os.path.isabs(path):
                store = self._access.store()
                around = (project_of(folder) for folder in Path(path).parents)
                project = next((each for each in around if newest_name(store, each) is not None), None)
            inside = path_inside(project.workdir, path) if project else os.fsencode(os.path.normpath(path))
        return project, inside

    def _change(
        self,
        working_dir: PathLike,
        ref: Reference,
        change: Callable[[Store, Project, Checkpoint, Deadline], Checkpoint],
    ) -> Checkpoint:
        store, project = self._access.known(working_dir)
        deadline = self._access.deadline()
        with locked_project(store, project, "change", deadline):  # so that upkeep does not drop it meanwhile
            return change(store, project, self._access.resolve(store, project, ref), deadline)

    def _title(self, history: History, thing: tuple[str, int | str], what: str) -> str:
        """What was taken back, with what was asked: `turn 3: clean the project up`."""
        turn = history.turns.get(int(thing[1])) if thing[0] == "turn" else None
        return f"{what}: {turn.prompt}" if turn is not None and turn.prompt else what

    def _restored(self, result: RestoreResult, by: str) -> RestoreResult:
        if result.applied:
            self._access.emit("Restored", result.target.workdir, result=result, by=by)
        return result


def _number_of(history: History, target: Checkpoint) -> int | None:
    """The number that stands for a checkpoint: of the turn that begins with it, or of a snapshot."""
    for number in history.reachable():
        if history.checkpoint_of(str(number)) == target.id:
            return number
    return None


def _texts(value: Sequence[str]) -> tuple[str, ...]:
    """A single text is one of them: it is a sequence too, of its letters."""
    return (value,) if isinstance(value, str) else tuple(value)


def _seconds(moment: When) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else moment
