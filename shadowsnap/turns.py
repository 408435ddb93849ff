"""The turn under way: which directories a tool call needs protected, which projects are safe, by which tool calls,
and the conversation.

A `CheckpointManager` has one open turn. A hook is a process of its own for every event, so the turn can be
written as JSON and taken up again by the next process.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, PathRefused
from shadowsnap.git.refs import ref_exists
from shadowsnap.model import Checkpoint, Conversation, Outcome
from shadowsnap.settings import Settings
from shadowsnap.snapshot.capture import small_directory
from shadowsnap.snapshot.tools import (
    absolute_path,
    command_projects,
    existing_folder,
    named_files,
    named_folders,
    path_inside,
    project_root,
    refusal,
    summary_of,
)
from shadowsnap.snapshot.worktree import Worktree
from shadowsnap.store.checkpoints import attachment_of, ref_of
from shadowsnap.store.conversations import (
    ConversationContent,
    before_prompt,
    from_database,
    from_file,
    from_json,
    from_transcript,
    is_database,
    keep_conversation,
    read_conversation,
)
from shadowsnap.store.history import History, ensure_log, note, read_history
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, locked_project, project_of
from shadowsnap.store.redaction import REDACTED, redacted_beginning, redacted_text

TOO_LARGE, UNREADABLE = "too-large", "unreadable"
_PATIENCE_SECONDS = 30.0
_MOST_TOOLS = 200


@dataclass
class TurnInProject:
    """One project in one turn. A tool call that comes second waits for the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    outcome: Outcome | None = None
    """What came of the first attempt that succeeded."""
    named: set[bytes] = field(default_factory=set)
    number: int | None = None
    """The number of the turn in this project."""
    project: Project | None = None
    is_whole: bool = False
    """Whether the whole directory was captured, not named files alone."""
    before: str | None = None
    """The checkpoint that holds the state before the turn."""
    calls: int = 0
    """How many tool calls are under way, where each has checkpoints of its own."""
    call_count: int = 0
    began: str | None = None
    """The checkpoint before the first of the calls under way."""
    after: Outcome | None = None
    """What came of the last closing checkpoint."""
    conversation_kept: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "workdir": str(self.project.workdir) if self.project else "",
            "turn": self.number,
            "named": sorted(os.fsdecode(path) for path in self.named),
            "whole": self.is_whole,
            "before": self.before,
            "calls": [self.calls, self.call_count, self.began],
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> TurnInProject:
        calls, call_count, began = record.get("calls", (0, 0, None))
        return cls(
            outcome=Outcome("already-taken"),
            named={os.fsencode(path) for path in record["named"]},
            number=record["turn"],
            project=project_of(record["workdir"]),
            is_whole=record["whole"] is True,
            before=record.get("before"),
            calls=calls,
            call_count=call_count,
            began=began,
        )

    def take(self, outcome: Outcome, number: int | None, project: Project, named: list[bytes]) -> None:
        """Note a snapshot that was taken for this turn."""
        self.outcome, self.project = outcome, project
        self.named.update(named)
        checkpoint = outcome.checkpoint
        if not self.is_whole:  # the beginning of the turn stays what it was
            self.before = checkpoint.id if checkpoint is not None else None
        self.number = self.number or number
        if outcome.status != "partial" or (checkpoint is not None and checkpoint.scope == "tree"):
            self.is_whole = True

    def begin_call(self, checkpoint: str | None) -> None:
        """A tool call begins at this checkpoint, or joins those that are under way."""
        self.began = self.began or checkpoint
        self.calls += 1
        self.call_count += 1

    def end_call(self) -> bool:
        """Whether that was the last one under way."""
        self.calls = max(0, self.calls - 1)
        return self.calls == 0 and self.began is not None

    def close(self, outcome: Outcome) -> None:
        """A checkpoint closed it, or there was nothing to close."""
        self.calls, self.began, self.after = 0, None, outcome


@dataclass(frozen=True)
class Call:
    """A tool call under way, and the projects that it may write to."""

    tool: str
    digest: str
    projects: tuple[str, ...]

    def to_json(self) -> list[Any]:
        return [self.tool, self.digest, list(self.projects)]

    @classmethod
    def from_json(cls, record: list[Any]) -> Call:
        tool, digest, projects = record
        return cls(str(tool), str(digest), tuple(map(str, projects)))


def input_digest(tool_input: Any) -> str:
    """Equal for equal inputs of tools."""
    if tool_input is None:
        return ""
    try:
        text = json.dumps(tool_input, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return "?"  # whatever a host hands over must not stop it
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class OpenTurn:
    """The turn under way, in every project that it writes to."""

    session_id: str | None = None
    prompt: str | None = None
    agent: str | None = None
    parent: str | None = None
    key: str = field(default_factory=lambda: f"{time.time_ns()}-{os.getpid()}")
    """The same in the log of every project that the turn wrote to."""
    began: float = field(default_factory=time.time)
    conversation: Any = None
    """What was said before the turn: a `ConversationContent`, a `Transcript`, or None."""
    not_kept: str = ""
    """Why the conversation is not kept."""
    resumed: bool = False
    """Whether other processes have a part in it."""
    ended: bool = False
    again: int = 0
    """How often it was continued after it had ended."""
    projects: dict[str, TurnInProject] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    tools: list[list[str]] = field(default_factory=list)
    """The tools that ran: their names, and what they were about."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def project(self, identity: str) -> TurnInProject:
        with self.lock:
            return self.projects.setdefault(identity, TurnInProject())

    def note_tool(self, tool: str, tool_input: Any) -> None:
        with self.lock:
            if tool and len(self.tools) < _MOST_TOOLS:
                self.tools.append([tool, summary_of(tool_input)])

    def begin_call(self, call: Call) -> None:
        with self.lock:
            self.calls.append(call)

    def end_call(self, tool: str, digest: str, projects: set[str]) -> Call | None:
        """The call under way that is meant: the very same, else one of the same tool, else one that may
        write to the same project."""
        with self.lock:
            fitting = (
                [call for call in self.calls if (call.tool, call.digest) == (tool, digest)]
                or [call for call in self.calls if call.tool == tool]
                or [call for call in self.calls if projects.intersection(call.projects)]
            )
            if not fitting:
                return None
            self.calls.remove(fitting[0])
            return fitting[0]

    def take_conversation(self, conversation: Any, settings: Settings) -> None:
        """Note what was said before the turn, or why that is not kept."""
        found = conversation_now(conversation, settings)
        self.conversation, self.not_kept = (None, found) if isinstance(found, str) else (found, "")

    def facts(self, tool: str | None = None) -> tuple[tuple[str, Any], ...]:
        """What a checkpoint of this turn says of it."""
        names = ("session_id", "prompt", "agent", "parent", "key")
        return (*((name, getattr(self, name)) for name in names), ("tool", tool))

    def to_json(self, granularity: str) -> dict[str, Any]:
        content = self.conversation
        found = content.to_json() if isinstance(content, Transcript) else None
        return {
            "session_id": self.session_id,
            "prompt": self.prompt,
            "agent": self.agent,
            "parent": self.parent,
            "key": self.key,
            "began": self.began,
            "transcript": found,
            "places": [each.to_json() for each in list(self.projects.values()) if each.project is not None],
            "granularity": granularity,
            "calls": [call.to_json() for call in list(self.calls)],
            "tools": list(self.tools),
            "again": self.again + self.ended,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> OpenTurn:
        """The turn that another process wrote down; one that cannot be read is a turn that just began."""
        turn = cls(resumed=True)
        try:
            # Older versions noted no directory: such a path is not trusted.
            noted: list[Any] = list(record.get("transcript") or ())
            path, size, folder, session, answered, turn_id = [*noted, *[None] * 6][:6]
            turn.session_id, turn.prompt = record.get("session_id"), record.get("prompt")
            turn.agent, turn.parent = record.get("agent"), record.get("parent")
            turn.key, turn.began = str(record.get("key") or turn.key), float(record.get("began") or turn.began)
            turn.again = int(record.get("again") or 0)
            if path and folder:
                turn.conversation = Transcript(path, size, folder, session, answered is True, str(turn_id or ""))
            found = [TurnInProject.from_json(each) for each in record.get("places", ())]
            turn.projects = {each.project.id: each for each in found if each.project is not None}
            turn.calls = [Call.from_json(call) for call in record.get("calls", ())]
            turn.tools = [[str(word) for word in each] for each in record.get("tools", ())]
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        return turn


@dataclass(frozen=True)
class Transcript:
    """A transcript file, and how long it was at the moment that matters."""

    path: str
    size: int | None = None
    """Of a database, that moment itself in milliseconds."""
    folder: str | None = None
    """The directory that it must lie in, if the path is not to be trusted."""
    session: str | None = None
    """The session that is meant, in a database with several."""
    answered: bool = False
    """Whether the prompt of the turn and a part of its answer may be in it already."""
    turn: str = ""
    """The agent's own id of the turn, if it has one."""

    def to_json(self) -> list[Any]:
        return [self.path, self.size, self.folder, self.session, self.answered, self.turn]


def conversation_now(conversation: Any, settings: Settings) -> Any:
    """A conversation as it is in this moment, whatever the host does to it later. A file is only looked at, and
    read when there is time. A text says why it is not kept."""
    if conversation is None or not settings.keep_conversations:
        return None
    if isinstance(conversation, Transcript):
        return conversation
    if isinstance(conversation, (str, os.PathLike)):
        path = os.path.expanduser(os.fspath(conversation))
        try:
            return Transcript(path, os.stat(path).st_size)
        except OSError:
            return UNREADABLE
    content, most = from_json(conversation), settings.max_conversation_bytes
    return TOO_LARGE if most is not None and len(content.data) > most else content


class BackgroundJobs:
    """Does jobs one after the other beside the program. The program does not end before they do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None

    def add(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a fork leaves it behind
                thread = threading.Thread(target=self._work, name="shadowsnap-jobs")
                self._jobs = [job]
                thread.start()
                self._thread = thread
            else:
                self._jobs.append(job)

    def wait(self) -> None:
        thread = self._thread
        if thread is not None and thread.ident != threading.get_ident():
            thread.join(_PATIENCE_SECONDS)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.pop(0)
            job()


# --- what was said in a turn -----------------------------------------------------------------------------


_PROMPT_LENGTH = 2000
_DOING = "keeping a conversation"


def redacted_prompt(prompt: Any, settings: Settings) -> str:
    """What a person asked for, without secrets and not too long: checkpoints and the log keep it."""
    return redacted_beginning(str(prompt), _PROMPT_LENGTH, settings.redact)


def keep_at_beginning(turn: OpenTurn, part: TurnInProject, settings: Settings) -> None:
    """Keep the conversation before a turn with the state before it."""
    if part.before is not None:
        _keep(turn, turn.conversation, [(part, part.before)], settings, up_to=turn.prompt)


def keep_at_end(turn: OpenTurn, conversation: Any, settings: Settings) -> None:
    """Keep what was not kept yet, and the conversation at the end with the state after the turn."""
    parts = [part for part in turn.projects.values() if part.project is not None]
    late = [(part, part.before) for part in parts if not part.conversation_kept and part.before]
    _keep(turn, turn.conversation or turn.not_kept or None, late, settings, up_to=turn.prompt)
    ends = [
        (part, part.after.checkpoint.id)
        for part in parts
        if part.after is not None and part.after.checkpoint is not None and part.after.status == "taken"
    ]
    _keep(turn, conversation_now(conversation, settings), ends, settings)


def _keep(
    turn: OpenTurn,
    content: Any,
    places: list[tuple[TurnInProject, str]],
    settings: Settings,
    up_to: str | None = None,
) -> None:
    """Keep a conversation with checkpoints, and write the log lines. A transcript is kept up to a prompt."""
    if content is None or not places or not settings.keep_conversations:
        return
    store, deadline = Store(settings.resolved_base(), settings.fsync), Deadline(settings.deadline)
    if not store.git_dir.is_dir():
        return
    if isinstance(content, Transcript):
        transcript, content = content, _read(content, settings.max_conversation_bytes)
        if (up_to or transcript.turn) and not isinstance(content, str):
            content = before_prompt(
                content, _is_prompt(up_to or "", settings), turn=transcript.turn, answered=transcript.answered
            )
    session = str(turn.session_id) if turn.session_id else None
    for part, checkpoint in places:
        project = part.project
        ref = ref_of(store, project, checkpoint) if project is not None else None
        if project is None or ref is None:
            continue
        facts: dict[str, Any] = {"turn": part.number}
        if isinstance(content, str):
            facts["why"] = turn.not_kept = content
        else:
            like = _last_conversation(read_history(store, project, deadline), session)
            place = [(project, ref)]
            refs = keep_conversation(store, content, session, place, deadline, own=settings.redact, like=like)
            facts |= {"refs": refs, "messages": content.spoken}
            part.conversation_kept = True
        with locked_project(store, project, _DOING, deadline):
            note(store, project, "conversation", **facts)


def _is_prompt(prompt: str, settings: Settings) -> Callable[[str], bool]:
    """Whether a text is a prompt that was kept without its secrets, and perhaps without its end."""
    asked = prompt.strip()
    plain = asked.partition(REDACTED)[0]  # to redact every text of a transcript would take long

    def is_prompt(text: str) -> bool:
        text = text.strip()
        return bool(asked) and text.startswith(plain) and redacted_prompt(text, settings).strip() == asked

    return is_prompt


def _read(content: Transcript, most_bytes: int | None) -> ConversationContent | str:
    if is_database(content.path):
        return from_database(content.path, content.session or "", content.size, most_bytes)
    return from_file(content.path, most_bytes, content.size, content.folder)


def conversation_at(
    store: Store, target: Checkpoint, history: History, sessions: list[str], asked: str | None, deadline: Deadline
) -> tuple[Conversation | None, str]:
    """What is kept with a checkpoint, of the first of these sessions that has something there, or of `asked`
    alone; if nothing, then why."""
    try:
        found = read_conversation(store, target.ref, [asked] if asked else sessions, deadline)
    except DamagedObject as problem:
        return None, f", as what is left of it cannot be read: {problem}"
    if found is not None and asked is not None and found.session_id != asked:
        return None, f" for session {asked}"
    if found is not None:
        return found, ""
    had_one = any(attachment_of(target.ref) in turn.conversations for turn in history.turns.values())
    return None, " any more" if had_one else ""


def attach_conversation(
    store: Store,
    project: Project,
    checkpoint: Checkpoint,
    conversation: Any,
    session_id: str | None,
    deadline: Deadline,
    *,
    patterns: tuple[str, ...],
    replace_own: bool,
    prompt: str | None,
    began: datetime | None,
    **facts: Any,
) -> Conversation | None:
    """Keep a conversation that came from elsewhere; None if the session itself had handed one over."""
    kept, history = attachment_of(checkpoint.ref), read_history(store, project, deadline)
    mine = [turn for turn in history.turns.values() if turn.session_id == session_id]
    own = any(kept in turn.conversations for turn in mine)
    if own and not replace_own and ref_exists(store.git_dir, kept):
        return None
    content = from_transcript(conversation) if isinstance(conversation, bytes) else from_json(conversation)
    like, place = _last_conversation(history, session_id), [(project, checkpoint.ref)]
    refs = keep_conversation(store, content, session_id, place, deadline, own=patterns, like=like)
    if not refs:
        return None
    if session_id:
        facts |= {"checkpoint": checkpoint.id, "session": session_id, "refs": refs, "messages": content.spoken}
        facts |= {"prompt": redacted_text(prompt, patterns) if prompt else None, "turn": checkpoint.turn}
        facts["began"] = (began or checkpoint.created_at).timestamp()
        facts["key"] = facts.get("key") or f"attached-{checkpoint.id[:12]}"
        with locked_project(store, project, _DOING, deadline):
            ensure_log(store, project, deadline)
            known = read_history(store, project, deadline).attached
            if not any(line.get("key") == facts["key"] for line in known):
                note(store, project, "attach", **facts)
    return read_conversation(store, checkpoint.ref, [session_id], deadline)


def _last_conversation(history: History, session_id: str | None) -> str | None:
    """The ref of the last conversation of a session: the next one most likely begins like it."""
    refs = [ref for turn in history.turns.values() if turn.session_id == session_id for ref in turn.conversations]
    return refs[-1] if session_id and refs else None


# --- the directories to protect before a tool runs -------------------------------------------------


class Target:
    """A directory to protect before a tool runs, and the paths in it that the tool names."""

    def __init__(self, workdir: Path, base: Path, *, whole: bool = True) -> None:
        self.workdir = workdir
        self.whole = whole
        """False for a directory that is no project (~/Downloads): only the named files are captured."""
        self.files: list[str] = []
        self._root = Path(os.path.realpath(workdir))
        self.is_refused = refusal(self._root, base) is not None

    def holds(self, path: str) -> bool:
        try:
            path_inside(self._root, path)
        except PathRefused:
            return False
        return True

    def is_small(self, folder: str) -> bool:
        """Whether a directory below it can be captured quickly."""
        inside = path_inside(self._root, folder)
        with Worktree(self._root) as worktree:
            return inside != b"" and small_directory(worktree, inside) is not None


def find_targets(tool_input: Any, cwd: str, roots: Iterable[str], base: Path) -> list[Target]:
    """The directories that a tool may write to. The project around `cwd` comes first, then further roots of the
    workspace, directories that a command runs in or names, and the projects of named files."""
    named = [absolute_path(folder, cwd) for folder in named_folders(tool_input)]
    projects = {existing_folder(folder): project_root(folder, base) for folder in (cwd, *roots, *named)}
    # A directory that is no project belongs to the one around it in which the agent works: it may have used `cd`.
    tops = dict.fromkeys(project or _outermost(folder, projects, base) for folder, project in projects.items())
    targets = [Target(top, base) for top in tops]
    for project in command_projects(tool_input, cwd, base):
        if _find_target(targets, str(project)) is None:
            targets.append(Target(project, base))
    for file in named_files(tool_input):
        path = absolute_path(file, cwd)
        _add_path(targets, path, base)
        if os.path.islink(path):  # most tools write through a link
            _add_path(targets, os.path.realpath(path), base)
    return targets


def _outermost(folder: Path, folders: Iterable[Path], base: Path) -> Path:
    """The largest of these directories that holds one of them and may be captured; else that one itself."""
    around = (each for each in folders if folder.is_relative_to(each))
    allowed = [each for each in around if refusal(Path(os.path.realpath(each)), base) is None]
    return min(allowed, key=lambda each: len(each.parts), default=folder)


def _find_target(targets: Iterable[Target], path: str) -> Target | None:
    """The first target that holds a path and may be captured."""
    return next((target for target in targets if not target.is_refused and target.holds(path)), None)


def _add_path(targets: list[Target], path: str, base: Path) -> None:
    """Add a named path to the target that holds it, or to a new one."""
    if ".git" in Path(path).parts or Path(path).is_relative_to(base):
        return  # never captured
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    target = _find_target(targets, path)
    if target is None:
        # An agent that was started in the home directory works in the projects below it.
        project = project_root(path, base)
        target = next((each for each in targets if each.holds(path)), None) if project is None else None
        if target is None:
            if is_folder and project is None:
                return
            target = Target(project or existing_folder(os.path.dirname(path)), base, whole=project is not None)
            targets.append(target)
    if not is_folder or (target.whole and not target.is_refused and target.is_small(path)):
        target.files.append(path)


def first_name(targets: Sequence[Target]) -> str:
    """The name of the first named file, for the reason of a checkpoint."""
    return next((os.path.basename(file) for target in targets for file in target.files), "")
