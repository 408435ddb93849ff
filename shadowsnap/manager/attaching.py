"""Keeping a conversation with a checkpoint afterwards, when it comes from elsewhere."""

from __future__ import annotations

from datetime import datetime

from shadowsnap.git.refs import ref_exists
from shadowsnap.manager.core import Core, PathLike, once_more
from shadowsnap.model import Conversation
from shadowsnap.records import Any
from shadowsnap.store.checkpoints import attachment_of, find_checkpoint
from shadowsnap.store.layout import Store


class Attaching(Core):
    @once_more
    def attach(
        self,
        working_dir: PathLike,
        ref: str,
        conversation: Any,
        session_id: str | None = None,
        *,
        prompt: str | None = None,
        agent: str | None = None,
        began: datetime | None = None,
        key: str | None = None,
        replace_own: bool = True,
    ) -> Conversation | None:
        """Keep what was said up to a checkpoint with it: JSON data, or the bytes of a transcript. With a
        `session_id` it goes into the record of that session as a turn; `key` tells turns apart, so that
        the same one is not recorded twice. None if the checkpoint was dropped meanwhile, or (without
        `replace_own`) if what the session itself handed over is kept with it."""
        from shadowsnap.store.conversations import from_json, from_transcript, keep_conversation, read_conversation
        from shadowsnap.store.redaction import redacted_text
        from shadowsnap.store.sessions import has_its_own, last_attachment

        store, project = self._known(working_dir)
        deadline = self._deadline()
        checkpoint = find_checkpoint(store, project, ref, deadline)
        kept = attachment_of(checkpoint.ref)
        is_kept = not replace_own and ref_exists(store.git_dir, kept)
        if is_kept and session_id and has_its_own(store, session_id, kept):
            return None
        said = from_transcript(conversation) if isinstance(conversation, bytes) else from_json(conversation)
        like = last_attachment(store, session_id) if session_id else None
        places, own = [(project, checkpoint.ref)], self.settings.redact
        refs = keep_conversation(store, said, session_id, places, deadline, own=own, like=like)
        if not refs:
            return None
        if session_id:
            place = {"workdir": checkpoint.workdir, "project": project.id, "turn": checkpoint.turn}
            row = {
                "key": key or f"attached-{checkpoint.id[:12]}",
                "began": (began or checkpoint.created_at).timestamp(),
                "prompt": redacted_text(prompt, own) if prompt else None,
                "messages": said.count,
                "places": [{**place, "before": checkpoint.id}],
                "attachments": refs,
                "attached": True,
            }
            _note_past_turn(store, session_id, row, agent)
        return read_conversation(store, checkpoint.ref, [session_id], deadline)


def _note_past_turn(store: Store, session_id: str, row: dict[str, Any], agent: str | None) -> None:
    """Note a turn without making a session that is over go on."""
    from shadowsnap.store.sessions import note_status, note_turn, read_session

    known = read_session(store, session_id)
    note_turn(store, session_id, row, agent)
    if known is None or known.status != "active":
        note_status(store, session_id, known.status if known else "completed")
