"""What one operation on one project needs: its files, its settings, git and the lock. Opened at the beginning of
the operation, and closed at its end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from shadowsnap.deadline import Deadline
from shadowsnap.files import new_scratch_folder, remove_tree, write_bytes
from shadowsnap.git.packs import NewObjects
from shadowsnap.git.reading import Batch
from shadowsnap.git.repository import Git
from shadowsnap.settings import Settings
from shadowsnap.snapshot.ignore_rules import (
    IgnoreRules,
    UserRepository,
    exclude_file,
    find_repository,
    project_patterns,
)
from shadowsnap.snapshot.worktree import Worktree
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project

if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.snapshot.watch import Watcher


@dataclass(frozen=True)
class Workspace:
    """A project that is open and locked."""

    store: Store
    project: Project
    settings: Settings
    deadline: Deadline
    worktree: Worktree
    repository: UserRepository | None
    patterns: list[str]
    git: Git
    """Git on the store alone, without a work tree: no argument can be mistaken for a file."""
    git_here: Git
    """Git with the project as its work tree, and with the private index."""
    lock: int
    """The descriptor of the project's lock. A process that inherits it keeps the lock until it ends."""
    objects: NewObjects
    """Where new objects go."""
    rules: IgnoreRules
    watcher: Watcher | None = None
    """Knows, if present, what was touched since the last capture."""

    @property
    def lasting(self) -> bool:
        """Whether captured objects stay in the store. False for a comparison, such as a diff with the present."""
        return self.git.scratch_objects is None

    @property
    def has_store_inside(self) -> bool:
        """Whether the store lies in the project."""
        return self._store_inside is not None

    def is_store(self, path: bytes) -> bool:
        """Whether a path belongs to the store, which is never captured."""
        inside = self._store_inside
        return inside is not None and (path == inside or path.startswith(inside + b"/"))

    @cached_property
    def _store_inside(self) -> bytes | None:
        base, workdir = self.store.base, self.project.workdir
        return os.fsencode(base.relative_to(workdir).as_posix()) if base.is_relative_to(workdir) else None


@contextmanager
def open_workspace(
    store: Store,
    project: Project,
    settings: Settings,
    deadline: Deadline,
    doing: str,
    *,
    lasting: bool = True,
    watcher: Watcher | None = None,
) -> Iterator[Workspace]:
    """Lock the project and open its files. If not `lasting`, new objects go to a scratch directory that is removed
    at the end, and the private index stays unchanged: that works in a store that cannot be written, too."""
    git = store.git(deadline)
    with (
        locked(store.store_lock(), doing, deadline, shared=True, looking=not lasting),
        locked(store.project_lock(project.id), doing, deadline, looking=not lasting) as lock,
        Worktree(project.workdir) as worktree,
    ):
        repository = find_repository(project.workdir)
        patterns = project_patterns(project.workdir, repository, settings, store.base)
        scratch, excludes = None, store.exclude_file(project.id)
        if not lasting:
            scratch = _make_scratch(store, project)
            git = git.bound(scratch_objects=scratch)
            if scratch.parent != store.git_dir:
                excludes = scratch / "exclude"
        _write_exclude_file(excludes, patterns)
        objects = NewObjects(scratch or store.git_dir / "objects", fsync=store.fsync and lasting)
        batch = Batch(git)
        git = git.bound(batch=batch, new_objects=objects)
        here = git.bound(work_tree=project.workdir, index_file=store.index_file(project.id))
        with_excludes = here.bound(config=(f"core.excludesFile={excludes}",))
        try:
            yield Workspace(
                store=store,
                project=project,
                settings=settings,
                deadline=deadline,
                worktree=worktree,
                repository=repository,
                patterns=patterns,
                git=git,
                git_here=here,
                lock=lock,
                objects=objects,
                rules=IgnoreRules(with_excludes, worktree, store, patterns),
                watcher=watcher,
            )
        finally:
            batch.close()
            objects.abandon()
            if scratch is not None:
                remove_tree(scratch)


def _make_scratch(store: Store, project: Project) -> Path:
    """A directory for the objects of a comparison: in the store, or elsewhere if that cannot be written."""
    try:
        return new_scratch_folder(store.git_dir, project.id)
    except OSError as problem:
        if problem.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return Path(mkdtemp(prefix="shadowsnap-"))


def _write_exclude_file(path: Path, patterns: list[str]) -> None:
    content = exclude_file(patterns)
    try:
        current: bytes | None = path.read_bytes()
    except FileNotFoundError:
        current = None
    if current != content:
        write_bytes(path, content)
