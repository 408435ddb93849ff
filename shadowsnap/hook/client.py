"""`shadowsnap hook AGENT`: what agents run before a tool and at the other joints of a session.

It always ends with 0 and says nothing: several agents take any other answer for a veto, and some
show what a hook prints to the model. What there is to say goes to the hook log.

Most calls find that everything is safe already. Until that is clear, next to nothing is imported.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from shadowsnap.errors import StoreNotOurs
from shadowsnap.files import ownership_problem
from shadowsnap.hook.payload import OTHER, PROBE, PROMPT, SESSION_START, TOOL, HookEvent, read_event
from shadowsnap.hook.session import HookSession
from shadowsnap.records import Any
from shadowsnap.settings import configured_base
from shadowsnap.snapshot.tools import may_write, summary_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from typing import NoReturn

    from shadowsnap.manager import CheckpointManager

# Agents wait between 20 s (as we install it) and 600 s for a hook. The files that a tool names are
# captured after this, within a few seconds more.
DEADLINE = 8.0
# Whatever hangs (a dead network drive, an agent that never closes our input): this ends it.
_LAST_RESORT = 17
# A person waits for a rollback, and nothing else does.
_ROLLBACK_SECONDS = 28
_PROMPT_LENGTH = 2000
_NOT_KEPT = "conversation not kept"
# How long to wait for the end of an input that is whole already.
_MORE_SECONDS = 1.0
# A longer input is cut: the tool and the files that it names come before what it writes into them.
_MOST_INPUT = 64 << 20


def main(words: Sequence[str]) -> NoReturn:
    """The whole process: 0 whatever happens, and silent but for the answer to a `/rollback`."""
    try:
        stdout = os.dup(1)
        _be_silent()
        _end_at_last(words[0] if words else "")
        gc.disable()  # for so short a life, collecting costs more than it gives back
        answer = run_hook(words[0] if words else "", _input(), words[1] if len(words) > 1 else "")
        if answer:
            os.write(stdout, answer)
    finally:
        os._exit(0)


def run_hook(agent: str, data: bytes, event_name: str = "") -> bytes | None:
    """Do what one event asks for; returns what is to be printed, if anything. Raises nothing."""
    event = None
    try:
        event = read_event(agent, data, event_name)
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
    except Exception as problem:
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
    if _covers(session, event):
        _note_tool(event, session)
        return
    with session.lock(DEADLINE):
        session.read()
        if _covers(session, event):  # by the hook that we waited for
            _note_tool(event, session)
            return
        manager = _manager()
        if not session.is_same_turn(event):
            _close(event, session, manager, "interrupted")
            session.begin_turn(event, "", prompted=False)
        _take(event, session, manager)
    _note_tool(event, session)


def _take(event: HookEvent, session: HookSession, manager: CheckpointManager) -> None:
    """Take the snapshot of a turn, or a further one of what it names now. The session is locked."""
    manager.resume_turn(session.state_of(event))
    outcome = manager.before_tool(event.tool, event.tool_input, event.cwd, event.roots)
    # What is refused now (git is missing, the directory is not there yet) may not be at the next call.
    if outcome.status not in ("failed", "disabled", "refused") and not _ran_out_of_time(outcome.error):
        session.note_taken(event, manager.turn_state())
    if outcome.status != "already-taken":
        _log(event.agent, event, outcome.status, outcome.error, outcome=outcome)
        for text in manager.warnings:
            _log(event.agent, event, "settings", UserWarning(text))


def after_tool(event: HookEvent, session: HookSession) -> None:
    """A tool is done; where each call has checkpoints of its own, this is the second one."""
    if not session.counts_calls():
        return
    with session.lock(DEADLINE):
        session.read()
        manager = _manager()
        manager.resume_turn(session.state_of(event))
        outcome = manager.after_tool(event.tool, event.tool_input, event.cwd)
        session.note_state(manager.turn_state())
    if outcome.status not in ("not-needed", "unchanged"):
        _log(event.agent, event, outcome.status, outcome.error, outcome=outcome)


def prompted(event: HookEvent, session: HookSession) -> bytes | None:
    """A message of the person begins a turn, and ends one that the agent was interrupted in. A `/rollback` begins
    none; what it returns is the answer."""
    if event.is_helper or session.is_child:
        return None  # a helper's instructions are no message of the person
    if event.prompt[:20].lstrip("/").lower().startswith("rollback") or event.command:
        return _rollback(event, session)
    _begin_turn(event, session)
    return None


def _rollback(event: HookEvent, session: HookSession) -> bytes | None:
    from shadowsnap.hook.rollback import answer

    running = bool(event.turn) and session.is_same_turn(event) and session.record.get("ended") is not True
    if session.is_open and not running:
        with session.lock(DEADLINE):
            session.read()
            _close(event, session, _manager(), "interrupted")
    _end_at_last(event.agent, _ROLLBACK_SECONDS)
    found = answer(event)
    is_typed = event.prompt.lower().startswith("/rollback") or bool(event.command)
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
            _close(event, session, _manager(), "interrupted")
        session.begin_turn(event, _redacted(event.prompt), prompted=True)
        if session.record.get("shell") and event.agent == "codex":
            # What it types into a shell that is still open is announced by no event.
            from shadowsnap.records import replace

            _take(replace(event, tool="write_stdin", tool_input={}), session, _manager())


def session_started(event: HookEvent, session: HookSession) -> None:
    """Keep the limits, at most once in a while, and let a new project's first snapshot begin. What takes time
    goes on in the background."""
    if event.parent:
        with session.lock(DEADLINE):
            session.note_parent(event.parent)
        return
    manager = _manager()
    manager.auto_prune()
    warming = manager.warm_up(manager.get_working_dir_for_path(event.cwd))
    _log(event.agent, event, "session started" + (", first snapshot begun" if warming else ""))


def stopped(event: HookEvent, session: HookSession) -> None:
    """The agent is done: close the turn with a snapshot of what it touched, and keep the conversation."""
    if event.is_helper or session.is_child:
        return  # the turn that the helper works for goes on
    if event.background and not event.ends:
        return  # tasks of the turn go on; their end is reported
    manager = None
    with session.lock(DEADLINE):
        session.read()
        if session.is_open:
            manager = _manager()
            unfinished = event.interrupted or bool(event.ends)
            _close(event, session, manager, "interrupted" if unfinished else "done")
        elif session.record.get("turn") is not None and session.record.get("ended") is not True:
            session.note_ended()
    if event.ends and event.session:
        (manager or _manager()).end_session(session.id, event.ends)


def _close(event: HookEvent, session: HookSession, manager: CheckpointManager, status: Any) -> None:
    """End the turn of the record. The session is locked."""
    if not session.is_open:
        return
    again = session.record.get("again", 0)
    manager.resume_turn({**session.record["state"], "tools": session.tools(), "again": again})
    outcomes = manager.end_turn(_transcript(event), status)
    session.note_ended()  # not before: if this process dies, the next one ends the turn
    for outcome in outcomes:
        if outcome.status != "unchanged":
            _log(event.agent, event, outcome.status, outcome.error, outcome=outcome)
    from shadowsnap.manager import why_not_kept  # here: most hooks do not load the manager

    if why := why_not_kept(manager):
        _log(event.agent, event, _NOT_KEPT, ValueError(f"{event.transcript}: {why}"))


# --- steps -----------------------------------------------------------------------------------


def _note_tool(event: HookEvent, session: HookSession) -> None:
    shell = event.agent == "codex" and event.tool == "Bash"
    session.note_tool(event.tool, summary_of(event.tool_input), shell=shell)


def _covers(session: HookSession, event: HookEvent) -> bool:
    try:
        return session.covers(event)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # a record that is not what we wrote


def _transcript(event: HookEvent) -> Any:
    """The transcript of the agent, if it lies where that agent keeps them. Anything can be named in the input
    of a hook."""
    if not event.transcript:
        return None
    from shadowsnap.hook.transcripts import transcripts_folder

    folder = transcripts_folder(event.agent, event.transcript)
    if folder is None:
        why = f"{event.transcript} is not where {event.agent or 'this agent'} keeps its transcripts"
        _log(event.agent, event, _NOT_KEPT, ValueError(why))
        return None
    from shadowsnap.turns import Transcript

    return Transcript(event.transcript, None, folder)


def _redacted(prompt: str) -> str:
    """What a person asked for, without secrets: the log keeps it."""
    if not prompt:
        return ""
    from shadowsnap.settings import load_settings
    from shadowsnap.store.redaction import redacted_beginning

    return redacted_beginning(prompt, _PROMPT_LENGTH, load_settings().settings.redact)


def _manager() -> CheckpointManager:
    from shadowsnap.manager import CheckpointManager

    return CheckpointManager.from_settings(deadline=DEADLINE)


def _ran_out_of_time(problem: Exception | None) -> bool:
    from shadowsnap.errors import DeadlineExceeded

    return isinstance(problem, DeadlineExceeded)


def _input() -> bytes:
    """What the agent wrote to us; nothing if a person tries the command on a terminal. Some agents never
    close our input: what is whole is enough then."""
    stream = sys.stdin
    if stream is None or stream.isatty():
        return b""
    if sys.platform == "win32":
        return stream.buffer.read()
    import select

    descriptor, pieces, size = stream.fileno(), [b""], 0
    while True:
        # Whether it is whole is looked at only when nothing more has come: each look reads all of it.
        patience = None
        if not select.select([descriptor], [], [], 0)[0] and pieces[-1].rstrip().endswith(b"}"):
            patience = _MORE_SECONDS if _is_whole(pieces) else None
        if not select.select([descriptor], [], [], patience)[0]:
            break
        piece = os.read(descriptor, 1 << 20)
        if not piece:
            break
        if size < _MOST_INPUT:  # what comes then is read, so that the agent is not stopped, and not kept
            pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)[:_MOST_INPUT]


def _is_whole(pieces: list[bytes]) -> bool:
    from shadowsnap import lightjson

    try:
        return isinstance(lightjson.loads(b"".join(pieces)), dict)
    except (ValueError, RecursionError):
        return False


def _be_silent() -> None:
    """Nothing is to be printed, not by git nor by a failing interpreter either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _give_up(agent: str) -> None:
    """Say that nothing came of it before the process ends: the status reads that."""
    try:
        _log(agent, None, "failed", TimeoutError(f"the hook had not ended after {_LAST_RESORT} s"))
    finally:
        os._exit(0)


def _end_at_last(agent: str, seconds: int = _LAST_RESORT) -> None:
    if sys.platform != "win32":
        try:
            import _signal as signal  # type: ignore[import-not-found] # `signal` first makes enums of the numbers
        except ImportError:
            import signal
        signal.signal(signal.SIGALRM, lambda *_: _give_up(agent))
        signal.alarm(seconds)
    else:
        import threading

        timer = threading.Timer(seconds, _give_up, [agent])
        timer.daemon = True
        timer.start()


def _log(agent: str, event: HookEvent | None, status: str, problem: Any = None, outcome: Any = None) -> None:
    try:
        from shadowsnap.hook.log import log_event

        log_event(agent, event, status, problem, outcome)
    except Exception:  # a log that cannot be written must not stop an agent
        pass
