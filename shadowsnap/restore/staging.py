"""Where the files of a restore wait: new ones until they are put in place, old ones until all is done.

New content is written here first, so that a full disk is met before any file is touched. Each file
system that is involved has a directory of its own, so that a rename never has to copy.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from shadowsnap.errors import DamagedObject, RestoreRefused
from shadowsnap.files import spread_subdirectories
from shadowsnap.git.index import Index, Known
from shadowsnap.git.reading import FEW, ObjectReader
from shadowsnap.git.repository import Running
from shadowsnap.git.trees import LINK
from shadowsnap.records import NamedTuple
from shadowsnap.restore.plan import Plan
from shadowsnap.snapshot.content import holds
from shadowsnap.snapshot.scan import is_settled, mounted_below
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, unwritten
from shadowsnap.store.stat_cache import Modes

_MOST = 1 << 20
"""Nothing larger is held in memory."""
_MANY = 200
"""So many are written by two processes, each into a directory of its own: in one, they would wait for
each other more than they gain."""
STAGING_PREFIX = ".shadowsnap-restore-"


class Slot(NamedTuple):
    """The place of one file in a staging directory."""

    folder: bytes
    name: bytes
    """Of the new file, or of the old one once they have changed places."""

    @property
    def name_of_old(self) -> bytes:
        """Of an old file that did not change places with a new one."""
        return self.name + b"-"


class Staging:
    """Where new files wait and old ones are kept, on each file system that is involved."""

    def __init__(self, space: Workspace, plan: Plan) -> None:
        self._space = space
        self._plan = plan
        stamp = f"{os.getpid()}-{time.time_ns() // 10**6}"
        name = os.fsencode(STAGING_PREFIX + stamp)
        touched = sorted({*plan.write, *plan.delete})
        tops = _tops(space, {path.rpartition(b"/")[0] for path in touched})
        split = len(touched) > _MANY and len({*tops.values()}) == 1
        self._slots: dict[bytes, Slot] = {}
        for number, path in enumerate(touched):
            top = tops[path.rpartition(b"/")[0]]
            folder = top + b"/" + name if top else name
            inner = folder + b"/%d-%s" % (number & 1, stamp.encode()) if split else folder
            self._slots[path] = Slot(inner, b"%d" % number)
        self.folders = sorted({top + b"/" + name if top else name for top in tops.values()})
        """One on each file system; they may be shown to the person."""
        self._inner = sorted({slot.folder for slot in self._slots.values()})
        self._written: dict[bytes, list[bytes]] = {}
        """The new files by the directories they wait in."""
        for path in plan.write:
            self._written.setdefault(self._slots[path].folder, []).append(path)
        self._places: dict[bytes, Worktree] = {}
        self.by_git = not self._is_little()
        """Whether git writes the new files, which are too many for us."""
        self._running: list[Running] = []
        self._open = ExitStack()

    def slot(self, path: bytes) -> Slot:
        return self._slots[path]

    def place(self, path: bytes) -> Worktree:
        """The open directory of a slot."""
        return self._places[self._slots[path].folder]

    def begin(self) -> None:
        """Make the directories, and let git begin to write, if it is to."""
        worktree = self._space.worktree
        for folder in (*self.folders, *(inner for inner in self._inner if inner not in self.folders)):
            top, _, name = folder.rpartition(b"/")
            with worktree.within(top) as above:
                above.mkdir(name, 0o700)
            place = self._open.enter_context(worktree.within(folder))
            if folder in self._inner:
                self._places[folder] = place
            else:  # never of the same name twice: that, too, tells ext4 where to
                spread_subdirectories(Path(place.as_folder()))
        if self.by_git:
            self._check_out()

    def finish(self) -> dict[bytes, os.stat_result]:
        """Wait until every file that is to come is written; what came of each."""
        if not self.by_git:
            self._write()
        for each in self._running:
            each.output()
        staged: dict[bytes, os.stat_result] = {}
        for folder, paths in self._written.items():
            seen = self._places[folder].looks(self._slots[path].name for path in paths)
            staged.update((path, self._finished(path, each)) for path, each in zip(paths, seen, strict=True))
        if self.by_git:
            self._check(staged)
        return staged

    def _check(self, staged: dict[bytes, os.stat_result]) -> None:
        """Git writes what it finds under an id, whether it hashes to that or not."""
        for path, seen in staged.items():
            (mode, name), _ = self._plan.write[path]
            if not holds(self.place(path), self._slots[path].name, seen, mode, name):
                raise DamagedObject(id=name)

    def close(self) -> None:
        """End whatever is under way."""
        self._open.close()

    def _is_little(self) -> bool:
        """Whether it is written sooner than git is started."""
        if len(self._plan.write) > FEW:
            return False
        with ObjectReader(self._space.git) as reader:
            sizes = (reader.size(name) for (_, name), _ in self._plan.write.values())
            return all(size is not None and size < _MOST for size in sizes)

    def _write(self) -> None:
        with ObjectReader(self._space.git) as reader:
            for path, ((mode, name), _) in self._plan.write.items():
                data = reader.read(name, b"blob")
                self.place(path).create(self._slots[path].name, data, link=mode == LINK)

    def _check_out(self) -> None:
        for number, (folder, paths) in enumerate(self._written.items()):
            index = self._space.store.index_file(f"{self._space.project.id}.{number}.staging")
            self._open.callback(_discard, index)
            Index(index).write_without_stat({self._slots[path].name: self._plan.write[path][0] for path in paths})
            # If we are killed, whoever comes next waits for the lock until git has ceased to write.
            place = Path(self._places[folder].as_folder())
            git = self._space.git.bound(work_tree=place, index_file=index, inherited=(self._space.lock,))
            # With a prefix, git makes the files without asking first what is there: twice as quick.
            running = git.start("checkout-index", "-a", "-f", "-q", "--prefix=./")
            self._open.callback(running.abandon)
            self._running.append(running)

    def _finished(self, path: bytes, seen: os.stat_result | None) -> os.stat_result:
        """A new file, which gets the bits it is to have."""
        (mode, _), bits = self._plan.write[path]
        if seen is None:
            raise OSError(errno.EIO, "it could not be written", os.fsdecode(path))
        if mode != LINK and seen.st_mode & 0o7777 != bits:
            self.place(path).chmod(self._slots[path].name, bits)
        return seen


def _discard(index: Path) -> None:
    try:
        index.unlink(missing_ok=True)
    except OSError:
        pass  # upkeep will


def _tops(space: Workspace, folders: set[bytes]) -> dict[bytes, bytes]:
    """For each directory, the uppermost one on the file system that holds it."""
    mounts = mounted_below(space.project.workdir)
    devices = _Devices(space)
    return {folder: _top_of(folder, mounts, devices) for folder in folders}


def _top_of(folder: bytes, mounts: list[bytes], devices: _Devices) -> bytes:
    # Two mounts of one file system have the same device, and still no file goes from one to the other.
    within = [place for place in mounts if folder == place or folder.startswith(place + b"/")]
    if within:
        return max(within, key=len)
    while (device := devices.of(folder)) is None:  # it is yet to come, perhaps in place of a link
        folder = folder.rpartition(b"/")[0]
    while folder and devices.of(up := folder.rpartition(b"/")[0]) == device:
        folder = up
    return folder


class _Devices:
    """The numbers of the devices that directories are on. Each is looked at once."""

    def __init__(self, space: Workspace) -> None:
        self._worktree = space.worktree
        self._known: dict[bytes, int | None] = {b"": os.stat(space.project.workdir).st_dev}

    def of(self, folder: bytes) -> int | None:
        """None if there is no real directory."""
        if folder not in self._known:
            there = self.of(folder.rpartition(b"/")[0]) is not None
            seen = self._worktree.look(folder) if there else None
            is_directory = seen is not None and stat.S_ISDIR(seen.st_mode)
            self._known[folder] = seen.st_dev if seen is not None and is_directory else None
        return self._known[folder]


def remove_staging(space: Workspace, folders: Iterable[bytes]) -> None:
    for folder in filter(is_staging, folders):
        top, _, name = folder.rpartition(b"/")
        try:
            with space.worktree.within(top) as above:
                above.remove_tree(name)
        except NotADirectoryError:
            continue  # the directory that it was in is gone


def is_staging(folder: bytes) -> bool:
    """Whether a directory may be one of ours, whatever a journal says: inside the project, and named so."""
    names = folder.split(b"/")
    return names[-1].startswith(os.fsencode(STAGING_PREFIX)) and not {b"", b".", b".."}.intersection(names)


_MANY_ASIDE = 200
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
        if len(self._found) > _MANY_ASIDE:
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
