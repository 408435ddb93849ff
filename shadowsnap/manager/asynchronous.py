"""The manager for programs with an event loop: the same methods, awaitable, in threads of their own.

Someone who is cancelled stops waiting; what was begun is finished in its thread, so that nothing is left half
done, and the next call finds everything in order.

Written by `python -m shadowsnap.manager.write_asynchronous`, not by hand.
"""

from __future__ import annotations

import asyncio

from shadowsnap.manager.asyncstage import AsyncStage
from shadowsnap.manager.whole import CheckpointManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from shadowsnap.events import Event
    from shadowsnap.manager.core import PathLike
    from shadowsnap.manager.recalling import When
    from shadowsnap.model import (
        Checkpoint,
        Checkup,
        ClearReport,
        Conversation,
        Diff,
        ImportedItem,
        ImportReport,
        Outcome,
        RestoreResult,
        Session,
    )
    from shadowsnap.records import Any
    from shadowsnap.settings import Settings
    from shadowsnap.upkeep.purge import PurgeResult
    from shadowsnap.upkeep.reclaim import Reclaimed
    from shadowsnap.upkeep.run import PruneResult
    from shadowsnap.upkeep.status import StoreStatus


class AsyncCheckpointManager:
    """`CheckpointManager`, whose methods are awaited. Listeners are called in those threads, too."""

    def __init__(
        self,
        enabled: bool = True,
        max_snapshots: int = 20,
        max_total_size_mb: float = 500,
        max_file_size_mb: float = 10,
        base: PathLike | None = None,
        on_event: Callable[[Event], None] | None = None,
        **more: Any,
    ) -> None:
        self.sync = CheckpointManager(
            enabled, max_snapshots, max_total_size_mb, max_file_size_mb, base, on_event, **more
        )
        """The manager that does the work; for where nobody waits."""

    @classmethod
    async def from_settings(
        cls, on_event: Callable[[Event], None] | None = None, **flags: Any
    ) -> AsyncCheckpointManager:
        """With the person's own settings: their settings file, SHADOWSNAP_* variables, and `flags`
        above all. Each project may narrow them for itself."""
        manager = cls()
        manager.sync = await asyncio.to_thread(CheckpointManager.from_settings, on_event, **flags)
        return manager

    @property
    def settings(self) -> Settings:
        return self.sync.settings

    @property
    def warnings(self) -> list[str]:
        """What was ignored in settings files and variables, and why."""
        return self.sync.warnings

    def stage(
        self,
        working_dir: PathLike,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        message: str = "stage",
    ) -> AsyncStage:
        """Edits that are kept or put back as a whole: `with manager.stage(...) as s:`. It begins only
        on files that a checkpoint holds; an exception, or `s.discard()`, returns to that state."""
        return AsyncStage(lambda: self.sync.stage(working_dir, edit_id, session_id, risk_tier, message))

    async def after_tool(self, tool_name: str, tool_input: Any = None, cwd: PathLike | None = None) -> Outcome:
        """What an agent loop calls after each tool call if the `granularity` is `tool`: what the call did is
        its work, and what happens until the next one is not the agent's. Of calls that run at the same
        time, the last one closes for all. Never raises."""
        return await asyncio.to_thread(self.sync.after_tool, tool_name, tool_input, cwd)

    async def attach(
        self,
        working_dir: PathLike,
        ref: str,
        conversation: Any,
        session_id: str | None = None,
        *,
        prompt: str | None = None,
        agent: str | None = None,
        began: datetime | None = None,
        key: str | None = None,
        replace_own: bool = True,
    ) -> Conversation | None:
        """Keep what was said up to a checkpoint with it: JSON data, or the bytes of a transcript. With a
        `session_id` it goes into the record of that session as a turn; `key` tells turns apart, so that
        the same one is not recorded twice. None if the checkpoint was dropped meanwhile, or (without
        `replace_own`) if what the session itself handed over is kept with it."""
        return await asyncio.to_thread(
            self.sync.attach,
            working_dir,
            ref,
            conversation,
            session_id,
            prompt=prompt,
            agent=agent,
            began=began,
            key=key,
            replace_own=replace_own,
        )

    async def auto_prune(self) -> PruneResult:
        """Keep the limits, at most once in `min_interval_hours`; for the start of a program. What
        takes time goes on in the background. Never raises."""
        return await asyncio.to_thread(self.sync.auto_prune)

    async def before_tool(
        self, tool_name: str, tool_input: Any = None, cwd: PathLike | None = None, roots: Iterable[PathLike] = ()
    ) -> Outcome:
        """What an agent loop calls before each tool call: makes sure that everything this tool may
        write to is safe. That is the project around `cwd`, further `roots` of the workspace, and
        the projects of files that the input names; of a named file outside any project, the file
        alone. A tool that only reads is `not-needed`; of several directories, the outcome that
        matters most is returned and its note names the others."""
        return await asyncio.to_thread(self.sync.before_tool, tool_name, tool_input, cwd, roots)

    async def clear(self, working_dir: PathLike, dry_run: bool = False) -> ClearReport:
        """Let go of every checkpoint of a directory, pinned or not, and of everything that is kept about it below
        the base: nothing of it is left. `dry_run` returns the plan."""
        return await asyncio.to_thread(self.sync.clear, working_dir, dry_run)

    async def clear_all(self, dry_run: bool = False) -> ClearReport:
        """Let go of every checkpoint of every directory; `dry_run` returns the plan."""
        return await asyncio.to_thread(self.sync.clear_all, dry_run)

    async def clear_legacy(self, dry_run: bool = False) -> ClearReport:
        """Remove the archived repositories of older tools; `dry_run` returns the plan."""
        return await asyncio.to_thread(self.sync.clear_legacy, dry_run)

    async def commit_since(
        self,
        working_dir: PathLike,
        before: str,
        message: str,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        **labels: Any,
    ) -> Checkpoint:
        """Keep what was done since a checkpoint as a stage, which `revert` and `revert_stage` can take
        back. Unlike `stage`, nothing is put back by itself if this is never called."""
        return await asyncio.to_thread(
            self.sync.commit_since, working_dir, before, message, edit_id, session_id, risk_tier, **labels
        )

    async def contents(self, working_dir: PathLike, ref: str, paths: Sequence[str]) -> dict[str, bytes]:
        """What files held at a checkpoint, by path; those that it does not have are left out."""
        return await asyncio.to_thread(self.sync.contents, working_dir, ref, paths)

    async def delete(
        self, working_dir: PathLike, refs: str | Iterable[str], now: bool = False
    ) -> list[Checkpoint]:
        """Drop checkpoints, pinned or not. Every other id stays what it is. With `now`, what no checkpoint holds
        any more is gone from the disk when this returns; otherwise upkeep reclaims it when that pays."""
        return await asyncio.to_thread(self.sync.delete, working_dir, refs, now)

    async def diff(
        self, working_dir: PathLike, ref: str, other: str | None = None, paths: Sequence[PathLike] = ()
    ) -> Diff:
        """What changed from one checkpoint to another, or to the files on disk now."""
        return await asyncio.to_thread(self.sync.diff, working_dir, ref, other, paths)

    async def doctor(self, repair: bool = False) -> Checkup:
        """Look at everything the store consists of: what is wrong, what that means, and what would be
        done about it. With `repair` it is done; what cannot be saved is set aside, never deleted."""
        return await asyncio.to_thread(self.sync.doctor, repair)

    async def end_session(self, session_id: str | None = None, status: str = "completed") -> None:
        """Note how a session ended: `completed`, `failed` or `rolled_back`. A turn that comes later makes
        it `active` again. Without an id it is that of this turn. Never raises."""
        return await asyncio.to_thread(self.sync.end_session, session_id, status)

    async def end_turn(self, conversation: Any = None) -> list[Outcome]:
        """Close the turn with a snapshot of each directory that was touched in it. `conversation` is
        what was said up to now, as in `new_turn`."""
        return await asyncio.to_thread(self.sync.end_turn, conversation)

    async def ensure_checkpoint(
        self, working_dir: PathLike, reason: str = "auto", paths: Sequence[PathLike] = (), tool: str | None = None
    ) -> Outcome:
        """Make sure that the directory as it was at the beginning of this turn is safe. `paths`
        are files a tool names: they are captured even if ignored."""
        return await asyncio.to_thread(self.sync.ensure_checkpoint, working_dir, reason, paths, tool)

    async def files(self, working_dir: PathLike, ref: str) -> list[str]:
        """Every file that a checkpoint holds."""
        return await asyncio.to_thread(self.sync.files, working_dir, ref)

    async def find_project(self, directory: PathLike) -> Path:
        """The project that is meant by someone who stands in this directory: the nearest one at
        or above it that has checkpoints, as far up as their repository reaches. If there is none,
        the one that a snapshot would be taken of."""
        return await asyncio.to_thread(self.sync.find_project, directory)

    async def get(self, working_dir: PathLike, ref: str) -> Checkpoint:
        """The checkpoint that a hash prefix, `last`, `last~2` or a label names."""
        return await asyncio.to_thread(self.sync.get, working_dir, ref)

    async def get_working_dir_for_path(self, file_path: PathLike) -> Path:
        """The project a file belongs to: the nearest directory above it that looks like the root
        of one, never at or above the home directory; otherwise the file's own directory."""
        return await asyncio.to_thread(self.sync.get_working_dir_for_path, file_path)

    async def import_from(
        self,
        path: PathLike,
        dry_run: bool = False,
        on_progress: Callable[[int, int, ImportedItem], None] | None = None,
    ) -> ImportReport:
        """Take over the checkpoints of another tool: a store of Hermes or PraisonAI, or a repository with
        shadow branches of Entire. They keep their dates, reasons and trees; nothing is changed there.
        What was imported before is skipped. `on_progress` gets how many are done, of how many, and
        the last one."""
        return await asyncio.to_thread(self.sync.import_from, path, dry_run, on_progress)

    async def label(self, working_dir: PathLike, ref: str, label: str | None) -> Checkpoint:
        """Give a checkpoint a name that can be used as a reference, or take it away."""
        return await asyncio.to_thread(self.sync.label, working_dir, ref, label)

    async def list_checkpoints(
        self,
        working_dir: PathLike,
        limit: int | None = None,
        session_id: str | None = None,
        path: PathLike | None = None,
    ) -> list[Checkpoint]:
        """Newest first; of one session, or only those in which one path changed (or, where there is
        nothing before them to compare with, that hold it)."""
        return await asyncio.to_thread(self.sync.list_checkpoints, working_dir, limit, session_id, path)

    async def new_turn(
        self,
        session_id: str | None = None,
        prompt: str | None = None,
        conversation: Any = None,
        *,
        agent: str | None = None,
        parent: str | None = None,
    ) -> None:
        """A new message of the person: the next writing tool call takes a new snapshot, which
        remembers what they asked for. `conversation` is what was said so far: JSON data, or the path
        of a transcript. `agent` and `parent` (the session that this one came from) go into the record
        of the session."""
        return await asyncio.to_thread(
            self.sync.new_turn, session_id, prompt, conversation, agent=agent, parent=parent
        )

    async def pin(self, working_dir: PathLike, ref: str) -> Checkpoint:
        """Keep a checkpoint whatever the limits say."""
        return await asyncio.to_thread(self.sync.pin, working_dir, ref)

    async def projects(self) -> list[Path]:
        """Every directory that has checkpoints."""
        return await asyncio.to_thread(self.sync.projects)

    async def prune(
        self, dry_run: bool = False, *, orphans: bool = True, reclaim: str = "all", **limits: Any
    ) -> PruneResult:
        """Keep the limits now: of the settings, or those given here (`max_snapshots`,
        `retention_days`, `max_total_size_mb` and so on). `dry_run` returns the plan. `reclaim`: `all` that no
        checkpoint holds, `when-it-pays` (as upkeep in the background does), `always` (repack even if there is
        nothing to reclaim) or `never`; `orphans=False` keeps checkpoints of lost directories.
        Upkeep that is under way is waited for, up to `upkeep_deadline`; then the status is `busy`."""
        return await asyncio.to_thread(self.sync.prune, dry_run, orphans=orphans, reclaim=reclaim, **limits)

    async def purge(
        self, working_dir: PathLike, paths: Sequence[PathLike] | PathLike, dry_run: bool = False
    ) -> PurgeResult:
        """Take files or directories out of every checkpoint of a project, and their bytes out of the store. The
        checkpoints are recorded anew without them, and their old ids go on answering. What is on disk stays as
        it is. `dry_run` returns the plan. An interrupted purge is finished by the same call."""
        return await asyncio.to_thread(self.sync.purge, working_dir, paths, dry_run)

    async def reclaim(self) -> Reclaimed:
        """Remove from the disk what no checkpoint holds any more, however little that is."""
        return await asyncio.to_thread(self.sync.reclaim)

    async def record_write(self, working_dir: PathLike, path: PathLike) -> bool:
        """Note that an agent wrote this file just now, so that `restore_agent_work` can tell its work
        from what people write. False if there is no such file."""
        return await asyncio.to_thread(self.sync.record_write, working_dir, path)

    async def recorded_writes(self, working_dir: PathLike) -> list[str]:
        """The files that an agent is known to have written."""
        return await asyncio.to_thread(self.sync.recorded_writes, working_dir)

    async def redo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Take the last undo back."""
        return await asyncio.to_thread(self.sync.redo, working_dir, dry_run)

    async def remove_store(self) -> ClearReport:
        """Remove the store itself with every checkpoint, the archives of older tools, and the base
        directory if nothing else is in it."""
        return await asyncio.to_thread(self.sync.remove_store)

    async def restore(
        self,
        working_dir: PathLike,
        ref: str,
        paths: Sequence[PathLike] = (),
        dry_run: bool = False,
        *,
        conversation: bool = False,
        files: bool = True,
        session_id: str | None = None,
    ) -> RestoreResult:
        """Bring a state back, of everything or of some paths; `dry_run` returns the plan. With
        `conversation` the result has what was said up to then, of this session, or the checkpoint's own;
        `files=False` leaves the files as they are."""
        return await asyncio.to_thread(
            self.sync.restore,
            working_dir,
            ref,
            paths,
            dry_run,
            conversation=conversation,
            files=files,
            session_id=session_id,
        )

    async def restore_agent_work(self, working_dir: PathLike, ref: str, dry_run: bool = False) -> RestoreResult:
        """Bring back the files that still are as an agent left them (see `record_write`), or that are
        gone since. Every other file that changed since the checkpoint stays, and is told as kept."""
        return await asyncio.to_thread(self.sync.restore_agent_work, working_dir, ref, dry_run)

    async def resume_turn(self, state: dict[str, Any]) -> None:
        """Go on with a turn of another process: what that one took is already taken. A state that
        cannot be read is a turn that just began."""
        return await asyncio.to_thread(self.sync.resume_turn, state)

    async def revert(
        self,
        working_dir: PathLike,
        turn: int | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
        on_conflict: str = "keep",
    ) -> RestoreResult:
        """Take the work of one turn, or of all turns of a session, back out of the files as they are
        now; everyone else's edits stay. Where others changed the same lines the file is left alone
        and reported; `on_conflict` may be `markers` or `theirs` (the state before the turn). So is what
        was changed while two sessions were at work, which may be the other's."""
        return await asyncio.to_thread(self.sync.revert, working_dir, turn, session_id, dry_run, on_conflict)

    async def revert_stage(
        self, working_dir: PathLike, ref: str, reason: str = "", dry_run: bool = False, **labels: Any
    ) -> RestoreResult:
        """Take the work of one stage back out of the files as they are now; everyone else's edits
        stay. The state that comes about is a checkpoint, with a reason and labels of its own."""
        return await asyncio.to_thread(self.sync.revert_stage, working_dir, ref, reason, dry_run, **labels)

    async def search(
        self,
        text: str | None = None,
        *,
        working_dir: PathLike | None = None,
        path: PathLike | None = None,
        session_id: str | None = None,
        status: str | None = None,
        kind: str | None = None,
        since: When = None,
        until: When = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """The checkpoints that fit all of it, of every project or of one, newest first. `text` is part of
        a reason or prompt; `path` is what they changed against the one before; `status` is that of their
        session."""
        return await asyncio.to_thread(
            self.sync.search,
            text,
            working_dir=working_dir,
            path=path,
            session_id=session_id,
            status=status,
            kind=kind,
            since=since,
            until=until,
            limit=limit,
        )

    async def session(self, session_id: str) -> Session:
        """All that is known of one session."""
        return await asyncio.to_thread(self.sync.session, session_id)

    async def sessions(
        self,
        status: str | None = None,
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
        """The sessions that fit all of it, newest first. `path` is a file or directory that they changed,
        in `working_dir`; `text` is part of a prompt or reason; `since` and `until` are times at which they
        went on."""
        return await asyncio.to_thread(
            self.sync.sessions,
            status,
            working_dir=working_dir,
            path=path,
            text=text,
            since=since,
            until=until,
            agent=agent,
            parent=parent,
            edit_id=edit_id,
            limit=limit,
        )

    async def snapshot(
        self,
        working_dir: PathLike,
        reason: str = "manual",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
        session_id: str | None = None,
        always: bool = False,
        **labels: Any,
    ) -> Outcome:
        """Take a checkpoint now, whatever the turn; `always`: even if nothing changed since the last.
        Unlike `ensure_checkpoint` it raises what goes wrong; `labels` are the host's own facts about
        it, kept in its metadata."""
        return await asyncio.to_thread(
            self.sync.snapshot, working_dir, reason, paths, tool, session_id, always, **labels
        )

    async def status(self) -> StoreStatus:
        """The store at a glance: sizes, projects, limits, what was not captured, what failed."""
        return await asyncio.to_thread(self.sync.status)

    async def turn_state(self) -> dict[str, Any]:
        """This turn as JSON, for another process of the same agent to go on with."""
        return await asyncio.to_thread(self.sync.turn_state)

    async def undo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Return to the state before the last restore."""
        return await asyncio.to_thread(self.sync.undo, working_dir, dry_run)

    async def unpin(self, working_dir: PathLike, ref: str) -> Checkpoint:
        return await asyncio.to_thread(self.sync.unpin, working_dir, ref)

    async def unwatch(self, working_dir: PathLike) -> None:
        """Stop watching a directory. (Whatever is watched is let go of with the manager, too.)"""
        return await asyncio.to_thread(self.sync.unwatch, working_dir)

    async def warm_up(self, working_dir: PathLike) -> bool:
        """Let a process in the background do the work of the first snapshot, while the model is
        thinking; a snapshot that comes meanwhile joins it. Returns at once, and says whether it was
        started: not if there is a checkpoint already, nor where none would be taken. Never raises."""
        return await asyncio.to_thread(self.sync.warm_up, working_dir)

    async def watch(self, working_dir: PathLike) -> bool:
        """Let the system tell what happens in a directory from now on, so that a snapshot looks only at what
        was touched since the last one. The first snapshot from now on scans everything once more, and so
        does any for which that is not known: nothing else changes. Says whether it is watched; not where the
        system cannot tell, nor where no snapshot would be taken. Never raises."""
        return await asyncio.to_thread(self.sync.watch, working_dir)
