"""Looking at the directories that the last capture knew."""

from __future__ import annotations

import os
import stat

from shadowsnap.engine.findings import Findings
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import Worktree
from shadowsnap.records import dataclass, field
from shadowsnap.store.scancache import ScanCache

# No system refuses a path that is shorter, whatever the next name.
_DEEP = 700


@dataclass
class Looked:
    """What a look at the known directories, and into those that changed, told."""

    unchanged: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    """What is in the changed ones and was not there before, directories with a slash behind them; and
    what lies there and is ignored."""
    elsewhere: bool = False
    """Some directory is on another file system than the project."""


def look_at_directories(
    space: Workspace, cache: ScanCache, found: Findings, settled_ns: int, *, names: bool,
    only: set[bytes] | None = None,
) -> Looked:  # fmt: skip
    """Look at every known directory, or `only` at these; into those that changed, for what git does not
    report, and if wanted for `names` that nothing is known of."""
    worktree, looked, vanished = space.worktree, Looked(), set[bytes]()
    device = os.stat(space.project.workdir).st_dev
    if only is not None:
        found.directories = dict(cache.directories)
        for path in only:
            del found.directories[path]
        looked.unchanged = set(found.directories)
    for path in cache.directories if only is None else sorted(only):  # what lies above comes first
        stamp = cache.directories[path][1]
        folder = path.rpartition(b"/")[0]
        seen = None if folder in vanished or folder in found.unreadable else look(worktree, path, found)
        if seen is None or not stat.S_ISDIR(seen.st_mode):
            if seen is not None:  # of files behind a link that leads to itself, git says nothing at all
                found.gone.update(cache.index.paths_below(path))
            vanished.add(path)
            found.forget_specials_below(path)
            continue
        looked.elsewhere = looked.elsewhere or seen.st_dev != device
        if stamp_of(seen) == stamp:
            found.directories[path] = (stat.S_IMODE(seen.st_mode), stamp)
            looked.unchanged.add(path)
        else:
            unknown = _look_into(worktree, path, found, seen, settled_ns, names=names)
            looked.unknown.update(each for each in unknown if not space.is_store(each.rstrip(b"/")))
    if looked.unknown:
        known = cache.index.lookup(path for path in looked.unknown if not path.endswith(b"/"))
        known_folders = {path for path in looked.unknown if path[-1:] == b"/" and path[:-1] in cache.directories}
        looked.unknown -= known.keys() | known_folders
    return looked


def stamp_of(seen: os.stat_result) -> int:
    """Another one as soon as a name came or went in a directory, and for every directory: two that were
    made in the same tick of the clock have the same time, and may change places."""
    return seen.st_ctime_ns << 32 | seen.st_ino & 0xFFFFFFFF


def look(worktree: Worktree, path: bytes, found: Findings) -> os.stat_result | None:
    """What is at this path; what cannot be looked at is noted."""
    try:
        return worktree.lstat(path)
    except OSError:
        found.unreadable.add(path)
        return None


def _look_into(
    worktree: Worktree, path: bytes, found: Findings, seen: os.stat_result, settled_ns: int, *, names: bool
) -> list[bytes]:
    """Read one directory for sockets and the like and for unreadability; the rest of what it holds is
    returned, if that is wanted."""
    prefix = path + b"/" if path else b""
    found.specials -= {special for special in found.specials if special.rpartition(b"/")[0] == path}
    held: list[bytes] = []
    try:
        if not names:
            found.specials.update(prefix + name for name in worktree.specials(path))
        for item in worktree.items(path) if names else ():
            if item.is_special:
                found.specials.add(prefix + item.name)
            elif item.name != b".git":
                held.append(prefix + item.name + (b"/" if item.is_directory else b""))
    except OSError:
        found.unreadable.add(path)
    if not worktree.is_searchable(path, seen):
        found.unreadable.add(path)
    too_deep = note_too_deep(worktree, path, found)
    settled = seen.st_ctime_ns < settled_ns and path not in found.unreadable and not too_deep
    found.directories[path] = (stat.S_IMODE(seen.st_mode), stamp_of(seen) if settled else 0)
    return [] if path in found.unreadable else [each for each in held if each[:-1] not in found.unreadable]


def note_too_deep(worktree: Worktree, path: bytes, found: Findings) -> bool:
    """Note the directories in this one that are too far down to be read; says whether there is any."""
    if len(path) < _DEEP or path in found.unreadable or not worktree.is_too_long(path + b"/" + b"x" * 255):
        return False
    deeper = {path + b"/" + item.name for item in worktree.items(path) if item.is_directory}
    too_deep = {each for each in deeper if worktree.is_too_long(each)}
    found.unreadable |= too_deep
    return bool(too_deep)
