"""Carrying out a restore plan so that it happens as a whole or not at all.

New content is written to a staging directory first: a full disk is met before any file is
touched. Then files change places by renaming; what goes is moved aside, not removed, so that
going back needs no space and cannot lose anything either.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from shadowsnap.engine.capture import Capture
from shadowsnap.engine.plan import Plan
from shadowsnap.engine.steps import step
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import parents
from shadowsnap.errors import RestoreFailed, RestoreRefused
from shadowsnap.git.files import remove_tree
from shadowsnap.git.index import Entry, Index
from shadowsnap.git.objects import object_id, stream_id
from shadowsnap.git.trees import LINK

STAGING_PREFIX = ".shadowsnap-restore-"


class Staging:
    """Where new files wait and old ones are kept, on each file system that is involved."""

    def __init__(self, space: Workspace, plan: Plan) -> None:
        self._space = space
        self._name = os.fsencode(f"{STAGING_PREFIX}{os.getpid()}-{time.time_ns() // 10**6}")
        touched = {*plan.write, *plan.delete}
        self._tops = {path: self._top_of(path.rpartition(b"/")[0]) for path in touched}
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

    def remove(self) -> None:
        remove_staging(self._space, self.folders)

    def _check_out(self, folder: bytes, paths: list[bytes], plan: Plan) -> None:
        if not paths:
            return
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
        while folder and (seen := worktree.lstat(folder)) is None:
            folder = folder.rpartition(b"/")[0]
        if not folder or seen is None or seen.st_dev == device:
            return b""
        while (up := folder.rpartition(b"/")[0]) and (above := worktree.lstat(up)) and above.st_dev == seen.st_dev:
            folder = up
        return folder


def remove_staging(space: Workspace, folders: Iterable[bytes]) -> None:
    for folder in folders:
        remove_tree(Path(space.project.workdir, os.fsdecode(folder)))


class Application:
    """The deeds of a plan, each with the way back."""

    def __init__(self, capture: Capture, plan: Plan, staging: Staging) -> None:
        self._capture = capture
        self._worktree = capture.space.worktree
        self._plan = plan
        self._staging = staging
        self._back: list[Callable[[], None]] = []
        self._widened: dict[bytes, int] = {}

    def carry_out(self) -> None:
        """Do everything, or put everything back and raise."""
        done = False
        try:
            self._do_all()
            done = True
        except OSError as problem:
            raise RestoreFailed(why=_told(problem)) from problem
        finally:
            if not done:
                self._go_back()

    def _do_all(self) -> None:
        plan = self._plan
        for path in sorted(plan.delete, reverse=True):
            self._move_aside(path)
            step("restore:deleted-one")
        self._clear_directories()
        for path in sorted(plan.make):
            self._make_directory(path)
        for path in sorted(plan.write):
            self._put_in_place(path)
            step("restore:wrote-one")
        for path, bits in plan.chmod.items():
            self._set_bits(path, bits)
        for path in sorted({*plan.make, *plan.chmod_directories, *self._widened}, reverse=True):
            wanted = plan.make.get(path, plan.chmod_directories.get(path, self._widened.get(path)))
            assert wanted is not None
            self._set_bits(path, wanted)

    def _go_back(self) -> None:
        for way in reversed(self._back):
            way()

    # --- single deeds ------------------------------------------------------------------------

    def _move_aside(self, path: bytes) -> None:
        worktree, aside = self._worktree, self._staging.old(path)
        self._make_way(path)
        worktree.rename(path, aside)
        self._back.append(lambda: worktree.rename(aside, path))
        self._check_unchanged(path)

    def _put_in_place(self, path: bytes) -> None:
        worktree, new = self._worktree, self._staging.new(path)
        self._make_way(path)
        if worktree.lstat(path) is None:
            worktree.rename(new, path)
            self._back.append(lambda: worktree.rename(path, new))
        elif path in self._plan.delete or self._capture.known(path) is None:
            raise RestoreRefused(conflicts=f"{os.fsdecode(path)} appeared just now")
        else:
            self._replace(path)

    def _replace(self, path: bytes) -> None:
        """Put the new file over the old one, which stays reachable aside. There is no moment
        without a file at this path, where the file system knows hard links."""
        worktree, new, aside = self._worktree, self._staging.new(path), self._staging.old(path)
        try:
            worktree.link(path, aside)
        except OSError:
            worktree.rename(path, aside)
        self._back.append(lambda: worktree.rename(aside, path))
        worktree.rename(new, path)
        self._check_unchanged(path)

    def _check_unchanged(self, path: bytes) -> None:
        """What was moved aside must be what was saved; nobody can reach it by name any more."""
        known, aside = self._capture.known(path), self._staging.old(path)
        seen = self._worktree.lstat(aside)
        if (
            known is None
            or seen is None
            or not (known.is_unwritten(seen) or self._content_id(aside, seen) == known.id)
        ):
            raise RestoreRefused(conflicts=f"{os.fsdecode(path)} was changed just now")

    def _content_id(self, path: bytes, seen: os.stat_result) -> str:
        if stat.S_ISLNK(seen.st_mode):
            return object_id(b"blob", self._worktree.readlink(path))
        descriptor = self._worktree.open(path)
        try:
            return stream_id(descriptor, seen.st_size)
        finally:
            os.close(descriptor)

    def _clear_directories(self) -> None:
        emptied = {parent for path in self._plan.delete for parent in parents(path)} - self._plan.stay
        for path in sorted(emptied | self._plan.clear, reverse=True):
            seen = self._worktree.lstat(path)
            if seen is None or not stat.S_ISDIR(seen.st_mode) or self._holds_something(path):
                continue
            self._make_way(path)
            self._worktree.rmdir(path)
            self._back.append(self._remaking(path, stat.S_IMODE(seen.st_mode)))

    def _holds_something(self, path: bytes) -> bool:
        for _ in self._worktree.items(path):
            return True
        return False

    def _remaking(self, path: bytes, bits: int) -> Callable[[], None]:
        def remake() -> None:
            self._worktree.mkdir(path)
            self._worktree.chmod(path, bits)

        return remake

    def _make_directory(self, path: bytes) -> None:
        seen = self._worktree.lstat(path)
        if seen is not None and stat.S_ISDIR(seen.st_mode):
            return
        self._make_way(path)
        self._worktree.mkdir(path, 0o700)
        self._back.append(lambda: self._worktree.rmdir(path))

    def _set_bits(self, path: bytes, bits: int) -> None:
        seen = self._worktree.lstat(path)
        if seen is None or stat.S_ISLNK(seen.st_mode) or stat.S_IMODE(seen.st_mode) == bits:
            return
        before = stat.S_IMODE(seen.st_mode)
        self._worktree.chmod(path, bits)
        self._back.append(lambda: self._worktree.chmod(path, before))

    def _make_way(self, path: bytes) -> None:
        """See to it that the directory of a path is a real one and can be written to."""
        folder = path.rpartition(b"/")[0]
        if not self._worktree.reaches(path):
            raise RestoreRefused(conflicts=f"{os.fsdecode(folder)} is no directory any more")
        if not folder or folder in self._widened or self._worktree.may_change(folder):
            return
        seen = self._worktree.lstat(folder)
        if seen is not None:
            before = stat.S_IMODE(seen.st_mode)
            self._worktree.chmod(folder, before | 0o700)
            self._back.append(lambda: self._worktree.chmod(folder, before))
            self._widened[folder] = before


def _told(problem: OSError) -> str:
    where = f" ({os.fsdecode(problem.filename)})" if problem.filename else ""
    return f"{problem.strerror or problem}{where}"
