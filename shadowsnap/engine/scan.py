"""Scanning: what may differ from the last capture.

Git compares the files that are known with its index; meanwhile we look at every known directory. A
directory that did not change has no new names in it; of those that did, only the names are looked
at. Where the file system cannot be relied upon for that, git lists what it does not know as well.

Where a watcher knows what was touched since, only that is looked at, and git compares nothing.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from shadowsnap.engine.directories import Looked, look_at_directories
from shadowsnap.engine.explore import UNTRACKED, explore
from shadowsnap.engine.filesystems import directories_tell
from shadowsnap.engine.findings import Findings
from shadowsnap.engine.person import AskingIgnored, ignored_paths
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import Worktree, parents
from shadowsnap.git.runner import Running, side_by_side
from shadowsnap.records import dataclass, replace
from shadowsnap.store.scancache import ScanCache, saved_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from shadowsnap.engine.seed import Seeded
    from shadowsnap.engine.touched import Touched

    _Process = TypeVar("_Process", Running, AskingIgnored)

_DIFFERENCES = ("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all")
_REPOSITORY = b" 160000 "

# The clock that stamps files may lag behind ours by a timer tick.
_CLOCK_SLACK_NS = 100_000_000


@dataclass(frozen=True)
class Comparison:
    """Git comparing the files with the private index, or a watcher who knows what differs."""

    began_ns: int
    """What happened at or after this time may still be under way, so it is looked at again next time."""
    running: Running | None
    touched: Touched | None = None

    def by_git(self) -> Comparison:
        """Without what the watcher says."""
        return replace(self, touched=None)


@contextmanager
def comparing(space: Workspace) -> Iterator[Comparison]:
    """Let git begin before anybody has read what it is compared with: both take their time."""
    began_ns = time.time_ns() - _CLOCK_SLACK_NS
    touched = None
    if space.watcher is not None:
        touched = space.watcher.begin(saved_state(space.store, space.project), began_ns)
    there = touched is None and space.store.index_file(space.project.id).exists()
    running = space.git.start(*_DIFFERENCES) if there else None
    with side_by_side(*filter(None, [running])):
        yield Comparison(began_ns, running, touched)


def scan_changes(
    space: Workspace, cache: ScanCache, comparison: Comparison, seeded: Seeded | None = None
) -> Findings:
    """Compare the files with the cache, unless the cache was just made by comparing."""
    found = Findings(specials=set(cache.specials))
    with ExitStack() as stack:
        compare = _comparing_files(stack, space, cache, comparison, seeded)
        looked, new_names = _looking_for_names(stack, space, cache, comparison, seeded, found)
        compare(found)
        new = new_names()
    found.changed.update(path for path in new if not path.endswith(b"/"))
    # A seeded cache holds what the person tracks, whatever the rules: none of it came in under others.
    found.rules_changed = seeded is None and (
        cache.patterns != space.patterns
        or _touches_rules(found, cache)
        or _hidden_rules_changed(space.worktree, cache, looked.unchanged)
    )
    if not found.rules_changed:
        # Git has nothing to report of files that were left out and directories without files.
        found.changed.update(path for path in cache.skipped if path.rpartition(b"/")[0] in found.directories)
        found.bare = {path for path in cache.bare if path in found.directories}
        folders = {path[:-1] for path in new if path.endswith(b"/")} - _still_bare(cache, looked)
        folders |= _turned_directories(space, found)
        found.changed.update(explore(space, sorted(folders), found, comparison.began_ns))
        found.specials -= ignored_paths(space.git, sorted(found.specials - cache.specials))
    return found


def scan_everything(
    space: Workspace, cache: ScanCache, comparison: Comparison, differences: Findings | None = None
) -> Findings:
    """List every file and directory: there is no cache, or the ignore rules changed."""
    if differences is None:
        differences = Findings()
        if len(cache.index):
            _read_differences(_compared(space, comparison).output(), differences)
    found = Findings()
    listed = set(explore(space, [b""], found, comparison.began_ns))
    found.specials -= ignored_paths(space.git, sorted(found.specials))
    known = set(cache.index.paths())
    wanted = listed | cache.named | cache.tracked
    found.changed = (listed - known) | (differences.changed & wanted)
    lost = {path for path in cache.named | cache.tracked if not space.worktree.reaches(path)}
    found.gone = differences.gone | (known - wanted) | (known & lost)
    return found


def _comparing_files(
    stack: ExitStack, space: Workspace, cache: ScanCache, comparison: Comparison, seeded: Seeded | None
) -> Callable[[Findings], None]:
    """How to learn which known files differ: from git, from a watcher, or they were just looked at."""
    if seeded is not None:
        return seeded.files.tell
    touched = comparison.touched
    if touched is not None:
        from shadowsnap.engine.touched import compare_touched

        return lambda found: compare_touched(space, cache, touched, found)
    running = _started(stack, _compared(space, comparison))
    return lambda found: _read_differences(running.output(), found)


def _looking_for_names(
    stack: ExitStack, space: Workspace, cache: ScanCache, comparison: Comparison, seeded: Seeded | None,
    found: Findings,
) -> tuple[Looked, Callable[[], set[bytes]]]:  # fmt: skip
    """Look at the known directories; how to learn which names are new and not ignored, directories with a
    slash behind them."""
    quick = seeded is None and directories_tell(space.project.workdir)
    listed = None if seeded is None else seeded.untracked
    listing = None if quick or listed is not None else _started(stack, _list_others(space))
    only = comparison.touched.directories_among(cache) if comparison.touched is not None else None
    looked = look_at_directories(space, cache, found, comparison.began_ns, names=quick, only=only)
    if quick and looked.elsewhere:
        listing = _started(stack, _list_others(space))
    if listing is not None:
        return looked, lambda: set(listing.output().split(b"\0")[:-1])
    if listed is not None:
        return looked, lambda: set(listed.split(b"\0")[:-1])
    unknown = {path.rstrip(b"/"): path for path in looked.unknown}
    asking = _started(stack, AskingIgnored(space.git, sorted(unknown)))
    return looked, lambda: {unknown[path] for path in unknown.keys() - asking.answer()}


def _compared(space: Workspace, comparison: Comparison) -> Running:
    return comparison.running or space.git.start(*_DIFFERENCES)


def _started(stack: ExitStack, process: _Process) -> _Process:
    """See to it that it does not outlive the block."""
    stack.callback(process.abandon)
    return process


def _list_others(space: Workspace) -> Running:
    """What the index does not know; of a directory that holds nothing else, only the name."""
    return space.git.start(*UNTRACKED)


def _still_bare(cache: ScanCache, looked: Looked) -> set[bytes]:
    """Directories that git names each time because nothing in them is captured, and in which nothing
    happened, however deep."""
    stirred = {up for path in cache.directories.keys() - looked.unchanged for up in (path, *parents(path))}
    return (cache.bare & looked.unchanged) - stirred


def _turned_directories(space: Workspace, found: Findings) -> set[bytes]:
    """Directories where the last capture knew a file. Git names neither them nor what they hold:
    it takes their name for that of the file."""
    turned = [path for path in found.gone if space.worktree.is_directory(path)]
    return set(turned) - ignored_paths(space.git, turned)


def rule_files(worktree: Worktree, folders: Iterable[bytes]) -> dict[bytes, int]:
    """The .gitignore files in these directories, and when each last changed."""
    paths = [folder + b"/.gitignore" if folder else b".gitignore" for folder in folders]
    looks = zip(paths, worktree.looks(paths), strict=True)
    return {path: changed for path, seen in looks if (changed := _rules_as_of(seen)) is not None}


def _rules_as_of(seen: os.stat_result | None) -> int | None:
    return seen.st_ctime_ns if seen is not None and stat.S_ISREG(seen.st_mode) else None


def _touches_rules(found: Findings, cache: ScanCache) -> bool:
    touched = (*found.changed, *found.gone)
    return any(path.rpartition(b"/")[2] == b".gitignore" and path not in cache.rules for path in touched)


def _hidden_rules_changed(worktree: Worktree, cache: ScanCache, unchanged: set[bytes]) -> bool:
    """Whether a .gitignore that is not captured came, went or changed: git reports none of that."""
    if any(_rules_as_of(worktree.look(path)) != changed for path, changed in cache.rules.items()):
        return True
    new = rule_files(worktree, cache.directories.keys() - unchanged).keys() - cache.rules.keys()
    return len(cache.index.lookup(new)) < len(new)


def _read_differences(raw: bytes, found: Findings) -> None:
    parts = raw.split(b"\0")
    for meta, path in zip(parts[0:-1:2], parts[1::2], strict=True):
        # A nested repository where a file was is to git a change of type, to us a lost file.
        gone = meta.endswith(b" D") or _REPOSITORY in meta
        (found.gone if gone else found.changed).add(path)
