"""Scanning: which files a capture has to read, and which are no longer part of it.

`_everything` is the definition: walk the project, leave out what the ignore rules match, add what tools named and
what the user's git tracks. `_changes` is the shortcut, which must give the same result: git compares the known
files with the index, and we list the directories that changed. It is valid as long as neither the rules nor the
settings changed. A watcher that knows what was touched narrows it further.

The last part of the module answers what the file system's times and mounts allow us to conclude.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shadowsnap.errors import DeadlineExceeded, GitFailed
from shadowsnap.files import check_resources
from shadowsnap.git.repository import Git, Running, side_by_side
from shadowsnap.snapshot.ignore_rules import (
    DEFAULT_DIRECTORY_NAMES,
    SHARE_OF_TIME,
    STAGING_PREFIX,
    UNSETTLED,
    RuleFiles,
    rule_files,
)
from shadowsnap.snapshot.ignore_rules import VERSION as EXCLUDES_VERSION
from shadowsnap.snapshot.readers import Readers
from shadowsnap.snapshot.secrets import VERSION as SECRETS_VERSION
from shadowsnap.snapshot.secrets import is_left_out, is_secret
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import LONG_PATH, folder_of, parents
from shadowsnap.store.stat_cache import Directories, ScanCache, saved_state

if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.snapshot.watch import Touched

_DIFF_FILES = ("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all")
_GITLINK = b" 160000 "
_STAGING = os.fsencode(STAGING_PREFIX)
# The number of names in the first question to git, so that files can be read soon, and in later ones. Until git
# answers, a large ignored directory is walked in vain. So there are at most as many as were listed before, or
# `_NAMES_LATER`.
_NAMES_AT_FIRST, _NAMES_LATER, _MOST_NAMES = 500, 5000, 50_000


# --- starting the comparison -------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """How changed files are found: git compares them with the index, or a watcher knows which were touched."""

    now_ns: int | None
    """The file system's time when the comparison began; None if it is unknown."""
    running: Running | None
    touched: Touched | None = None
    began: object = None
    """Identifies this capture to the watcher."""


@contextmanager
def comparing(space: Workspace) -> Iterator[Comparison]:
    """Start git before the cache is read, so that both run at the same time."""
    now_ns = file_system_time(space.project.workdir, space.store.project_lock(space.project.id))
    touched, began = None, object()
    if space.watcher is not None:
        touched = space.watcher.begin(saved_state(space.store, space.project), began)
    has_index = touched is None and space.store.index_file(space.project.id).exists()
    running = _start_diff_files(space) if has_index else None
    with side_by_side(*filter(None, [running])):
        yield Comparison(now_ns, running, touched, began)


def files_to_examine(git_here: Git) -> set[bytes]:
    """The known files that changed or are gone, by their stat data."""
    with side_by_side(running := git_here.start(*_DIFF_FILES)):
        return set().union(*_differences_in(running.output()))


def _start_diff_files(space: Workspace) -> Running:
    return space.git_here.bound(deadline=space.deadline.part(SHARE_OF_TIME)).start(*_DIFF_FILES)


def _differences_in(output: bytes) -> tuple[set[bytes], set[bytes]]:
    """The files that changed, and those that are gone."""
    changed: set[bytes] = set()
    gone: set[bytes] = set()
    parts = output.split(b"\0")
    for meta, path in zip(parts[0:-1:2], parts[1::2], strict=True):
        # Where a nested repository replaced a file, git reports a change of type. For us the file is gone.
        (gone if meta.endswith(b" D") or _GITLINK in meta else changed).add(path)
    return changed, gone


# --- the scan ----------------------------------------------------------------------------------------


@dataclass
class Found:
    """What leads from the cache to the files as they are now."""

    changed: set[bytes] = field(default_factory=set)
    """Files to read: new, different, or possibly different."""
    gone: set[bytes] = field(default_factory=set)
    """Known files that are no longer captured."""
    directories: Directories = field(default_factory=dict)
    """Every directory that is not ignored."""
    new_directories: set[bytes] = field(default_factory=set)
    ignored_directories: set[bytes] = field(default_factory=set)
    unreadable: set[bytes] = field(default_factory=set)
    """Directories that could not be read."""
    undecided: set[bytes] = field(default_factory=set)
    """Files and directories (with a slash) of which git could not say in time whether they are ignored."""
    rules: RuleFiles = field(default_factory=dict)
    without_rules: bool = False
    """Git could not say in time what is ignored, of these or of known files: not everything was listed."""
    tracked_unknown: bool = False
    """The index of the user's repository cannot be read."""

    def hides(self, path: bytes) -> bool:
        """Whether a path is in a directory that could not be read."""
        return bool(self.unreadable) and not self.unreadable.isdisjoint(parents(path))


def scan(
    space: Workspace, cache: ScanCache, comparison: Comparison, named: set[bytes], now_ns: int, readers: Readers
) -> Found:
    """What differs from the cache. `named` are the files that tools named. The cache is updated with the files
    that the user's git tracks. If there is no last capture, `readers` begin to read what is listed."""
    return _Scan(space, cache, comparison, named, now_ns, readers).run()


def capture_settings(space: Workspace) -> list[Any]:
    """Everything that decides what is captured, apart from the files themselves and the `.gitignore` files."""
    settings = space.settings
    secrets = [SECRETS_VERSION, settings.include_secrets, *settings.capture_secrets]
    return [EXCLUDES_VERSION, space.patterns, settings.max_file_bytes, secrets]


class _Listing(NamedTuple):
    """The content of directories."""

    files: list[bytes]
    folders: list[bytes]


class _Scan:
    def __init__(
        self,
        space: Workspace,
        cache: ScanCache,
        comparison: Comparison,
        named: set[bytes],
        now_ns: int,
        readers: Readers,
    ) -> None:
        self.space = space
        self.cache = cache
        self.comparison = comparison
        self.named = named
        self.now_ns = now_ns
        self.readers = None if len(cache.index) else readers
        # The watcher reports what differs from the cache that it keeps in memory, and from no other.
        self.touched = comparison.touched if cache.kept is not None else None
        self.found = Found()
        self.device = os.stat(space.project.workdir).st_dev
        self._tracked_unknown = False
        self._compared: tuple[set[bytes], set[bytes]] | None = None

    def run(self) -> Found:
        same_settings = self.cache.found_under == capture_settings(self.space)
        use_shortcut = same_settings and self._rules_are_the_same() and self._update_tracked()
        found = self._changes() if use_shortcut else None
        if found is None:
            self.found, self.touched = Found(), None
            found = self._everything()
        found.tracked_unknown = self._tracked_unknown
        found.ignored_directories = {
            path for path in found.ignored_directories if folder_of(path) in found.directories
        }
        found.rules = {
            path: changed if is_settled(changed, self.now_ns) else UNSETTLED
            for path, changed in found.rules.items()
        }
        return found

    # --- the definition ----------------------------------------------------------------------

    def _everything(self) -> Found:
        """List every file and directory, and compare that with what is known."""
        found, cache, space = self.found, self.cache, self.space
        known = set(cache.index.paths())
        listed = self._walk([b""], known)
        signature, before = self._index_signature(), cache.tracked
        tracked = self._read_tracked()
        if tracked is not None:  # otherwise the last answer stays
            # Only those that the rules, or their names, would leave out.
            cache.tracked = (tracked - listed) | set(filter(is_secret, tracked))
            cache.tracked_as_of = signature
        wanted = listed | cache.tracked | self.named
        if found.without_rules:  # known files stay
            wanted |= known
        changed, gone = self._differences()
        found.changed = (wanted - known) | ((changed | self._unsettled()) & wanted) | self._over_new_limits(known)
        found.changed |= before & known & wanted - cache.tracked  # no longer tracked: its name may exclude it
        found.changed |= self._out_of_reach()
        found.gone = gone | (known - wanted) | self._behind_links()
        found.changed -= found.gone
        found.new_directories = set(found.directories)
        found.rules = {
            path: changed for path, changed in space.rules.files.items() if folder_of(path) in found.directories
        }
        self._note_links()
        return found

    def _over_new_limits(self, known: set[bytes]) -> set[bytes]:
        """Known files that are too large or secret under settings that changed since the last capture."""
        if self.cache.found_under is not None and self.cache.found_under[2:] == capture_settings(self.space)[2:]:
            return set()
        settings, sizes = self.space.settings, {path: each.size for path, each in self.cache.index.items()}
        limit = settings.max_file_bytes
        large = {path for path in known if limit is not None and sizes[path] > limit}
        return large | {path for path in known - self.cache.tracked if is_left_out(path, settings)}

    # --- the shortcut ------------------------------------------------------------------------

    def _rules_are_the_same(self) -> bool:
        known = self.cache.rules
        now = rule_files(self.space.worktree, [folder_of(path) for path in known])
        return all(changed != UNSETTLED and now.get(path) == changed for path, changed in known.items())

    def _update_tracked(self) -> bool:
        """Read which files the user's git tracks, if that may have changed. False if an ignored file is no longer
        tracked: then everything has to be listed."""
        cache = self.cache
        now = self._index_signature()
        if now == cache.tracked_as_of and now[-1:] != [UNSETTLED]:
            return True
        tracked = self._read_tracked()
        if tracked is None:
            return True  # the last answer stays
        if cache.tracked - tracked:
            return False
        # A tracked file that is not known is ignored, or missing.
        cache.tracked |= tracked.difference(cache.index.paths())
        cache.tracked_as_of = now
        return True

    def _changes(self) -> Found | None:
        """What differs, given that the rules are the same; None if a new rule file turns up."""
        found, cache, space = self.found, self.cache, self.space
        listed = self._list_changed_directories()
        new = self._new_names(listed.values())
        files = {*new.files, *self._walk(new.folders)}
        new_rules = rule_files(space.worktree, listed) | space.rules.files
        new_rules = {path: changed for path, changed in new_rules.items() if path not in cache.rules}
        if any(folder_of(path) in cache.directories for path in new_rules):
            return None
        # Where a directory became a link, the rules behind it look the same as before. They are no longer ours.
        rules = {**cache.rules, **new_rules}
        found.rules = {path: changed for path, changed in rules.items() if folder_of(path) in found.directories}
        found.ignored_directories |= {path for path in cache.ignored_directories if folder_of(path) not in listed}
        found.new_directories = found.directories.keys() - cache.directories.keys()
        changed, gone = self._differences()
        found.gone |= gone | self._behind_links()
        # Skipped files are not in the index, so git does not report them.
        skipped = {path for path in cache.skipped if folder_of(path) in found.directories}
        found.changed = (changed | files | skipped | self._unsettled() | self._out_of_reach()) - found.gone
        if self.touched is not None and self._has_new_link(found.changed):
            # A write through a new hard link was reported under that name only: compare all files.
            self.found, self.touched = Found(), None
            return self._changes()
        self._note_links()
        return found

    def _list_changed_directories(self) -> dict[bytes, _Listing]:
        """Look at every known directory, or at those that a watcher reports. Returns the content of those in which
        a name may have come or gone."""
        found, cache = self.found, self.cache
        reliable = directory_times_are_reliable(self.space.project.workdir)
        candidates: Collection[bytes] = cache.directories
        if self.touched is not None:
            candidates = sorted(self.touched.directories_among(cache))
            found.directories = dict(cache.directories)
            for path in candidates:
                del found.directories[path]
        listed: dict[bytes, _Listing] = {}
        vanished: set[bytes] = set()
        # Sorted: a directory comes before those inside it.
        for path, quick in zip(candidates, self.space.worktree.looks(candidates), strict=True):
            row, folder = cache.directories[path], folder_of(path)
            reached = folder not in vanished and folder not in found.unreadable
            if reached and reliable and quick is not None and self._has_same_names(row[1], quick):
                found.directories[path] = row  # other permission bits would have changed the stamp
                continue
            seen = self._look(path) if reached else None
            if seen is None or not stat.S_ISDIR(seen.st_mode):
                if seen is not None:  # git reports nothing of files behind a link that leads to itself
                    found.gone.update(cache.index.paths_below(path))
                vanished.add(path)
            elif (listing := self._list(path)) is not None:
                listed[path] = listing
        if self.touched is not None:
            # The watcher did not report those below. They count as new when they can be reached again.
            lost = vanished | found.unreadable
            for path in [path for path in found.directories if not lost.isdisjoint(parents(path))] if lost else ():
                del found.directories[path]
        return listed

    def _has_same_names(self, stamp: int, seen: os.stat_result) -> bool:
        """Whether no name came or went in a directory since its stamp was taken."""
        return stamp == _stamp(seen) and seen.st_dev == self.device and stat.S_ISDIR(seen.st_mode)

    def _new_names(self, listings: Iterable[_Listing]) -> _Listing:
        """The files and directories in known directories that are new and not ignored."""
        found, cache = self.found, self.cache
        files, folders = [], []
        for listing in listings:
            files += listing.files
            folders += [path for path in listing.folders if path not in cache.directories]
        found.ignored_directories = cache.ignored_directories.intersection(folders)
        folders = [path for path in folders if path not in found.ignored_directories]
        known = cache.index.lookup(files)
        files = [path for path in files if path not in known]
        ignored = self._ignored([*files, *folders], folders)
        if ignored is None:
            self._note_undecided(files, folders, ())
            return _Listing([], [])
        found.ignored_directories.update(ignored.intersection(folders))
        return _Listing(
            [path for path in files if path not in ignored], [path for path in folders if path not in ignored]
        )

    # --- directories -------------------------------------------------------------------------

    def _walk(self, tops: list[bytes], known: Container[bytes] = ()) -> set[bytes]:
        """Every file that is not ignored, below directories that are not ignored. Nested repositories are
        directories like any other."""
        found = self.found
        listed: set[bytes] = set()
        waiting, most = deque(tops), _NAMES_AT_FIRST
        while waiting:
            files: list[bytes] = []
            folders: list[bytes] = []
            postponed: list[bytes] = []
            walked: list[bytes] = []
            # Breadth first: git is asked about upper directories before the walk goes deep.
            while waiting and len(files) + len(folders) < most:
                folder = waiting.popleft()
                listing = self._list(folder)
                walked.append(folder)
                if listing is None:
                    continue
                files += listing.files
                folders += listing.folders
                for path in listing.folders:
                    is_excluded = path.rpartition(b"/")[2] in DEFAULT_DIRECTORY_NAMES
                    (postponed if is_excluded else waiting).append(path)
            start_readers = partial(self._start_readers, len(listed) + len(files))
            ignored = self._ignored([*files, *folders], folders, start_readers)
            if ignored is None:
                self._note_undecided(files, folders, known)
                return listed
            files = [path for path in files if path not in ignored] if ignored else files
            listed.update(files)
            most = min(max(_NAMES_LATER, len(listed)), _MOST_NAMES)
            if self.readers is not None:
                self.readers.give(files)
            found.ignored_directories.update(ignored.intersection(folders))
            for folder in walked:
                if folder in ignored:
                    found.directories.pop(folder, None)
                    found.unreadable.discard(folder)
            waiting = deque(path for path in waiting if path not in ignored)
            # A .gitignore may include again what the defaults exclude.
            waiting += (path for path in postponed if path not in ignored)
        return listed

    def _start_readers(self, files: int) -> None:
        if self.readers is not None:
            self.readers.expect(files)

    def _list(self, folder: bytes) -> _Listing | None:
        """List a directory and note it as found; None if it cannot be read."""
        space, found, worktree = self.space, self.found, self.space.worktree
        space.deadline.check("looking for files")
        seen = None if space.is_store(folder) else self._look(folder)
        if seen is None or not stat.S_ISDIR(seen.st_mode):
            found.directories.pop(folder, None)
            return None
        settled = seen.st_dev == self.device and is_settled(seen.st_ctime_ns, self.now_ns)
        found.directories[folder] = (stat.S_IMODE(seen.st_mode), _stamp(seen) if settled else 0)
        try:
            if not worktree.is_searchable(folder, seen):
                raise PermissionError(folder)
            names = worktree.names(folder)
        except OSError as problem:
            check_resources(problem)
            found.unreadable.add(folder)
            found.directories[folder] = (stat.S_IMODE(seen.st_mode), 0)
            return None
        prefix = folder + b"/" if folder else b""
        # A repository is not part of the files. Below the uppermost directory, a file named .git is one of them.
        inner = (name for name in names.directories if name != b".git" and not name.startswith(_STAGING))
        folders = [prefix + name for name in inner]
        files = [prefix + name for name in names.files if folder or name != b".git"]
        files += [prefix + name for name in names.special]
        if space.has_store_inside:
            files, folders = ([path for path in paths if not space.is_store(path)] for paths in (files, folders))
        if too_deep := self._too_deep(folder, folders):
            found.directories[folder] = (stat.S_IMODE(seen.st_mode), 0)
            folders = [path for path in folders if path not in too_deep]
        return _Listing(files, folders)

    def _look(self, path: bytes) -> os.stat_result | None:
        """The stat data of a path; one that the system refuses is noted as unreadable."""
        try:
            return self.space.worktree.lstat(path)
        except OSError:
            self.found.unreadable.add(path)
            return None

    def _too_deep(self, folder: bytes, folders: list[bytes]) -> set[bytes]:
        """Subdirectories whose paths are too long for the system; they are noted as unreadable."""
        worktree = self.space.worktree
        if len(folder) < LONG_PATH or not worktree.is_too_long(folder + b"/" + b"x" * 255):
            return set()
        too_deep = {path for path in folders if worktree.is_too_long(path)}
        self.found.unreadable |= too_deep
        return too_deep

    def _ignored(
        self, paths: list[bytes], folders: list[bytes], meanwhile: Callable[[], None] = lambda: None
    ) -> set[bytes] | None:
        """Which of the paths are ignored; None if git cannot answer in time. `meanwhile` may be called while git
        starts."""
        if not paths:
            return set()
        rules, worktree = self.space.rules, self.space.worktree
        if rules.is_too_slow:
            return None
        with rules.within(self.space.deadline.part(SHARE_OF_TIME)):
            for _ in range(2):
                try:
                    return rules.ignored(paths, folders, meanwhile)
                except DeadlineExceeded:
                    rules.is_too_slow = True
                    return None
                except GitFailed:  # a directory was replaced by a link meanwhile
                    paths = [path for path in paths if worktree.reaches(path)]
        return rules.ignored(paths, folders)

    def _note_undecided(self, files: Iterable[bytes], folders: Iterable[bytes], known: Container[bytes]) -> None:
        """Note what is not captured because git did not say in time whether it is ignored. Of a directory and its
        content, only the directory is noted."""
        self.found.without_rules = True
        wanted = self.cache.tracked | self.named
        undecided = {path for path in files if path not in known and path not in wanted}
        undecided |= {path + b"/" for path in folders}
        for path in folders:
            self.found.directories.pop(path, None)
        self.found.undecided |= {
            path for path in undecided if not any(up + b"/" in undecided for up in parents(path.rstrip(b"/")))
        }

    # --- known files -------------------------------------------------------------------------

    def _differences(self) -> tuple[set[bytes], set[bytes]]:
        """The known files that changed, and those that are gone."""
        if self._compared is None:
            if self.touched is not None:
                # Ignored directories are not watched, so files captured in them are always compared.
                return self._compare(self.touched.files_among(self.cache) | self.named | self.cache.tracked)
            self._compared = self._compare_by_git() if len(self.cache.index) else (set(), set())
        return self._compared

    def _compare_by_git(self) -> tuple[set[bytes], set[bytes]]:
        try:
            running = self.comparison.running or _start_diff_files(self.space)
            return _differences_in(running.output())
        except DeadlineExceeded:
            return self._compare(self.cache.index.paths())

    def _compare(self, paths: Iterable[bytes]) -> tuple[set[bytes], set[bytes]]:
        """The same for these paths, without git."""
        found, worktree = self.found, self.space.worktree
        changed: set[bytes] = set()
        gone: set[bytes] = set()
        for path, known in self.cache.index.lookup(paths).items():
            reached = folder_of(path) in found.directories or worktree.reaches(path)
            try:
                seen = worktree.lstat(path) if reached else None
            except OSError:
                continue  # its directory is noted as unreadable, or it is out of reach
            if seen is None and found.hides(path):
                continue
            if seen is None or stat.S_ISDIR(seen.st_mode):
                gone.add(path)
            elif not known.is_untouched(seen):
                changed.add(path)
        return changed, gone

    def _unsettled(self) -> set[bytes]:
        """Files that changed shortly before the last capture, and may have changed again. Git compares times by
        the second, so we compare the nanoseconds. Where these prove nothing either, the file is read again."""
        cache = self.cache
        known = cache.index.lookup(cache.unsettled)
        looks = zip(known.items(), self.space.worktree.looks(known), strict=True)
        return {
            path
            for (path, entry), seen in looks
            if seen is None or not entry.is_untouched(seen) or not is_settled(entry.ctime_ns, cache.as_of_ns)
        }

    def _behind_links(self) -> set[bytes]:
        """Known files in ignored directories, one of which is a link by now. If the link leads to itself, git
        reports nothing."""
        return {path for path in self._in_ignored_directories() if not self.space.worktree.reaches(path)}

    def _out_of_reach(self) -> set[bytes]:
        """Known files in ignored directories that cannot be entered any more. Git does not report them, and no
        listing fails. Reading them shows that they are unreadable."""
        found, worktree = self.found, self.space.worktree
        return {
            path for path in self._in_ignored_directories() if worktree.is_refused(path) and not found.hides(path)
        }

    def _in_ignored_directories(self) -> Collection[bytes]:
        wanted, seen = self.cache.tracked | self.named, self.found.directories
        return self.cache.index.lookup(path for path in wanted if folder_of(path) not in seen)

    def _has_new_link(self, paths: Iterable[bytes]) -> bool:
        """Whether one of these files may be another name of a known file."""
        watcher = self.space.watcher
        return watcher is not None and watcher.has_new_link(self.space.worktree, paths)

    def _note_links(self) -> None:
        """Give a watcher the files with several names: a write through another name is not reported."""
        watcher = self.space.watcher
        if watcher is not None and self.touched is None:
            watcher.note_links(self.space.worktree, self.cache.index.paths())

    # --- what the user's git tracks ----------------------------------------------------------

    def _read_tracked(self) -> set[bytes] | None:
        """The files that the user's git tracks; None if its index cannot be read, which is noted."""
        repository = self.space.repository
        tracked = repository.tracked(self.space.project.workdir) if repository is not None else set()
        self._tracked_unknown = self._tracked_unknown or tracked is None
        return tracked

    def _index_signature(self) -> list[int]:
        """Changes whenever the index of the user's repository does; empty if there is none. An index that changed
        just now may change again within the same tick, and is marked as unsettled."""
        now = self.space.repository.index_signature() if self.space.repository is not None else []
        return now if not now or is_settled(max(now[:2]), self.now_ns) else [*now, UNSETTLED]


def _stamp(seen: os.stat_result) -> int:
    """Changes whenever a name comes or goes in a directory. It includes the inode: two directories made in the
    same tick have the same time, and may be swapped."""
    return seen.st_ctime_ns << 32 | seen.st_ino & 0xFFFFFFFF


# --- times and mounts --------------------------------------------------------------------------------

_SECOND = 10**9

# Local file systems on which every name that comes or goes changes the time of its directory at once. Network and
# FUSE file systems may cache times, or invent them.
_RELIABLE = frozenset({
    b"bcachefs", b"btrfs", b"ext2", b"ext3", b"ext4", b"f2fs", b"jfs", b"nilfs2", b"overlay", b"ramfs", b"tmpfs",
    b"xfs", b"zfs",
})  # fmt: skip


def file_system_time(workdir: Path, own_file: Path) -> int | None:
    """The current time of the project's file system, in nanoseconds: every later change gets this time or a later
    one. It may differ from the local clock: a server, or the host of a virtual machine, has its own. `own_file` is
    a file of ours; it is touched if it is on the same file system, else an unnamed file is created. None if
    neither is possible."""
    try:
        if os.stat(own_file).st_dev == os.stat(workdir).st_dev:
            os.utime(own_file)
            return os.stat(own_file).st_mtime_ns
    except OSError:
        pass
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(workdir, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)


def is_settled(changed_ns: int, now_ns: int) -> bool:
    """Whether a change after `now_ns` is certain to leave another time than `changed_ns`. A file system with whole
    seconds gives two changes the same time for a while."""
    return changed_ns + (2 * _SECOND if changed_ns % _SECOND == 0 else 0) < now_ns


def directory_times_are_reliable(workdir: Path) -> bool:
    """Whether an unchanged time of a directory proves that its names are unchanged. False where that is
    unknown."""
    return sys.platform == "linux" and file_system_type(os.fsencode(workdir), _read_mountinfo()) in _RELIABLE


def is_mounted_below(workdir: Path) -> bool:
    """Whether something is mounted below this directory; True where that is unknown."""
    inside = os.fsencode(workdir).rstrip(b"/") + b"/"
    mounts = list(_mounts(_read_mountinfo()))
    return not mounts or any(mount.path.startswith(inside) for mount in mounts)


def mounted_below(workdir: Path) -> list[bytes]:
    """The known mount points below this directory, relative to it."""
    inside = os.fsencode(workdir).rstrip(b"/") + b"/"
    paths = (mount.path for mount in _mounts(_read_mountinfo()))
    return [path[len(inside) :] for path in paths if path.startswith(inside)]


def file_system_type(path: bytes, mountinfo: bytes) -> bytes:
    """The type of file system that a path is on, according to mountinfo; empty if it does not say. (The path
    decides and not the device number: a btrfs subvolume has a number that mountinfo does not list.)"""
    mounts = list(_mounts(mountinfo))
    ids = {mount.id for mount in mounts}
    above = [mount for mount in mounts if (path + b"/").startswith(mount.path + b"/")]
    # From the root downward, as a path is resolved: a mount hides everything mounted below it earlier.
    kind, candidates = b"", [mount for mount in above if mount.parent not in ids or mount.parent == mount.id]
    while candidates:
        nearest = min(reversed(candidates), key=lambda mount: len(mount.path))
        kind = nearest.kind
        candidates = [mount for mount in above if mount.parent == nearest.id != mount.id]
    return kind


class _Mount(NamedTuple):
    id: bytes
    parent: bytes
    """The id of the mount that this one is on."""
    path: bytes
    kind: bytes


def _mounts(mountinfo: bytes) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(b" - ")
        number, parent, _, _, path = fields.split(b" ")[:5]
        yield _Mount(number, parent, _unescaped(path).rstrip(b"/"), rest.split(b" ")[0])


def _unescaped(text: bytes) -> bytes:
    """A path in which spaces, tabs, newlines and backslashes are written as octal numbers."""
    first, *others = text.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in others)


def _read_mountinfo() -> bytes:
    try:
        return Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return b""
