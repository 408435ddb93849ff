"""What interrupted work leaves behind: temporary files, scratch directories, stale locks.

Everyone who makes such files shares the store's lock meanwhile, or holds the upkeep lock. So
whoever has both alone knows that nobody alive owns what is still there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.files import remove_tree
from shadowsnap.model import Finding
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import alone
from shadowsnap.upkeep.quarantine import Quarantine, inside

_IN_PACKS = re.compile(r"tmp_|\.tmp-")
_IN_OBJECTS = re.compile(r"tmp_obj_")
_IN_RECORDS = re.compile(r"\..*\.tmp_|.*\.\d+\.tmp$|.*\.(lock|staging|seed)$")
_TRASH = "trash-"
_PATIENCE_SECONDS = 5.0
_OLD_SECONDS = 60.0


def clear_debris(store: Store, deadline: Deadline) -> int:
    """Remove what no live process owns; how many files and directories that were. The caller
    holds the upkeep lock. If somebody is at work for long, it is left to the next time."""
    found = list(find_debris(store))
    cleared = 0
    if found:
        left = deadline.remaining()
        patience = Deadline(_PATIENCE_SECONDS if left is None else max(0.001, min(left, _PATIENCE_SECONDS)))
        try:
            with alone(store.store_lock(), "clearing up", patience):
                cleared = sum(_clear(store, path) for path in found)
        except DeadlineExceeded:
            pass
    for folder in store.git_dir.glob(f"{_TRASH}*"):
        remove_tree(folder)
    return cleared


def find_debris(store: Store) -> Iterator[Path]:
    """What looks like it; much of it may belong to someone who is at work."""
    git_dir = store.git_dir
    yield from (git_dir / name for name in _names(git_dir) if name.startswith("scratch-"))
    yield from _matching(git_dir, re.compile(r"(packed-refs|HEAD|config|index)\.lock$"))
    for folder in ("indexes", "projects", "journal", "purged"):
        yield from _matching(git_dir / folder, _IN_RECORDS)
    yield from _matching(store.base / "sessions", _IN_RECORDS)
    for folder in _names(git_dir / "objects"):
        if folder == "pack":
            yield from _in_packs(git_dir / "objects" / "pack")
        elif len(folder) == 2:
            yield from _matching(git_dir / "objects" / folder, _IN_OBJECTS)
    for top, _, names in os.walk(git_dir / "refs"):
        yield from (Path(top, name) for name in names if name.endswith(".lock"))


def find_leftovers(store: Store) -> Iterator[Finding]:
    """For the doctor, who has more to say about locks and packs: debris that is too old to belong to
    someone at work."""
    for path in sorted(find_debris(store)):
        if path.suffix == ".lock" or path.name.startswith("pack-"):
            continue
        try:
            age = time.time() - path.lstat().st_mtime
        except FileNotFoundError:
            continue
        if not 0 <= age < _OLD_SECONDS:
            meaning = "a process that died left it; nothing needs it, but it takes space"
            yield Finding("leftover", "info", inside(store, path), meaning, "remove it")


def remove_leftover(store: Store, finding: Finding, _: Quarantine) -> None:
    """The doctor has the store, and the right to upkeep, to itself."""
    path = store.base / finding.subject
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


MENDS = {"leftover": remove_leftover}


def _in_packs(folder: Path) -> Iterator[Path]:
    names = set(_names(folder))
    for name in names:
        stem, dot, _ = name.partition(".")
        # An index without its pack is what a removal leaves that was interrupted.
        if _IN_PACKS.match(name) or (stem.startswith("pack-") and dot and f"{stem}.pack" not in names):
            yield folder / name


def _clear(store: Store, path: Path) -> bool:
    try:
        if path.is_dir():
            # Removing it takes time that nobody should wait for: put it out of the way.
            os.replace(path, store.git_dir / f"{_TRASH}{os.getpid()}-{path.name}")
        else:
            path.unlink()
    except OSError:
        return False  # gone meanwhile; or in use on Windows, then it is not debris
    return True


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    return (folder / name for name in _names(folder) if pattern.match(name))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
