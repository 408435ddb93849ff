"""Loose objects: listing them, and moving them into packs in bounded batches."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from shadowsnap.errors import GitFailed
from shadowsnap.git.packs import pack_objects
from shadowsnap.git.runner import Git
from shadowsnap.git.verify import loose_problem

_FANOUT = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{38}")


def loose_names(git_dir: Path) -> Iterator[str]:
    for folder in _names(git_dir / "objects"):
        if _FANOUT.fullmatch(folder):
            for name in _names(git_dir / "objects" / folder):
                if _REST.fullmatch(name):
                    yield folder + name


def loose_file(git_dir: Path, name: str) -> Path:
    return git_dir / "objects" / name[:2] / name[2:]


def pack_loose(git: Git, batch: int, *, deltas: bool = True) -> int:
    """Move all loose objects into packs, so many at a time; how many there were. Each batch is
    complete when the next begins: whatever interrupts it loses nothing, and keeps the rest."""
    git.run("prune-packed", "-q")  # those that are in a pack already
    done, names = 0, loose_names(git.git_dir)
    while some := list(islice(names, batch)):
        packed = _pack_sound(git, some, deltas)
        _remove(git.git_dir, packed)
        done += len(packed)
    return done


def _pack_sound(git: Git, names: list[str], deltas: bool) -> list[str]:
    """Pack these objects; which of them are in a pack now."""
    try:
        pack_objects(git, names, deltas=deltas)
        return names
    except GitFailed:
        sound = [name for name in names if loose_problem(loose_file(git.git_dir, name), name) is None]
        if len(sound) == len(names):
            raise
        # Damaged ones stay where they are, for the doctor to see.
        return sound if pack_objects(git, sound, deltas=deltas) is not None else []


def _remove(git_dir: Path, names: Iterable[str]) -> None:
    for name in names:
        try:
            loose_file(git_dir, name).unlink()
        except OSError:
            continue  # gone meanwhile, or in use on Windows: it is in a pack as well


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
