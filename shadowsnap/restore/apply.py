"""Carrying out a restore plan so that it happens as a whole or not at all.

Files change places with those that wait in the staging directory. What goes is moved aside there, not
removed, so that going back needs no space and cannot lose anything either. Each directory is opened
once, and what is done in it is done there, whatever its name leads to meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from shadowsnap.errors import RestoreFailed, RestoreRefused
from shadowsnap.git.index import Known
from shadowsnap.git.trees import LINK
from shadowsnap.restore.plan import Plan
from shadowsnap.restore.staging import Asides, Staging, changed
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.content import holds
from shadowsnap.snapshot.worktree import Worktree, parents, unwritten
from shadowsnap.steps import step

# What a directory says that is not removed: it holds something, or is a mount point.
_STAYS = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})


class Application:
    """The deeds of a plan. The way back of each is noted before the deed, and does nothing if
    that was not done: an interrupt may come between any two instructions."""

    def __init__(self, capture: Capture, plan: Plan, known: Mapping[bytes, Known], staging: Staging) -> None:
        self._worktree = capture.space.worktree
        self._known = known
        self.asides = Asides(known, capture.modes, capture.now_ns)
        self._plan = plan
        self._staging = staging
        self._staged: dict[bytes, os.stat_result] = {}
        """The new files, as they wait in the staging directory."""
        self._back: list[Callable[[], None]] = []
        self._widened: dict[bytes, int] = {}
        self._identities: dict[bytes, tuple[int, int] | None] = {}
        """Which directories were entered."""
        self._as_root = hasattr(os, "geteuid") and os.geteuid() == 0
        self.untouched = True
        """Whether the files are as they were: nothing was done yet, or all was put back."""

    def carry_out(self, staged: dict[bytes, os.stat_result], settle: Callable[[], None]) -> None:
        """Put what was staged in place, do everything else and then `settle`; or put everything back and
        raise."""
        self._staged = staged
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
        for folder, paths in _by_folder(plan.delete):
            with self._entered(folder) as here:
                for path in paths:
                    self._move_aside(here, path)
                    step("restore:deleted-one")
        self._clear_directories()
        for path in sorted(plan.make):
            self._make_directory(path)
        for folder, paths in _by_folder(plan.write):
            with self._entered(folder) as here:
                for path in paths:
                    self._put_in_place(here, path)
                    step("restore:wrote-one")
        for path, bits in plan.chmod.items():
            self._set_bits(path, bits)
        for path in sorted({*plan.make, *plan.chmod_directories, *self._widened}, reverse=True):
            wanted = plan.make.get(path, plan.chmod_directories.get(path, self._widened.get(path)))
            assert wanted is not None
            self._set_bits(path, wanted, directory=True)
        self._check_what_was_unseen()
        self._check_directories_are_in_place()
        self.asides.check_nothing_was_written_late()

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

    def _put_in_place(self, here: Worktree, path: bytes) -> None:
        """Give a new file its name; it never takes the place of one that is not aside."""
        if path in self._known and path not in self._plan.delete:
            if self._change_places(here, path):
                return
            self._move_aside(here, path)
        place, slot, staged = self._staging.place(path), self._staging.slot(path), self._staged[path]
        aside = self.asides.get(path)
        self._give_to_owner(path, staged, aside.seen if aside is not None else here.lstat(b""))
        self._back.append(lambda: self._withdraw(path, staged))
        try:
            place.move(slot.name, _name(path), here)
        except FileExistsError:
            raise _appeared(path) from None

    def _change_places(self, here: Worktree, path: bytes) -> bool:
        """Let the new file and the old one change places at one stroke, so that nobody ever finds the
        name free; False if the system cannot do that."""
        place, slot, staged = self._staging.place(path), self._staging.slot(path), self._staged[path]
        before = here.lstat(_name(path))
        if before is None:
            raise changed(path)
        self._give_to_owner(path, staged, before)
        self._back.append(lambda: self._change_back(path, staged))
        try:
            if not here.exchange(_name(path), place, slot.name):
                return False
        except FileNotFoundError:
            raise changed(path) from None
        self.asides.add(path, place, slot.name, before)
        return True

    def _change_back(self, path: bytes, staged: os.stat_result) -> None:
        """Let them change places again, if they did and nobody has changed the new one by now."""
        place, slot, name = self._staging.place(path), self._staging.slot(path), _name(path)
        old = place.lstat(slot.name)
        if old is None or old.st_ino == staged.st_ino:
            return
        with self._entered_again(path) as here:
            seen = here.lstat(name)
            if seen is None or not unwritten(staged, seen):
                self._give_back(path, slot.name)
                return
            here.exchange(name, place, slot.name)
            taken = place.lstat(slot.name)
            if taken is not None and not unwritten(staged, taken):
                self._return(slot.name, path, here)

    def _move_aside(self, here: Worktree, path: bytes) -> None:
        """Take what is at this path away, whatever it is."""
        place, slot = self._staging.place(path), self._staging.slot(path)
        before = here.lstat(_name(path))
        self._back.append(lambda: self._give_back(path, slot.name_of_old))
        try:
            here.rename(_name(path), slot.name_of_old, place)
        except FileNotFoundError:
            raise changed(path) from None
        self.asides.add(path, place, slot.name_of_old, before)

    def _give_back(self, path: bytes, held: bytes) -> None:
        """Give an old file its name again. If somebody made a file there meanwhile, that stays; ours is in the
        checkpoint before, unless somebody wrote to it as well."""
        place = self._staging.place(path)
        seen, aside = place.lstat(held), self.asides.get(path)
        if seen is None:
            return
        with self._entered_again(path) as here:
            if aside is None or not unwritten(aside.seen, seen):
                self._return(held, path, here)
                return
            try:
                place.move(held, _name(path), here)
            except FileExistsError:
                pass

    def _give_to_owner(self, path: bytes, staged: os.stat_result, like: os.stat_result | None) -> None:
        """What root restores belongs to whom it belonged, or else to the owner of the directory."""
        if not self._as_root or like is None:
            return
        if (like.st_uid, like.st_gid) == (staged.st_uid, staged.st_gid):
            return
        place, name = self._staging.place(path), self._staging.slot(path).name
        place.chown(name, like.st_uid, like.st_gid)
        if not stat.S_ISLNK(staged.st_mode):
            place.chmod(name, self._plan.write[path][1])  # a change of owner may cost some

    def _withdraw(self, path: bytes, staged: os.stat_result) -> None:
        """Take a new file away again, unless somebody has changed it by now."""
        place, new, name = self._staging.place(path), self._staging.slot(path).name, _name(path)
        with self._entered_again(path) as here:
            seen = here.lstat(name)
            if seen is None or seen.st_ino != staged.st_ino:
                return
            if place.lstat(new) is None:
                here.rename(name, new, place)
            else:
                here.unlink(name)  # interrupted while it had both names
            taken = place.lstat(new)
            if taken is not None and not unwritten(staged, taken):
                self._return(new, path, here)

    def _return(self, held: bytes, path: bytes, here: Worktree) -> None:
        """Give a file of somebody else its name back; if that is taken by now, one beside it."""
        for number in count():
            try:
                self._staging.place(path).move(
                    held, _name(path) + b".shadowsnap-%d" % number if number else _name(path), here
                )
                return
            except FileExistsError:
                continue

    # --- directories and bits ----------------------------------------------------------------

    def _clear_directories(self) -> None:
        gone = (*self._plan.delete, *self._plan.clear)
        emptied = {parent for path in gone for parent in parents(path)} - self._plan.stay
        for path in sorted(emptied | self._plan.clear, reverse=True):
            seen = self._worktree.lstat(path) if self._worktree.reaches(path) else None
            if seen is None or not stat.S_ISDIR(seen.st_mode) or self._holds_something(path):
                continue
            with self._entered(path.rpartition(b"/")[0]) as here:
                self._back.append(self._remaking(path, stat.S_IMODE(seen.st_mode)))
                try:
                    here.rmdir(_name(path))
                except OSError as problem:
                    if problem.errno not in _STAYS:
                        raise
                else:
                    self._widened.pop(path, None)

    def _holds_something(self, path: bytes) -> bool:
        with self._worktree.within(path) as inside:
            return any(True for _ in inside.items(b""))

    def _remaking(self, path: bytes, bits: int) -> Callable[[], None]:
        def remake() -> None:
            with self._entered_again(path) as here:
                if here.lstat(_name(path)) is None:
                    here.mkdir(_name(path))
                    here.chmod(_name(path), bits)
                    self._identities[path] = _identity(here.lstat(_name(path)))

        return remake

    def _make_directory(self, path: bytes) -> None:
        with self._entered(path.rpartition(b"/")[0]) as here:
            seen = here.lstat(_name(path))
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                return
            self._back.append(lambda: self._unmake(path))
            try:
                here.mkdir(_name(path), 0o700)
            except FileExistsError:
                raise _appeared(path) from None
            above = here.lstat(b"")
            if self._as_root and above is not None:
                here.chown(_name(path), above.st_uid, above.st_gid)

    def _unmake(self, path: bytes) -> None:
        try:
            with self._entered_again(path) as here:
                here.rmdir(_name(path))
        except OSError as problem:
            if problem.errno not in _STAYS | {errno.ENOENT, errno.ENOTDIR}:
                raise

    def _set_bits(self, path: bytes, bits: int, *, directory: bool = False) -> None:
        try:
            with self._worktree.within(path.rpartition(b"/")[0]) as here:
                seen = here.lstat(_name(path))
                if seen is None or stat.S_IFMT(seen.st_mode) != (stat.S_IFDIR if directory else stat.S_IFREG):
                    raise NotADirectoryError
                before = stat.S_IMODE(seen.st_mode)
                if not directory and before not in (bits, self.asides.bits(path, self._known[path])):
                    raise changed(path)
                if before != bits:
                    self._back.append(lambda: self._reset_bits(path, before))
                    here.chmod(_name(path), bits)
        except NotADirectoryError:
            if not directory:  # a directory went with what was in it
                raise changed(path) from None

    def _reset_bits(self, path: bytes, bits: int) -> None:
        with self._worktree.within(path.rpartition(b"/")[0]) as here:
            seen = here.lstat(_name(path))
            if seen is not None and not stat.S_ISLNK(seen.st_mode) and stat.S_IMODE(seen.st_mode) != bits:
                here.chmod(_name(path), bits)

    @contextmanager
    def _entered(self, folder: bytes) -> Iterator[Worktree]:
        """A directory, which must be a real one still, opened; and opened to writing, if it is closed."""
        try:
            here = self._worktree.within(folder)
        except NotADirectoryError:
            raise RestoreRefused(conflicts=f"{os.fsdecode(folder)} is no directory any more") from None
        with here:
            if folder and folder not in self._widened and not here.may_change(b""):
                self._widen(folder, here)
            self._identities[folder] = _identity(here.lstat(b""))
            yield here

    @contextmanager
    def _entered_again(self, path: bytes) -> Iterator[Worktree]:
        """The directory that a path was in when it was touched. If another one has its name by now, what is in
        it is none of ours, and going back has to wait until somebody has looked."""
        folder = path.rpartition(b"/")[0]
        with self._worktree.within(folder) as here:
            if _identity(here.lstat(b"")) != self._identities.get(folder):
                raise OSError(errno.ESTALE, "another directory is in its place", os.fsdecode(folder))
            yield here

    def _check_what_was_unseen(self) -> None:
        """Directories that could not be looked into are open by now: they must hold just what is wanted."""
        wanted, worktree = self._plan.unseen, self._worktree
        for path, ((mode, name), bits) in wanted.items():
            seen = worktree.lstat(path)
            is_right = seen is not None and holds(worktree, path, seen, mode, name)
            if seen is None or not is_right or (mode != LINK and stat.S_IMODE(seen.st_mode) != bits):
                raise _unseen(path)
        for folder in {path.rpartition(b"/")[0] for path in wanted}:
            for item in worktree.items(folder):
                if folder + b"/" + item.name not in wanted:
                    raise _unseen(folder + b"/" + item.name)

    def _check_directories_are_in_place(self) -> None:
        """What was done in a directory was done in vain if that was moved away meanwhile."""
        for folder in {path.rpartition(b"/")[0] for path in self._plan.write}:
            if _identity(self._worktree.lstat(folder)) != self._identities[folder]:
                raise changed(folder)

    def _widen(self, folder: bytes, here: Worktree) -> None:
        """Open a directory to writing, the very one that was entered."""
        before = here.own_bits()
        self._back.append(lambda: self._reset_bits(folder, before))
        here.set_own_bits(before | 0o700)
        self._widened[folder] = before


def _by_folder(paths: Iterable[bytes]) -> Iterable[tuple[bytes, list[bytes]]]:
    """Paths together with those in the same directory."""
    grouped: dict[bytes, list[bytes]] = {}
    for path in sorted(paths):
        grouped.setdefault(path.rpartition(b"/")[0], []).append(path)
    return grouped.items()


def _identity(seen: os.stat_result | None) -> tuple[int, int] | None:
    return None if seen is None else (seen.st_dev, seen.st_ino)


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def told(problem: OSError) -> str:
    where = f" ({os.fsdecode(problem.filename)})" if problem.filename else ""
    return f"{problem.strerror or problem}{where}"


def _unseen(path: bytes) -> RestoreRefused:
    folder = os.fsdecode(path.rpartition(b"/")[0])
    why = f"it would be overwritten unsaved, as {folder} cannot be looked into; open it first: chmod u+rwx"
    return RestoreRefused(conflicts=f"{os.fsdecode(path)} ({why})")


def _appeared(path: bytes) -> RestoreRefused:
    return RestoreRefused(conflicts=f"{os.fsdecode(path)} appeared just now")
