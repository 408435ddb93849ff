"""The dictionaries and texts of Hermes Agent's checkpoint manager."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shadowsnap.errors import BadArguments
from shadowsnap.manager.agentwork import NOT_THE_AGENTS
from shadowsnap.model import Checkpoint, RestoreResult

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
