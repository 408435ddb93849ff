"""A restore that died half way: the next operation on the project finishes it, or puts the files back."""

from __future__ import annotations

import os
import stat

from shadowsnap.engine.restore import clean_up, restore
from shadowsnap.engine.staging import is_staging
from shadowsnap.engine.state import Selection
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import Worktree
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
    kept: set[bytes] = set()
    for folder in filter(is_staging, map(os.fsencode, begun.staging)):
        try:
            with space.worktree.within(folder) as top:
                inner = [item.name for item in top.items(b"") if item.is_directory]
        except NotADirectoryError:
            continue
        for place in (folder, *(folder + b"/" + name for name in inner)):
            with space.worktree.within(place) as here:
                names = [item.name for item in here.items(b"") if not item.is_directory and not item.is_special]
                ids = {name: _content_id(here, name) for name in names}
                lost = {*missing_objects(space.git, {*ids.values()})}
                for name in (name for name in names if ids[name] in lost):
                    _move_to(space, here, name, folder + b"-unsaved")
                    kept.add(folder + b"-unsaved")
    return f"; what was not saved is in {', '.join(map(os.fsdecode, sorted(kept)))}" if kept else ""


def _move_to(space: Workspace, here: Worktree, name: bytes, folder: bytes) -> None:
    top, _, last = folder.rpartition(b"/")
    with space.worktree.within(top) as above:
        if above.lstat(last) is None:
            above.mkdir(last, 0o700)
    with space.worktree.within(folder) as there:
        here.move(name, name, there)


def _content_id(here: Worktree, name: bytes) -> str:
    seen = here.lstat(name)
    if seen is not None and stat.S_ISLNK(seen.st_mode):
        return object_id(b"blob", here.readlink(name))
    descriptor = here.open(name)
    try:
        return stream_id(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _staging_is_there(space: Workspace, begun: OpenRestore) -> bool:
    """If not, the files were put back, or somebody made the directory anew: then its files are
    none that a restore of ours left."""
    folders = [folder for folder in map(os.fsencode, begun.staging) if is_staging(folder)]
    return any(space.worktree.is_directory(folder) for folder in folders)


def _if_kept(space: Workspace, checkpoint: str) -> Checkpoint | None:
    try:
        return find_checkpoint(space.store, space.project, checkpoint, space.deadline)
    except NoSuchCheckpoint:
        return None
