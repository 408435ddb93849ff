"""The checkpoint manager of Hermes Agent, served by shadowsnap.

`from shadowsnap.compat.hermes import CheckpointManager` in place of `tools.checkpoint_manager`: the same calls and
the same dictionaries. Nothing here raises; an error is an answer.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec

from shadowsnap.base import configured_base, is_moved_by_variable
from shadowsnap.compat.checkpoint_maintenance import (
    auto_prune_from_config,
    checkpoint_footprint_notice,
    clear_all,
    clear_legacy,
    has_store,
    maybe_auto_prune_checkpoints,
    prune_checkpoints,
    store_status,
)
from shadowsnap.compat.common import ERRORS, open_manager
from shadowsnap.errors import BadArguments, RestoreFailed
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.model import Checkpoint, RestoreResult

__all__ = [
    "CHECKPOINT_BASE", "DEFAULT_EXCLUDES", "CheckpointManager", "auto_prune_from_config",
    "checkpoint_footprint_notice", "clear_all", "clear_legacy", "current_base", "format_checkpoint_list",
    "maybe_auto_prune_checkpoints", "prune_checkpoints", "store_status",
]  # fmt: skip

DEFAULT_EXCLUDES = [
    ".git/", ".hg/", ".svn/", ".worktrees/",
    "node_modules/", "build/", "dist/", "out/", "target/", ".next/", ".nuxt/", ".venv/", "venv/", "env/",
    "__pycache__/", ".cache/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", "coverage/", ".coverage",
    "*.pyc", "*.pyo", "*.o", "*.a", "*.obj", "*.so", "*.dll", "*.dylib", "*.exe", "*.class", "*.jar",
    "*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.7z", "*.rar", "*.iso", "*.mp4", "*.mov", "*.mkv", "*.webm",
    ".env", ".env.*", "*.log", ".DS_Store", "Thumbs.db",
]  # fmt: skip


def _usual_base() -> Path:
    """`$HERMES_HOME/checkpoints` if that is set; `~/.hermes/checkpoints` if it exists and SHADOWSNAP_HOME is not
    set; otherwise the store that all hosts share."""
    home = os.environ.get("HERMES_HOME")
    own = Path(home or "~/.hermes").expanduser() / "checkpoints"
    is_own = bool(home) or own.is_dir() and not is_moved_by_variable()
    return own if is_own else Path(configured_base())


CHECKPOINT_BASE = _usual_base()
"""Where the checkpoints lie. Read at every call: a program or a test may replace it."""
_BASE_AT_IMPORT = CHECKPOINT_BASE


def current_base() -> Path:
    """The base that counts now. If it was not replaced it is looked up: one process may serve several homes."""
    return Path(CHECKPOINT_BASE if CHECKPOINT_BASE != _BASE_AT_IMPORT else _usual_base())


_Answers = ParamSpec("_Answers")


def _answering(call: Callable[_Answers, dict[str, Any]]) -> Callable[_Answers, dict[str, Any]]:
    """An error becomes an answer."""

    @wraps(call)
    def answer(*args: _Answers.args, **more: _Answers.kwargs) -> dict[str, Any]:
        try:
            return {"success": True, **call(*args, **more)}
        except ERRORS as problem:
            return {"success": False, "error": str(problem)}

    return answer


class CheckpointManager:
    """One checkpoint per directory and turn, and every way back."""

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
        self._opened: Manager | None = None
        self._opening = threading.Lock()

    def new_turn(self) -> None:
        self._manager.new_turn()

    def unsupported_backend_reason(self, task_id: str = "default") -> str | None:
        """Why there are no checkpoints for a task: it works in a container, whose files are not this host's."""
        try:
            backend = import_module("tools.file_tools_paths").container_backend_for_task(task_id)
        except (ImportError, AttributeError):
            return None  # this is not Hermes, or one that knows no containers
        return backend and f"terminal.backend={backend} works on files of a container: no checkpoints are taken"

    def ensure_checkpoint(self, working_dir: str, reason: str = "auto") -> bool:
        """Whether a checkpoint was taken just now."""
        return self.enabled and bool(self._manager.ensure_checkpoint(working_dir, reason, face="hermes"))

    def record_agent_write(self, file_path: str) -> None:
        """Note that the agent just wrote this file. If that fails, a safe restore leaves the file alone."""
        if self.enabled:
            with suppress(*ERRORS):
                self._manager.record_write(self.get_working_dir_for_path(file_path), Path(file_path).expanduser())

    def list_checkpoints(self, working_dir: str) -> list[dict[str, Any]]:
        """Newest first."""
        try:
            return [_entry(each) for each in self._listed(working_dir)]
        except ERRORS:
            return []

    def list_all_checkpoints(self) -> list[dict[str, Any]]:
        """Those of every directory, newest first; `workdir` says which."""
        found: list[Checkpoint] = []
        try:
            projects = self._manager.projects() if has_store(current_base()) else []
        except ERRORS:
            return []
        for workdir in projects:
            with suppress(*ERRORS):  # a project in trouble does not hide the others
                found += self._listed(workdir)
        found.sort(key=lambda each: each.created_at, reverse=True)
        return [{**_entry(each), "workdir": each.workdir} for each in found]

    @_answering
    def diff(self, working_dir: str, commit_hash: str) -> dict[str, Any]:
        """What changed since a checkpoint: `stat` and `diff`."""
        found = self._manager.diff(working_dir, _checked(commit_hash))
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
    def safe_restore_plan(self, working_dir: str, commit_hash: str) -> dict[str, Any]:
        """Which files a safe restore would bring back (`restore`: as the agent left them, or gone since) and which
        it would leave (`skipped`). `ledger_empty`: nothing is known of the agent's writes."""
        return self._safe_plan(working_dir, commit_hash)

    def _safe_plan(self, working_dir: str, commit_hash: str) -> dict[str, Any]:
        plan = self._manager.restore(working_dir, _checked(commit_hash), dry_run=True)
        if not self._manager.recorded_writes(working_dir):
            return {"restore": [], "skipped": [], "ledger_empty": True}
        own = _files(self._manager.restore_agent_work(working_dir, commit_hash, dry_run=True))
        return {"restore": own, "skipped": sorted(set(_files(plan)) - set(own))}

    @_answering
    def restore(
        self, working_dir: str, commit_hash: str, file_path: str | None = None, safe: bool = False
    ) -> dict[str, Any]:
        """Bring back everything, or one file. `safe`: only what the agent wrote (`record_agent_write`), if
        anything is known of that; what people changed stays."""
        if file_path is not None and not file_path.strip():
            raise BadArguments(what="Empty file path")
        if safe and file_path is None:
            plan = self._safe_plan(working_dir, commit_hash)
            if "ledger_empty" not in plan:
                return self._restore_agent_work(working_dir, commit_hash, plan)
        done = self._manager.restore(working_dir, _checked(commit_hash), [file_path] if file_path else [])
        return {**_told(done), **({"file": file_path} if file_path else {})}

    def _restore_agent_work(self, working_dir: str, commit_hash: str, plan: dict[str, Any]) -> dict[str, Any]:
        """A restore is done as a whole or not at all. Where files that should go cannot be removed, the others
        are restored without them."""
        failed: list[str] = []
        try:
            done = self._manager.restore_agent_work(working_dir, commit_hash)
        except RestoreFailed:
            done = self._manager.restore_agent_work(working_dir, commit_hash, dry_run=True)
            failed = list(done.deleted)
            if not failed:
                raise
            if done.written:
                self._manager.restore(working_dir, commit_hash, done.written)
        return {
            **_told(done),
            "restored_files": [path for path in plan["restore"] if path not in failed],
            "skipped_user_edits": plan["skipped"],
            "skipped_oversize": [kept.path for kept in done.kept if kept.why.startswith("too-large")],
            **({"failed_deletes": failed} if failed else {}),
        }

    def get_working_dir_for_path(self, file_path: str) -> str:
        """The project of a file: one that has checkpoints already, else the nearest directory that looks like one,
        else its own directory."""
        try:
            path = Path(file_path).expanduser().resolve()
            folder, manager = path if path.is_dir() else path.parent, self._manager
            known = has_store(current_base())
            return str(manager.find_project(folder) if known else manager.get_working_dir_for_path(folder))
        except ERRORS:
            return os.path.dirname(file_path)

    @property
    def _manager(self) -> Manager:
        """Opened anew when the base is another one."""
        base = current_base()
        with self._opening:
            if self._opened is None or self._opened.settings.base != base:
                # How old a checkpoint may become is for `prune_checkpoints` to say.
                limits = {"max_snapshots": self.max_snapshots, "max_total_size_mb": self.max_total_size_mb}
                limits["max_file_size_mb"] = self.max_file_size_mb
                self._opened = open_manager(base, DEFAULT_EXCLUDES, **limits)
            return self._opened

    def _listed(self, working_dir: str | Path) -> list[Checkpoint]:
        known = has_store(current_base())
        return self._manager.list_checkpoints(working_dir, limit=self.max_snapshots) if known else []


def _checked(commit_hash: str) -> str:
    """A hash that can be one."""
    if not commit_hash or not commit_hash.strip():
        raise BadArguments(what="Empty commit hash")
    if commit_hash.startswith("-"):
        raise BadArguments(what=f"Invalid commit hash (must not start with '-'): {commit_hash!r}")
    if not re.fullmatch(r"[0-9a-fA-F]{4,64}", commit_hash):
        raise BadArguments(what=f"Invalid commit hash (expected 4-64 hex characters): {commit_hash!r}")
    return commit_hash


def _entry(checkpoint: Checkpoint) -> dict[str, Any]:
    saved_by_restore = checkpoint.kind == "pre-restore"
    return {
        "hash": checkpoint.id,
        "short_hash": checkpoint.short_id,
        "timestamp": checkpoint.created_at.astimezone().isoformat(timespec="milliseconds"),
        "reason": f"pre-rollback snapshot ({checkpoint.reason})" if saved_by_restore else checkpoint.reason,
        "files_changed": checkpoint.files_changed or 0,
        "insertions": checkpoint.insertions or 0,
        "deletions": checkpoint.deletions or 0,
    }


def _files(done: RestoreResult) -> list[str]:
    return sorted(path for path in (*done.written, *done.deleted) if not path.endswith("/"))


def _told(done: RestoreResult) -> dict[str, Any]:
    return {"restored_to": done.target.short_id, "reason": done.target.reason, "directory": done.target.workdir}


def format_checkpoint_list(checkpoints: list[dict[str, Any]], directory: str) -> str:
    """A numbered list for people, and what can be done with the numbers."""
    if not checkpoints:
        return f"No checkpoints found for {directory}"
    lines = [f"Checkpoints for {directory}:", ""]
    for number, each in enumerate(checkpoints, 1):
        when = each["timestamp"][:16].replace("T", " ")
        workdir = each.get("workdir") if directory == "all directories" else None
        where = f"  [{Path(workdir).name}]" if workdir else ""
        files, more, less = (each.get(name, 0) for name in ("files_changed", "insertions", "deletions"))
        counts = f"  ({files} file{'s' * (files != 1)}, +{more}/-{less})" if files else ""
        lines.append(f"  {number}. {each['short_hash']}  {when}{where}  {each['reason']}{counts}")
    return "\n".join([
        *lines,
        "",
        "  /rollback <N>             restore everything to checkpoint N",
        "  /rollback diff <N>        show what changed since checkpoint N",
        "  /rollback <N> <file>      restore one file from checkpoint N",
    ])  # fmt: skip
