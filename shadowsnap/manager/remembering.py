"""Remembering turns: the record of their session, and the conversation as it was.

Nothing here may delay or fail a snapshot. While a turn goes on, the work is done by a thread of its
own; at its end the agent is not waiting for a tool any more. A hook is a process that ends, so it
does everything at the end of the turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

from shadowsnap.deadline import Deadline
from shadowsnap.manager.core import Core
from shadowsnap.manager.turnstate import Slot, Story, Turn
from shadowsnap.model import Outcome
from shadowsnap.records import Any, dataclass
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowsnap.settings import Settings
    from shadowsnap.store.conversations import Said

TOO_LARGE, UNREADABLE = "too-large", "unreadable"
_PROMPT_LENGTH = 2000


@dataclass(frozen=True)
class Transcript:
    """A transcript file, and how long it was at the moment that matters."""

    path: str
    size: int | None = None


class Remembering(Core):
    def end_session(self, session_id: str | None = None, status: str = "completed") -> None:
        """Note how a session ended: `completed`, `failed` or `rolled_back`. A turn that comes later makes
        it `active` again. Without an id it is that of this turn. Never raises."""

        def note() -> None:
            from shadowsnap.store.sessions import STATUSES, note_status, session_file

            wanted = session_id if session_id is not None else self._turn.session_id
            store = Store(self.settings.resolved_base(), self.settings.fsync)
            if status not in STATUSES:
                raise ValueError(f"{status!r} is not one of {', '.join(STATUSES)}")
            if wanted and session_file(store.base, str(wanted)).exists():
                note_status(store, str(wanted), status)

        self._scribe.wait()
        self._told(note)

    def _new_story(self, conversation: Any, agent: str | None, parent: str | None) -> Story:
        story = Story.begin(agent, parent)

        def take_over() -> None:
            story.not_kept = UNREADABLE
            said = handed_over(conversation, self.settings)
            story.said, story.not_kept = (None, said) if isinstance(said, str) else (said, "")

        if conversation is not None and self.settings.enabled:
            self._told(take_over)
        return story

    def _redacted(self, prompt: Any) -> str | None:
        """What a person asked for, without secrets: checkpoints and sessions keep it. If that fails,
        nothing of it is kept."""
        told: list[str] = []

        def redact() -> None:
            from shadowsnap.store.redaction import redacted_beginning

            told.append(redacted_beginning(str(prompt), _PROMPT_LENGTH, self.settings.redact))

        if prompt:
            self._told(redact)
        return told[0] if told else None

    def _remember_beginning(self, turn: Turn, slot: Slot) -> None:
        """In the background: the tool waits."""
        if not turn.resumed and (turn.session_id or turn.story.said is not None):
            self._later(lambda: remember_beginning(self.settings, turn, slot))

    def _remember_left(self, turn: Turn) -> None:
        """A turn that nobody ended, and that is over now."""
        if turn.session_id and turn.slots and not turn.resumed and not turn.story.ended:
            closed = [(slot, None) for slot in list(turn.slots.values()) if slot.project]
            self._later(lambda: remember_end(self.settings, turn, closed))

    def _remember_end(self, turn: Turn, closed: Mapping[str, Outcome], conversation: Any) -> None:
        turn.story.ended = True
        if self.settings.enabled and (turn.session_id or turn.story.said is not None or conversation is not None):
            self._scribe.wait()
            slots = [slot for slot in list(turn.slots.values()) if slot.project]
            ended = [(slot, closed.get(slot.project.id) if slot.project else None) for slot in slots]
            self._told(lambda: remember_end(self.settings, turn, ended, conversation))

    def _later(self, deed: Callable[[], None]) -> None:
        """In the background. A program that is about to end has no threads any more; then what is missing
        is done at the end of the turn."""
        self._told(lambda: self._scribe.later(lambda: self._told(deed)))

    def _told(self, deed: Callable[[], None]) -> None:
        """Do what a snapshot does not depend on; if it fails, `status` tells."""
        try:
            deed()
        except Exception as problem:  # promise 4
            try:
                from shadowsnap.store.troubles import append_log

                what = f"a session could not be recorded: {type(problem).__name__}: {problem}"
                append_log(self.settings.resolved_base(), kind="session", what=what[:2000], advice="")
            except Exception:  # nobody is left to tell
                pass


def story_to_json(story: Story) -> dict[str, Any]:
    said = story.said
    transcript = [said.path, said.size] if isinstance(said, Transcript) else None
    facts = (story.key, story.began, story.agent, story.parent)
    return {**dict(zip(("key", "began", "agent", "parent"), facts, strict=True)), "transcript": transcript}


def story_from_json(told: dict[str, Any] | None) -> Story:
    if not told:
        return Story.begin()
    path, size = told.get("transcript") or (None, None)
    story = Story.begin(told.get("agent"), told.get("parent"), Transcript(path, size) if path else None)
    story.key, story.began = str(told.get("key") or story.key), float(told.get("began") or story.began)
    return story


def handed_over(conversation: Any, settings: Settings) -> Said | Transcript | str | None:
    """A conversation as it is in this moment, whatever the host does to it later; a file is only
    looked at, and read when there is time. A text says why it is not kept."""
    if conversation is None or not settings.keep_conversations:
        return None
    if isinstance(conversation, (str, os.PathLike)):
        path = os.path.expanduser(os.fspath(conversation))
        try:
            return Transcript(path, os.stat(path).st_size)
        except OSError:
            return UNREADABLE
    from shadowsnap.store.conversations import from_json

    said, most = from_json(conversation), settings.max_conversation_bytes
    return TOO_LARGE if most is not None and len(said.data) > most else said


def remember_beginning(settings: Settings, turn: Turn, slot: Slot) -> None:
    """Note a turn that took its first checkpoint of a directory, with the conversation before it."""
    store = Store(settings.resolved_base(), settings.fsync)
    try:
        if slot.project is not None and slot.before is not None:
            _keep(store, settings, turn, turn.story.said, [(slot.project, slot.before)])
    finally:
        _note(store, turn, [_place(slot)])


def remember_end(
    settings: Settings, turn: Turn, closed: Iterable[tuple[Slot, Outcome | None]], after: Any = None
) -> None:
    """Note a turn that ended; `after` is the conversation at its end."""
    store, closed = Store(settings.resolved_base(), settings.fsync), list(closed)
    if not store.git_dir.is_dir():
        return
    late = [
        (slot.project, slot.before)
        for slot, _ in closed
        if slot.project and slot.project.id not in turn.story.kept_for
    ]
    ends = [
        (slot.project, outcome.checkpoint.id)
        for slot, outcome in closed
        if slot.project and outcome and outcome.checkpoint and outcome.status == "taken"
    ]
    try:
        _keep(store, settings, turn, turn.story.said, late)
        _keep(store, settings, turn, handed_over(after, settings), ends)
    finally:
        _note(store, turn, [_place(slot, outcome) for slot, outcome in closed], ended=time.time())


def _keep(
    store: Store,
    settings: Settings,
    turn: Turn,
    said: Said | Transcript | str | None,
    places: Iterable[tuple[Project, str | None]],
) -> None:
    """Keep a conversation with checkpoints."""
    found = [(project, _ref_of(store, project, before)) for project, before in places if before is not None]
    there = [(project, ref) for project, ref in found if ref is not None]
    if said is None or not there or not settings.keep_conversations:
        return
    from shadowsnap.store.conversations import from_file, keep_conversation
    from shadowsnap.store.sessions import last_attachment

    if isinstance(said, Transcript):
        said = from_file(said.path, settings.max_conversation_bytes, said.size)
    if isinstance(said, str):
        turn.story.not_kept = said
        return
    like, whose = turn.story.attachments[-1] if turn.story.attachments else None, _whose(turn)
    if like is None and whose:
        like = last_attachment(store, whose)
    refs = keep_conversation(
        store, said, whose, there, Deadline(settings.deadline), own=settings.redact, like=like
    )
    turn.story.attachments += [ref for ref in refs if ref not in turn.story.attachments]
    turn.story.messages = said.count if turn.story.messages is None else turn.story.messages
    turn.story.kept_for.update(project.id for project, _ in there)


def _note(store: Store, turn: Turn, places: list[dict[str, Any]], ended: float | None = None) -> None:
    """Write down what is known of the turn, if it is known whose it is."""
    whose = _whose(turn)
    if whose is None:
        return
    from shadowsnap.store.sessions import note_turn

    for place in places:
        turn.story.places[place["project"]] = place
    row = {
        "key": turn.story.key,
        "began": turn.story.began,
        "ended": ended,
        "prompt": turn.prompt,
        "messages": turn.story.messages,
        "places": list(turn.story.places.values()),
        "attachments": turn.story.attachments or None,
        "not_kept": turn.story.not_kept or None,
    }
    note_turn(store, whose, row, turn.story.agent, turn.story.parent)


def _whose(turn: Turn) -> str | None:
    """The session as text: a host may count them."""
    return str(turn.session_id) if turn.session_id else None


def _place(slot: Slot, outcome: Outcome | None = None) -> dict[str, Any]:
    project = slot.project
    # An outcome is true only if a checkpoint was taken; here "unchanged" counts as well.
    after = outcome.checkpoint.id if outcome is not None and outcome.checkpoint else None
    return {
        "workdir": str(project.workdir) if project else "",
        "project": project.id if project else "",
        "turn": slot.turn,
        "before": slot.before,
        "after": after,
        "status": outcome.status if outcome is not None else "",
    }


def _ref_of(store: Store, project: Project, checkpoint: str) -> str | None:
    from shadowsnap.git.refs import ref_names

    names = ref_names(store.git_dir, project.refs)
    name = next((name for name in reversed(names) if name.endswith(f"-{checkpoint[:12]}")), None)
    return None if name is None else f"{project.refs}/{name}"
