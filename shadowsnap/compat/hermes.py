"""The checkpoint manager of Hermes Agent, served by shadowsnap.

`from shadowsnap.compat.hermes import CheckpointManager` in place of `tools.checkpoint_manager`:
the same calls and the same dictionaries. Nothing here raises.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from shadowsnap.compat.checkpoint_maintenance import (
    clear_all,
    clear_legacy,
    has_store,
    maybe_auto_prune_checkpoints,
    prune_checkpoints,
    store_status,
)
from shadowsnap.errors import BadArguments, RestoreFailed, ShadowsnapError
from shadowsnap.manager import NOT_THE_AGENTS
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.records import replace
from shadowsnap.settings import configured_base
from shadowsnap.snapshot.ignore_rules import DEFAULT_EXCLUDES as _DEFAULT_EXCLUDES
from shadowsnap.snapshot.tools import refusal

__all__ = [
    "CHECKPOINT_BASE", "DEFAULT_EXCLUDES", "CheckpointManager", "clear_all", "clear_legacy", "current_base",
    "format_checkpoint_list", "maybe_auto_prune_checkpoints", "prune_checkpoints", "store_status",
]  # fmt: skip

CHECKPOINT_BASE = Path(configured_base())
"""Where everything lies. Read at every call: a program or a test may replace it."""
_BASE_AT_IMPORT = CHECKPOINT_BASE

DEFAULT_EXCLUDES = list(_DEFAULT_EXCLUDES)

_TROUBLE = (ShadowsnapError, OSError, ValueError, TypeError, AttributeError, RuntimeError)
_Answers = TypeVar("_Answers", bound=Callable[..., dict[str, Any]])


def _answering(deed: _Answers) -> _Answers:
    """What goes wrong is an answer, too."""

    @wraps(deed)
    def answer(*args: Any, **more: Any) -> dict[str, Any]:
        try:
            return {"success": True, **deed(*args, **more)}
        except _TROUBLE as problem:
            return {"success": False, "error": str(problem)}

    return cast(_Answers, answer)


class CheckpointManager:
    """One snapshot per directory and turn, and every way back."""

    def __init__(
        self,
        enabled: bool = False,
        max_snapshots: int = 20,
        max_total_size_mb: int = 500,
        max_file_size_mb: int = 10,
    ) -> None:
        self.enabled = enabled
        self.max_snapshots = max(1, int(max_snapshots))
        self.max_total_size_mb = max(0, int(max_total_size_mb))
        self.max_file_size_mb = max(0, int(max_file_size_mb))
        self._made: Manager | None = None
        self._making = threading.Lock()

    def new_turn(self) -> None:
        self._manager.new_turn()

    def ensure_checkpoint(self, working_dir: str, reason: str = "auto") -> bool:
        """Whether a checkpoint was taken just now."""
        return self.enabled and bool(self._manager.ensure_checkpoint(working_dir, reason))

    def list_checkpoints(self, working_dir: str) -> list[dict[str, Any]]:
        """Newest first."""
        try:
            return [entry(each) for each in self._listed(working_dir)]
        except _TROUBLE:
            return []

    def list_all_checkpoints(self) -> list[dict[str, Any]]:
        """Those of every directory, newest first; `workdir` says which."""
        found: list[tuple[Checkpoint, Path]] = []
        for workdir in self._known_projects():
            try:
                found += [(each, workdir) for each in self._listed(workdir)]
            except _TROUBLE:
                continue  # one project in trouble does not hide the others
        found.sort(key=lambda item: item[0].created_at, reverse=True)
        return [{**entry(each), "workdir": str(workdir)} for each, workdir in found]

    @_answering
    def diff(self, working_dir: str, commit_hash: str) -> dict[str, Any]:
        """What changed since a checkpoint: `stat` and `diff`."""
        found = self._manager.diff(working_dir, checked(commit_hash))
        return {"stat": found.stat, "diff": found.text}

    def session_diff(self, working_dir: str) -> dict[str, Any]:
        """What changed since the oldest checkpoint that is listed; `empty` if nothing did."""
        listed = self.list_checkpoints(working_dir)
        if not listed:
            return {"success": True, "stat": "", "diff": "", "empty": True}
        found = self.diff(working_dir, listed[-1]["hash"])
        if found["success"]:
            found["baseline"] = listed[-1]["hash"]
            if not found["stat"] and not found["diff"]:
                found["empty"] = True
        return found

    @_answering
    def restore(
        self, working_dir: str, commit_hash: str, file_path: str | None = None, safe: bool = False
    ) -> dict[str, Any]:
        """Bring back everything, or one file. `safe`: only what the agent wrote (`record_agent_write`),
        if anything is known of that; what people changed stays."""
        commit_hash = checked(commit_hash)
        if file_path is not None and not file_path.strip():
            raise BadArguments(what="Empty file path")
        if file_path is None and safe and self._manager.recorded_writes(working_dir):
            done, failed = self._restored_agent_work(working_dir, commit_hash)
            return {**told(done), **sorted_out(done, failed)}
        done = self._manager.restore(working_dir, commit_hash, [file_path] if file_path else [])
        return {**told(done), **({"file": file_path} if file_path else {})}

    def record_agent_write(self, file_path: str) -> None:
        """Note that the agent just wrote this file."""
        if not self.enabled:
            return
        try:
            self._manager.record_write(self.get_working_dir_for_path(file_path), Path(file_path).expanduser())
        except _TROUBLE:
            pass  # a safe restore then takes the file for the person's, and leaves it alone

    def get_working_dir_for_path(self, file_path: str) -> str:
        """The project of a file: one that has checkpoints already, else the nearest directory that
        looks like one, else its own directory."""
        try:
            path = Path(file_path).expanduser().resolve()
        except _TROUBLE:
            return os.path.dirname(file_path)
        above = [folder for folder in (path, *path.parents) if refusal(folder, current_base()) is None]
        known = {str(workdir) for workdir in self._known_projects()}
        owner = next((folder for folder in above if str(folder) in known), None)
        return str(owner or self._manager.get_working_dir_for_path(path))

    @property
    def _manager(self) -> Manager:
        """Made anew when the base is another one."""
        with self._making:
            if self._made is None or self._made.settings.base != current_base():
                limits = (self.max_snapshots, self.max_total_size_mb, self.max_file_size_mb)
                # How old a checkpoint may become is for `prune_checkpoints` to say.
                self._made = Manager(True, *limits, base=current_base(), retention_days=0)
            return self._made

    def _listed(self, working_dir: str | Path) -> list[Checkpoint]:
        known = has_store(current_base())
        return self._manager.list_checkpoints(working_dir, limit=self.max_snapshots) if known else []

    def _known_projects(self) -> list[Path]:
        try:
            return self._manager.projects() if has_store(current_base()) else []
        except _TROUBLE:
            return []

    def _restored_agent_work(self, working_dir: str, ref: str) -> tuple[RestoreResult, list[str]]:
        """A restore is done as a whole or not at all. Where files that should go cannot be removed,
        the others are restored without them."""
        try:
            return self._manager.restore_agent_work(working_dir, ref), []
        except RestoreFailed:
            plan = self._manager.restore_agent_work(working_dir, ref, dry_run=True)
            if not plan.deleted:
                raise
            if plan.written:
                self._manager.restore(working_dir, ref, plan.written)
            return replace(plan, deleted=(), applied=True), list(plan.deleted)


def current_base() -> Path:
    return Path(CHECKPOINT_BASE if CHECKPOINT_BASE != _BASE_AT_IMPORT else configured_base())


_HASH = re.compile(r"[0-9a-fA-F]{4,64}")


def checked(commit_hash: str) -> str:
    """A hash that can be one."""
    if not commit_hash or not commit_hash.strip():
        raise BadArguments(what="Empty commit hash")
    if commit_hash.startswith("-"):
        raise BadArguments(what=f"Invalid commit hash (must not start with '-'): {commit_hash!r}")
    if not _HASH.fullmatch(commit_hash):
        raise BadArguments(what=f"Invalid commit hash (expected 4-64 hex characters): {commit_hash!r}")
    return commit_hash


def entry(checkpoint: Checkpoint) -> dict[str, Any]:
    """One checkpoint in a list."""
    return {
        "hash": checkpoint.id,
        "short_hash": checkpoint.short_id,
        "timestamp": checkpoint.created_at.astimezone().isoformat(timespec="milliseconds"),
        "reason": checkpoint.reason,
        "files_changed": checkpoint.files_changed or 0,
        "insertions": checkpoint.insertions or 0,
        "deletions": checkpoint.deletions or 0,
    }


def told(done: RestoreResult) -> dict[str, Any]:
    """What a restore did."""
    return {"restored_to": done.target.short_id, "reason": done.target.reason, "directory": done.target.workdir}


def sorted_out(done: RestoreResult, failed: list[str]) -> dict[str, Any]:
    """Which files a safe restore brought back, and which it left, and why."""
    facts: dict[str, Any] = {
        "restored_files": sorted(path for path in (*done.written, *done.deleted) if not path.endswith("/")),
        "skipped_user_edits": [kept.path for kept in done.kept if kept.why == NOT_THE_AGENTS],
        "skipped_oversize": [kept.path for kept in done.kept if kept.why.startswith("too-large")],
    }
    return {**facts, "failed_deletes": failed} if failed else facts


def format_checkpoint_list(checkpoints: list[dict[str, Any]], directory: str) -> str:
    """A numbered list for people, and what can be done with the numbers."""
    if not checkpoints:
        return f"No checkpoints found for {directory}"
    lines = [f"Checkpoints for {directory}:", ""]
    for number, each in enumerate(checkpoints, 1):
        when = each["timestamp"][:16].replace("T", " ")
        place = each.get("workdir") if directory == "all directories" else None
        where = f"  [{Path(place).name}]" if place else ""
        lines.append(f"  {number}. {each['short_hash']}  {when}{where}  {each['reason']}{_numbers(each)}")
    return "\n".join([
        *lines,
        "",
        "  /rollback <N>             restore everything to checkpoint N",
        "  /rollback diff <N>        show what changed since checkpoint N",
        "  /rollback <N> <file>      restore one file from checkpoint N",
    ])  # fmt: skip


def _numbers(listed: dict[str, Any]) -> str:
    files = listed.get("files_changed", 0)
    return f"  ({files} file{'s' * (files != 1)}, +{listed['insertions']}/-{listed['deletions']})" if files else ""
