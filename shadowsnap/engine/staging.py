"""Where the files of a restore wait: new ones until they are put in place, old ones until all is done.

New content is written here first, so that a full disk is met before any file is touched. Each file
system that is involved has a directory of its own, so that a rename never has to copy.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

from shadowsnap.engine.filesystems import mounted_below
from shadowsnap.engine.plan import Plan
from shadowsnap.engine.workspace import Workspace
from shadowsnap.git.files import remove_tree
from shadowsnap.git.index import Entry, Index
from shadowsnap.git.reading import FEW, ObjectReader
from shadowsnap.git.trees import LINK

_MOST = 1 << 20
"""Nothing larger is held in memory."""
STAGING_PREFIX = ".shadowsnap-restore-"


class Staging:
    """Where new files wait and old ones are kept, on each file system that is involved."""

    def __init__(self, space: Workspace, plan: Plan) -> None:
        self._space = space
        self._name = os.fsencode(f"{STAGING_PREFIX}{os.getpid()}-{time.time_ns() // 10**6}")
        self._mounts = mounted_below(space.project.workdir)
        touched = {*plan.write, *plan.delete}
        tops = {folder: self._top_of(folder) for folder in {path.rpartition(b"/")[0] for path in touched}}
        self._tops = {path: tops[path.rpartition(b"/")[0]] for path in touched}
        self._numbers = {path: b"%d" % number for number, path in enumerate(sorted(touched))}
        self.folders = sorted({self._folder(path) for path in touched})

    def new(self, path: bytes) -> bytes:
        return self._folder(path) + b"/new/" + self._numbers[path]

    def old(self, path: bytes) -> bytes:
        return self._folder(path) + b"/old/" + self._numbers[path]

    def fill(self, plan: Plan) -> None:
        """Write the content of every file that is to come."""
        worktree = self._space.worktree
        for folder in self.folders:
            worktree.mkdir(folder, 0o700)
            worktree.mkdir(folder + b"/new")
            worktree.mkdir(folder + b"/old")
            self._check_out(folder, [path for path in plan.write if self._folder(path) == folder], plan)
        for path, ((mode, _), bits) in plan.write.items():
            if worktree.lstat(self.new(path)) is None:
                raise OSError(errno.EIO, "it could not be written", os.fsdecode(path))
            if mode != LINK:
                worktree.chmod(self.new(path), bits)

    def _check_out(self, folder: bytes, paths: list[bytes], plan: Plan) -> None:
        if len(paths) <= FEW:
            with ObjectReader(self._space.git) as reader:
                if all((reader.size(plan.write[path][0][1]) or _MOST) < _MOST for path in paths):
                    for path in paths:
                        mode, name = plan.write[path][0]
                        self._space.worktree.create(self.new(path), reader.read(name, b"blob"), link=mode == LINK)
                    return
        # By one process: two that make files in one directory wait for each other more than they gain.
        nothing = os.stat(self._space.project.workdir)
        entries = {self._numbers[path]: Entry(*plan.write[path][0], nothing) for path in paths}
        index = self._space.store.index_file(f"{self._space.project.id}.staging")
        try:
            Index(index).write(entries, 0)
            git = self._space.git.bound(index_file=index)
            git.run(b"checkout-index", b"-a", b"-f", b"-q", b"--prefix=" + folder + b"/new/")
        finally:
            index.unlink(missing_ok=True)

    def _folder(self, path: bytes) -> bytes:
        top = self._tops[path]
        return top + b"/" + self._name if top else self._name

    def _top_of(self, folder: bytes) -> bytes:
        """The uppermost directory on the file system that holds this one."""
        worktree = self._space.worktree
        device = os.stat(self._space.project.workdir).st_dev
        # Two mounts of one file system have the same device, and still no file goes from one to the other.
        mounts = [place for place in self._mounts if folder == place or folder.startswith(place + b"/")]
        if mounts:
            return max(mounts, key=len)
        while folder and not worktree.is_directory(folder):  # it is yet to come, perhaps in place of a link
            folder = folder.rpartition(b"/")[0]
        seen = worktree.lstat(folder) if folder else None
        if seen is None or seen.st_dev == device:
            return b""
        while (up := folder.rpartition(b"/")[0]) and (above := worktree.lstat(up)) and above.st_dev == seen.st_dev:
            folder = up
        return folder


def remove_staging(space: Workspace, folders: Iterable[bytes]) -> None:
    for folder in folders:
        path = Path(space.project.workdir, os.fsdecode(folder))
        if path.name.startswith(STAGING_PREFIX):  # whatever a journal says, nothing else is ours to remove
            remove_tree(path)
