"""What a restore has moved aside: checked to be what was saved, and kept until all is done."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from shadowsnap.engine.files import holds
from shadowsnap.engine.filesystems import is_settled
from shadowsnap.engine.worktree import Worktree, unwritten
from shadowsnap.errors import RestoreRefused
from shadowsnap.git.index import Known
from shadowsnap.git.trees import LINK
from shadowsnap.records import NamedTuple
from shadowsnap.store.scancache import Modes

_MANY = 200
"""So many files are removed by several threads, each in a directory of its own."""


class Aside(NamedTuple):
    """One file: where it is, and how it was found there."""

    place: Worktree
    name: bytes
    seen: os.stat_result


class Asides:
    """The old files that were found to be what was saved, by their paths."""

    def __init__(self, known: Mapping[bytes, Known], modes: Modes, now_ns: int) -> None:
        self._known = known
        self._modes = modes
        self._now_ns = now_ns
        """When the capture began, in the time of the file system."""
        self._found: dict[bytes, Aside] = {}

    def __contains__(self, path: bytes) -> bool:
        return path in self._found

    def get(self, path: bytes) -> Aside | None:
        return self._found.get(path)

    def add(self, path: bytes, place: Worktree, name: bytes, before: os.stat_result | None) -> None:
        """See to it that what was taken away is what was saved. (To look first and then to take would
        leave a moment for somebody to change it.)"""
        known, seen = self._known.get(path), place.lstat(name)
        if known is None or seen is None:
            raise changed(path)
        settled = is_settled(known.ctime_ns, self._now_ns)
        untouched = settled and before is not None and known.is_untouched(before) and known.is_unwritten(seen)
        aside = Aside(place, name, seen)
        if not untouched and not self._is_what_was_saved(path, known, aside):
            raise changed(path)
        self._found[path] = aside

    def check_nothing_was_written_late(self) -> None:
        """Whoever had a file open could write to it although it was aside."""
        for place, paths in self._by_place():
            asides = [self._found[path] for path in paths]
            looks = place.looks(each.name for each in asides)
            for path, before, seen in zip(paths, asides, looks, strict=True):
                if seen is None or not unwritten(before.seen, seen):
                    raise changed(path)

    def remove(self) -> None:
        """All is done, and nobody will want them back. What cannot be removed now goes with its directory."""
        names = {place: [self._found[path].name for path in paths] for place, paths in self._by_place()}
        if len(self._found) > _MANY:
            from concurrent.futures import ThreadPoolExecutor

            try:
                with ThreadPoolExecutor(len(names)) as pool:
                    list(pool.map(_unlink_all, names, names.values()))
                return
            except RuntimeError:
                pass  # no more threads
        for place in names:
            _unlink_all(place, names[place])

    def bits(self, path: bytes, known: Known) -> int:
        """The permission bits that were saved."""
        return self._modes.other.get(path, self._modes.usual(known.mode))

    def _is_what_was_saved(self, path: bytes, known: Known, aside: Aside) -> bool:
        """By type, bits and bytes, where the times do not prove it."""
        place, name, seen = aside
        if known.mode != LINK and stat.S_IMODE(seen.st_mode) != self.bits(path, known):
            return False
        return holds(place, name, seen, known.mode, known.id)

    def _by_place(self) -> Iterable[tuple[Worktree, list[bytes]]]:
        grouped: dict[Worktree, list[bytes]] = {}
        for path, each in self._found.items():
            grouped.setdefault(each.place, []).append(path)
        return grouped.items()


def changed(path: bytes) -> RestoreRefused:
    return RestoreRefused(conflicts=f"{os.fsdecode(path)} was changed just now")


def _unlink_all(place: Worktree, names: Iterable[bytes]) -> None:
    for name in names:
        try:
            place.unlink(name)
        except OSError:
            pass  # somebody was here
