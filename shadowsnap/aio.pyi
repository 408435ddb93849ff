"""The types of `aio`, made from `manager` by `python -m shadowsnap.cli.reference`: do not edit."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from shadowsnap.events import Event
from shadowsnap.manager import CheckpointManager, OnConflict, PathLike, ReclaimMode, Reference, TurnStatus, When
from shadowsnap.model import (
    Checkpoint,
    CheckpointKind,
    Conversation,
    Diff,
    Entry,
    Now,
    Outcome,
    RestoreResult,
    Session,
    SessionStatus,
)
from shadowsnap.remote.lanes import Lane
from shadowsnap.remote.pull import PullReport
from shadowsnap.remote.push import PushReport
from shadowsnap.results import (
    Bisection,
    BlamedLine,
    Checkup,
    ClearReport,
    Fork,
    ImportedItem,
    ImportReport,
    LaneEntries,
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
from shadowsnap.store.lanes import Remote

class AsyncCheckpointManager:
    sync: CheckpointManager
    @property
    def settings(self) -> Settings: ...
    @property
    def warnings(self) -> list[str]: ...
    @classmethod
    def of(cls, manager: CheckpointManager) -> AsyncCheckpointManager: ...
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
    ) -> None: ...
    @classmethod
    async def from_settings(
        cls,
        on_event: Callable[[Event], None] | None = None,
        **flags: Unpack[SettingValues],
    ) -> AsyncCheckpointManager: ...
    async def new_turn(
        self,
        session_id: str | None = None,
        prompt: str | None = None,
        conversation: Any = None,
        *,
        agent: str | None = None,
        parent: str | None = None,
    ) -> None: ...
    async def before_tool(
        self,
        tool_name: str,
        tool_input: Any = None,
        cwd: PathLike | None = None,
        roots: Iterable[PathLike] = (),
    ) -> Outcome: ...
    async def after_tool(self, tool_name: str, tool_input: Any = None, cwd: PathLike | None = None) -> Outcome: ...
    async def ensure_checkpoint(
        self,
        working_dir: PathLike,
        reason: str = "auto",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
        **labels: Any,
    ) -> Outcome: ...
    async def end_turn(self, conversation: Any = None, status: TurnStatus = "done") -> list[Outcome]: ...
    async def end_session(self, session_id: str | None = None, status: SessionStatus = "completed") -> None: ...
    async def turn_state(self) -> dict[str, Any]: ...
    async def resume_turn(self, state: dict[str, Any]) -> None: ...
    async def warm_up(self, working_dir: PathLike) -> bool: ...
    async def watch(self, working_dir: PathLike) -> bool: ...
    async def unwatch(self, working_dir: PathLike) -> None: ...
    async def snapshot(
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
    ) -> Outcome: ...
    async def take_first(self, working_dir: PathLike) -> Outcome: ...
    def stage(
        self,
        working_dir: PathLike,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        message: str = "stage",
    ) -> AsyncStage: ...
    async def commit_since(
        self,
        working_dir: PathLike,
        before: str,
        message: str,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        **labels: Any,
    ) -> Checkpoint: ...
    async def timeline(
        self,
        working_dir: PathLike,
        limit: int | None = None,
        session_id: str | None = None,
        path: PathLike | None = None,
        *,
        restores: bool = False,
    ) -> list[Entry]: ...
    async def tools_of(self, working_dir: PathLike, number: int) -> list[list[str]]: ...
    async def exchanged(self, working_dir: PathLike, ref: Reference) -> tuple[list[Entry], list[Entry]]: ...
    async def ways_back(self, working_dir: PathLike, entries: Sequence[Entry]) -> list[Entry]: ...
    async def next_undo(self, working_dir: PathLike) -> str | None: ...
    async def now(self, working_dir: PathLike, paths: Sequence[PathLike] = ()) -> Now: ...
    async def list_checkpoints(
        self,
        working_dir: PathLike,
        limit: int | None = None,
        session_id: str | None = None,
        path: PathLike | None = None,
        *,
        host: str | None = None,
    ) -> list[Checkpoint]: ...
    async def position(self, working_dir: PathLike, host: str | None = None) -> Checkpoint | None: ...
    async def get(self, working_dir: PathLike, ref: Reference) -> Checkpoint: ...
    async def diff(
        self,
        working_dir: PathLike,
        ref: Reference,
        other: Reference | None = None,
        paths: Sequence[PathLike] = (),
    ) -> Diff: ...
    async def files(self, working_dir: PathLike, ref: Reference) -> list[str]: ...
    async def contents(self, working_dir: PathLike, ref: Reference, paths: Sequence[str]) -> dict[str, bytes]: ...
    async def texts(self, working_dir: PathLike, ref: Reference, paths: Sequence[str]) -> dict[str, str]: ...
    async def blame(self, working_dir: PathLike, path: PathLike) -> list[BlamedLine]: ...
    async def bisect(
        self,
        working_dir: PathLike,
        good: Reference | None,
        bad: Reference | None = None,
        *,
        check: Callable[[Path, str], int | None],
        test_all: bool = False,
    ) -> Bisection: ...
    async def fork(
        self,
        working_dir: PathLike,
        ref: Reference,
        directory: PathLike,
        *,
        worktree: bool = False,
    ) -> Fork: ...
    async def verify(self, working_dir: PathLike, ref: Reference | None = None) -> Verification: ...
    async def projects(self) -> list[Path]: ...
    async def find_project(self, directory: PathLike) -> Path: ...
    async def get_working_dir_for_path(self, file_path: PathLike) -> Path: ...
    async def session(self, session_id: str, working_dir: PathLike | None = None) -> Session: ...
    async def sessions(
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
    ) -> list[Session]: ...
    async def search(
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
    ) -> list[Checkpoint]: ...
    async def attach(
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
    ) -> Conversation | None: ...
    async def restore(
        self,
        working_dir: PathLike,
        ref: Reference,
        paths: Sequence[PathLike] = (),
        dry_run: bool = False,
        *,
        conversation: bool = False,
        files: bool = True,
        session_id: str | None = None,
    ) -> RestoreResult: ...
    async def propose_restore(
        self,
        working_dir: PathLike,
        ref: Reference,
        paths: Sequence[PathLike] = (),
    ) -> tuple[RestoreResult, str]: ...
    async def restore_as_planned(
        self,
        working_dir: PathLike,
        token: str,
        dry_run: bool = False,
    ) -> RestoreResult: ...
    async def undo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult: ...
    async def redo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult: ...
    async def revert(
        self,
        working_dir: PathLike,
        turn: int | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
        on_conflict: OnConflict = "keep",
    ) -> RestoreResult: ...
    async def revert_stage(
        self,
        working_dir: PathLike,
        ref: str,
        reason: str = "",
        dry_run: bool = False,
        **labels: Any,
    ) -> RestoreResult: ...
    async def revert_stages(self, working_dir: PathLike, session_id: str, **labels: Any) -> list[Checkpoint]: ...
    async def record_write(self, working_dir: PathLike, path: PathLike) -> bool: ...
    async def recorded_writes(self, working_dir: PathLike) -> list[str]: ...
    async def restore_agent_work(
        self,
        working_dir: PathLike,
        ref: Reference,
        dry_run: bool = False,
    ) -> RestoreResult: ...
    async def pin(self, working_dir: PathLike, ref: Reference) -> Checkpoint: ...
    async def unpin(self, working_dir: PathLike, ref: Reference) -> Checkpoint: ...
    async def label(self, working_dir: PathLike, ref: Reference, label: str | None) -> Checkpoint: ...
    async def delete(
        self,
        working_dir: PathLike,
        refs: Reference | Iterable[Reference],
        now: bool = False,
    ) -> list[Checkpoint]: ...
    async def keep_newest(
        self,
        working_dir: PathLike,
        count: int,
        host: str | None = None,
    ) -> list[Checkpoint]: ...
    async def reclaim(self) -> Reclaimed: ...
    async def purge(
        self,
        working_dir: PathLike,
        paths: Sequence[PathLike] | PathLike,
        dry_run: bool = False,
    ) -> PurgeResult: ...
    async def status(self) -> StoreStatus: ...
    async def prune(
        self,
        dry_run: bool = False,
        *,
        orphans: bool = True,
        reclaim: ReclaimMode = "all",
        **limits: Unpack[SettingValues],
    ) -> PruneResult: ...
    async def auto_prune(self) -> PruneResult: ...
    async def doctor(self, repair: bool = False) -> Checkup: ...
    async def clear(
        self,
        working_dir: PathLike,
        dry_run: bool = False,
        *,
        host: str | None = None,
    ) -> ClearReport: ...
    async def clear_all(self, dry_run: bool = False, *, host: str | None = None) -> ClearReport: ...
    async def clear_legacy(self, dry_run: bool = False) -> ClearReport: ...
    async def sweep(
        self,
        unused_days: float = 0,
        *,
        gone: bool = True,
        host: str | None = None,
        only: Collection[str] | None = None,
    ) -> SweepReport: ...
    async def import_from(
        self,
        path: PathLike,
        dry_run: bool = False,
        on_progress: Callable[[int, int, ImportedItem], None] | None = None,
    ) -> ImportReport: ...
    async def set_remote(
        self,
        working_dir: PathLike,
        name: str,
        url: str,
        recipients: Sequence[str] = (),
        *,
        plain: bool = False,
        conversations: bool = False,
    ) -> Remote: ...
    async def remote(self, working_dir: PathLike) -> Remote | None: ...
    async def remove_remote(self, working_dir: PathLike) -> Remote: ...
    async def push(self, working_dir: PathLike) -> PushReport: ...
    async def remote_status(self, working_dir: PathLike | None = None) -> list[RemoteStatus]: ...
    async def pull(
        self,
        working_dir: PathLike,
        lanes: Sequence[str] = (),
        key: PathLike | None = None,
    ) -> list[PullReport]: ...
    async def lanes(
        self,
        url: str | None = None,
        working_dir: PathLike | None = None,
        key: PathLike | None = None,
    ) -> list[Lane]: ...
    async def pulled(self, working_dir: PathLike, limit: int | None = None) -> list[LaneEntries]: ...
    async def resume(
        self,
        lane: str,
        directory: PathLike | None = None,
        *,
        url: str | None = None,
        working_dir: PathLike | None = None,
        key: PathLike | None = None,
        dry_run: bool = False,
    ) -> Resumed: ...
    async def remove_store(self) -> ClearReport: ...

class AsyncStage:
    @property
    def checkpoint(self) -> Checkpoint | None: ...
    @property
    def before(self) -> Checkpoint | None: ...
    async def __aenter__(self) -> AsyncStage: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    async def commit(self, message: str | None = None) -> Checkpoint: ...
    async def discard(self) -> RestoreResult: ...
