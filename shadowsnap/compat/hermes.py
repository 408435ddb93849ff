"""The checkpoint manager of Hermes Agent, served by shadowsnap.

`from shadowsnap.compat.hermes import CheckpointManager` in place of `tools.checkpoint_manager`: the same calls and
the same dictionaries. Nothing here raises; an error is an answer. In the store that all hosts share, maintenance
touches only what Hermes recorded.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec

from shadowsnap.base import configured_base, is_moved_by_variable
from shadowsnap.compat.common import ERRORS, drop_own, is_shared, open_manager, own_checkpoints
from shadowsnap.errors import BadArguments, RestoreFailed
from shadowsnap.files import remove_tree
from shadowsnap.manager import NOT_THE_AGENTS
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.store.layout import WORKDIR_MARKER, archives, has_store, is_due, is_shadow_repository
from shadowsnap.upkeep.clear import bytes_of
from shadowsnap.upkeep.run import shows_absence

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
_HASH = re.compile(r"[0-9a-fA-F]{4,64}")
_SHADOW_NAME = re.compile(r"[0-9a-f]{16}")
_MB = 1024 * 1024
_FACE = "hermes"


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


def current_base(given: Path | None = None) -> Path:
    """If it is neither given nor replaced it is looked up: one process may serve several homes."""
    return Path(given or (CHECKPOINT_BASE if CHECKPOINT_BASE != _BASE_AT_IMPORT else _usual_base()))


_Parameters = ParamSpec("_Parameters")


def _answering(call: Callable[_Parameters, dict[str, Any]]) -> Callable[_Parameters, dict[str, Any]]:
    """An error becomes an answer."""

    @wraps(call)
    def answer(*args: _Parameters.args, **more: _Parameters.kwargs) -> dict[str, Any]:
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

    @property
    def _manager(self) -> Manager:
        """Opened anew when the base is another one. How old a checkpoint may become is for `prune_checkpoints`."""
        base = current_base()
        with self._opening:
            if self._opened is None or self._opened.settings.base != base:
                limits = ("max_snapshots", "max_total_size_mb", "max_file_size_mb")
                given = {name: getattr(self, name) for name in limits}
                self._opened = open_manager(base, DEFAULT_EXCLUDES, **given)
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
        return self.enabled and bool(self._manager.ensure_checkpoint(working_dir, reason, face=_FACE))

    def record_agent_write(self, file_path: str) -> None:
        """Note that the agent just wrote this file. If that fails, a safe restore leaves the file alone."""
        if self.enabled:
            with suppress(*ERRORS):
                self._manager.record_write(self.get_working_dir_for_path(file_path), Path(file_path).expanduser())

    def get_working_dir_for_path(self, file_path: str) -> str:
        """The project of a file: one that has checkpoints already, else the nearest directory that looks like one,
        else its own directory."""
        try:
            path, manager = Path(file_path).expanduser().resolve(), self._manager
            find = manager.find_project if has_store(current_base()) else manager.get_working_dir_for_path
            return str(find(path if path.is_dir() else path.parent))
        except ERRORS:
            return os.path.dirname(file_path)

    def list_checkpoints(self, working_dir: str) -> list[dict[str, Any]]:
        """Newest first."""
        try:
            known = has_store(current_base())
            found = self._manager.list_checkpoints(working_dir, limit=self.max_snapshots) if known else []
        except ERRORS:
            return []
        return [_entry(each) for each in found]

    def list_all_checkpoints(self) -> list[dict[str, Any]]:
        """Those of every directory, newest first; `workdir` says which."""
        try:
            projects = [str(each) for each in self._manager.projects()] if has_store(current_base()) else []
        except ERRORS:
            return []
        found = [{**each, "workdir": workdir} for workdir in projects for each in self.list_checkpoints(workdir)]
        return sorted(found, key=lambda each: datetime.fromisoformat(each["timestamp"]), reverse=True)

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
        plan = self._agent_work(working_dir, commit_hash)
        if plan is None:
            return {"restore": [], "skipped": [], "ledger_empty": True}
        return {"restore": _files(plan), "skipped": _kept(plan, NOT_THE_AGENTS)}

    def _agent_work(self, working_dir: str, commit_hash: str) -> RestoreResult | None:
        """What of the agent's work would be taken back; None if nothing is known of it."""
        plan = self._manager.restore_agent_work(working_dir, _checked(commit_hash), dry_run=True)
        return plan if self._manager.recorded_writes(working_dir) else None

    @_answering
    def restore(
        self, working_dir: str, commit_hash: str, file_path: str | None = None, safe: bool = False
    ) -> dict[str, Any]:
        """Bring back everything, or one file. `safe`: only what the agent wrote (`record_agent_write`), if
        anything is known of that; what people changed stays."""
        if file_path is not None and not file_path.strip():
            raise BadArguments(what="Empty file path")
        plan = self._agent_work(working_dir, commit_hash) if safe and file_path is None else None
        if plan is not None:
            return self._restore_agent_work(plan, working_dir, commit_hash)
        done = self._manager.restore(working_dir, _checked(commit_hash), [file_path] if file_path else [])
        return {**_told(done), **({"file": file_path} if file_path else {})}

    def _restore_agent_work(self, plan: RestoreResult, working_dir: str, commit_hash: str) -> dict[str, Any]:
        """A restore is done as a whole or not at all. Where files that should go cannot be removed, the others
        are restored without them."""
        failed: tuple[str, ...] = ()
        try:
            self._manager.restore_agent_work(working_dir, commit_hash)
        except RestoreFailed:
            failed = plan.deleted
            if not failed:
                raise
            if plan.written:
                self._manager.restore(working_dir, commit_hash, plan.written)
        return {
            **_told(plan),
            "restored_files": [path for path in _files(plan) if path not in failed],
            "skipped_user_edits": _kept(plan, NOT_THE_AGENTS),
            "skipped_oversize": _kept(plan, "too-large"),
            **({"failed_deletes": list(failed)} if failed else {}),
        }


def _checked(commit_hash: str) -> str:
    """A hash that can be one."""
    if not commit_hash or not commit_hash.strip():
        raise BadArguments(what="Empty commit hash")
    if commit_hash.startswith("-"):
        raise BadArguments(what=f"Invalid commit hash (must not start with '-'): {commit_hash!r}")
    if not _HASH.fullmatch(commit_hash):
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


def _files(plan: RestoreResult) -> list[str]:
    return sorted(path for path in (*plan.written, *plan.deleted) if not path.endswith("/"))


def _kept(plan: RestoreResult, why: str) -> list[str]:
    return sorted(kept.path for kept in plan.kept if kept.why.startswith(why))


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


# --- maintenance of the whole store ------------------------------------------------------------------


def store_status(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Sizes, projects and archives. What cannot be read is left out."""
    base, projects = current_base(checkpoint_base), []
    with suppress(*ERRORS):
        for each in Manager(base=base).status().projects if has_store(base) else ():
            times = {"created_at": each.created_at, "last_touch": each.last_touch}
            about = {"hash": each.id, "workdir": each.workdir, "exists": each.exists, "commits": each.checkpoints}
            projects.append(about | {name: time and time.timestamp() for name, time in times.items()})
    found = [(path, path.stat().st_mtime) for path in archives(base)]
    old = [{"name": path.name, "size_bytes": bytes_of(path), "mtime": mtime} for path, mtime in found]
    return {
        "base": str(base),
        "store_size_bytes": bytes_of(base / "store"),
        "legacy_size_bytes": sum(archive["size_bytes"] for archive in old),
        "total_size_bytes": bytes_of(base),
        "project_count": len(projects),
        "projects": projects,
        "pre_v2_projects": [
            {"path": str(folder), "workdir": workdir, "exists": bool(workdir) and Path(workdir or "").exists()}
            for folder, workdir in _shadow_repositories(base)
        ],
        "legacy_archives": old,
    }


def clear_all(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Remove every checkpoint that Hermes recorded, and the archives. Of a base of its own nothing is left, if
    nothing else is in it."""
    base, deleted = current_base(checkpoint_base), False
    before = bytes_of(base)
    with suppress(*ERRORS):  # `deleted` says so
        if base.is_dir():
            for folder in (*archives(base), *(folder for folder, _ in _shadow_repositories(base))):
                remove_tree(folder)
            manager = Manager(base=base)
            if is_shared(base):
                for workdir in manager.projects():
                    drop_own(manager, str(workdir), _FACE)
                manager.reclaim()
            else:
                manager.remove_store()
            deleted = True
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": deleted}


def clear_legacy(checkpoint_base: Path | None = None) -> dict[str, int]:
    """Remove the archives of older layouts; `errors` counts those whose space could not be recovered."""
    base = current_base(checkpoint_base)
    found, before = archives(base), bytes_of(base)
    for archive in found:
        remove_tree(archive)
    errors = sum(archive.exists() for archive in found)
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": len(found) - errors, "errors": errors}


def prune_checkpoints(
    retention_days: float = 7,
    delete_orphans: bool = True,
    checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0,
    orphan_allowlist: set[str] | None = None,
) -> dict[str, int]:
    """Let go of projects whose directory is gone, or that were not used for `retention_days`, unless something of
    them is pinned. `orphan_allowlist`: what may go as an orphan, by hash. The size of the store that all hosts
    share is left to the person's own limit; `errors` counts whatever space could not be recovered."""
    base = current_base(checkpoint_base)
    counts = dict.fromkeys(("scanned", "deleted_orphan", "deleted_stale", "errors", "bytes_freed"), 0)
    cutoff = time.time() - retention_days * 86400 if retention_days > 0 else 0.0
    before = bytes_of(base)

    def drop(as_what: str, remove: Callable[[], object]) -> None:
        try:
            remove()
            counts[f"deleted_{as_what}"] += 1
        except ERRORS:
            counts["errors"] += 1  # the others go on

    counts["errors"] += base.is_file()
    try:
        for archive in archives(base):
            if not is_due(archive) and archive.stat().st_mtime < cutoff:
                drop("stale", partial(_remove, archive))
        for name, is_gone, last_touch, remove in _candidates(base):
            counts["scanned"] += 1
            if delete_orphans and is_gone and (orphan_allowlist is None or name in orphan_allowlist):
                drop("orphan", remove)
            elif 0 < last_touch < cutoff:
                drop("stale", remove)
        if max_total_size_mb > 0 and has_store(base) and not is_shared(base):
            manager = open_manager(base, [], max_total_size_mb=max_total_size_mb)
            kept = manager.prune(orphans=False)
            counts["errors"] += kept.error is not None or (kept.bytes_after or 0) > max_total_size_mb * _MB
    except ERRORS:
        counts["errors"] += 1
    counts["bytes_freed"] = max(0, before - bytes_of(base))
    return counts


def _candidates(base: Path) -> Iterator[tuple[str, bool, float, Callable[[], object]]]:
    """What there is to prune: the name, whether its directory is gone, when it was last used, and how it is
    removed. A repository of a single directory that git can read is imported when the store is opened."""
    for folder, workdir in _shadow_repositories(base):
        if not is_shadow_repository(folder):
            gone = workdir is None or not Path(workdir).exists() and shows_absence(Path(workdir).parent)
            touched = max((path.lstat().st_mtime for path in folder.rglob("*")), default=0.0)
            yield str(folder), gone, touched, partial(_remove, folder)
    manager = Manager(base=base)
    for project in manager.status().projects if has_store(base) else ():
        if not project.pinned and project.checkpoints and own_checkpoints(manager, project.workdir, _FACE):
            touched = project.last_touch.timestamp() if project.last_touch else 0.0
            remove = partial(drop_own, manager, project.workdir, _FACE)
            yield project.id, project.place == "gone", touched, remove


def _shadow_repositories(base: Path) -> Iterator[tuple[Path, str | None]]:
    """The repositories of single directories right in the base, and whose they are."""
    for folder in sorted(base.iterdir()) if base.is_dir() else ():
        marker = folder / WORKDIR_MARKER
        if not (_SHADOW_NAME.fullmatch(folder.name) or marker.exists()) or not (folder / "HEAD").is_file():
            continue
        try:
            yield folder, marker.read_text("utf-8-sig").strip()
        except FileNotFoundError:
            yield folder, None
        except (OSError, ValueError):
            yield folder, str(folder)  # its owner is unknown, so it counts as in use


def _remove(folder: Path) -> None:
    remove_tree(folder)
    if folder.exists():
        raise OSError(f"{folder} cannot be removed")


def maybe_auto_prune_checkpoints(
    retention_days: float = 7,
    min_interval_hours: float = 24,
    delete_orphans: bool = True,
    checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0,
) -> dict[str, Any]:
    """`prune_checkpoints`, at most once in `min_interval_hours`. The interval begins before it: a prune that dies
    must not be tried at every start."""
    base, out = current_base(checkpoint_base), dict[str, Any](skipped=False)
    # The usual marker is that of the manager, which prunes for all hosts.
    marker = base / (".last_prune-hermes" if is_shared(base) else ".last_prune")
    with suppress(OSError, ValueError):  # it never ran, or the marker is damaged
        out["skipped"] = 0 <= time.time() - float(marker.read_text("utf-8-sig")) < min_interval_hours * 3600
    if not out["skipped"]:
        try:
            if base.is_dir():
                marker.write_text(f"{time.time()}\n")
        except OSError as problem:
            out["error"] = str(problem)
        out["result"] = prune_checkpoints(retention_days, delete_orphans, base, max_total_size_mb)
    return out


def auto_prune_from_config() -> dict[str, Any]:
    """`maybe_auto_prune_checkpoints` as Hermes is configured. Nothing goes because its directory is missing:
    unattended, that may be a volume that is not mounted."""
    try:
        config = _config()
        if not config.get("auto_prune", False):
            return {"skipped": True}
        days, hours = float(config.get("retention_days", 7)), float(config.get("min_interval_hours", 24))
        size = float(config.get("max_total_size_mb", 500))
        return maybe_auto_prune_checkpoints(days, hours, delete_orphans=False, max_total_size_mb=size)
    except Exception as problem:  # reading a configuration may raise anything
        return {"skipped": True, "error": str(problem)}


def checkpoint_footprint_notice() -> str | None:
    """A line for people whose checkpoints are on and use more than the limit; None otherwise."""
    try:
        config, status = _config(), store_status()
        limit, size = float(config.get("max_total_size_mb", 500) or 0), status["total_size_bytes"] / _MB
        if not config.get("enabled", False) or not 0 < limit <= size:
            return None
        return (
            f"Checkpoints for /rollback are on and use {size:.0f} MB for {status['project_count']} project(s); "
            f"the limit is {limit:g} MB, and the newest of each project always stays. To do without them: "
            "`hermes config set checkpoints.enabled false`, then `hermes checkpoints clear`."
        )
    except Exception:  # as above
        return None


def _config() -> dict[str, Any]:
    """What Hermes' own configuration says of checkpoints."""
    return import_module("hermes_cli.config").load_config().get("checkpoints") or {}
