"""Whether a project is protected: what the hooks were seen to do there, and whether they will run again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.agents.state import agent_states
from shadowsnap.hook.log import read_log

_READ = 400
_BAD = ("failed", "refused", "disabled")


@dataclass(frozen=True)
class Protection:
    """`protected` only if a hook was seen to run here, and its last run did not fail."""

    protected: bool
    text: str
    agent: str | None = None
    since: float | None = None
    """Since when that is so."""
    result: str = ""


@dataclass(frozen=True)
class AgentHere:
    """An agent whose hook is installed, or was seen to run in a directory."""

    agent: str
    installed: bool
    consented: bool | None = None
    """Whether the agent may run it; None if that is not known, or if it never asks."""
    last_run_at: datetime | None = None
    """When its hook last ran in the directory."""
    result: str = ""
    """What came of that: `taken`, `unchanged`, `failed` ..."""
    problem: str = ""
    """Why it does not protect; empty if nothing speaks against it."""
    mend: str = ""
    """The command that mends it."""

    @property
    def text(self) -> str:
        place = "hook installed" if self.installed else "hook not installed"
        if self.last_run_at is None:
            return f"{place}, has not run here yet"
        return f"{place}, last ran {_ago(self.last_run_at.timestamp())}: {self.result}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "installed": self.installed,
            "consented": self.consented,
            "last_run_at": None if self.last_run_at is None else self.last_run_at.isoformat(),
            "result": self.result,
        }


def agents_here(workdir: Path) -> list[AgentHere]:
    """Every agent that has the hook, or whose hook ran here."""
    states = {state.agent: state for state in agent_states(workdir)}
    names: dict[str, None] = dict.fromkeys(states)
    names |= dict.fromkeys(str(entry["agent"]) for entry in _runs(workdir) if entry.get("agent"))
    agents = []
    for name in names:
        state = states.get(name)
        last = last_run(workdir, name)
        status = str(last.get("status", "")) if last else ""
        problem, mend = "", ""
        if status in _BAD:
            error = f": {last['error']}" if last and last.get("error") else ""
            problem, mend = f"the last snapshot of {name} {status}{error}", "shadowsnap doctor"
        if state is not None and state.problem:
            problem, mend = f"{name}: {state.sentence}", f"shadowsnap install {name}"
        when = moment_of(last.get("time")) if last else None
        consented = state.consented if state is not None else None
        agents.append(AgentHere(name, state is not None, consented, when, status, problem, mend))
    return agents


def protection_of(workdir: Path) -> Protection:
    """What the hook log and the settings of agents say about a directory."""
    last, states = last_run(workdir), {state.agent: state for state in agent_states(workdir)}
    if last is None:
        good = [state.agent for state in states.values() if not state.problem]
        if good:
            return Protection(True, f"the hook of {', '.join(good)} is installed; no turn here yet", good[0])
        if states:
            state = next(iter(states.values()))
            return Protection(False, f"{state.agent}: {state.sentence}", state.agent)
        return Protection(False, "no agent's hook has run here yet: shadowsnap install AGENT")
    agent, when = str(last.get("agent") or "an agent"), _seconds(last.get("time"))
    status = str(last.get("status"))
    if agent in states and states[agent].problem:
        text = f"{agent}: NOT protected: {states[agent].problem}"
        return Protection(False, text, agent, _since(workdir, True), status)
    if status in _BAD:
        why = f": {last['error']}" if last.get("error") else ""
        text = f"NOT protected: the hook of {agent} {status} {_ago(when)}{why}"
        return Protection(False, text, agent, _since(workdir, True), status)
    since = _since(workdir, False)
    return Protection(True, f"protected by {agent}, last check {_ago(when)}", agent, since, status)


def last_run(workdir: Path, agent: str | None = None) -> dict[str, Any] | None:
    """The newest entry of the hook log about a directory."""
    return next((entry for entry in _runs(workdir) if agent in (None, entry.get("agent"))), None)


def _runs(workdir: Path) -> Iterator[dict[str, Any]]:
    """What the hooks did in a directory, newest first."""
    for entry in read_log(_READ):
        where = str(entry.get("workdir") or entry.get("cwd") or "")
        inside = where == str(workdir) or where.startswith(str(workdir) + os.sep)
        if inside and entry.get("status") not in ("settings", "probe"):
            yield entry


def moment_of(seconds: Any) -> datetime | None:
    """A time of the log; None if it is none."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _since(workdir: Path, bad: bool) -> float | None:
    """Since when the hooks have gone as they go now: the oldest of the last runs with the same result."""
    since = None
    for entry in _runs(workdir):
        if (str(entry.get("status")) in _BAD) != bad:
            break
        since = entry.get("time", since)
    return since if isinstance(since, (int, float)) else None


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _ago(moment: float) -> str:
    seconds = max(0, int(time.time() - moment))
    for size, unit, most in ((1, "s", 60), (60, "min", 60), (3600, "h", 48)):
        if seconds < size * most:
            return f"{seconds // size} {unit} ago"
    return f"{seconds // 86400} d ago"
