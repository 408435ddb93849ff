"""Whether a project is protected: what the hooks were seen to do there, and whether they will run again."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
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
    result: str = ""


def protection_of(workdir: Path) -> Protection:
    """What the hook log and the settings of agents say about a directory."""
    last, states = last_run(workdir), {state.agent: state for state in agent_states(workdir)}
    if last is None:
        good = [state for state in states.values() if not state.problem]
        if good:
            return Protection(True, f"the hook of {good[0].agent} is installed; no turn here yet", good[0].agent)
        if states:
            state = next(iter(states.values()))
            return Protection(False, f"{state.agent}: {state.sentence}", state.agent)
        return Protection(False, "no agent's hook has run here yet: shadowsnap install AGENT")
    agent, when = str(last.get("agent") or "an agent"), float(last.get("time") or 0)
    status = str(last.get("status"))
    if agent in states and states[agent].problem:
        return Protection(False, f"{agent}: NOT protected: {states[agent].problem}", agent, when, status)
    if status in _BAD:
        why = f": {last['error']}" if last.get("error") else ""
        text = f"NOT protected: the hook of {agent} {status} {_ago(when)}{why}"
        return Protection(False, text, agent, when, status)
    return Protection(True, f"protected by {agent}, last check {_ago(when)}", agent, when, status)


def last_run(workdir: Path, agent: str | None = None) -> dict[str, Any] | None:
    """The newest entry of the hook log about a directory."""
    for entry in read_log(_READ):
        if agent not in (None, entry.get("agent")) or entry.get("status") in ("settings", "probe"):
            continue
        where = str(entry.get("workdir") or entry.get("cwd") or "")
        if where == str(workdir) or where.startswith(str(workdir) + os.sep):
            return entry
    return None


def _ago(moment: float) -> str:
    seconds = max(0, int(time.time() - moment))
    for size, unit, most in ((1, "s", 60), (60, "min", 60), (3600, "h", 48)):
        if seconds < size * most:
            return f"{seconds // size} {unit} ago"
    return f"{seconds // 86400} d ago"
