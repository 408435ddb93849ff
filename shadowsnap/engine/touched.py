"""What a watcher says was touched since the last capture, held against what that capture knew."""

from __future__ import annotations

import stat

from shadowsnap.engine.findings import Findings
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import parents
from shadowsnap.records import dataclass
from shadowsnap.store.scancache import ScanCache


@dataclass(frozen=True)
class Touched:
    """Where to look. Whatever is not named here is as it was."""

    files: frozenset[bytes]
    folders: frozenset[bytes]
    """Directories that were changed themselves, or in which a name came or went."""
    renewed: frozenset[bytes]
    """What is here now may be another directory than before: everything in it has to be looked at."""
    unwatched: frozenset[bytes]
    """Nobody watched what happened in these directories; for those below, somebody else speaks."""
    settled_ns: int
    """What the last capture saw of files that changed later than this may not be all."""

    def directories_among(self, cache: ScanCache) -> set[bytes]:
        """Which of the known directories to look at."""
        known = cache.directories
        # Those without a time could not be read, or were not at rest: they are looked at each time.
        found = {path for path, row in known.items() if not row[1]}
        found |= known.keys() & (self.folders | self.unwatched | self.renewed)
        if not self.renewed.isdisjoint(known):
            found |= {path for path in known if not self.renewed.isdisjoint(parents(path))}
        return found

    def files_among(self, cache: ScanCache) -> set[bytes]:
        """Which files to look at, known ones or not."""
        found = set(self.files)
        for folder in self.renewed:
            found.update(cache.index.paths_below(folder))
        for folder in self.unwatched:
            below = cache.index.paths_below(folder)
            found.update(path for path in below if path.rpartition(b"/")[0] == folder)
        return found


def compare_touched(space: Workspace, cache: ScanCache, touched: Touched, found: Findings) -> None:
    """What git would say of the touched files if it compared them with the index. The directories were
    looked at before."""
    worktree = space.worktree
    for path, known in cache.index.lookup(touched.files_among(cache)).items():
        reached = path.rpartition(b"/")[0] in found.directories or worktree.reaches(path)
        try:
            seen = worktree.lstat(path) if reached else None
        except OSError:
            continue  # in a directory that may not be entered, which is noted
        if seen is None and found.hides(path):
            continue
        if seen is None or stat.S_ISDIR(seen.st_mode):
            found.gone.add(path)
        elif known.ctime_ns >= touched.settled_ns or not known.is_untouched(seen):
            found.changed.add(path)
