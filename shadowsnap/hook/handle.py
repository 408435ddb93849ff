"""What each event of an agent asks for: a snapshot before a tool, a turn that begins or ends, a `/rollback`.

The same code runs in a hook's own process (`client.py`) and in the resident helper (`server.py`).
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shadowsnap.base import configured_base
from shadowsnap.errors import DeadlineExceeded, LockTimeout, StoreNotOurs
from shadowsnap.files import ownership_problem
from shadowsnap.hook.client import end_at_last
from shadowsnap.hook.payload import (
    OTHER,
    PROBE,
    PROMPT,
    SESSION_START,
    TOOL,
    HookEvent,
    implied_transcript,
    output_in,
    read_event,
    transcripts_folder,
)
from shadowsnap.hook.session import HookSession, log_event
from shadowsnap.snapshot.tools import may_write, summary_of

if TYPE_CHECKING:  # what takes snapshots is loaded by the hooks that need it: most find that all is safe
    from shadowsnap.loop import AgentLoop
    from shadowsnap.manager import CheckpointManager
    from shadowsnap.model import Outcome
    from shadowsnap.snapshot.watch import Watcher

# Agents wait between 20 s (as we install it) and 600 s for a hook. The files that a tool names are
# captured after this, within a few seconds more.
DEADLINE = 8.0
# Time that is left after the lock of a session could not be had.
_SECONDS_WITHOUT_RECORD = 2.5
# A person waits for a rollback, and nothing else does.
_ROLLBACK_SECONDS = 28
_PROMPT_LENGTH = 2000
_NOT_KEPT = "conversation not kept"

in_helper = False
"""Whether this process works for the hook of another one. What it cannot do, that one does."""
watchers: dict[str, Watcher] = {}
"""In a process that serves many hooks: those that watch the projects."""
directory = kind = ""
"""Where the last event happened, and which one it was."""


class NotDone(Exception):
    """Raised in the helper: the hook's own process has to do the work."""


def run_hook(agent: str, data: bytes, event_name: str = "") -> bytes | None:
    """Do what one event asks for; returns what is to be printed, if anything. Raises nothing but NotDone."""
    global directory, kind
    event = None
    try:
        event = read_event(agent, data, event_name)
        directory, kind = event.cwd, event.kind
        if event.kind == PROBE:
            _log(agent, event, "probe")
            return None
        if event.kind == OTHER and not event.after:
            return None
        base = configured_base()
        why = ownership_problem(os.path.realpath(base))
        if why:
            raise StoreNotOurs(path=base, why=why)
        return _dispatch(event, HookSession(base, event))
    except NotDone:
        raise
    except Exception as problem:
        if in_helper and not _is_about_time(problem):
            raise NotDone from problem  # it may lack the memory or the descriptors that another process has
        _log(agent, event, "failed", problem)
        return None


def _dispatch(event: HookEvent, session: HookSession) -> bytes | None:
    if event.kind == TOOL:
        before_tool(event, session)
    elif event.kind == PROMPT:
        return prompted(event, session)
    elif event.kind == SESSION_START:
        session_started(event, session)
    elif event.after:
        after_tool(event, session)
    else:
        stopped(event, session)
    return None


# --- the events --------------------------------------------------------------------------------------


def before_tool(event: HookEvent, session: HookSession) -> None:
    """Make sure that what the tool may write to is safe; most often it is."""
    if not may_write(event.tool):
        return
    event = session.with_root(event)
    if _covers(session, event):
        _note_tool(event, session)
        return
    try:
        _protect(event, session)
    except (OSError, LockTimeout) as problem:
        if in_helper and not _is_about_time(problem):
            raise
        _log(event.agent, event, "failed", problem)
        _protect_without_record(event, session)
    _note_tool(event, session)


def _protect(event: HookEvent, session: HookSession) -> None:
    with session.lock(DEADLINE):
        session.read()
        if _covers(session, event):  # by the hook that we waited for
            return
        loop = _agent_loop()
        if not session.is_same_turn(event):
            _close(event, session, loop, "interrupted")
            session.begin_turn(event, "", prompted=False)
        elif session.record.get("ended") is True:
            session.continue_turn(event)  # another program's hook did not let the agent stop
        outcome = _take(event, session, loop)
        if _is_for_the_hook(outcome):
            raise NotDone
        _log_taken(event, loop, outcome)


def _protect_without_record(event: HookEvent, session: HookSession) -> None:
    """The record of the session cannot be read or written, or its lock is held by a process that hangs. A snapshot
    and a turn too many do no harm."""
    loop = _agent_loop(_SECONDS_WITHOUT_RECORD)
    if not session.is_same_turn(event):
        session.record = session.next_turn(event, "", prompted=False)
    loop.resume_turn(session.state_of(event))
    outcome = loop.before_tool(event.tool, event.tool_input, event.cwd, event.roots)
    if _is_for_the_hook(outcome):
        raise NotDone
    _log_taken(event, loop, outcome)


def _take(event: HookEvent, session: HookSession, loop: AgentLoop) -> Outcome:
    """Take the snapshot of a turn, or a further one of what it names now. The session is locked."""
    began = session.record.get("began", 0.0) if session.record.get("prompted") else 0.0
    for watcher in watchers.values():
        if watcher.compared_at < began:
            watcher.doubt()  # another process served the prompt, and nothing was compared since
    loop.resume_turn(session.state_of(event))
    outcome = loop.before_tool(event.tool, event.tool_input, event.cwd, event.roots)
    # What is refused now (git is missing, the directory is not there yet) may not be at the next call.
    if outcome.status not in ("failed", "disabled", "refused") and not _ran_out_of_time(outcome.error):
        session.note_taken(event, loop.turn_state())
    return outcome


def _log_taken(event: HookEvent, loop: AgentLoop, outcome: Outcome) -> None:
    if outcome.status != "already-taken":
        _log(event.agent, event, outcome.status, outcome.error, outcome=outcome)
        for text in loop.warnings:
            _log(event.agent, event, "settings", UserWarning(text))


def after_tool(event: HookEvent, session: HookSession) -> None:
    """A tool is done; where each call has checkpoints of its own, this is the second one."""
    if not session.counts_calls():
        return
    with session.lock(DEADLINE):
        session.read()
        loop = _agent_loop()
        loop.resume_turn(session.state_of(event))
        outcome = loop.after_tool(event.tool, event.tool_input, event.cwd)
        session.note_state(loop.turn_state())
    if outcome.status not in ("not-needed", "unchanged"):
        _log(event.agent, event, outcome.status, outcome.error, outcome=outcome)


def prompted(event: HookEvent, session: HookSession) -> bytes | None:
    """A message of the person begins a turn, and ends one that the agent was interrupted in. A `/rollback` begins
    none; what it returns is the answer."""
    if event.is_subagent or session.is_child:
        return None  # a subagent's instructions are no message of the person
    if _is_rollback(event) or output_in(event.prompt):
        return _rollback(event, session)
    _begin_turn(event, session)
    return None


def _rollback(event: HookEvent, session: HookSession) -> bytes | None:
    if in_helper:
        raise NotDone  # it changes the person's files: never for a request that came over a socket
    running = bool(event.turn) and session.is_same_turn(event) and session.record.get("ended") is not True
    if session.is_open and not running:
        with session.lock(DEADLINE):
            session.read()
            _close(event, session, _agent_loop(), "interrupted")
    end_at_last(event.agent, _ROLLBACK_SECONDS)
    found = _answer_to(event)
    is_typed = _first_word(event) == "/rollback" or bool(event.command or output_in(event.prompt))
    if found is None and not is_typed:
        _begin_turn(event, session)
    return found


def _begin_turn(event: HookEvent, session: HookSession) -> None:
    with session.lock(DEADLINE):
        session.read()
        if event.continues and not event.begins:
            if session.record.get("turn") is not None and event.prompt.strip():
                session.continue_turn(event)
            return
        if event.turn and session.is_same_turn(event) and session.record.get("ended") is not True:
            return  # a message added while the agent works
        if session.is_open:
            _close(event, session, _agent_loop(), "interrupted")
        session.begin_turn(event, _redacted(event.prompt), prompted=True)
        if session.record.get("shell") and event.agent == "codex":
            # What it types into a shell that is still open is announced by no event.
            loop = _agent_loop()
            outcome = _take(replace(event, tool="write_stdin", tool_input={}), session, loop)
            _log_taken(event, loop, outcome)


def session_started(event: HookEvent, session: HookSession) -> None:
    """Keep the limits, at most once in a while, and let a new project's first snapshot begin. What takes time
    goes on in the background."""
    if event.parent and session.is_child:
        return
    if event.parent:
        with session.lock(DEADLINE):
            session.note_parent(event.parent)
        return
    manager = _manager()
    manager.auto_prune()
    warming = manager.warm_up(manager.get_working_dir_for_path(event.cwd))
    _log(event.agent, event, "session started" + (", first snapshot begun" if warming else ""))


def stopped(event: HookEvent, session: HookSession) -> None:
    """The agent is done: close the turn with a snapshot of what it touched, and keep the conversation. A shell
    that it left running does not keep it open: many run for hours, and what the person edits meanwhile is no work
    of the turn. When it reports its end, the turn goes on (see `_begin_turn`)."""
    if event.is_subagent or session.is_child:
        return  # the turn that the subagent works for goes on
    if event.background and not event.ends:
        return
    if not event.ends and session.is_earlier_turn(event):
        return  # the next prompt has ended that one
    with session.lock(DEADLINE):
        session.read()
        if session.is_open:
            unfinished = event.interrupted or bool(event.ends)
            _close(event, session, _agent_loop(), "interrupted" if unfinished else "done")
        elif session.record.get("turn") is not None and session.record.get("ended") is not True:
            session.note_ended()
    if event.ends and event.session:
        _manager().end_session(session.id, event.ends)


def _close(event: HookEvent, session: HookSession, loop: AgentLoop, status: Any) -> None:
    """End the turn of the record. The session is locked."""
    if not session.is_open:
        return
    if in_helper and os.path.isdir(os.path.join(session.base, "remote")):
        raise NotDone  # what is pushed then needs the credentials in the environment of the hook itself
    again = session.record.get("again", 0)
    loop.resume_turn({**session.record["state"], "tools": session.tools(), "again": again})
    loop.note_named(session.new_files())
    for watcher in watchers.values():
        watcher.doubt()  # some writes cause no event, and the model is done: there is time to look at everything
    last_heard = session.last_heard if event.kind == PROMPT else None
    outcomes = loop.end_turn(_transcript(event), status, last_heard)
    if any(map(_is_for_the_hook, outcomes)):
        raise NotDone
    session.note_ended()  # not before: if this process dies, the next one ends the turn
    for outcome in outcomes:
        if outcome.status != "unchanged":
            _log(event.agent, event, outcome.status, outcome.error, outcome=outcome)
    if why := loop.turn.not_kept:
        _log(event.agent, event, _NOT_KEPT, ValueError(f"{event.transcript}: {why}"))


# --- `/rollback`, answered without the model ----------------------------------------------------------

# Some agents show the reason with which a hook stops a prompt to the person, word for word, and then ask no model.
# A prompt is taken for ours only if all of it is a command of the grammar whose numbers and files exist: "rollback
# the last commit" goes to the model untouched.

# The event that may answer, and the word that stops the prompt there.
_ANSWERING = {
    "claude": ("userpromptexpansion", "block"),
    "codex": ("userpromptsubmit", "block"),
    "qwen": ("userpromptsubmit", "block"),
    "gemini": ("beforeagent", "deny"),
}
_LONGEST = 2000


def _is_rollback(event: HookEvent) -> bool:
    """Whether a prompt may be meant for us; cheap, and true for every one that is."""
    return bool(event.command) or _first_word(event) in ("/rollback", "rollback")


def _first_word(event: HookEvent) -> str:
    return next(iter(event.prompt[:_LONGEST].split(None, 1)), "").lower()


def _answer_to(event: HookEvent) -> bytes | None:
    """What the hook prints; None if this prompt is the model's."""
    name, word = _ANSWERING.get(event.agent, ("", ""))
    if event.name == name and (output := output_in(event.prompt)):
        return _stopping(word, output)  # the agent ran the command itself and would let the model repeat this
    if event.name != name or not _is_rollback(event) or len(event.prompt) > _LONGEST:
        return None
    from shadowsnap.agents.slash import RollbackCommand
    from shadowsnap.manager import CheckpointManager

    manager = CheckpointManager.from_settings()
    command = RollbackCommand(manager, manager.find_project(event.cwd))
    line = event.command.removeprefix("rollback") if event.command else event.prompt
    # Where the agent itself knows the command, everything behind it is ours, also what is wrong with it.
    if not event.command and not command.is_command(line):
        return None
    return _stopping(word, str(command.run(line)))


def _stopping(word: str, text: str) -> bytes:
    return json.dumps({"decision": word, "reason": text}).encode("ascii") + b"\n"


# --- steps -----------------------------------------------------------------------------------


def _note_tool(event: HookEvent, session: HookSession) -> None:
    shell = event.agent == "codex" and event.tool == "Bash"
    session.note_tool(event.tool, summary_of(event.tool_input), session.files_not_taken(event), shell=shell)


def _covers(session: HookSession, event: HookEvent) -> bool:
    try:
        return session.covers(event)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # a record that is not what we wrote


def _transcript(event: HookEvent) -> Any:
    """The transcript of the agent, if it lies where that agent keeps them. Anything can be named in the input
    of a hook."""
    from shadowsnap.turns import Transcript  # here, as below: most hooks take no snapshot

    if not event.transcript:
        implied = implied_transcript(event.agent, event.session)
        return Transcript(implied[0], None, implied[1], event.session) if implied else None
    folder = transcripts_folder(event.agent, event.transcript)
    if folder is None:
        why = f"{event.transcript} is not where {event.agent or 'this agent'} keeps its transcripts"
        _log(event.agent, event, _NOT_KEPT, ValueError(why))
        return None
    return Transcript(event.transcript, None, folder)


def _redacted(prompt: str) -> str:
    """What a person asked for, without secrets: the log keeps it."""
    if not prompt:
        return ""
    from shadowsnap.settings import load_settings
    from shadowsnap.store.redaction import redacted_beginning

    return redacted_beginning(prompt, _PROMPT_LENGTH, load_settings().settings.redact)


def _agent_loop(seconds: float | None = None) -> AgentLoop:
    from shadowsnap.access import Access
    from shadowsnap.loop import AgentLoop

    access = Access.of_person(deadline=DEADLINE if seconds is None else seconds)
    access.watchers = watchers
    return AgentLoop(access)


def _manager() -> CheckpointManager:
    """For what comes once in a session, and needs more than an agent loop."""
    from shadowsnap.manager import CheckpointManager

    return CheckpointManager.from_settings(deadline=DEADLINE)


def _ran_out_of_time(problem: Exception | None) -> bool:
    return isinstance(problem, DeadlineExceeded)


def _is_for_the_hook(outcome: Outcome) -> bool:
    """Whether what failed in the helper may succeed in the hook's own process."""
    return in_helper and outcome.status == "failed" and not _is_about_time(outcome.error)


def _is_about_time(problem: Exception | None) -> bool:
    """Whether all the time is gone, so that there is none to try it in another process."""
    return isinstance(problem, (DeadlineExceeded, LockTimeout))


def _log(agent: str, event: HookEvent | None, status: str, problem: Any = None, outcome: Any = None) -> None:
    try:
        log_event(agent, event, status, problem, outcome)
    except Exception:  # a log that cannot be written must not stop an agent
        pass
