"""Scanning: which files a capture has to read, and which it holds no longer.

`everything` is the definition: walk the project, leave out what the rules ignore, add what tools named and what
the person's git tracks. `changes` is the shortcut that must come to the same result: git compares the known
files with the index, and we look into the directories that changed. It holds as long as neither the rules nor
the settings changed. A watcher that knows what was touched narrows it further.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shadowsnap.errors import DeadlineExceeded, GitFailed
from shadowsnap.git.repository import Running, side_by_side
from shadowsnap.records import Any, NamedTuple, dataclass, field
from shadowsnap.snapshot.content import is_left_out
from shadowsnap.snapshot.ignore_rules import (
    SHARE_OF_TIME,
    UNSETTLED,
    RuleFiles,
    default_directory_names,
    rule_files,
)
from shadowsnap.snapshot.ignore_rules import VERSION as EXCLUDES_VERSION
from shadowsnap.snapshot.secrets import VERSION as SECRETS_VERSION
from shadowsnap.snapshot.secrets import is_secret
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.stat_cache import Directories, ScanCache, saved_state

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.snapshot.watch import Touched

_DIFFERENCES = ("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all")
_NESTED_REPOSITORY = b" 160000 "

_NAMES_AT_ONCE = 5000
"""So many names are collected before git is asked about them, lest a large ignored directory is walked in vain."""
_DEEP = 700
"""No system refuses a path that is shorter, whatever the next name."""


# --- what git or a watcher knows ---------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Git comparing the known files with the index, or a watcher that knows which were touched."""

    now_ns: int | None
    """The time of the file system when it began; None if that cannot be had."""
    running: Running | None
    touched: Touched | None = None
    began: object = None
    """Tells one capture from another, for the watcher."""


@contextmanager
def comparing(space: Workspace) -> Iterator[Comparison]:
    """Let git begin before the cache is read: both take their time."""
    now_ns = file_system_time(space.project.workdir, space.store.project_lock(space.project.id))
    touched, began = None, object()
    if space.watcher is not None:
        touched = space.watcher.begin(saved_state(space.store, space.project), began)
    there = touched is None and space.store.index_file(space.project.id).exists()
    running = _compare_files(space) if there else None
    with side_by_side(*filter(None, [running])):
        yield Comparison(now_ns, running, touched, began)


def _compare_files(space: Workspace) -> Running:
    return space.git_here.bound(deadline=space.deadline.part(SHARE_OF_TIME)).start(*_DIFFERENCES)


# --- what a scan finds -------------------------------------------------------------------------------


@dataclass
class Found:
    """What a capture has to do to get from the cache to the files as they are."""

    changed: set[bytes] = field(default_factory=set)
    """Files to read: new ones, different ones, and those that may be either."""
    gone: set[bytes] = field(default_factory=set)
    """Known files that are not captured any more."""
    directories: Directories = field(default_factory=dict)
    """Every directory that is not ignored."""
    new_directories: set[bytes] = field(default_factory=set)
    ignored_directories: set[bytes] = field(default_factory=set)
    unreadable: set[bytes] = field(default_factory=set)
    """Directories that could not be read."""
    undecided: set[bytes] = field(default_factory=set)
    """Files and directories (with a slash) of which it is not known whether they are ignored."""
    rules: RuleFiles = field(default_factory=dict)
    tracked_unknown: bool = False
    """The index of the person's repository cannot be read."""

    def hides(self, path: bytes) -> bool:
        """Whether a path is in a directory that could not be read."""
        return bool(self.unreadable) and not self.unreadable.isdisjoint(parents(path))


class Inside(NamedTuple):
    """What is in a directory."""

    files: list[bytes]
    folders: list[bytes]


def found_under(space: Workspace) -> list[Any]:
    """Everything beside the files and the rule files that decides what is captured."""
    settings = space.settings
    secrets = [SECRETS_VERSION, settings.include_secrets, *settings.capture_secrets]
    return [EXCLUDES_VERSION, space.patterns, settings.max_file_bytes, secrets]


def scan(space: Workspace, cache: ScanCache, comparison: Comparison, named: set[bytes], now_ns: int) -> Found:
    """What differs from the cache. `named` are files that tools named; the cache learns on the way which files
    the person's git tracks."""
    return _Scan(space, cache, comparison, named, now_ns).run()


class _Scan:
    def __init__(
        self, space: Workspace, cache: ScanCache, comparison: Comparison, named: set[bytes], now_ns: int
    ) -> None:
        self.space = space
        self.cache = cache
        self.named = named
        self.now_ns = now_ns
        self.comparison = comparison
        # A watcher speaks of what differs from the cache that it keeps.
        self.touched = comparison.touched if cache.kept is not None else None
        self.found = Found()
        self.device = os.stat(space.project.workdir).st_dev
        self._answer: tuple[set[bytes], set[bytes]] | None = None

    def run(self) -> Found:
        cache = self.cache
        same_rules = cache.found_under == found_under(self.space) and self._rules_are_the_same()
        is_known = same_rules and self._learn_tracked()
        unknown = self.found.tracked_unknown
        found = self._changes() if is_known else None
        if found is None:
            self.found, self.touched = Found(), None
            found = self._everything()
        found.tracked_unknown = found.tracked_unknown or unknown
        found.ignored_directories = {
            path for path in found.ignored_directories if path.rpartition(b"/")[0] in found.directories
        }
        found.rules = {
            path: changed if is_settled(changed, self.now_ns) else UNSETTLED
            for path, changed in found.rules.items()
        }
        return found

    # --- the definition ----------------------------------------------------------------------

    def _everything(self) -> Found:
        """List every file and directory, and hold that against what is known."""
        found, cache, space = self.found, self.cache, self.space
        known = set(cache.index.paths())
        listed = self._walk([b""], known)
        signature, before = self._signature(), cache.tracked
        tracked = self._read_tracked()
        if tracked is not None:  # else it cannot be read now, and what was known of it stays
            # Those that are captured although the rules, or their names, would leave them out.
            cache.tracked = (tracked - listed) | set(filter(is_secret, tracked))
            cache.tracked_as_of = signature
        wanted = listed | cache.tracked | self.named
        if found.undecided:  # without rules, what is known stays known
            wanted |= known
        changed, gone = self._differences()
        found.changed = (wanted - known) | ((changed | self._doubtful()) & wanted) | self._left_out_now(known)
        found.changed |= before & known & wanted - cache.tracked  # its name may leave it out from now on
        found.gone = gone | (known - wanted) | self._behind_links()
        found.changed -= found.gone
        found.new_directories = set(found.directories)
        found.rules = {
            path: changed
            for path, changed in space.rules.files.items()
            if path.rpartition(b"/")[0] in found.directories
        }
        self._note_links()
        return found

    def _left_out_now(self, known: set[bytes]) -> set[bytes]:
        """Known files that the limits of now leave out."""
        if self.cache.found_under is not None and self.cache.found_under[2:] == found_under(self.space)[2:]:
            return set()
        settings, sizes = self.space.settings, {path: each.size for path, each in self.cache.index.items()}
        limit = settings.max_file_bytes
        large = {path for path in known if limit is not None and sizes[path] > limit}
        return large | {path for path in known - self.cache.tracked if is_left_out(path, settings)}

    # --- the shortcut ------------------------------------------------------------------------

    def _changes(self) -> Found | None:
        """What differs, given that the rules are the same; None if it turns out that they are not."""
        found, cache, space = self.found, self.cache, self.space
        stirred = self._look_at_directories()
        new = self._new_names(stirred.values())
        files = {*new.files, *self._walk(new.folders)}
        new_rules = rule_files(space.worktree, stirred) | space.rules.files
        new_rules = {path: changed for path, changed in new_rules.items() if path not in cache.rules}
        if any(path.rpartition(b"/")[0] in cache.directories for path in new_rules):
            return None
        found.rules = {**cache.rules, **new_rules}
        found.ignored_directories |= {
            path for path in cache.ignored_directories if path.rpartition(b"/")[0] not in stirred
        }
        found.new_directories = found.directories.keys() - cache.directories.keys()
        changed, gone = self._differences()
        found.gone |= gone | self._behind_links()
        # Git has nothing to report of files that were left out.
        left_out = {path for path in cache.skipped if path.rpartition(b"/")[0] in found.directories}
        found.changed = (changed | files | left_out | self._doubtful()) - found.gone
        if self.touched is not None and self._has_new_link(found.changed):
            # What was written through the new name was reported under that name alone: compare all files.
            self.found, self.touched = Found(), None
            return self._changes()
        self._note_links()
        return found

    def _rules_are_the_same(self) -> bool:
        known = self.cache.rules
        now = rule_files(self.space.worktree, [path.rpartition(b"/")[0] for path in known])
        return all(changed != UNSETTLED and now.get(path) == changed for path, changed in known.items())

    def _learn_tracked(self) -> bool:
        """Learn which files the person's git tracks, if that may have changed; False if everything has to be
        listed, since an ignored file is tracked no longer."""
        cache = self.cache
        now = self._signature()
        if now == cache.tracked_as_of and now[-1:] != [UNSETTLED]:
            return True
        tracked = self._read_tracked()
        if tracked is None:
            return True  # what is known of it stays
        if cache.tracked - tracked:
            return False
        # What is tracked and not known is ignored, or not there.
        cache.tracked |= tracked.difference(cache.index.paths())
        cache.tracked_as_of = now
        return True

    def _read_tracked(self) -> set[bytes] | None:
        """What the person's git tracks; None, which is noted, if that cannot be read."""
        repository = self.space.repository
        tracked = repository.tracked(self.space.project.workdir) if repository is not None else set()
        self.found.tracked_unknown = tracked is None
        return tracked

    def _signature(self) -> list[int]:
        """Changes whenever the index of the person's repository does; empty if there is none. One that changed
        in this very moment may change again and look the same."""
        now = self.space.repository.index_signature() if self.space.repository is not None else []
        return now if not now or is_settled(max(now[:2]), self.now_ns) else [*now, UNSETTLED]

    def _look_at_directories(self) -> dict[bytes, Inside]:
        """Look at every known directory, or those that a watcher names, and into those in which a name may
        have come or gone: what these hold."""
        found, cache = self.found, self.cache
        trusted = directories_tell(self.space.project.workdir)
        looked_at: Iterable[bytes] = cache.directories
        if self.touched is not None:
            looked_at = sorted(self.touched.directories_among(cache))
            found.directories = dict(cache.directories)
            for path in looked_at:
                del found.directories[path]
        stirred: dict[bytes, Inside] = {}
        vanished: set[bytes] = set()
        for path in looked_at:  # sorted: what lies above comes first
            folder = path.rpartition(b"/")[0]
            seen = None if folder in vanished or folder in found.unreadable else self._look(path)
            if seen is None or not stat.S_ISDIR(seen.st_mode):
                if seen is not None:  # of files behind a link that leads to itself, git reports nothing at all
                    found.gone.update(cache.index.paths_below(path))
                vanished.add(path)
                continue
            stamp = cache.directories[path][1]
            if stamp and stamp == _stamp(seen) and trusted and seen.st_dev == self.device:
                found.directories[path] = (stat.S_IMODE(seen.st_mode), stamp)
            elif (inside := self._read(path)) is not None:
                stirred[path] = inside
        return stirred

    def _new_names(self, stirred: Iterable[Inside]) -> Inside:
        """The files and directories in known directories that nothing is known of and that are not ignored."""
        found, cache = self.found, self.cache
        files = [path for inside in stirred for path in inside.files]
        folders = [path for inside in stirred for path in inside.folders if path not in cache.directories]
        found.ignored_directories = cache.ignored_directories.intersection(folders)
        folders = [path for path in folders if path not in found.ignored_directories]
        known = cache.index.lookup(files)
        unknown = [path for path in files if path not in known]
        ignored = self._ignored([*unknown, *folders], folders)
        if ignored is None:
            self._give_up(unknown, folders, ())
            return Inside([], [])
        found.ignored_directories.update(ignored.intersection(folders))
        return Inside(
            [path for path in unknown if path not in ignored], [path for path in folders if path not in ignored]
        )

    def _doubtful(self) -> set[bytes]:
        """Files that changed shortly before the last capture. Git compares times by the second, so we look
        at them ourselves; and where not even the nanoseconds prove anything, they are read again."""
        cache = self.cache
        known = cache.index.lookup(cache.unsettled)
        looks = zip(known.items(), self.space.worktree.looks(known), strict=True)
        return {
            path
            for (path, entry), seen in looks
            if seen is None or not entry.is_untouched(seen) or not is_settled(entry.ctime_ns, cache.as_of_ns)
        }

    # --- directories -------------------------------------------------------------------------

    def _walk(self, tops: list[bytes], known: Container[bytes] = ()) -> set[bytes]:
        """Every file below directories that are not ignored themselves, and is not ignored. Nested
        repositories are directories like any other."""
        found, unpromising = self.found, _default_names()
        listed: set[bytes] = set()
        waiting = deque(tops)
        while waiting:
            files: list[bytes] = []
            folders: list[bytes] = []
            closed: list[bytes] = []
            walked: list[bytes] = []
            # From the top down: git is asked about upper directories before the walk goes deep.
            while waiting and len(files) + len(folders) < _NAMES_AT_ONCE:
                folder = waiting.popleft()
                inside = self._read(folder)
                walked.append(folder)
                if inside is None:
                    continue
                files += inside.files
                folders += inside.folders
                for path in inside.folders:
                    (closed if path.rpartition(b"/")[2] in unpromising else waiting).append(path)
            ignored = self._ignored([*files, *folders], folders)
            if ignored is None:
                self._give_up(files, folders, known)
                return listed
            listed.update(path for path in files if path not in ignored)
            found.ignored_directories.update(ignored.intersection(folders))
            for folder in walked:
                if folder in ignored:
                    found.directories.pop(folder, None)
                    found.unreadable.discard(folder)
            waiting = deque(path for path in waiting if path not in ignored)
            # A .gitignore may take a default exclude back: then these are directories like any other.
            waiting += (path for path in closed if path not in ignored)
        return listed

    def _give_up(self, files: Iterable[bytes], folders: Iterable[bytes], known: Container[bytes]) -> None:
        """Note what is not captured because it is not known whether it is ignored: the uppermost of it."""
        wanted = self.cache.tracked | self.named
        doubtful = {path for path in files if path not in known and path not in wanted}
        doubtful |= {path + b"/" for path in folders}
        for path in folders:
            self.found.directories.pop(path, None)
        self.found.undecided |= {
            path for path in doubtful if not any(up + b"/" in doubtful for up in parents(path.rstrip(b"/")))
        }

    def _read(self, folder: bytes) -> Inside | None:
        """The files and the directories in a directory, which is noted; None if it cannot be read."""
        space, found, worktree = self.space, self.found, self.space.worktree
        space.deadline.check("looking for files")
        seen = None if space.is_store(folder) else self._look(folder)
        if seen is None or not stat.S_ISDIR(seen.st_mode):
            found.directories.pop(folder, None)
            return None
        prefix = folder + b"/" if folder else b""
        files: list[bytes] = []
        folders: list[bytes] = []
        is_settled_now = seen.st_dev == self.device and is_settled(seen.st_ctime_ns, self.now_ns)
        found.directories[folder] = (stat.S_IMODE(seen.st_mode), _stamp(seen) if is_settled_now else 0)
        try:
            if not worktree.is_searchable(folder, seen):
                raise PermissionError(folder)
            for item in worktree.items(folder):
                path = prefix + item.name
                if item.name == b".git" and (item.is_directory or not (folder or item.is_special)):
                    continue  # a repository is not part of the files
                if not space.is_store(path):
                    (folders if item.is_directory else files).append(path)
        except OSError:
            found.unreadable.add(folder)
        too_deep = self._too_deep(folder, folders)
        if folder in found.unreadable or too_deep:
            found.directories[folder] = (stat.S_IMODE(seen.st_mode), 0)
        if folder in found.unreadable:
            return None
        return Inside(files, [path for path in folders if path not in too_deep])

    def _look(self, path: bytes) -> os.stat_result | None:
        """What is at this path; what cannot be looked at is noted."""
        try:
            return self.space.worktree.lstat(path)
        except OSError:
            self.found.unreadable.add(path)
            return None

    def _too_deep(self, folder: bytes, folders: list[bytes]) -> set[bytes]:
        """The directories in this one that are too far down to be read; they are noted."""
        worktree = self.space.worktree
        if len(folder) < _DEEP or not worktree.is_too_long(folder + b"/" + b"x" * 255):
            return set()
        too_deep = {path for path in folders if worktree.is_too_long(path)}
        self.found.unreadable |= too_deep
        return too_deep

    def _ignored(self, paths: list[bytes], folders: list[bytes]) -> set[bytes] | None:
        """Which of the paths are ignored; None if git cannot say so in time."""
        if not paths:
            return set()
        rules, worktree = self.space.rules, self.space.worktree
        if rules.is_too_slow:
            return None
        with rules.within(self.space.deadline.part(SHARE_OF_TIME)):
            for _ in range(2):
                try:
                    return rules.ignored(paths, folders)
                except DeadlineExceeded:
                    rules.is_too_slow = True
                    return None
                except GitFailed:  # a directory was replaced by a link meanwhile
                    paths = [path for path in paths if worktree.reaches(path)]
        return rules.ignored(paths, folders)

    # --- known files -------------------------------------------------------------------------

    def _differences(self) -> tuple[set[bytes], set[bytes]]:
        """The known files that differ, and those that are not there any more."""
        if self._answer is None:
            if self.touched is not None:
                # Nothing is watched in directories that are ignored.
                return self._compare(self.touched.files_among(self.cache) | self.named | self.cache.tracked)
            self._answer = self._compared_by_git() if len(self.cache.index) else (set(), set())
        return self._answer

    def _compared_by_git(self) -> tuple[set[bytes], set[bytes]]:
        changed: set[bytes] = set()
        gone: set[bytes] = set()
        try:
            running = self.comparison.running or _compare_files(self.space)
            parts = running.output().split(b"\0")
        except DeadlineExceeded:
            return self._compare(self.cache.index.paths())
        for meta, path in zip(parts[0:-1:2], parts[1::2], strict=True):
            # A nested repository where a file was is a change of type to git, and a lost file to us.
            (gone if meta.endswith(b" D") or _NESTED_REPOSITORY in meta else changed).add(path)
        return changed, gone

    def _behind_links(self) -> set[bytes]:
        """Known files in ignored directories, one of which is a link by now: of a link that leads to itself, git
        reports nothing."""
        wanted, seen = self.cache.tracked | self.named, self.found.directories
        hidden = self.cache.index.lookup(path for path in wanted if path.rpartition(b"/")[0] not in seen)
        return {path for path in hidden if not self.space.worktree.reaches(path)}

    def _compare(self, paths: Iterable[bytes]) -> tuple[set[bytes], set[bytes]]:
        """The same without git."""
        found, worktree = self.found, self.space.worktree
        changed: set[bytes] = set()
        gone: set[bytes] = set()
        for path, known in self.cache.index.lookup(paths).items():
            reached = path.rpartition(b"/")[0] in found.directories or worktree.reaches(path)
            try:
                seen = worktree.lstat(path) if reached else None
            except OSError:
                continue  # in a directory that may not be entered, which is noted
            if seen is None and found.hides(path):
                continue
            if seen is None or stat.S_ISDIR(seen.st_mode):
                gone.add(path)
            elif not known.is_untouched(seen):
                changed.add(path)
        return changed, gone

    def _has_new_link(self, paths: Iterable[bytes]) -> bool:
        """Whether one of these files may be another name of a known file."""
        watcher = self.space.watcher
        return watcher is not None and watcher.has_new_link(self.space.worktree, paths)

    def _note_links(self) -> None:
        """Tell a watcher which files can be written to by other names, of which it hears nothing."""
        watcher = self.space.watcher
        if watcher is not None and self.touched is None:
            watcher.note_links(self.space.worktree, self.cache.index.paths())


def _stamp(seen: os.stat_result) -> int:
    """Another one as soon as a name came or went in a directory, and for every directory: two that were
    made in the same tick of the clock have the same time, and may change places."""
    return seen.st_ctime_ns << 32 | seen.st_ino & 0xFFFFFFFF


def _default_names() -> frozenset[bytes]:
    """Names of directories that the defaults exclude: git is asked before such a directory is walked."""
    return frozenset(os.fsencode(name) for name in default_directory_names())


_SECOND = 10**9
_TWO_SECONDS = 2 * _SECOND

# Local ones, on which every name that comes or goes changes the time of its directory at once. Not
# so over a network or by way of FUSE, where times may be cached, or made up.
_TELLING = frozenset({
    b"bcachefs", b"btrfs", b"ext2", b"ext3", b"ext4", b"f2fs", b"jfs", b"nilfs2", b"overlay", b"ramfs", b"tmpfs",
    b"xfs", b"zfs",
})  # fmt: skip


def directories_tell(workdir: Path) -> bool:
    """Whether a directory below this one whose change time is the same has the same names in it. Where
    that is not known, it does not."""
    return sys.platform == "linux" and kind_of(os.fsencode(workdir), _list_of_mounts()) in _TELLING


def file_system_time(workdir: Path, own_file: Path) -> int | None:
    """The time of the file system that a project is on, in nanoseconds: whatever changes from now on is stamped
    with this time or a later one. The clock of this program proves nothing: a server, or the host of a virtual
    machine, has its own. `own_file` is one of ours; if it is on the same file system, its time is set. Else a
    file without a name is made for a moment. None if neither can be done."""
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
    """Whether a change that comes after `now_ns`, in the time of the file system, is certain to leave another
    time than `changed_ns`. A file system that counts whole seconds stamps two changes alike for a while."""
    return changed_ns + (_TWO_SECONDS if changed_ns % _SECOND == 0 else 0) < now_ns


def is_mounted_below(workdir: Path) -> bool:
    """Whether some directory below this one may be on a file system of its own."""
    inside = os.fsencode(workdir).rstrip(b"/") + b"/"
    mounts = list(_mounts(_list_of_mounts()))
    return not mounts or any(mount.place.startswith(inside) for mount in mounts)


def mounted_below(workdir: Path) -> list[bytes]:
    """The directories below this one that something is mounted on, relative to it, as far as is known."""
    inside = os.fsencode(workdir).rstrip(b"/") + b"/"
    places = (mount.place for mount in _mounts(_list_of_mounts()))
    return [place[len(inside) :] for place in places if place.startswith(inside)]


def kind_of(place: bytes, listed: bytes) -> bytes:
    """The kind of file system that a directory is on, given the list of mounts; empty if that does not
    tell. (By its place and not by the number of its device: a subvolume of btrfs has a number that
    the list does not know.)"""
    mounts = list(_mounts(listed))
    ids = {mount.id for mount in mounts}
    ways = [mount for mount in mounts if (place + b"/").startswith(mount.place + b"/")]
    # From the root on as a path is followed: what lies upon a directory hides all that was mounted
    # below it before.
    kind, below = b"", [mount for mount in ways if mount.on not in ids or mount.on == mount.id]
    while below:
        nearest = min(reversed(below), key=lambda mount: len(mount.place))
        kind = nearest.kind
        below = [mount for mount in ways if mount.on == nearest.id != mount.id]
    return kind


class _Mount(NamedTuple):
    id: bytes
    on: bytes
    """The mount that it lies upon."""
    place: bytes
    kind: bytes


def _mounts(listed: bytes) -> Iterator[_Mount]:
    for line in listed.splitlines():
        about, _, rest = line.partition(b" - ")
        number, on, _, _, place = about.split(b" ")[:5]
        yield _Mount(number, on, _unescaped(place).rstrip(b"/"), rest.split(b" ")[0])


def _list_of_mounts() -> bytes:
    """As the system tells it; empty if it does not."""
    try:
        return Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return b""


def _unescaped(text: bytes) -> bytes:
    """A name in which blanks, tabs, line ends and backslashes are told by their octal numbers."""
    first, *others = text.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in others)
