"""`shadowsnap hook AGENT`: what agents run before a tool and at the other joints of a session.

It always ends with 0 and says nothing: several agents take any other answer for a veto, and some
show what a hook prints to the model. What there is to say goes to the hook log.

Most calls find that everything is safe already. Until that is clear, next to nothing is imported.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for imports that only say what is what
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from shadowsnap.hook.payload import HookEvent
    from shadowsnap.hook.session import Session
    from shadowsnap.manager.turns import Turns

# Agents wait between 20 s (as we install it) and 600 s for a hook. The files that a tool names are
# captured after this, within a few seconds more.
DEADLINE = 8.0
# Whatever hangs (a dead network drive, an agent that never closes our input): this ends it.
_LAST_RESORT = 17
_PROMPT_LENGTH = 2000
# How long to wait for the end of an input that is whole already.
_MORE_SECONDS = 1.0
# A longer input is cut: the tool and the files that it names come before what it writes into them.
_MOST_INPUT = 64 << 20


def main(words: Sequence[str]) -> NoReturn:
    """The whole process: silent, and 0 whatever happens."""
    try:
        _be_silent()
        _end_at_last(words[0] if words else "")
        gc.disable()  # for so short a life, collecting costs more than it gives back
        run_hook(words[0] if words else "", _input(), words[1] if len(words) > 1 else "")
    finally:
        os._exit(0)


def run_hook(agent: str, data: bytes, said: str = "") -> None:
    """Do what one event asks for. Raises nothing."""
    event = None
    try:
        from shadowsnap.hook.payload import OTHER, PROBE, read_event
        from shadowsnap.hook.session import Session
        from shadowsnap.settings import configured_base

        event = read_event(agent, data, said)
        if event.kind == PROBE:
            _tell(agent, event, "probe")
            return
        if event.kind == OTHER and not event.after:
            return
        _dispatch(event, Session(configured_base(), event))
    except Exception as problem:
        _tell(agent, event, "failed", problem)


def _dispatch(event: HookEvent, session: Session) -> None:
    from shadowsnap.hook.payload import PROMPT, SESSION_START, TOOL

    if event.kind == TOOL:
        before_tool(event, session)
    elif event.kind == PROMPT:
        prompted(event, session)
    elif event.kind == SESSION_START:
        session_started(event)
    elif event.after:
        after_tool(event, session)
    else:
        stopped(event, session)


# --- the events ------------------------------------------------------------------------------


def before_tool(event: HookEvent, session: Session) -> None:
    """Make sure that what the tool may write to is safe; most often it is."""
    from shadowsnap.snapshot.tools import may_write

    if not may_write(event.tool):
        return
    if _covers(session, event):
        session.note_heard(event)
        return
    with session.lock(DEADLINE):
        session.read()
        if _covers(session, event):  # by the hook that we waited for
            return
        manager = _manager()
        manager.resume_turn(session.state_of(event))
        outcome = manager.before_tool(event.tool, event.tool_input, event.cwd, event.roots)
        # What is refused now (git is missing, the directory is not there yet) may not be at the next call.
        if outcome.status not in ("failed", "disabled", "refused") and not _ran_out_of_time(outcome.error):
            session.note_taken(event, manager.turn_state())
    if outcome.status != "already-taken":
        _tell(event.agent, event, outcome.status, outcome.error, outcome=outcome)
        for text in manager.warnings:
            _tell(event.agent, event, "settings", UserWarning(text))


def after_tool(event: HookEvent, session: Session) -> None:
    """A tool is done; where each call has checkpoints of its own, this is the second one."""
    if not session.counts_calls(event):
        return
    with session.lock(DEADLINE):
        session.read()
        manager = _manager()
        manager.resume_turn(session.state_of(event))
        outcome = manager.after_tool(event.tool, event.tool_input, event.cwd)
        session.note_state(event, manager.turn_state())
    if outcome.status not in ("not-needed", "unchanged"):
        _tell(event.agent, event, outcome.status, outcome.error, outcome=outcome)


def prompted(event: HookEvent, session: Session) -> None:
    """A new turn. (Some agents also tell of tool results, which have no text.)"""
    if event.prompt or event.turn:
        from shadowsnap.records import replace

        event = replace(event, prompt=_redacted(event.prompt))
        with session.lock(DEADLINE):
            session.read()
            session.note_prompt(event)


def session_started(event: HookEvent) -> None:
    """Keep the limits, at most once in a while, and let a new project's first snapshot begin. What
    takes time goes on in the background."""
    from shadowsnap.manager import CheckpointManager

    manager = CheckpointManager.from_settings(deadline=DEADLINE)
    manager.auto_prune()
    warming = manager.warm_up(manager.get_working_dir_for_path(event.cwd))
    _tell(event.agent, event, "session started" + (", first snapshot begun" if warming else ""))


def stopped(event: HookEvent, session: Session) -> None:
    """The agent is done: close the turn with a snapshot of what it touched, and keep what was said."""
    with session.lock(DEADLINE):
        session.read()
        state = session.state_to_end(event)
        session.note_ended()
    if state is None and not event.ends:
        return
    manager = _manager()
    if state is not None:
        manager.resume_turn(state)
        for outcome in manager.end_turn(event.transcript or None):
            if outcome.status != "unchanged":
                _tell(event.agent, event, outcome.status, outcome.error, outcome=outcome)
    if event.ends and event.session:
        manager.end_session(event.session, event.ends)


# --- steps -----------------------------------------------------------------------------------


def _covers(session: Session, event: HookEvent) -> bool:
    try:
        return session.covers(event)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # a record that is not what we wrote


def _redacted(prompt: str) -> str:
    """What a person asked for, without secrets: checkpoints keep it."""
    if not prompt:
        return ""
    from shadowsnap.settings import load_settings
    from shadowsnap.store.redaction import redacted_beginning

    return redacted_beginning(prompt, _PROMPT_LENGTH, load_settings().settings.redact)


def _manager() -> Turns:
    """The part of a manager that tool calls need: the rest takes time to import."""
    from shadowsnap.manager.turns import Turns

    return Turns.from_settings(deadline=DEADLINE)


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
        _tell(agent, None, "failed", TimeoutError(f"the hook had not ended after {_LAST_RESORT} s"))
    finally:
        os._exit(0)


def _end_at_last(agent: str) -> None:
    if sys.platform != "win32":
        try:
            import _signal as signal  # type: ignore[import-not-found] # `signal` first makes enums of the numbers
        except ImportError:
            import signal
        signal.signal(signal.SIGALRM, lambda *_: _give_up(agent))
        signal.alarm(_LAST_RESORT)
    else:
        import threading

        timer = threading.Timer(_LAST_RESORT, _give_up, [agent])
        timer.daemon = True
        timer.start()


def _tell(agent: str, event: HookEvent | None, what: str, problem: Any = None, outcome: Any = None) -> None:
    try:
        from shadowsnap.hook.log import log_event

        log_event(agent, event, what, problem, outcome)
    except Exception:  # a log that cannot be written must not stop an agent
        pass
