"""A restore that died half way: the next operation on the project finishes it, or puts the files back."""

from __future__ import annotations

import os

from shadowsnap.engine.restore import clean_up, restore
from shadowsnap.engine.state import Selection
from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import NoSuchCheckpoint, ShadowsnapError
from shadowsnap.git.objects import object_id, stream_id
from shadowsnap.git.reading import missing_objects
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
    except (ShadowsnapError, OSError) as problem:
        return f"an interrupted restore to {begun.target[:8]} could not be finished yet: {problem}"


def _finish(space: Workspace, journal: Journal, begun: OpenRestore) -> str:
    """Go on where a restore died, or back if the state it led to was deleted meanwhile."""
    chosen = Selection(map(os.fsencode, begun.paths), exact=begun.exact)
    rescued = _rescue_unsaved(space, begun)
    target, before = _if_kept(space, begun.target), _if_kept(space, begun.before)
    if target is not None:
        result = restore(space, target, chosen, begun.then, recovering=True, begun_at=before)
        told = f"a restore to {target.short_id} had been interrupted and was finished"
    elif before is not None:
        result = restore(space, before, chosen, "restore", recovering=True, begun_at=before)
        told = f"a restore to {begun.target[:8]} had been interrupted; that is deleted, so the files were put back"
    else:
        write_journal(space.store, space.project, replace(journal, open=None))
        folders = ", ".join(begun.staging)
        return f"an interrupted restore cannot be finished; what it moved aside is in {folders}{rescued}"
    found = f"; the files as they were found are checkpoint {result.undo_id[:8]}" if result.undo_id else ""
    return told + found + rescued


def _rescue_unsaved(space: Workspace, begun: OpenRestore) -> str:
    """Whoever changes a file in the moment before it is moved aside is noticed, but not by a process that
    dies in the next one. So what was moved aside goes only if the store has it."""
    kept: list[str] = []
    for folder in begun.staging:
        top = os.path.join(space.project.workdir, folder)
        files = [os.path.join(place, name) for place, _, names in os.walk(top) for name in names]
        ids = {path: _content_id(path) for path in files}
        lost = {*missing_objects(space.git, {*ids.values()})}
        for path in (path for path in files if ids[path] in lost):
            os.makedirs(f"{top}-unsaved", 0o700, exist_ok=True)
            os.rename(path, os.path.join(f"{top}-unsaved", os.path.basename(path)))
            kept.append(f"{folder}-unsaved")
    return f"; what nobody had saved is in {', '.join(sorted({*kept}))}" if kept else ""


def _content_id(path: str) -> str:
    if os.path.islink(path):
        return object_id(b"blob", os.fsencode(os.readlink(path)))
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        return stream_id(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _staging_is_there(space: Workspace, begun: OpenRestore) -> bool:
    """If not, the files were put back, or somebody made the directory anew: then its files are
    none that a restore of ours left."""
    return any(space.worktree.lstat(os.fsencode(folder)) is not None for folder in begun.staging)


def _if_kept(space: Workspace, checkpoint: str) -> Checkpoint | None:
    try:
        return find_checkpoint(space.store, space.project, checkpoint, space.deadline)
    except NoSuchCheckpoint:
        return None
