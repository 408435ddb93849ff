"""The checkpoint store of OpenJarvis' learning loop, served by shadowsnap.

`from shadowsnap.compat.openjarvis import CheckpointStore` in place of
`openjarvis.learning.spec_search.checkpoint.store`, and `SessionStore` in place of
`openjarvis.learning.spec_search.storage.session_store`. Unlike there, no repository is made in the directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from shadowsnap.base import configured_base
from shadowsnap.compat.common import open_manager
from shadowsnap.compat.openjarvis_sessions import EditOutcome, LearningSession, SessionStore, original
from shadowsnap.errors import NoSuchProject
from shadowsnap.model import Checkpoint

__all__ = [
    "CheckpointStore", "ConfigurationError", "DirtyWorkingTreeError", "EditOutcome", "LearningSession",
    "RevertConflictError", "SessionStore", "StageHandle",
]  # fmt: skip

TRACKED = ("config.toml", "agents", "tools")
_FACE = {"face": "openjarvis"}


class ConfigurationError(RuntimeError):
    """The directory lies in a source tree, where no checkpoints of a configuration belong."""


class DirtyWorkingTreeError(RuntimeError):
    """There are changes that no stage committed."""


class RevertConflictError(RuntimeError):
    """Something else changed the same lines since. Nothing was reverted."""


@dataclass(frozen=True)
class StageHandle:
    """Where a stage began. It may end in another process."""

    edit_id: str
    pre_stage_sha: str


if not TYPE_CHECKING:
    ConfigurationError = original("storage.paths", "ConfigurationError", ConfigurationError)
    DirtyWorkingTreeError = original("checkpoint.store", "DirtyWorkingTreeError", DirtyWorkingTreeError)
    StageHandle = original("checkpoint.store", "StageHandle", StageHandle)


class CheckpointStore:
    """Checkpoints of `config.toml`, `agents/` and `tools/` of one directory; whatever else is in it is neither
    captured nor touched. `protected` are source trees in which it refuses to begin; that of OpenJarvis itself
    always is one."""

    def __init__(
        self, root: str | os.PathLike[str], *, base: Path | None = None, protected: Sequence[Path] = ()
    ) -> None:
        self.root = Path(root).expanduser().resolve()
        self._protected = protected
        self._manager = open_manager(base or configured_base(), ["/*", *(f"!/{name}" for name in TRACKED)])

    def init(self) -> None:
        """Take the baseline, if there is none yet."""
        for tree in (*self._protected, *_source_trees(self.root)):
            if self.root.is_relative_to(Path(tree).resolve()):
                raise ConfigurationError(f"{self.root} is inside the source tree {tree}")
        self.root.mkdir(parents=True, exist_ok=True)
        if not self._history():
            self._note("checkpoint baseline")

    def current_sha(self) -> str:
        """The checkpoint that the last stage, revert or `init` ended with."""
        return self._head().short_id

    def begin_stage(self, edit_id: str) -> StageHandle:
        """Refused (`DirtyWorkingTreeError`) while there are changes that no stage committed."""
        head = self._head()
        self._check_clean(head, f"cannot begin the stage of {edit_id}")
        return StageHandle(edit_id, head.short_id)

    def commit_stage(self, handle: StageHandle, *, message: str, session_id: str, risk_tier: str) -> str:
        """Keep what was done since the stage began."""
        trailers = f"Edit-ID: {handle.edit_id}\nSession-ID: {session_id}\nRisk-Tier: {risk_tier}\n"
        made = self._manager.commit_since(
            self.root,
            handle.pre_stage_sha,
            f"{message}\n\n{trailers}",
            edit_id=handle.edit_id,
            session_id=session_id,
            risk_tier=risk_tier,
            **_FACE,
        )
        return self._keep(made)

    def discard_stage(self, handle: StageHandle) -> None:
        """Put everything back as it was when the stage began. What is put back is saved first."""
        if self.current_sha() != handle.pre_stage_sha:
            raise RuntimeError(f"something was committed since the stage of {handle.edit_id} began")
        self._manager.restore(self.root, handle.pre_stage_sha)

    def revert_session(self, session_id: str) -> list[str]:
        """Take back every stage of a session that was not taken back yet, newest first. Each makes a new entry; no
        old one changes."""
        history = self._history()
        done = {each.metadata.get("reverts") for each in history}
        stages = [each for each in history if each.kind == "stage" and each.session_id == session_id]
        going = [each for each in stages if each.id not in done]
        if going:
            self._check_clean(history[0], f"cannot revert {session_id}")
            self._check_no_conflict(session_id)
        return [self._revert(each) for each in going]

    def _revert(self, stage: Checkpoint) -> str:
        reason = f'Revert "{stage.reason.partition(chr(10))[0]}"'
        result = self._manager.revert_stage(self.root, stage.id, reason, False, reverts=stage.id, **_FACE)
        if result.target.id:
            return self._keep(result.target)
        # Its work is gone already, by hand or by a later stage: that is noted all the same.
        return self._note(reason, reverts=stage.id)

    def _note(self, reason: str, **facts: str) -> str:
        taken = self._manager.snapshot(self.root, reason, always=True, **facts, **_FACE).checkpoint
        assert taken is not None
        return self._keep(taken)

    def _keep(self, made: Checkpoint) -> str:
        """Pin it: a stage can only be reverted while its beginning is there, whatever the limits of the store."""
        return self._manager.pin(self.root, made.id).short_id

    def _check_no_conflict(self, session_id: str) -> None:
        conflicts = self._manager.revert(self.root, session_id=session_id, dry_run=True).conflicts
        if conflicts:
            paths = ", ".join(conflict.path for conflict in conflicts)
            raise RevertConflictError(f"cannot revert {session_id}: others changed the same in {paths}")

    def _check_clean(self, head: Checkpoint, otherwise: str) -> None:
        changes = self._manager.diff(self.root, head.id).changes
        if changes:
            paths = ", ".join(change.path for change in changes[:5])
            raise DirtyWorkingTreeError(f"{otherwise}: there are uncommitted changes to {paths}")

    def _head(self) -> Checkpoint:
        history = self._history()
        if not history:
            raise RuntimeError(f"{self.root} has no checkpoints yet: call init() first")
        return history[0]

    def _history(self) -> list[Checkpoint]:
        """Our checkpoints, newest first. (An agent's hook may take others of the same directory.)"""
        try:
            found = self._manager.list_checkpoints(self.root)
        except NoSuchProject:
            return []
        return [each for each in found if each.metadata.get("face") == _FACE["face"]]


def _source_trees(root: Path) -> list[Path]:
    """The checkout of OpenJarvis that a directory is in, and the one that is installed."""
    around = (root, *root.parents)
    trees = [folder for folder in around if (folder / "src" / "openjarvis" / "__init__.py").exists()]
    spec = find_spec("openjarvis")
    package = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
    if package is not None:
        trees.append(package.parents[1] if package.parent.name == "src" else package)
    return trees
