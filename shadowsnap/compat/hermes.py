"""The checkpoint manager of Hermes Agent, served by shadowsnap.

`from shadowsnap.compat.hermes import CheckpointManager` in place of `tools.checkpoint_manager`: the same calls and
the same dictionaries. Nothing here raises; an error is an answer. In the store that all hosts share, maintenance
touches only what Hermes recorded.
"""

from __future__ import annotations

import os
import re
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from shadowsnap.base import configured_base, is_moved_by_variable
from shadowsnap.compat.common import ERRORS, errors_as, is_shared, maintenance_host, open_manager
from shadowsnap.errors import BadArguments
from shadowsnap.manager import NOT_REMOVED, NOT_THE_AGENTS
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.model import Checkpoint
from shadowsnap.results import ProjectStatus, SweepReport
from shadowsnap.store.layout import archives, has_store
from shadowsnap.upkeep.clear import bytes_of

DEFAULT_EXCLUDES = [
    ".git/", ".hg/", ".svn/", ".worktrees/",
    "node_modules/", "build/", "dist/", "out/", "target/", ".next/", ".nuxt/", ".venv/", "venv/", "env/",
    "__pycache__/", ".cache/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", "coverage/", ".coverage",
    "*.pyc", "*.pyo", "*.o", "*.a", "*.obj", "*.so", "*.dll", "*.dylib", "*.exe", "*.class", "*.jar",
    "*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.7z", "*.rar", "*.iso", "*.mp4", "*.mov", "*.mkv", "*.webm",
    ".env", ".env.*", "*.log", ".DS_Store", "Thumbs.db",
]  # fmt: skip
_CONFIG = {
    "enabled": False, "auto_prune": False, "retention_days": 7, "min_interval_hours": 24, "max_total_size_mb": 500,
}  # fmt: skip
_LIST_FOOTER = """
  /rollback <N>             restore everything to checkpoint N
  /rollback diff <N>        show what changed since checkpoint N
  /rollback <N> <file>      restore one file from checkpoint N"""
_COUNTS = ("files_changed", "insertions", "deletions")
_HOST = "hermes"


def _default_base() -> Path:
    """`$HERMES_HOME/checkpoints` if that is set; `~/.hermes/checkpoints` if it exists and SHADOWSNAP_HOME is not
    set; otherwise the store that all hosts share."""
    home = os.environ.get("HERMES_HOME")
    own = Path(home or "~/.hermes").expanduser() / "checkpoints"
    is_own = bool(home) or own.is_dir() and not is_moved_by_variable()
    return own if is_own else Path(configured_base())


CHECKPOINT_BASE = _BASE_AT_IMPORT = _default_base()
"""A program or a test may replace it. Otherwise the base is found at every call, because one process may serve
several homes."""


def current_base(given: Path | None = None) -> Path:
    return Path(given or (CHECKPOINT_BASE if CHECKPOINT_BASE != _BASE_AT_IMPORT else _default_base()))


_errors_as_answers = errors_as(lambda problem: {"success": False, "error": problem})


class CheckpointManager:
    """One checkpoint per directory and turn, and restoring them."""

    def __init__(
        self, enabled: bool = False, max_snapshots: int = 20, max_total_size_mb: int = 500,
        max_file_size_mb: int = 10,
    ) -> None:  # fmt: skip
        self.enabled = enabled
        self.max_snapshots = max(1, int(max_snapshots))
        self.max_total_size_mb = max(0, int(max_total_size_mb))
        self.max_file_size_mb = max(0, int(max_file_size_mb))
        self._opened: Manager | None = None
        self._opening = threading.Lock()

    @property
    def _manager(self) -> Manager:
        """Opened again when the base changes. It has no age limit: `prune_checkpoints` applies that."""
        base = current_base()
        with self._opening:
            if self._opened is None or self._opened.settings.base != base:
                limits = {name: value for name, value in vars(self).items() if name.startswith("max_")}
                self._opened = open_manager(base, DEFAULT_EXCLUDES, **limits)
            return self._opened

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
        keep = self.max_snapshots
        return self.enabled and bool(self._manager.ensure_checkpoint(working_dir, reason, host=_HOST, keep=keep))

    @errors_as(lambda _: None)
    def record_agent_write(self, file_path: str) -> None:
        """Note that the agent just wrote this file. If that fails, a safe restore leaves the file alone."""
        if self.enabled:
            self._manager.record_write(self.get_working_dir_for_path(file_path), Path(file_path).expanduser())

    def get_working_dir_for_path(self, file_path: str) -> str:
        """The project that has checkpoints already, else the nearest directory that looks like one, else its
        own directory."""
        try:
            path = Path(file_path).expanduser().resolve()
            return str(self._manager.find_project(path if path.is_dir() else path.parent))
        except ERRORS:
            return os.path.dirname(file_path)

    @errors_as(lambda _: list[dict[str, Any]]())
    def list_checkpoints(self, working_dir: str) -> list[dict[str, Any]]:
        return [_entry(each) for each in self._manager.list_checkpoints(working_dir, self.max_snapshots)]

    @errors_as(lambda _: list[dict[str, Any]]())
    def list_all_checkpoints(self) -> list[dict[str, Any]]:
        """Those of every directory, newest first; `workdir` says which."""
        return [{**_entry(each), "workdir": each.workdir} for each in self._manager.search(counted=True)]

    @_errors_as_answers
    def diff(self, working_dir: str, commit_hash: str) -> dict[str, Any]:
        found = self._manager.diff(working_dir, _checked_hash(commit_hash))
        return {"success": True, "stat": found.stat, "diff": found.text}

    def session_diff(self, working_dir: str) -> dict[str, Any]:
        """What changed since the oldest checkpoint that is listed; `empty` if nothing did."""
        listed = self.list_checkpoints(working_dir)
        if not listed:
            return {"success": True, "stat": "", "diff": "", "empty": True}
        found = self.diff(working_dir, listed[-1]["hash"])
        if found["success"]:
            found["baseline"] = listed[-1]["hash"]
            found |= {} if found["stat"] or found["diff"] else {"empty": True}
        return found

    @_errors_as_answers
    def safe_restore_plan(self, working_dir: str, commit_hash: str) -> dict[str, Any]:
        """Which files a safe restore would bring back (`restore`: as the agent left them, or gone since) and which
        it would leave (`skipped`). `ledger_empty`: nothing is known of the agent's writes."""
        plan = self._manager.restore_agent_work(working_dir, _checked_hash(commit_hash), dry_run=True)
        if not self._manager.recorded_writes(working_dir):
            return {"success": True, "restore": [], "skipped": [], "ledger_empty": True}
        return {"success": True, "restore": plan.files, "skipped": plan.kept_because(NOT_THE_AGENTS, "too-large")}

    @_errors_as_answers
    def restore(
        self, working_dir: str, commit_hash: str, file_path: str | None = None, safe: bool = False
    ) -> dict[str, Any]:
        """Bring back everything, or one file. `safe`: only what the agent wrote (`record_agent_write`), if
        anything is known of that; what people changed stays."""
        target = _checked_hash(commit_hash)
        if file_path is not None and not file_path.strip():
            raise BadArguments(what="Empty file path")
        about: dict[str, Any] = {"file": file_path} if file_path else {}
        if not safe or file_path or not self._manager.recorded_writes(working_dir):
            done = self._manager.restore(working_dir, target, [file_path] if file_path else [])
        else:
            done = self._manager.restore_agent_work(working_dir, target)
            about = {"restored_files": done.files, "skipped_user_edits": done.kept_because(NOT_THE_AGENTS)}
            about["skipped_oversize"] = done.kept_because("too-large")
            failed = done.kept_because(NOT_REMOVED)
            about |= {"failed_deletes": failed} if failed else {}
        to = done.target
        return {"success": True, "restored_to": to.short_id, "reason": to.reason, "directory": to.workdir, **about}


def _checked_hash(commit_hash: str) -> str:
    """The hash, if it has the form of one. Raises BadArguments."""
    if not commit_hash or not commit_hash.strip():
        raise BadArguments(what="Empty commit hash")
    if not re.fullmatch("[0-9a-fA-F]{4,64}", commit_hash):
        why = "must not start with '-'" if commit_hash.startswith("-") else "expected 4-64 hex characters"
        raise BadArguments(what=f"Invalid commit hash ({why}): {commit_hash!r}")
    return commit_hash


def _entry(checkpoint: Checkpoint) -> dict[str, Any]:
    saved_by_restore = checkpoint.kind == "pre-restore"
    return {
        "hash": checkpoint.id,
        "short_hash": checkpoint.short_id,
        "timestamp": checkpoint.created_at.astimezone().isoformat(timespec="milliseconds"),
        "reason": f"pre-rollback snapshot ({checkpoint.reason})" if saved_by_restore else checkpoint.reason,
        **{name: getattr(checkpoint, name) or 0 for name in _COUNTS},
    }


def format_checkpoint_list(checkpoints: list[dict[str, Any]], directory: str) -> str:
    """A numbered list, and the commands that take the numbers."""
    if not checkpoints:
        return f"No checkpoints found for {directory}"
    lines = [f"Checkpoints for {directory}:", ""]
    for number, each in enumerate(checkpoints, 1):
        where = f"  [{Path(each['workdir']).name}]" if "workdir" in each else ""  # of every directory
        files, more, less = (each.get(name, 0) for name in _COUNTS)
        counts = f"  ({files} file{'s' * (files != 1)}, +{more}/-{less})" if files else ""
        when = each["timestamp"][:16].replace("T", " ")
        lines.append(f"  {number}. {each['short_hash']}  {when}{where}  {each['reason']}{counts}")
    return "\n".join([*lines, _LIST_FOOTER])


@errors_as(lambda _: dict[str, Any](projects=[], legacy_archives=[]))
def _projects_and_archives(base: Path) -> dict[str, Any]:
    known = Manager(base=base).status().projects if has_store(base) else ()
    old = [{"name": p.name, "size_bytes": bytes_of(p), "mtime": p.stat().st_mtime} for p in archives(base)]
    return {"projects": [_project(each) for each in known], "legacy_archives": old}


def _project(known: ProjectStatus) -> dict[str, Any]:
    about = {"hash": known.id, "workdir": known.workdir, "exists": known.exists, "commits": known.checkpoints}
    times = {"created_at": known.created_at, "last_touch": known.last_touch}
    return about | {name: time and time.timestamp() for name, time in times.items()}


def store_status(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Sizes, projects and archives. What cannot be read is left out."""
    base = current_base(checkpoint_base)
    found = _projects_and_archives(base)
    return {
        "base": str(base),
        "store_size_bytes": bytes_of(base / "store"),
        "legacy_size_bytes": sum(archive["size_bytes"] for archive in found["legacy_archives"]),
        "total_size_bytes": bytes_of(base),
        "project_count": len(found["projects"]),
        "pre_v2_projects": [],  # they are archived and imported as projects
        **found,
    }


def clear_all(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Remove every checkpoint that Hermes recorded, and the archives. A base of its own is removed too, if nothing
    else is in it."""
    base = current_base(checkpoint_base)
    before = bytes_of(base)
    deleted = base.is_dir() and _remove_checkpoints(base)
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": deleted}


@errors_as(lambda _: False)
def _remove_checkpoints(base: Path) -> bool:
    manager = Manager(base=base)
    manager.clear_all(host=_HOST) if is_shared(base) else manager.remove_store()
    manager.clear_legacy()
    return True


@errors_as(lambda _: {"bytes_freed": 0, "deleted": 0, "errors": 1})
def clear_legacy(checkpoint_base: Path | None = None) -> dict[str, int]:
    """Remove the archives of older layouts; `errors` counts those whose space could not be recovered."""
    report = Manager(base=current_base(checkpoint_base)).clear_legacy()
    left = sum(os.path.lexists(item.subject) for item in report.items)
    return {"bytes_freed": report.bytes_freed, "deleted": len(report.items) - left, "errors": left}


def prune_checkpoints(
    retention_days: float = 7, delete_orphans: bool = True, checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0, orphan_allowlist: set[str] | None = None,
) -> dict[str, int]:  # fmt: skip
    """Drop projects whose directory is gone (only those of `orphan_allowlist`, by hash), or that were not used for
    `retention_days`. In the store that all hosts share, the person's own size limit applies. `errors` counts the
    projects and archives that could not be removed."""
    rules = {"gone": delete_orphans, "only": orphan_allowlist}
    return _sweep_counts(_sweep(checkpoint_base, max_total_size_mb, retention_days, **rules))


def maybe_auto_prune_checkpoints(
    retention_days: float = 7, min_interval_hours: float = 24, delete_orphans: bool = True,
    checkpoint_base: Path | None = None, max_total_size_mb: float = 0,
) -> dict[str, Any]:  # fmt: skip
    """`prune_checkpoints`, at most once in `min_interval_hours`."""
    rules = {"gone": delete_orphans, "every_hours": min_interval_hours}
    swept = _sweep(checkpoint_base, max_total_size_mb, retention_days, **rules)
    if swept.skipped:
        return {"skipped": True}
    out = {"skipped": False, "result": _sweep_counts(swept)}
    return {**out, "error": swept.not_marked} if swept.not_marked else out


def _sweep(given: Path | None, max_total_size_mb: float, days: float, **rules: Any) -> SweepReport:
    base = current_base(given)
    manager = open_manager(base, [], max_total_size_mb=max_total_size_mb)
    return manager.sweep(days, host=maintenance_host(base, _HOST), **rules)


def _sweep_counts(swept: SweepReport) -> dict[str, int]:
    gone, unused, problems = len(swept.gone), len(swept.unused), len(swept.problems)
    counts = {"scanned": swept.scanned, "deleted_orphan": gone, "deleted_stale": unused, "errors": problems}
    return {**counts, "bytes_freed": swept.bytes_freed}


def auto_prune_from_config() -> dict[str, Any]:
    """`maybe_auto_prune_checkpoints` as Hermes is configured. No project is dropped because its directory is
    missing: that may be a volume that is not mounted."""
    try:
        config = _config()
        if not config["auto_prune"]:
            return {"skipped": True}
        days, hours = float(config["retention_days"]), float(config["min_interval_hours"])
        size = float(config["max_total_size_mb"])
        return maybe_auto_prune_checkpoints(days, hours, delete_orphans=False, max_total_size_mb=size)
    except Exception as problem:  # reading a configuration may raise anything
        return {"skipped": True, "error": str(problem)}


def checkpoint_footprint_notice() -> str | None:
    """A notice if checkpoints are enabled and use more than the limit; else None."""
    try:
        config, status = _config(), store_status()
        limit, size = float(config["max_total_size_mb"] or 0), status["total_size_bytes"] / 2**20
    except Exception:  # as above
        return None
    if not config["enabled"] or not 0 < limit <= size:
        return None
    return (
        f"Checkpoints for /rollback use {size:.0f} MB for {status['project_count']} project(s), and may use "
        f"{limit:g} MB. Off: `hermes config set checkpoints.enabled false`, then `hermes checkpoints clear`."
    )


def _config() -> dict[str, Any]:
    """The checkpoint settings in Hermes' own configuration."""
    return _CONFIG | (import_module("hermes_cli.config").load_config().get("checkpoints") or {})
