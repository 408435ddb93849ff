"""What a report tells of each entry: the files with their patches, the tools, what goes beyond the directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import NoSuchProject, NoSuchSession, ShadowsnapError
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Change, Entry
from shadowsnap.snapshot.states import PatchReader, State, compare, patch_header, split_patch
from shadowsnap.store.checkpoints import list_checkpoints
from shadowsnap.store.history import read_history
from shadowsnap.store.layout import open_store
from shadowsnap.store.projects import project_of
from shadowsnap.store.redaction import redacted_text
from shadowsnap.timeline import lasting_effects

_MOST_OF_A_FILE = 100_000
_MOST_OF_AN_ENTRY = 400_000
_MODES = re.compile(r"old mode (\d+)\nnew mode (\d+)\n")


@dataclass(frozen=True)
class File:
    """One path that an entry changed. `patch` is empty where there is nothing to show."""

    change: Change
    patch: str = ""
    modes: tuple[str, str] | None = None
    """The permission bits before and after, if they changed."""


@dataclass(frozen=True)
class Item:
    """An entry with everything that a report tells of it."""

    entry: Entry
    files: tuple[File, ...] = ()
    unknown: str = ""
    """Why nothing is known of what it changed."""
    tools: Sequence[Sequence[str]] = ()
    effects: Sequence[str] = ()


class Items:
    """Reads the entries of one project, one after the other, with one git process for all patches."""

    def __init__(self, manager: CheckpointManager, workdir: Path) -> None:
        self._manager = manager
        self._workdir = workdir
        store, project = open_store(manager.settings), project_of(workdir)
        deadline = Deadline(manager.settings.upkeep_deadline)
        self._git = store.git(deadline)
        self._turns = read_history(store, project, deadline).turns
        self._known = {each.id: each for each in list_checkpoints(store, project, deadline, statistics=False)}
        self._stack = ExitStack()
        self._patches = self._stack.enter_context(PatchReader(self._git, _MOST_OF_AN_ENTRY, _MOST_OF_A_FILE))

    def __enter__(self) -> Items:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, entry: Entry) -> Item:
        turn = self._turns.get(entry.number or 0) if entry.kind == "turn" else None
        tools = [] if turn is None else [each for each in turn.tools if len(each) == 2]
        item = Item(entry, tools=tools, effects=lasting_effects(tools))
        try:
            changes, text = self._changes(entry)
        except _Unknown as why:
            return replace(item, unknown=str(why))
        except ShadowsnapError as problem:  # a lost object, or the directory is gone
            return replace(item, unknown=f"it cannot be read: {problem}")
        if entry.kind == "restore":
            text = ""  # it shows again what other entries show
        return replace(item, files=tuple(self._files(changes, text)))

    def _changes(self, entry: Entry) -> tuple[Sequence[Change], str]:
        before, after = (self._known.get(each or "") for each in (entry.before, entry.after))
        if before is not None and before.scope == "paths":
            held = self._manager.files(self._workdir, before.id)
            raise _Unknown(f"only these files were captured: {', '.join(held[:20])}")
        if before is not None and after is None and entry.status == "running":
            diff = self._manager.diff(self._workdir, before.id)
            return diff.changes, diff.text if len(diff.text) <= _MOST_OF_AN_ENTRY else ""
        if before is None or after is None or after.scope == "paths":
            never = entry.kind == "turn" and entry.after is None
            raise _Unknown("how it left the files is not known: it was never closed" if never else "")
        states = State.of_checkpoint(before), State.of_checkpoint(after)
        return compare(self._git, *states, (), self._patches)

    def _files(self, changes: Iterable[Change], text: str) -> Iterator[File]:
        """A report is there to be passed on, so what looks like a secret is taken out of the patch, as it is
        taken out of prompts."""
        parts = split_patch(text)
        for change in changes:
            patch = parts.get(patch_header(os.fsencode(change.path).rstrip(b"/")), "")
            modes = _MODES.match(patch)
            has_lines = re.search(r"(?m)^@@ ", patch) is not None
            yield File(
                change,
                redacted_text(patch, self._manager.settings.redact) if has_lines else "",
                (modes[1][-4:], modes[2][-4:]) if modes else None,
            )


class _Unknown(Exception):
    pass


def chosen_entries(
    manager: CheckpointManager, workdir: Path, session: str | None, since: float | None
) -> list[Entry]:
    """The entries that a report is about, newest first; none if nothing has happened yet. Those of a session come
    with the restores in between and right after it."""
    whole = None if session is None else manager.session(session, workdir).id
    try:
        entries = manager.timeline(workdir, restores=True)
    except NoSuchProject:
        entries = []
    if whole is not None:
        places = [at for at, each in enumerate(entries) if each.session_id == whole]
        if not places:
            raise NoSuchSession(session_id=str(session))  # it is one of another project
        first = places[0]
        while first > 0 and entries[first - 1].kind == "restore":
            first -= 1
        span = entries[first : places[-1] + 1]
        entries = [each for each in span if each.kind == "restore" or each.session_id == whole]
    if since is None:
        return entries
    return [each for each in entries if each.status == "running" or _last_moment(each) >= since]


def _last_moment(entry: Entry) -> float:
    moment = entry.ended_at or entry.began_at
    return moment.timestamp() if moment is not None else 0.0
