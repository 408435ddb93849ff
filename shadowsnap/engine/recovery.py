"""A restore that died half way: the next operation on the project finishes it, or puts the files back."""

from __future__ import annotations

import os

from shadowsnap.engine.restore import clean_up, restore
from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import NoSuchCheckpoint, ShadowsnapError
from shadowsnap.model import Checkpoint
from shadowsnap.records import replace
from shadowsnap.store.checkpoints import find_checkpoint
from shadowsnap.store.journal import Journal, OpenRestore, read_journal, write_journal


def recover(space: Workspace) -> str:
    """Finish a restore that died half way; says what was done, if anything was. If it cannot be
    finished, that is said too: it must not keep anyone from taking snapshots."""
    journal = read_journal(space.store, space.project)
    begun, told = journal.open, journal.told
    if journal.leftover:
        journal = clean_up(space, journal, journal.leftover)
        told = told if journal.leftover else "a restore had been finished, and what it left behind was removed"
    if begun is None:
        return told
    if not begun.applying:
        clean_up(space, replace(journal, open=None), begun.staging)
        return f"a restore to {begun.target[:8]} had been interrupted before it changed any file"
    if begun.staging and not _staging_is_there(space, begun):
        write_journal(space.store, space.project, replace(journal, open=None))
        return (
            f"a restore to {begun.target[:8]} had been interrupted, and what it moved aside is gone, so it was not"
            f" finished; the files before it are checkpoint {begun.before[:8]}"
        )
    try:
        return _finish(space, journal, begun)
    except ShadowsnapError as problem:
        return f"an interrupted restore to {begun.target[:8]} could not be finished yet: {problem}"


def _finish(space: Workspace, journal: Journal, begun: OpenRestore) -> str:
    """Go on where a restore died, or back if the state it led to was deleted meanwhile."""
    paths = [os.fsencode(path) for path in begun.paths]
    target, before = _if_kept(space, begun.target), _if_kept(space, begun.before)
    if target is not None:
        result = restore(space, target, paths, begun.then, recovering=True, begun_at=before)
        told = f"a restore to {target.short_id} had been interrupted and was finished"
    elif before is not None:
        result = restore(space, before, paths, "restore", recovering=True, begun_at=before)
        told = f"a restore to {begun.target[:8]} had been interrupted; that is deleted, so the files were put back"
    else:
        write_journal(space.store, space.project, replace(journal, open=None))
        return f"an interrupted restore cannot be finished; what it moved aside is in {', '.join(begun.staging)}"
    found = f"; the files as they were found are checkpoint {result.undo_id[:8]}" if result.undo_id else ""
    return told + found


def _staging_is_there(space: Workspace, begun: OpenRestore) -> bool:
    """If not, the files were put back, or somebody made the directory anew: then its files are
    none that a restore of ours left."""
    return any(space.worktree.lstat(os.fsencode(folder)) is not None for folder in begun.staging)


def _if_kept(space: Workspace, checkpoint: str) -> Checkpoint | None:
    try:
        return find_checkpoint(space.store, space.project, checkpoint, space.deadline)
    except NoSuchCheckpoint:
        return None
