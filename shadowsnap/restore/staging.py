"""Staging directories: new files wait here until they are put in place, old ones until the restore is done.

New content is written here first, so that a full disk is noticed before any file is touched. There is one
staging directory on each file system that the restore changes, so that a rename never has to copy.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from shadowsnap.errors import DamagedObject, RestoreRefused
from shadowsnap.files import spread_subdirectories
from shadowsnap.git.index import Index, Known
from shadowsnap.git.reading import FEW, ObjectReader
from shadowsnap.git.repository import Running
from shadowsnap.git.trees import LINK
from shadowsnap.restore.plan import Plan
from shadowsnap.snapshot.content import holds
from shadowsnap.snapshot.scan import is_settled, mounted_below
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, unwritten
from shadowsnap.store.stat_cache import Modes

_LARGE = 1 << 20
"""Objects of this size and more are not read into memory: git writes them."""
_MANY = 200
"""More files than this are written by two git processes and removed by two threads, each in a directory of its
own: in the same one, they would spend their time waiting for each other."""
STAGING_PREFIX = ".shadowsnap-restore-"


class StagedFile(NamedTuple):
    """A file in a staging directory: the opened directory, its name there, and its stat."""

    directory: Worktree
    name: bytes
    seen: os.stat_result


class Staging:
    """The staging directories of one restore. Every file that is written or deleted has a name in one of them."""

    def __init__(self, space: Workspace, plan: Plan) -> None:
        self._space = space
        self._plan = plan
        stamp = os.fsencode(f"{os.getpid()}-{time.time_ns() // 10**6}")
        name = os.fsencode(STAGING_PREFIX) + stamp
        touched = sorted({*plan.write, *plan.delete})
        tops = _file_system_tops(space, {path.rpartition(b"/")[0] for path in touched})
        folders = {folder: top + b"/" + name if top else name for folder, top in tops.items()}
        self.folders = sorted({*folders.values()})
        """One on each file system. Messages mention them."""
        split = len(touched) > _MANY and len(self.folders) == 1
        self._locations: dict[bytes, tuple[bytes, bytes]] = {}
        """Path -> the directory and the name it is staged under."""
        for number, path in enumerate(touched):
            folder = folders[path.rpartition(b"/")[0]]
            if split:
                folder += b"/%d-%s" % (number & 1, stamp)
            self._locations[path] = folder, b"%d" % number
        self._paths_to_write: dict[bytes, list[bytes]] = {}
        """Staging directory -> the paths whose new files are written there."""
        for path in plan.write:
            self._paths_to_write.setdefault(self._locations[path][0], []).append(path)
        self._opened: dict[bytes, Worktree] = {}
        self.by_git = not self._is_small()
        """Whether git writes the new files."""
        self._running: list[Running] = []
        self._cleanup = ExitStack()

    def _is_small(self) -> bool:
        """Whether writing the files here is faster than starting git."""
        if len(self._plan.write) > FEW:
            return False
        with ObjectReader(self._space.git) as reader:
            sizes = (reader.size(name) for (_, name), _ in self._plan.write.values())
            return all(size is not None and size < _LARGE for size in sizes)

    def location(self, path: bytes) -> tuple[Worktree, bytes]:
        """The opened staging directory of a path, and the name of its new file there."""
        folder, name = self._locations[path]
        return self._opened[folder], name

    def begin(self) -> None:
        """Make the directories, and start git if it writes the files."""
        inner = {folder for folder, _ in self._locations.values()}
        for folder in (*self.folders, *sorted(inner.difference(self.folders))):
            top, _, name = folder.rpartition(b"/")
            with self._space.worktree.within(top) as above:
                above.mkdir(name, 0o700)
            opened = self._cleanup.enter_context(self._space.worktree.within(folder))
            if folder in inner:
                self._opened[folder] = opened
            else:  # ext4 also goes by the names of its subdirectories, so these are never used twice
                spread_subdirectories(Path(opened.as_folder()))
        if self.by_git:
            self._start_checkout()

    def _start_checkout(self) -> None:
        for number, (folder, paths) in enumerate(self._paths_to_write.items()):
            index = self._space.store.index_file(f"{self._space.project.id}.{number}.staging")
            self._cleanup.callback(_discard, index)
            names = {self._locations[path][1]: self._plan.write[path][0] for path in paths}
            Index(index).write_without_stat(names)
            # If this process is killed, git still holds the lock until it has stopped writing.
            work_tree = Path(self._opened[folder].as_folder())
            git = self._space.git.bound(work_tree=work_tree, index_file=index, inherited=(self._space.lock,))
            # With a prefix, git creates the files without first asking what is there: twice as fast.
            running = git.start("checkout-index", "-a", "-f", "-q", "--prefix=./")
            self._cleanup.callback(running.abandon)
            self._running.append(running)

    def finish(self) -> dict[bytes, StagedFile]:
        """Wait until every new file is written, and give each its permission bits."""
        if not self.by_git:
            self._write()
        for running in self._running:
            running.output()
        staged: dict[bytes, StagedFile] = {}
        for folder, paths in self._paths_to_write.items():
            directory, names = self._opened[folder], [self._locations[path][1] for path in paths]
            for path, name, seen in zip(paths, names, directory.looks(names), strict=True):
                (mode, _), bits = self._plan.write[path]
                if seen is None:
                    raise OSError(errno.EIO, "it could not be written", os.fsdecode(path))
                if mode != LINK and stat.S_IMODE(seen.st_mode) != bits:
                    directory.chmod(name, bits)
                staged[path] = StagedFile(directory, name, seen)
        if self.by_git:
            self._verify(staged)
        return staged

    def _write(self) -> None:
        with ObjectReader(self._space.git) as reader:
            for path, ((mode, object_id), _) in self._plan.write.items():
                directory, name = self.location(path)
                directory.create(name, reader.read(object_id, b"blob"), link=mode == LINK)

    def _verify(self, staged: dict[bytes, StagedFile]) -> None:
        """Git writes what it finds under an object id, whether the content has that hash or not."""
        for path, file in staged.items():
            (mode, object_id), _ = self._plan.write[path]
            if not holds(file.directory, file.name, file.seen, mode, object_id):
                raise DamagedObject(id=object_id)

    def close(self) -> None:
        """Stop what is still running and close the directories."""
        self._cleanup.close()


def _discard(index: Path) -> None:
    try:
        index.unlink(missing_ok=True)
    except OSError:
        pass  # upkeep removes it


def _file_system_tops(space: Workspace, folders: set[bytes]) -> dict[bytes, bytes]:
    """For each directory, the uppermost directory of the project on the same file system."""
    mounts = mounted_below(space.project.workdir)
    devices: dict[bytes, int | None] = {b"": os.stat(space.project.workdir).st_dev}

    def device_of(folder: bytes) -> int | None:
        """None if it is not a directory. Each is looked at once."""
        if folder not in devices:
            is_reachable = device_of(folder.rpartition(b"/")[0]) is not None
            seen = space.worktree.look(folder) if is_reachable else None
            devices[folder] = seen.st_dev if seen is not None and stat.S_ISDIR(seen.st_mode) else None
        return devices[folder]

    def top_of(folder: bytes) -> bytes:
        # Two mounts of one file system have the same device number, and still no file can be renamed from one to
        # the other.
        above = [mount for mount in mounts if folder == mount or folder.startswith(mount + b"/")]
        if above:
            return max(above, key=len)
        while (device := device_of(folder)) is None:  # the restore makes it, perhaps in place of a link
            folder = folder.rpartition(b"/")[0]
        while folder and device_of(up := folder.rpartition(b"/")[0]) == device:
            folder = up
        return folder

    return {folder: top_of(folder) for folder in folders}


def remove_staging(space: Workspace, folders: Iterable[bytes]) -> None:
    for folder in filter(is_staging, folders):
        top, _, name = folder.rpartition(b"/")
        try:
            with space.worktree.within(top) as above:
                above.remove_tree(name)
        except NotADirectoryError:
            continue  # the directory that it was in is gone


def is_staging(folder: bytes) -> bool:
    """Whether a directory may be a staging directory, whatever a journal claims: by its name, and inside the
    project."""
    names = folder.split(b"/")
    return names[-1].startswith(os.fsencode(STAGING_PREFIX)) and not {b"", b".", b".."}.intersection(names)


class OldFiles:
    """The files that a restore moved into staging, each proven to be what the checkpoint before it holds."""

    def __init__(self, known: Mapping[bytes, Known], modes: Modes, now_ns: int) -> None:
        self._known = known
        self._modes = modes
        self._now_ns = now_ns
        """When the capture began, by the clock of the file system."""
        self._files: dict[bytes, StagedFile] = {}

    def get(self, path: bytes) -> StagedFile | None:
        return self._files.get(path)

    def add(self, path: bytes, directory: Worktree, name: bytes, before: os.stat_result | None) -> None:
        """Take in a file that was moved; `before` is its stat before that. Raises `RestoreRefused` if it is not
        what was saved. (A check before the move would leave a gap in which the file can be changed.)"""
        known, seen = self._known.get(path), directory.lstat(name)
        if known is None or seen is None:
            raise changed(path)
        settled = is_settled(known.ctime_ns, self._now_ns)
        untouched = settled and before is not None and known.is_untouched(before) and known.is_unwritten(seen)
        file = StagedFile(directory, name, seen)
        if not untouched and not self._is_what_was_saved(path, known, file):
            raise changed(path)
        self._files[path] = file

    def _is_what_was_saved(self, path: bytes, known: Known, file: StagedFile) -> bool:
        """Compare type, permission bits and content, for when the times prove nothing."""
        if known.mode != LINK and stat.S_IMODE(file.seen.st_mode) != self.saved_bits(path):
            return False
        return holds(file.directory, file.name, file.seen, known.mode, known.id)

    def saved_bits(self, path: bytes) -> int:
        """The permission bits that the checkpoint before the restore holds."""
        return self._modes.other.get(path, self._modes.usual(self._known[path].mode))

    def check_unwritten(self) -> None:
        """A program that had a file open can write to it even after it was moved."""
        for directory, paths in self._by_directory().items():
            files = [self._files[path] for path in paths]
            now = directory.looks(file.name for file in files)
            for path, file, seen in zip(paths, files, now, strict=True):
                if seen is None or not unwritten(file.seen, seen):
                    raise changed(path)

    def remove(self) -> None:
        """Remove the files, once the restore is done. What cannot be removed now goes with its directory."""
        names = {
            directory: [self._files[path].name for path in paths]
            for directory, paths in self._by_directory().items()
        }
        if len(self._files) > _MANY:
            try:
                with ThreadPoolExecutor(len(names)) as pool:
                    list(pool.map(_unlink_all, names, names.values()))
                return
            except RuntimeError:
                pass  # no more threads
        for directory in names:
            _unlink_all(directory, names[directory])

    def _by_directory(self) -> dict[Worktree, list[bytes]]:
        grouped: dict[Worktree, list[bytes]] = {}
        for path, file in self._files.items():
            grouped.setdefault(file.directory, []).append(path)
        return grouped


def _unlink_all(directory: Worktree, names: Iterable[bytes]) -> None:
    for name in names:
        try:
            directory.unlink(name)
        except OSError:
            pass  # it is removed together with the staging directory


def changed(path: bytes) -> RestoreRefused:
    return RestoreRefused(conflicts=f"{os.fsdecode(path)} was changed during the restore")
