"""Carrying out a restore plan so that it happens as a whole or not at all.

Files change places by renaming, with those that wait in the staging directory; what goes is moved
aside there, not removed, so that going back needs no space and cannot lose anything either.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from itertools import count

from shadowsnap.engine.capture import Capture
from shadowsnap.engine.plan import Plan
from shadowsnap.engine.staging import Staging
from shadowsnap.engine.steps import step
from shadowsnap.engine.worktree import parents
from shadowsnap.errors import RestoreFailed, RestoreRefused
from shadowsnap.git.index import Known
from shadowsnap.git.objects import object_id, stream_id
from shadowsnap.git.trees import LINK

# What a directory says that is not removed: it holds something, or is a mount point.
_STAYS = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})


class Application:
    """The deeds of a plan. The way back of each is noted before the deed, and does nothing if
    that was not done: an interrupt may come between any two instructions."""

    def __init__(self, capture: Capture, plan: Plan, staging: Staging) -> None:
        self._worktree = capture.space.worktree
        self._known = capture.known_among({*plan.write, *plan.delete, *plan.chmod})
        self._modes = capture.cache.modes
        self._plan = plan
        self._staging = staging
        self._back: list[Callable[[], None]] = []
        self._aside: dict[bytes, os.stat_result] = {}
        """What was moved aside and found to be what was saved."""
        self._widened: dict[bytes, int] = {}
        self.untouched = True
        """Whether the files are as they were: nothing was done yet, or all was put back."""

    def carry_out(self, settle: Callable[[], None]) -> None:
        """Do everything and then `settle`, or put everything back and raise."""
        done = self.untouched = False
        try:
            self._do_all()
            settle()
            done = True
        except OSError as problem:
            raise RestoreFailed(why=told(problem)) from problem
        finally:
            if not done:
                self._go_back()
                self.untouched = True

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
            self._set_bits(path, wanted, directory=True)
        self._check_nothing_was_written_late()

    def _go_back(self) -> None:
        """Every way back is gone, even if one of them fails."""
        problems = []
        for way in reversed(self._back):
            try:
                way()
            except OSError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    # --- files -------------------------------------------------------------------------------

    def _move_aside(self, path: bytes) -> None:
        """Take what is at this path away, whatever it is, and then see to it that it is what was
        saved. (To look first and then to take would leave a moment for somebody to change it.)"""
        worktree, aside = self._worktree, self._staging.old(path)
        self._make_way(path)
        known, before = self._known.get(path), worktree.lstat(path)
        untouched = known is not None and before is not None and known.is_untouched(before)
        self._back.append(lambda: self._give_back(path))
        try:
            worktree.rename(path, aside)
        except FileNotFoundError:
            raise _changed(path) from None
        seen = worktree.lstat(aside)
        if known is None or seen is None:
            raise _changed(path)
        if not (untouched and known.is_unwritten(seen)) and not self._is_what_was_saved(path, known, seen):
            raise _changed(path)
        self._aside[path] = seen

    def _give_back(self, path: bytes) -> None:
        aside = self._staging.old(path)
        if self._worktree.lstat(aside) is None:
            return
        if path not in self._aside:
            self._return(aside, path)
            return
        try:
            self._worktree.move(aside, path)
        except FileExistsError:
            pass  # somebody made a file there meanwhile: that stays, ours is in the checkpoint before

    def _put_in_place(self, path: bytes) -> None:
        """Give a new file its name; it never takes the place of one that is not aside."""
        worktree, new = self._worktree, self._staging.new(path)
        if path in self._known and path not in self._plan.delete:
            self._move_aside(path)
        else:
            self._make_way(path)
        self._give_to_owner(new, path, self._plan.write[path][1])
        staged = worktree.lstat(new)
        assert staged is not None
        self._back.append(lambda: self._withdraw(path, staged))
        try:
            worktree.move(new, path)
        except FileExistsError:
            raise _appeared(path) from None

    def _give_to_owner(self, new: bytes, path: bytes, bits: int) -> None:
        """What root restores belongs to whom it belonged, or else to the owner of the directory."""
        if not hasattr(os, "geteuid") or os.geteuid() != 0:
            return
        like = self._aside.get(path) or self._worktree.lstat(path.rpartition(b"/")[0])
        seen = self._worktree.lstat(new)
        if like is None or seen is None or (like.st_uid, like.st_gid) == (seen.st_uid, seen.st_gid):
            return
        self._worktree.chown(new, like.st_uid, like.st_gid)
        if not stat.S_ISLNK(seen.st_mode):
            self._worktree.chmod(new, bits)  # a change of owner may cost some

    def _withdraw(self, path: bytes, staged: os.stat_result) -> None:
        """Take a new file away again, unless somebody has changed it by now."""
        worktree, new = self._worktree, self._staging.new(path)
        seen = worktree.lstat(path)
        if seen is None or seen.st_ino != staged.st_ino:
            return
        if worktree.lstat(new) is None:
            worktree.rename(path, new)
        else:
            worktree.unlink(path)  # interrupted while it had both names
        taken = worktree.lstat(new)
        if taken is not None and not _unwritten(staged, taken):
            self._return(new, path)

    def _return(self, held: bytes, path: bytes) -> None:
        """Give a file of somebody else its name back; if that is taken by now, one beside it."""
        for number in count():
            try:
                self._worktree.move(held, path + b".shadowsnap-%d" % number if number else path)
                return
            except FileExistsError:
                continue

    def _is_what_was_saved(self, path: bytes, known: Known, seen: os.stat_result) -> bool:
        """By type, bits and bytes, where the times do not prove it."""
        aside = self._staging.old(path)
        if stat.S_ISLNK(seen.st_mode) or known.mode == LINK:
            both = stat.S_ISLNK(seen.st_mode) and known.mode == LINK
            return both and object_id(b"blob", self._worktree.readlink(aside)) == known.id
        if not stat.S_ISREG(seen.st_mode) or stat.S_IMODE(seen.st_mode) != self._bits(path, known):
            return False
        descriptor = self._worktree.open(aside)
        try:
            return stream_id(descriptor, seen.st_size) == known.id
        finally:
            os.close(descriptor)

    def _check_nothing_was_written_late(self) -> None:
        """Whoever had a file open could write to it although it was aside."""
        for path, before in self._aside.items():
            seen = self._worktree.lstat(self._staging.old(path))
            if seen is None or not _unwritten(before, seen):
                raise _changed(path)

    def _bits(self, path: bytes, known: Known) -> int:
        return self._modes.other.get(path, self._modes.usual(known.mode))

    # --- directories and bits ----------------------------------------------------------------

    def _clear_directories(self) -> None:
        gone = (*self._plan.delete, *self._plan.clear)
        emptied = {parent for path in gone for parent in parents(path)} - self._plan.stay
        for path in sorted(emptied | self._plan.clear, reverse=True):
            seen = self._worktree.lstat(path)
            if seen is None or not stat.S_ISDIR(seen.st_mode) or self._holds_something(path):
                continue
            self._make_way(path)
            self._back.append(self._remaking(path, stat.S_IMODE(seen.st_mode)))
            try:
                self._worktree.rmdir(path)
            except OSError as problem:
                if problem.errno not in _STAYS:
                    raise
            else:
                self._widened.pop(path, None)

    def _holds_something(self, path: bytes) -> bool:
        return any(True for _ in self._worktree.items(path))

    def _remaking(self, path: bytes, bits: int) -> Callable[[], None]:
        def remake() -> None:
            if self._worktree.lstat(path) is None:
                self._worktree.mkdir(path)
                self._worktree.chmod(path, bits)

        return remake

    def _make_directory(self, path: bytes) -> None:
        seen = self._worktree.lstat(path)
        if seen is not None and stat.S_ISDIR(seen.st_mode):
            return
        self._make_way(path)
        self._back.append(lambda: self._unmake(path))
        try:
            self._worktree.mkdir(path, 0o700)
        except FileExistsError:
            raise _appeared(path) from None
        self._give_to_owner(path, path, 0o700)

    def _unmake(self, path: bytes) -> None:
        try:
            self._worktree.rmdir(path)
        except OSError as problem:
            if problem.errno not in _STAYS | {errno.ENOENT, errno.ENOTDIR}:
                raise

    def _set_bits(self, path: bytes, bits: int, *, directory: bool = False) -> None:
        seen = self._worktree.lstat(path) if self._worktree.reaches(path) else None
        if seen is None or stat.S_IFMT(seen.st_mode) != (stat.S_IFDIR if directory else stat.S_IFREG):
            if directory:
                return  # it went with what was in it
            raise _changed(path)
        before = stat.S_IMODE(seen.st_mode)
        if not directory and before not in (bits, self._bits(path, self._known[path])):
            raise _changed(path)
        if before != bits:
            self._back.append(lambda: self._reset_bits(path, before))
            self._worktree.chmod(path, bits)

    def _reset_bits(self, path: bytes, bits: int) -> None:
        seen = self._worktree.lstat(path)
        if seen is not None and not stat.S_ISLNK(seen.st_mode) and stat.S_IMODE(seen.st_mode) != bits:
            self._worktree.chmod(path, bits)

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
            self._back.append(lambda: self._reset_bits(folder, before))
            self._worktree.chmod(folder, before | 0o700)
            self._widened[folder] = before


def told(problem: OSError) -> str:
    where = f" ({os.fsdecode(problem.filename)})" if problem.filename else ""
    return f"{problem.strerror or problem}{where}"


def _unwritten(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)


def _changed(path: bytes) -> RestoreRefused:
    return RestoreRefused(conflicts=f"{os.fsdecode(path)} was changed just now")


def _appeared(path: bytes) -> RestoreRefused:
    return RestoreRefused(conflicts=f"{os.fsdecode(path)} appeared just now")
