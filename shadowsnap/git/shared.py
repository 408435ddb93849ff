"""Object files that something outside the store can change: hard links.

Earlier versions started from the person's repository and linked its object files. Whatever is written there
later, the store would give back. Each such file is replaced by a copy whose content was checked; what does not
hold what its name says is moved aside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.errors import GitFailed
from shadowsnap.git.files import make_read_only, remove_tree, sync_directory, sync_files
from shadowsnap.git.repacked import note_repacked
from shadowsnap.git.runner import Git
from shadowsnap.git.verify import loose_objects, loose_problem, pack_files, packs


def shared_files(objects: Path) -> Iterator[Path]:
    """Packs (one file for each) and loose objects that have another name somewhere."""
    for pack in packs(objects):
        if any(_is_shared(path) for path in pack_files(pack)):
            yield pack
    for _, path in loose_objects(objects):
        if _is_shared(path):
            yield path


def replace_by_copy(git: Git, path: Path) -> bool:
    """Make a pack or a loose object our own; False if it does not hold what its name says."""
    return _copy_pack(git, path) if path.suffix == ".pack" else _copy_loose(path)


def _copy_loose(path: Path) -> bool:
    name = path.parent.name + path.name
    copy = path.with_name(f"tmp_obj_{os.getpid()}_{path.name}")
    try:
        shutil.copyfile(path, copy)
        if loose_problem(copy, name) is not None:
            return False
        _place(copy, path)
    finally:
        copy.unlink(missing_ok=True)
    return True


def _copy_pack(git: Git, pack: Path) -> bool:
    """Git reads every object of the copy and writes the index anew: the old one may name other objects than
    there are."""
    scratch = pack.parent / f"tmp_own_{os.getpid()}"
    remove_tree(scratch)
    try:
        scratch.mkdir()
        copy = scratch / pack.name
        shutil.copyfile(pack, copy)
        try:
            git.run("index-pack", "-o", str(copy.with_suffix(".idx")), str(copy))
        except GitFailed:
            return False
        for path in pack_files(pack):
            if path.suffix not in (".pack", ".idx"):
                path.unlink(missing_ok=True)  # a table beside the pack, made from what was not checked
        for suffix in (".pack", ".idx"):
            _place(copy.with_suffix(suffix), pack.with_suffix(suffix))
        sync_directory(pack.parent)
        note_repacked(git.git_dir)
    finally:
        remove_tree(scratch)
    return True


def _place(copy: Path, target: Path) -> None:
    make_read_only(copy)
    sync_files([copy])
    os.replace(copy, target)


def _is_shared(path: Path) -> bool:
    try:
        return os.stat(path).st_nlink > 1
    except OSError:
        return False
