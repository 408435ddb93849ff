"""Recalling: sessions and conversations as they were, and questions about them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from shadowsnap.errors import BadArguments, DamagedObject, NoSuchSession
from shadowsnap.manager.core import PathLike
from shadowsnap.manager.remembering import Remembering
from shadowsnap.model import Checkpoint, Conversation, Session
from shadowsnap.records import Any
from shadowsnap.snapshot.tools import path_inside
from shadowsnap.store.checkpoints import newest_name
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, project_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # SQLite is loaded by questions alone
    from shadowsnap.store.queryindex import Question

When = datetime | float | None


class Recalling(Remembering):
    def session(self, session_id: str) -> Session:
        """All that is known of one session."""
        from shadowsnap.store.sessions import read_session

        self._scribe.wait()
        found = read_session(self._store(), str(session_id))
        if found is None:
            raise NoSuchSession(session_id=str(session_id))
        return found

    def sessions(
        self,
        status: str | None = None,
        *,
        working_dir: PathLike | None = None,
        path: PathLike | None = None,
        text: str | None = None,
        since: When = None,
        until: When = None,
        agent: str | None = None,
        parent: str | None = None,
        edit_id: str | None = None,
        limit: int | None = None,
    ) -> list[Session]:
        """The sessions that fit all of it, newest first. `path` is a file or directory that they changed,
        in `working_dir`; `text` is part of a prompt or reason; `since` and `until` are times at which they
        went on."""
        from shadowsnap.store.queryindex import find_sessions
        from shadowsnap.store.sessions import STATUSES, kept_attachments, read_session_record, to_session

        if status is not None and status not in STATUSES:
            raise BadArguments(what=f"a status is one of {', '.join(STATUSES)}")
        asked = self._question(
            working_dir, path, since, until, text=text, status=status, agent=agent, parent=parent,
            edit_id=edit_id, limit=limit,
        )  # fmt: skip
        store = self._store()
        files = find_sessions(store, asked, self._deadline())
        records = (read_session_record(file) for file in files)
        is_kept = kept_attachments(store)
        return [to_session(record, is_kept) for record in records if record is not None]

    def search(
        self,
        text: str | None = None,
        *,
        working_dir: PathLike | None = None,
        path: PathLike | None = None,
        session_id: str | None = None,
        status: str | None = None,
        kind: str | None = None,
        since: When = None,
        until: When = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """The checkpoints that fit all of it, of every project or of one, newest first. `text` is part of
        a reason or prompt; `path` is what they changed against the one before; `status` is that of their
        session."""
        from shadowsnap.store.queryindex import find_checkpoints

        asked = self._question(
            working_dir, path, since, until, text=text, session_id=session_id, status=status, kind=kind,
            limit=limit,
        )  # fmt: skip
        return find_checkpoints(self._store(), asked, self._deadline())

    def _question(
        self, working_dir: PathLike | None, path: PathLike | None, since: When, until: When, **more: Any
    ) -> Question:
        from shadowsnap.store.queryindex import Question

        self._scribe.wait()
        project, inside = None if working_dir is None else project_of(working_dir), None
        if path is not None:
            if project is None and os.path.isabs(path):
                project = self._holder(path)
            inside = path_inside(project.workdir, path) if project else os.fsencode(os.path.normpath(path))
        place = None if project is None else project.id
        return Question(project=place, path=inside, since=_seconds(since), until=_seconds(until), **more)

    def _holder(self, path: PathLike) -> Project | None:
        """The nearest project around a path that has checkpoints."""
        store = self._store()
        around = (project_of(folder) for folder in Path(path).parents)
        return next((each for each in around if newest_name(store, each) is not None), None)

    def _conversation_at(
        self, store: Store, target: Checkpoint, session_id: str | None
    ) -> tuple[Conversation | None, str]:
        """What is kept with a checkpoint; if nothing, then why."""
        from shadowsnap.store.conversations import read_conversation

        wanted = (session_id,) if session_id is not None else (self._turn.session_id, target.session_id)
        try:
            found = read_conversation(store, target.ref, [str(each) for each in wanted if each], self._deadline())
        except DamagedObject as problem:
            return None, f", as what is left of it cannot be read: {problem}"
        if found is not None and session_id is not None and found.session_id != str(session_id):
            return None, f" for session {session_id}"
        return found, "" if found or not _had_one(store, target) else " any more"

    def _note_reverted(
        self,
        store: Store,
        project: Project,
        past: Iterable[Checkpoint],
        turn: int | None,
        session_id: str | None,
    ) -> None:
        from shadowsnap.store.sessions import note_reverted

        whose = {each.session_id for each in past if each.turn == turn} if session_id is None else {session_id}
        for session in sorted(str(each) for each in whose if each):
            self._told(lambda session=session: note_reverted(store, session, project.id, turn))  # type: ignore[misc]

    def _note_edit(
        self, store: Store, project: Project, facts: dict[str, Any], status: str, checkpoint: str | None
    ) -> None:
        """What became of a stage, if it is known whose it was."""
        from shadowsnap.store.sessions import note_edit

        session = facts.get("session_id")
        edit = {"edit_id": facts.get("edit_id"), "risk_tier": facts.get("risk_tier"), "status": status}
        edit |= {"at": time.time(), "workdir": str(project.workdir), "checkpoint": checkpoint}
        if session:
            self._told(lambda: note_edit(store, str(session), edit))


def _had_one(store: Store, target: Checkpoint) -> bool:
    """Whether the record of its session tells of a conversation that was kept with it."""
    from shadowsnap.store.checkpoints import attachment_of
    from shadowsnap.store.sessions import attachments_of

    return bool(target.session_id) and attachment_of(target.ref) in attachments_of(store, str(target.session_id))


def _seconds(moment: When) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else moment
