"""Making object files of the person's repository ours too.

Git never changes an object file, it only makes new ones and removes names. So a hard link is as
good as a copy, and nothing depends on their repository afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from shadowsnap.engine.person import PersonRepository
from shadowsnap.engine.workspace import Workspace
from shadowsnap.git.files import SYNCS_LATER, make_read_only, sync_directory, sync_files

_WORTH_LINKING = 8 << 20


def share_packs(space: Workspace, repository: PersonRepository, shared: list[Path]) -> None:
    theirs, ours = repository.common_dir / "objects/pack", space.objects.directory / "pack"
    copied = []
    for name in names_in(theirs):
        pack = name.removesuffix(".idx") + ".pack"
        if name.endswith(".idx") and (theirs / pack).exists() and not (ours / name).exists():
            for each in (pack, name):  # the data before the index that announces it
                small = (theirs / each).stat().st_size < _WORTH_LINKING
                if small or not _linked(theirs / each, ours / each):
                    _copy(theirs / each, ours / each)
                    copied.append(ours / each)
                shared.append(ours / each)
    _flush(space, copied, [ours] if shared else [])


def share_loose(space: Workspace, repository: PersonRepository, ids: Iterable[bytes], shared: list[Path]) -> None:
    theirs, ours = repository.common_dir / "objects", space.objects.directory
    copied = []
    present: dict[str, set[str]] = {}
    for name in sorted({object_id.hex() for object_id in ids}):
        folder, rest = name[:2], name[2:]
        source, target = theirs / folder / rest, ours / folder / rest
        if folder not in present:
            target.parent.mkdir(exist_ok=True)
            present[folder] = set(names_in(source.parent)) - set(names_in(target.parent))
        if rest in present[folder]:
            if not _linked(source, target):
                _copy(source, target)
                copied.append(target)
            shared.append(target)
    _flush(space, copied, [ours / folder for folder in present] + [ours])


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        return False
    return True


def _copy(source: Path, target: Path) -> None:
    """Copy a file; file systems that can share the blocks do so."""
    import shutil

    temporary = target.with_name(f"tmp_seed_{os.getpid()}_{target.name}")
    try:
        shutil.copyfile(source, temporary)
        make_read_only(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _flush(space: Workspace, files: list[Path], folders: list[Path]) -> None:
    """Theirs may be removed as soon as the checkpoint is made."""
    if space.store.fsync:
        if SYNCS_LATER:
            sync_files(files)
        for folder in folders:
            sync_directory(folder)
