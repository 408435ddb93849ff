"""A look at every file that the person's index knows: which are as it says, and their permission
bits, which no index tells.

Git could compare them too, but it would look at each file a second time, and that look is most of
what a first snapshot costs. A file passes only if everything agrees that git would compare, and
times to the nanosecond, where their git noted them so; whatever does not is read.
"""

from __future__ import annotations

import os
import stat
import sys

from shadowsnap.engine.findings import Findings
from shadowsnap.engine.workspace import Workspace
from shadowsnap.git.theirindex import STAT, TheirIndex
from shadowsnap.git.trees import EXECUTABLE, LINK, REGULAR
from shadowsnap.records import NamedTuple

_SECOND = 10**9
_LOW = 0xFFFFFFFF
_PORTION = 4096

Kind = tuple[int, int]
"""Git mode and permission bits."""


class FirstLook(NamedTuple):
    kinds: dict[bytes, Kind]
    changed: set[bytes]
    """They differ, or it cannot be told."""
    gone: set[bytes]
    recent: set[bytes]
    """Unchanged, but touched in the very second of this look."""

    def tell(self, found: Findings) -> None:
        """As if git had compared the files with their index."""
        found.gone |= self.gone
        found.changed |= self.changed - found.gone


class _Kinds(dict[int, Kind]):
    """By what the system calls a mode; there are few of them."""

    def __missing__(self, mode: int) -> Kind:
        git_mode = LINK if stat.S_ISLNK(mode) else 0
        if stat.S_ISREG(mode):
            git_mode = EXECUTABLE if mode & 0o100 else REGULAR
        kind = self[mode] = (git_mode, stat.S_IMODE(mode))
        return kind


def look_at_files(space: Workspace, theirs: TheirIndex, as_of_ns: int, began_ns: int) -> FirstLook:
    """`as_of_ns` is the time of their index: as with git, a file that was written in that second or
    later may have changed again without a trace."""
    found = FirstLook({}, set(), set(), set())
    kinds, known = found.kinds, _Kinds()
    told, data = STAT.unpack_from, theirs.data
    racy, recent = as_of_ns // _SECOND, began_ns // _SECOND
    for first in range(0, len(theirs.paths), _PORTION):
        space.deadline.check("looking at files", first, len(theirs.paths))
        now = slice(first, first + _PORTION)
        paths, modes, starts = theirs.paths[now], theirs.modes[now], theirs.starts[now]
        for path, mode, start, seen in zip(paths, modes, starts, space.worktree.looks(paths), strict=True):
            if seen is None:
                _note_missing(space, path, found)
                continue
            changed_s, changed_ns, written_s, written_ns, inode, size = told(data, start)
            kind = kinds[path] = known[seen.st_mode]
            if (
                seen.st_ctime_ns != changed_s * _SECOND + changed_ns
                or seen.st_mtime_ns != written_s * _SECOND + written_ns
                or seen.st_ino != inode
                or seen.st_size != size
                or kind[0] != mode
                or written_s >= racy
            ) and (written_s >= racy or not _agrees(seen, told(data, start), kind[0], mode)):
                (found.gone if stat.S_ISDIR(seen.st_mode) else found.changed).add(path)
            elif changed_s >= recent:
                found.recent.add(path)
    return found


def _note_missing(space: Workspace, path: bytes, found: FirstLook) -> None:
    try:
        if space.worktree.lstat(path) is None:
            found.gone.add(path)
    except OSError:
        pass  # in a directory that may not be entered: that is told of the directory
    else:
        if path not in found.gone:  # it came back just now
            found.changed.add(path)


def _agrees(seen: os.stat_result, entry: tuple[int, ...], kind: int, mode: int) -> bool:
    """As git compares: not every git, and not every system, knows nanoseconds, inodes of 32 bits or
    whether a file can be executed."""
    changed_s, changed_ns, written_s, written_ns, inode, size = entry
    windows = sys.platform == "win32"
    return (
        _same_time(seen.st_ctime_ns, changed_s, changed_ns)
        and _same_time(seen.st_mtime_ns, written_s, written_ns)
        and (windows or seen.st_ino & _LOW == inode)
        and seen.st_size & _LOW == size
        and (kind == mode or (windows and LINK not in (kind, mode) and bool(kind)))
    )


def _same_time(now_ns: int, seconds: int, below: int) -> bool:
    return now_ns // _SECOND & _LOW == seconds and below in (0, now_ns % _SECOND)
