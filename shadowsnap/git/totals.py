"""How much there is, without a walk: asked of git, or guessed from a sample of directories."""

from __future__ import annotations

import os
from pathlib import Path

from shadowsnap.git.runner import Git
from shadowsnap.records import NamedTuple

# Object names are evenly distributed: two directories out of 256 tell of all of them.
_SAMPLE = ("17", "a3")


class Totals(NamedTuple):
    loose: int
    loose_bytes: int
    packs: int
    pack_bytes: int
    garbage_bytes: int
    packed: int = 0
    """Objects in packs; one that is in two of them counts twice."""

    @property
    def bytes(self) -> int:
        return self.loose_bytes + self.pack_bytes + self.garbage_bytes


def count_objects(git: Git) -> Totals:
    rows = [line.split(b": ") for line in git.run("count-objects", "-v").splitlines()]
    told = {row[0].decode(): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    sizes = [1024 * told.get(name, 0) for name in ("size", "size-pack", "size-garbage")]
    packs, packed = told.get("packs", 0), told.get("in-pack", 0)
    return Totals(told.get("count", 0), sizes[0], packs, sizes[1], sizes[2], packed)


def stored_bytes(git_dir: Path) -> int:
    """Bytes of all object files, to the byte: what git counts of loose ones are blocks of the disk."""
    return pack_bytes(git_dir)[1] + sum(_file_bytes(git_dir, name)[1] for name in _fanouts(git_dir))


def guess_loose(git_dir: Path) -> tuple[int, int]:
    """About how many loose objects there are, and how many bytes they have."""
    sample = [_file_bytes(git_dir, name) for name in _SAMPLE]
    scale = 256 // len(_SAMPLE)
    return scale * sum(count for count, _ in sample), scale * sum(size for _, size in sample)


def pack_bytes(git_dir: Path) -> tuple[int, int]:
    """How many packs there are, and their bytes."""
    return _file_bytes(git_dir, "pack", ".pack")


def _file_bytes(git_dir: Path, folder: str, ending: str = "") -> tuple[int, int]:
    count = size = 0
    try:
        with os.scandir(git_dir / "objects" / folder) as entries:
            for entry in entries:
                if entry.name.endswith(ending):
                    size += entry.stat().st_size
                    count += 1
    except OSError:
        pass  # not there yet, or just removed: others count too
    return count, size


def _fanouts(git_dir: Path) -> list[str]:
    return [name for name in os.listdir(git_dir / "objects") if len(name) == 2]
