"""Stages: edits that are committed or put back together.

A stage begins on files that a checkpoint holds, so that putting back loses nothing. It ends with `commit` (a
checkpoint of kind `stage`) or by returning to its beginning. The journal lists every open stage: one whose process
died is put back by the next operation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DirtyWorkingTree, ShadowsnapError, StageClosed
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.restore.restore import restore
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.states import State, tree_differences
from shadowsnap.snapshot.take import Request, begin_capture, holding_checkpoint, keep_capture, take_snapshot
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import find_checkpoint, newest_checkpoint
from shadowsnap.store.history import note as log_line
from shadowsnap.store.locks import is_free, locked
from shadowsnap.store.projects import OpenStage, read_journal, write_journal

_MOST_SHOWN = 5

Opener = Callable[[str], AbstractContextManager[Workspace]]


class Stage:
    """One stage, as a context manager. Leaving it commits what was done; leaving it by an exception puts
    everything back."""

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
        self._lock = ExitStack()
        """Held as long as the stage is open: a free lock means that its process died."""
        self.checkpoint: Checkpoint | None = None
        """What was committed."""
        self.before: Checkpoint | None = None

    def __enter__(self) -> Stage:
        with self._opener("stage") as space:
            self.before = _beginning(space)
            name = f"stage-{space.project.id}-{os.getpid()}-{time.time_ns()}.lock"
            lock = space.store.git_dir / "locks" / name
            self._lock.enter_context(locked(lock, "stage", Deadline(1)))
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
        """Keep what was done, as a checkpoint with this message."""
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
        """End the stage without a checkpoint. The files stay as they are."""
        with self._ending("left"):
            pass

    @contextmanager
    def _ending(self, how: str) -> Iterator[Workspace]:
        """The workspace of the last operation of a stage. The stage is over only if that succeeds."""
        if self._ended:
            raise StageClosed(how=self._ended)
        with self._opener("stage") as space:
            yield space
            ended = [self._open] if self._open is not None else []
            _remove_from_journal(space, ended)
            self._ended = how
            self._lock.close()
            _remove_locks(space, ended)


def _remove_from_journal(space: Workspace, stages: list[OpenStage]) -> None:
    journal = read_journal(space.store, space.project)
    left = tuple(stage for stage in journal.stages if stage not in stages)
    write_journal(space.store, space.project, replace(journal, stages=left))


def _remove_locks(space: Workspace, stages: list[OpenStage]) -> None:
    for stage in stages:
        (space.store.git_dir / "locks" / stage.lock).unlink(missing_ok=True)


def _beginning(space: Workspace) -> Checkpoint:
    """The checkpoint that holds the files as they are. Inside another stage, one is taken."""
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
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    return (", ".join(paths[:_MOST_SHOWN]) + more) or "permission bits or directories"


def recover_stages(space: Workspace) -> str:
    """Put back stages whose process died. Returns a note about it; empty if there were none."""
    journal = read_journal(space.store, space.project)
    folder = space.store.git_dir / "locks"
    dead = [stage for stage in journal.stages if is_free(folder / stage.lock)]
    if not dead:
        return ""
    try:
        before = find_checkpoint(space.store, space.project, dead[0].before, space.deadline)
        restore(space, before)
        log_line(space.store, space.project, "stage", status="discarded", before=before.id)
        note = f"an interrupted stage was put back to {before.short_id}"
    except ShadowsnapError as problem:
        note = f"an interrupted stage could not be put back: {problem}"
    _remove_from_journal(space, dead)
    _remove_locks(space, dead)
    return note
