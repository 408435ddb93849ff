"""Running an installed hook with an event that asks for nothing, to see that it answers.

The hook writes one line with the status `probe` to its log, and nothing else happens. A program that
is missing, a Python without shadowsnap or a hook that prints is found this way before an agent meets it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from shadowsnap.agents.agent import SECONDS_TO_WAIT
from shadowsnap.agents.edit import Command
from shadowsnap.agents.install import edits_of, read_text
from shadowsnap.agents.launcher import quoted
from shadowsnap.agents.state import AgentState, agent_states
from shadowsnap.errors import SettingsRefused
from shadowsnap.hook.log import read_log
from shadowsnap.hook.payload import PROBE_EVENT

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_LINES_READ = 200


@dataclass(frozen=True)
class Probe:
    """One hook command that was run."""

    agent: str
    command: str
    ok: bool
    seconds: float
    problem: str = ""
    """What is wrong, as a phrase."""


def checked_states(project: Path | None = None) -> list[AgentState]:
    """The state of every agent that has the hook, after running it: a hook that does not answer is a problem."""
    return [_checked(state, project) for state in agent_states(project)]


def _checked(state: AgentState, project: Path | None) -> AgentState:
    failed = [each for each in probe(state.agent, project if state.scope == "project" else None) if not each.ok]
    if not failed or state.problem:
        return state
    problem = f"the hook does not answer: {failed[0].problem}; run: shadowsnap install {state.agent}"
    return replace(state, problem=problem)


def probe(agent: str, project: Path | None = None, *, seconds: float = SECONDS_TO_WAIT) -> list[Probe]:
    """Run every hook command of an agent that is in its settings now, each once. Nothing installed: nothing
    returned. Raises UnknownAgent."""
    commands: dict[tuple[str, ...] | str, Command] = {}
    try:
        edits = edits_of(agent, project)
    except SettingsRefused:
        return []
    for edit in edits:
        try:
            text = read_text(edit.path)
            if text is not None and edit.is_hook:
                # Commands that differ in the name of an event only are one.
                commands |= {_without_event(command): command for command in edit.commands(text)}
        except (ValueError, OSError):
            continue  # agent_state says that the file cannot be read
    return [_run(agent, command, seconds) for command in commands.values()]


def _without_event(command: Command) -> Command:
    return command if isinstance(command, str) else command[: command.index("hook") + 2]


def _run(agent: str, command: Command, seconds: float) -> Probe:
    token = uuid.uuid4().hex
    event = json.dumps({"hook_event_name": PROBE_EVENT, "session_id": token, "cwd": str(Path.home())})
    line = command if isinstance(command, str) else quoted(command)
    began = time.monotonic()
    problem = _problem(command, event.encode(), seconds)
    took = time.monotonic() - began
    if not problem and not any(entry.get("session") == token for entry in read_log(_LINES_READ)):
        problem = "it exits with 0 but does nothing: shadowsnap, or its Python, is missing"
    return Probe(agent, line, not problem, took, problem)


def _problem(command: Command, event: bytes, seconds: float) -> str:
    try:
        process = subprocess.Popen(
            command if isinstance(command, str) else list(command),
            shell=isinstance(command, str),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path.home(),
            start_new_session=True,
        )
    except OSError as error:
        return f"it cannot be started: {error}"
    try:
        output, errors = process.communicate(event, timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"it did not end within {seconds:g} s"
    printed = (output or errors).decode("utf-8", "replace").strip()[:200]
    if process.returncode in (_NOT_EXECUTABLE, _NOT_FOUND):
        return f"its program is missing: {printed}"
    if process.returncode != 0:
        return f"it exits with {process.returncode}" + (f": {printed}" if printed else "")
    return f"it prints something: {printed}" if printed else ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)  # the shell and the program that it started
    process.communicate()
