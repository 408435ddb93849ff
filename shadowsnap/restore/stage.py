"""Stages: edits that are kept as a whole or put back as a whole.

A stage begins on files that a checkpoint holds, so that putting back can lose nothing; it ends
with `commit` (a checkpoint of kind `stage`) or by returning to its beginning. The journal
knows every open stage: one whose owner died is put back by the next operation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DirtyWorkingTree, ShadowsnapError, StageClosed
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.records import replace
from shadowsnap.restore.restore import restore
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.states import State, tree_differences
from shadowsnap.snapshot.take import Request, begin_capture, holding_checkpoint, keep_capture, take_snapshot
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import find_checkpoint, newest_checkpoint
from shadowsnap.store.history import note
from shadowsnap.store.journal import Journal, OpenStage, read_journal, write_journal
from shadowsnap.store.locks import is_free, locked

_SHOWN = 5

Opener = Callable[[str], AbstractContextManager[Workspace]]


class Stage:
    """One stage, as a context manager. Leaving it without `commit` puts everything back if there
    was an exception; without one, what was done is committed."""

    def __init__(
        self,
        opener: Opener,
        facts: dict[str, Any],
        message: str,
        on_commit: Callable[[Checkpoint, bool], None] = lambda *_: None,
        on_discard: Callable[[RestoreResult], None] = lambda _: None,
    ) -> None:
        self._opener = opener
        self._on_commit = on_commit
        self._on_discard = on_discard
        self._facts = facts
        self._message = message
        self._open: OpenStage | None = None
        self._ended = ""
        self._owning = ExitStack()
        self.checkpoint: Checkpoint | None = None
        """What was committed."""
        self.before: Checkpoint | None = None

    def __enter__(self) -> Stage:
        with self._opener("stage") as space:
            self.before = _beginning(space)
            name = f"stage-{space.project.id}-{os.getpid()}-{time.time_ns()}.lock"
            lock = space.store.git_dir / "locks" / name
            self._owning.enter_context(locked(lock, "stage", Deadline(1)))
            self._open = OpenStage(self.before.id, name)
            journal = read_journal(space.store, space.project)
            write_journal(space.store, space.project, replace(journal, stages=(*journal.stages, self._open)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit(self._message)
        else:
            self.discard()

    def commit(self, message: str | None = None) -> Checkpoint:
        """Keep what was done, as a checkpoint that says why."""
        with self._ending("committed") as space:
            before = self.before.id if self.before else None
            facts = tuple({**self._facts, "before": before}.items())
            request = Request(message or self._message, "stage", facts=facts)
            self.checkpoint, new, *_ = take_snapshot(space, request)
        self._on_commit(self.checkpoint, new)
        return self.checkpoint

    def discard(self) -> RestoreResult:
        """Put everything back as it was when the stage began."""
        assert self.before is not None
        with self._ending("discarded") as space:
            result = restore(space, self.before)
        self._on_discard(result)
        return result

    def leave(self) -> None:
        """Let go of the stage: the files stay as they are, and no checkpoint is taken."""
        with self._ending("left"):
            pass

    def _ending(self, how: str) -> _Ending:
        if self._ended:
            raise StageClosed(how=self._ended)
        return _Ending(self, how)

    def _end(self, space: Workspace, how: str) -> None:
        journal = read_journal(space.store, space.project)
        left = tuple(stage for stage in journal.stages if stage != self._open)
        write_journal(space.store, space.project, replace(journal, stages=left))
        self._ended = how
        self._owning.close()
        if self._open is not None:
            (space.store.git_dir / "locks" / self._open.lock).unlink(missing_ok=True)


class _Ending:
    """The workspace of the last deed of a stage; the stage is over only if that succeeds."""

    def __init__(self, stage: Stage, how: str) -> None:
        self._stage = stage
        self._how = how
        self._opened = stage._opener("stage")
        self._space: Workspace | None = None

    def __enter__(self) -> Workspace:
        self._space = self._opened.__enter__()
        return self._space

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._space is not None:
                self._stage._end(self._space, self._how)
        finally:
            self._opened.__exit__(kind, error, trace)


def recover_stages(space: Workspace) -> str:
    """Put back stages whose owner died; says so, if there were any."""
    journal = read_journal(space.store, space.project)
    folder = space.store.git_dir / "locks"
    dead = [stage for stage in journal.stages if is_free(folder / stage.lock)]
    if not dead:
        return ""
    try:
        before = find_checkpoint(space.store, space.project, dead[0].before, space.deadline)
        restore(space, before)
        note(space.store, space.project, "stage", status="discarded", before=before.id)
        told = f"a stage that had been interrupted was put back to {before.short_id}"
    except ShadowsnapError as problem:
        told = f"an interrupted stage could not be put back: {problem}"
    _forget(space, read_journal(space.store, space.project), dead)
    return told


def _forget(space: Workspace, journal: Journal, stages: list[OpenStage]) -> None:
    left = tuple(stage for stage in journal.stages if stage not in stages)
    write_journal(space.store, space.project, replace(journal, stages=left))
    for stage in stages:
        (space.store.git_dir / "locks" / stage.lock).unlink(missing_ok=True)


def _beginning(space: Workspace) -> Checkpoint:
    """The checkpoint that holds the files as they are; inside another stage one is taken."""
    capture = begin_capture(space)
    held = holding_checkpoint(space, capture)
    if held is not None:
        capture.remember()
        return held
    if read_journal(space.store, space.project).stages:
        return keep_capture(capture, Request("a stage within a stage begins", "manual"))[0]
    raise DirtyWorkingTree(workdir=space.project.workdir, changes=_changes(space, capture))


def _changes(space: Workspace, capture: Capture) -> str:
    newest = newest_checkpoint(space.store, space.project, space.deadline)
    then = State.of_checkpoint(newest).tree if newest is not None and newest.scope == "tree" else EMPTY_TREE
    paths = [os.fsdecode(item.path) for item in tree_differences(space.git, then, capture.tree())]
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return (", ".join(paths[:_SHOWN]) + more) or "permission bits or directories"
