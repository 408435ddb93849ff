"""Whether an agent's hook protects: installed, allowed to run, and seen running.

`agent_state` is what `status`, `doctor`, `install` and the status line say about an agent. It reads
settings and the hook log and runs nothing; `probe.probe` runs the hook.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.agents.agent import Agent
from shadowsnap.agents.catalog import AGENTS, agent_named
from shadowsnap.agents.consent import why_not_consented, why_switched_off
from shadowsnap.agents.edit import Command, Edit
from shadowsnap.agents.install import edits_of, read_text
from shadowsnap.agents.launcher import launcher, launcher_problem
from shadowsnap.cli.text import ago
from shadowsnap.errors import SettingsRefused
from shadowsnap.hook.log import read_log

PROBED = "probe"
"""The status of a log line that comes from `probe`."""
_BAD = ("failed", "refused", "disabled")
_LINES_READ = 2000


@dataclass(frozen=True)
class LastRun:
    """The newest line of the hook log about an agent."""

    at: datetime
    status: str
    """`taken`, `unchanged`, `failed` ..."""
    error: str = ""
    session: str = ""
    workdir: str = ""
    version: str = ""
    """Of the agent, if its input ever had it."""

    @property
    def ok(self) -> bool:
        return self.status not in _BAD


@dataclass(frozen=True)
class AgentState:
    """What is known about the hook of one agent."""

    agent: str
    title: str
    scope: str = "user"
    """Whose settings have the hook: `user` or `project`."""
    paths: tuple[str, ...] = ()
    """The files with the hook."""
    installed: bool = False
    current: bool = False
    """Whether the settings are what this version writes."""
    consented: bool | None = None
    """Whether the agent may run it; None if it never asks."""
    problem: str = ""
    """Why the hook does not protect, as a phrase; empty if nothing speaks against it."""
    last_run: LastRun | None = None

    @property
    def sentence(self) -> str:
        """One line for the person."""
        if self.problem:
            return f"NOT protected: {self.problem}"
        if self.last_run is None:
            return "protected, no turn yet"
        if not self.last_run.ok:
            return f"NOT protected: the last snapshot {self.last_run.status}: {self.last_run.error}"
        return f"protected {ago(self.last_run.at)}"

    @property
    def protected(self) -> bool:
        return not self.sentence.startswith("NOT")

    def to_dict(self) -> dict[str, Any]:
        run = self.last_run
        return {
            "agent": self.agent,
            "scope": self.scope,
            "paths": list(self.paths),
            "installed": self.installed,
            "current": self.current,
            "consented": self.consented,
            "protected": self.protected,
            "problem": self.problem,
            "last_run_at": run.at.isoformat() if run else None,
            "agent_version": run.version if run else "",
            "result": run.status if run else "",
        }


def agent_state(agent: str, project: Path | None = None, *, session: str = "") -> AgentState:
    """The state of an agent's hook: in the person's settings or, if it is not there, in those of the project.
    With a session, its last run is the one in that session. Raises UnknownAgent."""
    states = [_state_in(agent_named(agent), where, project) for where in dict.fromkeys((None, project))]
    state = next((each for each in states if each.installed), states[0])
    return replace(state, last_run=last_run(agent, session))


def agent_states(project: Path | None = None) -> list[AgentState]:
    """The state of every agent that has the hook."""
    return [state for state in (agent_state(agent, project) for agent in AGENTS) if state.installed]


def last_run(agent: str, session: str = "") -> LastRun | None:
    """The newest run of an agent's hook that is in the log, of one session if it is given. Calls that find
    everything safe already are not logged."""
    lines = [line for line in read_log(_LINES_READ) if line.get("agent") == agent]
    version = str(next((line["version"] for line in lines if line.get("version")), ""))
    for line in lines:
        if line.get("status") == PROBED or session not in ("", line.get("session")):
            continue
        try:
            at = datetime.fromtimestamp(line["time"], UTC)
        except (KeyError, TypeError, ValueError, OverflowError, OSError):
            continue  # not what we wrote
        return LastRun(
            at,
            str(line.get("status", "")),
            str(line.get("error", "")),
            str(line.get("session", "")),
            str(line.get("workdir") or line.get("cwd") or ""),
            version,
        )
    return None


def wait_for_consent(
    agent: str,
    project: Path | None = None,
    *,
    seconds: float = 300,
    every: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
) -> AgentState:
    """Wait until the person allowed the hook in the agent, at most so long; returns the state then."""
    ends = time.monotonic() + seconds
    while (state := agent_state(agent, project)).consented is False and time.monotonic() < ends:
        sleep(every)
    return state


# --- one place -----------------------------------------------------------------------------------


def _state_in(agent: Agent, where: Path | None, project: Path | None) -> AgentState:
    state = AgentState(agent.name, agent.title, scope="user" if where is None else "project")
    absent = replace(state, problem=f"the hook is not installed: shadowsnap install {agent.name}")
    try:
        edits = [edit for edit in edits_of(agent.name, where) if edit.is_hook]
    except SettingsRefused:
        return absent
    found: list[Edit] = []
    current = True
    for edit in edits:
        try:
            text = read_text(edit.path)
            has = text is not None and edit.has(text)
            current = current and text is not None and has and edit.is_current(text)
        except (ValueError, OSError) as error:
            return replace(absent, problem=f"{edit.path} cannot be read: {error}")
        if has:
            found.append(edit)
    if not found:
        return absent
    consent = why_not_consented(agent, found, project)
    problem = _problem_of(found)
    problem = f"{problem}; run: shadowsnap install {agent.name}" if problem else why_switched_off(agent, project)
    if consent and not problem:
        step = f": {agent.consent.step}" if agent.consent else ""
        problem = f"{consent}{step}"
    return replace(
        state,
        paths=tuple(str(edit.path) for edit in found),
        installed=True,
        current=current,
        consented=None if agent.consent is None else not consent,
        problem=problem,
    )


def _problem_of(edits: list[Edit]) -> str:
    """What is wrong with the programs that the hooks start, without starting them."""
    for edit in edits:
        if edit.executable and not os.access(edit.path, os.X_OK):
            return f"{edit.path} is not executable"
        for command in edit.commands(read_text(edit.path) or ""):
            program = _program_of(command)
            if os.path.isabs(program) and not os.access(program, os.X_OK):
                return f"the program of the hook is missing: {program}"
            if (program,) == launcher().shadowsnap and (problem := launcher_problem()):
                return problem
    return ""


def _program_of(command: Command) -> str:
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError:
        return ""
    return words[0] if words else ""
