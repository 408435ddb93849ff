"""Applying a restore plan: all of it happens, or nothing does.

New files are exchanged with old ones by a rename from and to staging. What goes is moved there too, not removed,
so that rolling back needs no disk space and loses nothing. Each directory is opened once, and everything in it is
done relative to that descriptor, whatever its name leads to meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from shadowsnap.deadline import step
from shadowsnap.errors import DamagedObject, RestoreFailed, RestoreRefused
from shadowsnap.files import spread_subdirectories
from shadowsnap.git.index import Index, Known
from shadowsnap.git.reading import FEW, ObjectReader
from shadowsnap.git.repository import Running
from shadowsnap.git.trees import LINK, folded
from shadowsnap.restore.plan import Plan, same_name
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.content import holds
from shadowsnap.snapshot.ignore_rules import STAGING_PREFIX
from shadowsnap.snapshot.scan import is_settled, mounted_below
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, folder_of, folders_above, unwritten
from shadowsnap.store.stat_cache import Modes

# Errors of rmdir for a directory that stays: it is not empty, or it is a mount point.
_STAYS = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})
_NEVER_MADE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class Application:
    """One run of a plan. The rollback of each action is registered before the action and does nothing if the
    action was not done: an interrupt may come between any two instructions."""

    def __init__(self, capture: Capture, plan: Plan, known: Mapping[bytes, Known], staging: Staging) -> None:
        self._worktree = capture.space.worktree
        self._known = known
        self._plan = plan
        self._staging = staging
        self._new_files: dict[bytes, StagedFile] = {}
        self.old_files = OldFiles(known, capture.modes, capture.now_ns)
        self._rollbacks: list[Callable[[], None]] = []
        self._made_writable: dict[bytes, int] = {}
        """Directories that are opened for writing meanwhile, with the permission bits they had."""
        self._identities: dict[bytes, tuple[int, int] | None] = {}
        """Device and inode of the directories that were entered."""
        self._is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        self.untouched = True
        """Whether the files are as they were: nothing was done yet, or everything was rolled back."""

    def run(self, new_files: dict[bytes, StagedFile], finish: Callable[[], None]) -> None:
        """Carry out the plan with the staged files and then call `finish`; or roll everything back and raise."""
        self._new_files = new_files
        done = self.untouched = False
        try:
            self._do_all()
            finish()
            done = True
        except OSError as problem:
            raise RestoreFailed(why=describe_error(problem)) from problem
        finally:
            if not done:
                self._roll_back()
                self.untouched = True

    def _do_all(self) -> None:
        plan = self._plan
        for folder, paths in _by_folder(plan.delete):
            with self._enter(folder) as here:
                for path in paths:
                    self._move_aside(here, path)
                    step("restore:deleted-one")
        self._remove_directories()
        for path in sorted(plan.mkdir):
            self._make_directory(path)
        for folder, paths in _by_folder(plan.write):
            with self._enter(folder) as here:
                for path in paths:
                    self._put_in_place(here, path)
                    step("restore:wrote-one")
        for path, bits in plan.chmod.items():
            self._chmod_file(path, bits)
        directories = {**self._made_writable, **plan.chmod_directories, **plan.mkdir}
        for path in sorted(directories, reverse=True):
            self._chmod_directory(path, directories[path])
        self._check_unverified()
        self._check_directories_are_in_place()
        self.old_files.check_unwritten()

    def _roll_back(self) -> None:
        """Try every rollback, even if one of them fails."""
        problems = []
        for rollback in reversed(self._rollbacks):
            try:
                rollback()
            except OSError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    # --- directories that are entered --------------------------------------------------------------

    @contextmanager
    def _enter(self, folder: bytes) -> Iterator[Worktree]:
        """Open a directory, which must still be a real one, and make it writable if it is not."""
        try:
            here = self._worktree.within(folder)
        except NotADirectoryError:
            raise RestoreRefused(conflicts=f"{os.fsdecode(folder)} is no longer a directory") from None
        with here:
            if folder and folder not in self._made_writable and not here.may_change(b""):
                before = here.own_bits()
                self._rollbacks.append(partial(self._reset_bits, folder, before))
                here.set_own_bits(before | 0o700)
                self._made_writable[folder] = before
            self._identities[folder] = _identity(here.lstat(b""))
            yield here

    @contextmanager
    def _reenter(self, path: bytes) -> Iterator[Worktree]:
        """Open the directory that a path was in when it was changed. If another directory has its name by now,
        the files in it are not ours, and the rollback fails."""
        folder = folder_of(path)
        with self._worktree.within(folder) as here:
            if _identity(here.lstat(b"")) != self._identities.get(folder):
                raise OSError(errno.ESTALE, "another directory is in its place", os.fsdecode(folder))
            yield here

    # --- files -------------------------------------------------------------------------------

    def _put_in_place(self, here: Worktree, path: bytes) -> None:
        """Give a new file its name. It never replaces a file that was not moved into staging."""
        if path in self._known and path not in self._plan.delete:
            if self._exchange(here, path):
                return
            self._move_aside(here, path)
        new, old = self._new_files[path], self.old_files.get(path)
        self._set_owner(path, new, old.seen if old is not None else here.lstat(b""))
        self._rollbacks.append(partial(self._withdraw, path, new))
        try:
            new.directory.move(new.name, _name(path), here)
        except FileExistsError:
            raise self._taken(here, path) from None

    def _withdraw(self, path: bytes, new: StagedFile) -> None:
        """Take a new file away again, unless it was changed by now."""
        with self._reenter(path) as here:
            seen = here.lstat(_name(path))
            if seen is None or seen.st_ino != new.seen.st_ino:
                return
            if new.directory.lstat(new.name) is None:
                here.rename(_name(path), new.name, new.directory)
            else:
                here.unlink(_name(path))  # interrupted while it had both names
            self._return_if_written(path, new, here)

    def _exchange(self, here: Worktree, path: bytes) -> bool:
        """Exchange the new file and the old one in one step, so that the name is never free; False if the
        system cannot do that."""
        new, before = self._new_files[path], here.lstat(_name(path))
        if before is None:
            raise changed(path)
        self._set_owner(path, new, before)
        self._rollbacks.append(partial(self._exchange_back, path, new))
        try:
            if not here.exchange(_name(path), new.directory, new.name):
                return False
        except FileNotFoundError:
            raise changed(path) from None
        self.old_files.add(path, new.directory, new.name, before)
        return True

    def _exchange_back(self, path: bytes, new: StagedFile) -> None:
        """Exchange the two files again, if they were exchanged and the new one was not changed by now."""
        old = new.directory.lstat(new.name)
        if old is None or old.st_ino == new.seen.st_ino:
            return
        with self._reenter(path) as here:
            seen = here.lstat(_name(path))
            if seen is None or not unwritten(new.seen, seen):
                self._move_back(path, new.directory, new.name)
                return
            here.exchange(_name(path), new.directory, new.name)
            self._return_if_written(path, new, here)

    def _move_aside(self, here: Worktree, path: bytes) -> None:
        """Move what is at this path into staging, whatever it is."""
        directory, name = self._staging.location(path)
        name += b"-"  # the plain name is that of the new file
        before = here.lstat(_name(path))
        self._rollbacks.append(partial(self._move_back, path, directory, name))
        try:
            here.rename(_name(path), name, directory)
        except FileNotFoundError:
            raise changed(path) from None
        self.old_files.add(path, directory, name, before)

    def _move_back(self, path: bytes, directory: Worktree, name: bytes) -> None:
        """Give an old file its name again. If another file has appeared there, that one stays: the old one is in
        the checkpoint before the restore, unless it was written to as well."""
        seen, old = directory.lstat(name), self.old_files.get(path)
        if seen is None:
            return
        with self._reenter(path) as here:
            if old is None or not unwritten(old.seen, seen):
                _move_beside(directory, name, here, _name(path))
                return
            try:
                directory.move(name, _name(path), here)
            except FileExistsError:
                pass

    def _return_if_written(self, path: bytes, new: StagedFile, here: Worktree) -> None:
        """A new file that was taken back into staging may have been written to in the last moment: then it is
        not ours any more, and gets its name back."""
        seen = new.directory.lstat(new.name)
        if seen is not None and not unwritten(new.seen, seen):
            _move_beside(new.directory, new.name, here, _name(path))

    def _set_owner(self, path: bytes, new: StagedFile, like: os.stat_result | None) -> None:
        """A file that root restores belongs to the owner of the old file, or else of the directory."""
        if not self._is_root or like is None:
            return
        if (like.st_uid, like.st_gid) == (new.seen.st_uid, new.seen.st_gid):
            return
        new.directory.chown(new.name, like.st_uid, like.st_gid)
        if not stat.S_ISLNK(new.seen.st_mode):
            new.directory.chmod(new.name, self._plan.write[path][1])  # chown may clear some permission bits

    # --- directories and permission bits -------------------------------------------------------------

    def _remove_directories(self) -> None:
        plan = self._plan
        emptied = folders_above([*plan.delete, *plan.rmdir]) - plan.keep_directories
        for path in sorted(emptied | plan.rmdir, reverse=True):
            seen = self._worktree.lstat(path) if self._worktree.reaches(path) else None
            if seen is None or not stat.S_ISDIR(seen.st_mode) or self._holds_something(path):
                continue
            with self._enter(folder_of(path)) as here:
                self._rollbacks.append(partial(self._remake_directory, path, stat.S_IMODE(seen.st_mode)))
                try:
                    here.rmdir(_name(path))
                except OSError as problem:
                    if problem.errno not in _STAYS:
                        raise
                else:
                    self._made_writable.pop(path, None)

    def _holds_something(self, path: bytes) -> bool:
        try:
            with self._worktree.within(path) as inside:
                return any(True for _ in inside.items(b""))
        except PermissionError:
            return False  # it cannot be entered; removing it fails if something is in it

    def _remake_directory(self, path: bytes, bits: int) -> None:
        with self._reenter(path) as here:
            if here.lstat(_name(path)) is None:
                here.mkdir(_name(path))
                here.chmod(_name(path), bits)
                self._identities[path] = _identity(here.lstat(_name(path)))

    def _make_directory(self, path: bytes) -> None:
        with self._enter(folder_of(path)) as here:
            seen = here.lstat(_name(path))
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                if self._twin(here, path) is not None:
                    raise self._taken(here, path)
                return
            self._rollbacks.append(partial(self._unmake_directory, path))
            try:
                here.mkdir(_name(path), 0o700)
            except FileExistsError:
                raise self._taken(here, path) from None
            above = here.lstat(b"")
            if self._is_root and above is not None:
                here.chown(_name(path), above.st_uid, above.st_gid)

    def _taken(self, here: Worktree, path: bytes) -> RestoreRefused:
        """Why a path that was free cannot be made."""
        if (twin := self._twin(here, path)) is not None:
            return RestoreRefused(conflicts=f"{os.fsdecode(path)} ({same_name(twin)})")
        return RestoreRefused(conflicts=f"{os.fsdecode(path)} appeared during the restore")

    def _twin(self, here: Worktree, path: bytes) -> bytes | None:
        """Another path of the plan that this file system takes for the same."""
        coming = (each for each in (*self._plan.mkdir, *self._plan.write) if folder_of(each) == folder_of(path))
        alike = [each for each in coming if each != path and folded(_name(each)) == folded(_name(path))]
        seen = _identity(here.lstat(_name(path)))
        return next((each for each in alike if _identity(here.lstat(_name(each))) == seen), None)

    def _unmake_directory(self, path: bytes) -> None:
        try:
            with self._reenter(path) as here:
                here.rmdir(_name(path))
        except OSError as problem:
            if problem.errno not in _STAYS | _NEVER_MADE:
                raise

    def _chmod_file(self, path: bytes, bits: int) -> None:
        try:
            with self._worktree.within(folder_of(path)) as here:
                seen = here.lstat(_name(path))
                if seen is None or not stat.S_ISREG(seen.st_mode):
                    raise changed(path)
                if stat.S_IMODE(seen.st_mode) not in (bits, self.old_files.saved_bits(path)):
                    raise changed(path)
                self._chmod(here, path, seen, bits)
        except NotADirectoryError:
            raise changed(path) from None

    def _chmod_directory(self, path: bytes, bits: int) -> None:
        try:
            with self._worktree.within(folder_of(path)) as here:
                seen = here.lstat(_name(path))
                if seen is not None and stat.S_ISDIR(seen.st_mode):
                    self._chmod(here, path, seen, bits)
        except NotADirectoryError:
            pass  # it was removed together with the directory above it

    def _chmod(self, here: Worktree, path: bytes, seen: os.stat_result, bits: int) -> None:
        before = stat.S_IMODE(seen.st_mode)
        if before != bits:
            self._rollbacks.append(partial(self._reset_bits, path, before))
            here.chmod(_name(path), bits)

    def _reset_bits(self, path: bytes, bits: int) -> None:
        with self._worktree.within(folder_of(path)) as here:
            seen = here.lstat(_name(path))
            if seen is not None and not stat.S_ISLNK(seen.st_mode) and stat.S_IMODE(seen.st_mode) != bits:
                here.chmod(_name(path), bits)

    # --- checks at the end ---------------------------------------------------------------------------

    def _check_unverified(self) -> None:
        """Directories that could not be read are open now: they must hold exactly what is wanted."""
        wanted, worktree = self._plan.unverified, self._worktree
        for path, ((mode, object_id), bits) in wanted.items():
            seen = worktree.lstat(path)
            if seen is None or not holds(worktree, path, seen, mode, object_id):
                raise _unsaved(path)
            if mode != LINK and stat.S_IMODE(seen.st_mode) != bits:
                raise _unsaved(path)
        for folder in {folder_of(path) for path in wanted}:
            for item in worktree.items(folder):
                if folder + b"/" + item.name not in wanted:
                    raise _unsaved(folder + b"/" + item.name)

    def _check_directories_are_in_place(self) -> None:
        """Files that were written into a directory are lost to the project if it was moved away meanwhile."""
        for folder in {folder_of(path) for path in self._plan.write}:
            if _identity(self._worktree.lstat(folder)) != self._identities[folder]:
                raise changed(folder)


def _move_beside(directory: Worktree, held: bytes, here: Worktree, name: bytes) -> None:
    """Move a file out of staging to its name; if that is taken, to a free one beside it."""
    for number in count():
        try:
            directory.move(held, name + b".shadowsnap-%d" % number if number else name, here)
            return
        except FileExistsError:
            continue


def _by_folder(paths: Iterable[bytes]) -> Iterable[tuple[bytes, list[bytes]]]:
    """The paths grouped by directory."""
    grouped: dict[bytes, list[bytes]] = {}
    for path in sorted(paths):
        grouped.setdefault(folder_of(path), []).append(path)
    return grouped.items()


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _identity(seen: os.stat_result | None) -> tuple[int, int] | None:
    return None if seen is None else (seen.st_dev, seen.st_ino)


def describe_error(problem: OSError) -> str:
    where = f" ({os.fsdecode(problem.filename)})" if problem.filename else ""
    return f"{problem.strerror or problem}{where}"


def _unsaved(path: bytes) -> RestoreRefused:
    folder = os.fsdecode(folder_of(path))
    why = f"it would be overwritten unsaved, because {folder} cannot be read; open it first: chmod u+rwx"
    return RestoreRefused(conflicts=f"{os.fsdecode(path)} ({why})")


# --- staging ---------------------------------------------------------------------------------------------
# New files wait in a staging directory until they are put in place, old ones until the restore is done. New
# content is written there first, so that a full disk is noticed before any file is touched. There is one staging
# directory on each file system that the restore changes, so that a rename never has to copy.


_LARGE = 1 << 20
"""Objects of this size and more are not read into memory: git writes them."""
_MANY = 200
"""More files than this are written by two git processes and removed by two threads, each in a directory of its
own: in the same one, they would spend their time waiting for each other."""


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
            index = self._space.store.staging_index(self._space.project.id, number)
            names = {self._locations[path][1]: self._plan.write[path][0] for path in paths}
            Index(index).write_without_stat(names)
            directory = self._opened[folder]
            # If this process is killed, git still holds the lock until it has stopped writing.
            inherited = tuple(each for each in (self._space.lock, directory.descriptor) if each is not None)
            work_tree = Path(directory.as_folder())
            git = self._space.git.bound(work_tree=work_tree, index_file=index, inherited=inherited)
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
    """Remove staging directories, and the indexes from which git wrote into them."""
    for index in space.store.staging_indexes(space.project.id):
        try:
            index.unlink(missing_ok=True)
        except OSError:
            pass  # upkeep removes it
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
            from concurrent.futures import ThreadPoolExecutor  # here: it loads more than a usual restore needs

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
