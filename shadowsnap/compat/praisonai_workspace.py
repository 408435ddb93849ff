"""The workspace of PraisonAI's checkpoint service: what it does with the manager, without waiting."""

from __future__ import annotations

import os
import re
from pathlib import Path

from shadowsnap.compat.praisonai_types import Checkpoint, CheckpointConfig, CheckpointDiff, FileDiff
from shadowsnap.engine.places import refusal
from shadowsnap.errors import BadArguments, NoSuchProject, NothingToImport
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Change, Diff
from shadowsnap.model import Checkpoint as Taken

STEP = re.compile(r"\[step-(\d+)\]\s*")
_PROTECTED = ("~/Desktop", "~/Documents", "~/Downloads")


def shown(taken: Taken) -> Checkpoint:
    """As PraisonAI has it."""
    tag = STEP.match(taken.reason)
    numbers = (taken.files_changed or 0, taken.insertions or 0, taken.deletions or 0)
    step = int(tag[1]) if tag else None
    return Checkpoint(taken.id, taken.short_id, taken.reason, taken.created_at, *numbers, step, taken.metadata)


class Workspace:
    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._folder = config.workspace_dir
        self._at: str | None = None
        self._restored: Taken | None = None
        self._manager = CheckpointManager(
            max_snapshots=config.max_checkpoints,
            retention_days=0,
            base=config.storage_dir,
            excludes=tuple(config.exclude_patterns),
        )

    def take_over(self) -> None:
        """Make the store, and import what PraisonAI itself left."""
        if Path(self._folder).resolve() in self._manager.projects():
            return
        left = self._config.get_checkpoint_dir()
        if os.path.isdir(os.path.join(left, ".git")):
            try:
                self._manager.import_from(left)
            except NothingToImport:
                pass

    def save(self, message: str, allow_empty: bool) -> Taken:
        """A new checkpoint, with what it changed."""
        if not allow_empty and self._is_unchanged():
            raise BadArguments(what="No changes to checkpoint")
        outcome = self._manager.snapshot(self._folder, message, always=allow_empty)
        if outcome.status != "taken" or outcome.checkpoint is None:
            raise BadArguments(what=outcome.error or "No changes to checkpoint")
        self._at, self._restored = outcome.checkpoint.id, None
        return self._manager.list_checkpoints(self._folder, limit=1)[0]

    def restore(self, ref: str | None, step: int | None = None) -> Taken:
        """Go back to a checkpoint, or else to the newest of a step."""
        if ref is None:
            ref = next((each.id for each in self.listed() if shown(each).step == step), None)
        if ref is None:
            raise BadArguments(what=f"No checkpoint found for step {step}")
        self._restored = self._manager.restore(self._folder, ref).target
        self._at = self._restored.id
        return self._restored

    def rewind(self, steps: int) -> Taken:
        saved = [each for each in self.listed() if each.kind != "pre-restore"]
        target = self._position(saved) + steps
        if target >= len(saved):
            raise BadArguments(what=f"Cannot rewind {steps} step(s): only {len(saved)} checkpoint(s) available")
        return self.restore(saved[target].id)

    def _is_unchanged(self) -> bool:
        """Whether nothing changed since a restore, or there never was anything. (Since the newest
        checkpoint: the manager knows.)"""
        if self._restored is None:
            return not os.listdir(self._folder) and not self.listed()
        kept = any(each.id == self._restored.id for each in self.listed())
        return kept and not self._manager.diff(self._folder, self._restored.id)

    def _position(self, saved: list[Taken]) -> int:
        """Where in the list the workspace is: at the checkpoint that was saved or restored last; in a
        new process, at the newest that holds just its files; else at the newest."""
        for at, each in enumerate(saved):
            if each.id == self._at or self._at is None and not self._manager.diff(self._folder, each.id):
                return at
        return 0

    def listed(self) -> list[Taken]:
        """What was saved, and what restores found that was not. (A restore also saves what some
        checkpoint holds already.)"""
        try:
            found = self._manager.list_checkpoints(self._folder)
        except NoSuchProject:
            return []
        held = {each.tree for each in found if each.kind != "pre-restore"}
        return [each for each in found if each.kind != "pre-restore" or each.tree not in held]

    def diff(self, from_id: str | None, to_id: str | None) -> CheckpointDiff:
        if from_id is None:
            newest = self.listed()[:2]
            if not newest:
                return CheckpointDiff("", "")
            from_id = newest[-1].id
        found = self._manager.diff(self._folder, from_id, to_id)
        paths = [change.path for change in found.changes if not change.path.endswith("/")]
        before = self._manager.contents(self._folder, found.from_id, paths)
        after = self._contents_now(found, paths)
        files = [
            FileDiff(
                change.path,
                os.path.join(self._folder, change.path),
                _status(change),
                change.insertions or 0,
                change.deletions or 0,
                _text(before.get(change.path)),
                _text(after.get(change.path)),
            )
            for change in found.changes
        ]
        to = found.to_id and found.to_id[:8]
        return CheckpointDiff(found.from_id[:8], to, files, diff_content=found.text)

    def _contents_now(self, found: Diff, paths: list[str]) -> dict[str, bytes]:
        if found.to_id is not None:
            return self._manager.contents(self._folder, found.to_id, paths)
        there = [path for path in paths if os.path.isfile(os.path.join(self._folder, path))]
        return {path: Path(self._folder, path).read_bytes() for path in there}

    def beyond_limit(self) -> list[Taken]:
        """Delete the oldest ones that are too many."""
        beyond = self.listed()[self._config.max_checkpoints :] if self._config.max_checkpoints > 0 else []
        going = [each for each in beyond if not each.pinned]
        if going:
            self._manager.delete(self._folder, [each.id for each in going])
        return going

    def is_protected(self) -> bool:
        """Whether this is a directory that nobody works in."""
        workspace = Path(self._folder).resolve()
        if workspace in (Path(path).expanduser().resolve() for path in _PROTECTED):
            return True
        return refusal(workspace, self._manager.settings.resolved_base()) is not None

    def delete(self, ref: str) -> bool:
        return bool(self._manager.delete(self._folder, ref))

    def clear(self) -> None:
        """Delete every checkpoint."""
        try:
            self._manager.clear(self._folder)
        except NoSuchProject:
            pass  # there were none


def _status(change: Change) -> str:
    return change.status if change.status in ("added", "deleted") else "modified"


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None or b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
