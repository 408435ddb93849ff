"""Where a command runs: which project is meant, and what paths and references mean there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from shadowsnap.cli.text import safe
from shadowsnap.cli.ui import Ui, Update, working
from shadowsnap.errors import MalformedReference, NoSuchCheckpoint, WrongUsage

if TYPE_CHECKING:  # loaded when they are needed: shells run `completion` at their start and at every tab
    from shadowsnap.agents.protection import Protection
    from shadowsnap.events import Event
    from shadowsnap.manager import CheckpointManager
    from shadowsnap.model import Checkpoint

_PROGRESS_EACH = 0.5
_PROGRESS_FOR = 600


class Context:
    def __init__(self, ui: Ui, directories: Iterable[str] = (), here: str | None = None) -> None:
        """`directories` are what was given with -C; `here` is the current directory, if not that of this
        process."""
        self.ui = ui
        self._given = os.path.join("", *directories)
        self._here = here
        self._update: Update | None = None
        self.progress = ui.progress
        """What an operation that takes long is shown by."""

    @cached_property
    def manager(self) -> CheckpointManager:
        from shadowsnap.manager import CheckpointManager

        manager = CheckpointManager.from_settings(on_event=self._show_progress)
        moments = range(1, int(_PROGRESS_FOR / _PROGRESS_EACH))
        manager._slow_after = [_PROGRESS_EACH * moment for moment in moments]
        return manager

    @contextmanager
    def working(self, title: str) -> Iterator[Update]:
        """Show progress on stderr if what happens within this block takes longer than half a second."""
        with working(self.ui, title) as update:
            outer, self._update = self._update, update
            try:
                yield update
            finally:
                self._update = outer

    def _show_progress(self, event: Event) -> None:
        """Show what the manager says about an operation that takes long."""
        if event.kind != "slow":
            return
        doing, done, total = (getattr(event, name, None) for name in ("doing", "done", "total"))
        if self._update is not None and done is not None and total:
            self._update(done, total)
        elif isinstance(doing, str) and (self._update is None or doing.startswith("waiting")):
            self.progress(f"{doing} ...")

    def warn(self) -> None:
        """Say what was ignored in settings, if they were needed."""
        for text in self.manager.warnings if "manager" in self.__dict__ else ():
            self.ui.say(f"{self.ui.talk_ink('yellow', 'warning:')} {safe(text)}")

    @cached_property
    def here(self) -> str:
        """The current directory, or the one given with -C."""
        return os.path.realpath(os.path.join(self._here or _current_directory(self._given), self._given))

    @cached_property
    def workdir(self) -> Path:
        """The directory of the project that is meant."""
        return self.manager.find_project(self.here)

    def path(self, word: str) -> str:
        """A path as the person wrote it, relative to the project."""
        if not os.path.isabs(word):
            # By the words alone: what is a link now may have been a directory then.
            return os.path.normpath(os.path.join(os.path.relpath(self.here, self.workdir), word)) if word else word
        # The last part of a path is never followed, the way to it is.
        folder, name = os.path.split(word.rstrip(os.sep) or word)
        resolved = os.path.join(os.path.realpath(folder), name)
        return os.path.relpath(resolved, self.workdir) if self.holds(resolved) else word

    def holds(self, path: str) -> bool:
        """Whether a resolved path lies in the project."""
        return Path(path).is_relative_to(self.workdir)

    def paths(self, words: Iterable[str]) -> list[str]:
        return [self.path(word) for word in words]

    def checkpoint(self, word: str) -> Checkpoint:
        """The checkpoint that a reference stands for."""
        try:
            return self.manager.get(self.workdir, word)
        except (NoSuchCheckpoint, MalformedReference) as problem:
            if os.path.lexists(os.path.join(self.here, word)):
                problem.hint = f"if you mean the file, put -- before it: -- {shlex.quote(word)}"
            raise

    def line(self, *words: str) -> str:
        """A command line that means this project, wherever the person ran us from."""
        where = ("-C", self.here) if self._given else ()
        return shlex.join(("shadowsnap", *where, *words))

    @cached_property
    def protection(self) -> Protection:
        from shadowsnap.agents.protection import Protection, protection_of

        """Whether an agent's hook protects this project, as far as was seen."""
        if not self.manager.settings.enabled:
            return Protection(False, "DISABLED by your settings: no snapshot is taken")
        return protection_of(self.workdir)


def _current_directory(given: str) -> str:
    if os.path.isabs(given):
        return given
    try:
        return os.getcwd()
    except FileNotFoundError:
        problem = WrongUsage(why="the current directory does not exist any more")
        problem.hint = "name the project's directory with -C"
        raise problem from None
