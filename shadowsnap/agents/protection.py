"""Whether a project is protected: whether a hook will run there again, what came of its last run, and whether the
sandboxes of agents let them write to the store."""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.agents.catalog import AGENTS
from shadowsnap.agents.state import AgentState
from shadowsnap.files import UnreadableFile, read_bounded
from shadowsnap.hook.log import log_file, read_log
from shadowsnap.store.layout import Store
from shadowsnap.store.log import last_lines
from shadowsnap.store.projects import project_of

_READ = 400
_HOST = "a host program"
_RECENT_SECONDS = 3600.0
"""So long a turn is a sign that a program protects its work, where there are no settings that say so."""
_BAD = ("failed", "refused", "disabled")


@dataclass(frozen=True)
class Protection:
    """`protected` only if the next turn will be, as far as can be shown."""

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
    version: str = ""
    """Of the agent, as it was last seen."""
    problem: str = ""
    """Why it does not protect; empty if nothing speaks against it."""
    mend: str = ""
    """The command that mends it."""

    @property
    def text(self) -> str:
        place = "hook installed" if self.installed else "hook not installed"
        if not self.installed and self.agent not in AGENTS:
            place = "hook set up by hand"
        if self.consented is not None:
            place += ", allowed to run" if self.consented else ", NOT allowed to run"
        version = f" ({self.agent} {self.version})" if self.version else ""
        if self.last_run_at is None:
            return f"{place}, has not run here yet"
        return f"{place}, last ran {_ago(self.last_run_at.timestamp())}{version}: {self.result}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "installed": self.installed,
            "consented": self.consented,
            "last_run_at": None if self.last_run_at is None else self.last_run_at.isoformat(),
            "agent_version": self.version,
            "result": self.result,
        }


def agents_here(workdir: Path, hooks: Iterable[AgentState]) -> list[AgentHere]:
    """Every agent that has one of the hooks, or whose hook ran here."""
    states = {state.agent: state for state in hooks}
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
        if name in AGENTS and all(other.problem for other in states.values()) and state is None:
            problem, mend = f"the hook of {name} is not installed", f"shadowsnap install {name}"
        if state is not None and state.problem:
            problem, mend = f"{name}: {state.sentence}", ""  # the sentence says what to do
        when = moment_of(last.get("time")) if last else None
        consented = state.consented if state is not None else None
        version = state.last_run.version if state is not None and state.last_run is not None else ""
        agents.append(AgentHere(name, state is not None, consented, when, status, version, problem, mend))
    return agents


def protection_of(workdir: Path, hooks: Iterable[AgentState]) -> Protection:
    """Whether the next turn in a directory will be protected. That a hook ran in the past proves nothing: it must
    be in the settings of its agent, allowed to run, and its last run must not have failed. Where there are no
    settings to look into (a host that calls the API, a hook set up by hand), a recent turn is the sign."""
    states = {state.agent: state for state in hooks}
    recent = {
        agent: run
        for agent, run in _last_runs(workdir).items()
        if agent in states or (agent not in AGENTS and _is_recent(run))
    }
    host = _host_run(workdir)
    if host is not None:
        recent.setdefault(str(host["agent"]), host)
    if recent:
        agent, run = max(recent.items(), key=lambda item: _seconds(item[1].get("time")))
        return _judged(workdir, agent, run, states.get(agent))
    good = [state.agent for state in states.values() if not state.problem]
    if good:
        return Protection(True, f"the hook of {', '.join(good)} is installed; no turn here yet", good[0])
    if states:
        state = next(iter(states.values()))
        return Protection(False, f"{state.agent}: {state.sentence}", state.agent)
    return _unprotected(workdir)


def _judged(workdir: Path, agent: str, run: dict[str, Any], state: AgentState | None) -> Protection:
    """What the last run of an agent says, and its settings."""
    status, when = str(run.get("status")), _seconds(run.get("time"))
    if state is not None and state.problem:
        text = f"{agent}: NOT protected: {state.problem}"
        return Protection(False, text, agent, _since(workdir, True), status)
    if status in _BAD:
        why = f": {run['error']}" if run.get("error") else ""
        text = f"NOT protected: the hook of {agent} {status} {_ago(when)}{why}"
        return Protection(False, text, agent, _since(workdir, True), status)
    since = _since(workdir, False)
    return Protection(True, f"protected by {agent}, last check {_ago(when)}", agent, since, status)


def _unprotected(workdir: Path) -> Protection:
    """No hook is installed: what to do about it."""
    last = last_run(workdir)
    if last is None:
        return Protection(False, "no agent's hook has run here yet: shadowsnap install AGENT")
    agent, status = str(last.get("agent") or ""), str(last.get("status"))
    if agent in AGENTS:
        text = f"NOT protected: no hook: shadowsnap install {agent}"
    else:
        text = f"NOT protected: the hook of {agent or 'an agent'} last ran {_ago(_seconds(last.get('time')))}"
    return Protection(False, text, agent or None, None, status)


def _host_run(workdir: Path) -> dict[str, Any] | None:
    """The newest sign of a program that calls the API: a recent turn of an agent that has no hook."""
    hooks = {*_last_runs(workdir), *AGENTS}
    lines = last_lines(Store(log_file().parent), project_of(workdir).id)
    begins = [line for line in lines if line["op"] == "begin" and line.get("agent") not in hooks]
    if not begins:
        return None
    turn = begins[-1].get("turn")
    last = max(line["at"] for line in lines if line.get("turn") == turn)
    run = {"agent": begins[-1].get("agent") or _HOST, "time": last, "status": "taken"}
    return run if _is_recent(run) else None


def _is_recent(run: dict[str, Any]) -> bool:
    return time.time() - _seconds(run.get("time")) < _RECENT_SECONDS


def _last_runs(workdir: Path) -> dict[str, dict[str, Any]]:
    """The newest run of each agent's hook in a directory."""
    found: dict[str, dict[str, Any]] = {}
    for run in _runs(workdir):
        found.setdefault(str(run.get("agent") or "an agent"), run)
    return found


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


_LONGEST = 1 << 20


def writable_folders() -> list[str]:
    """As the person's own settings of Codex and Claude Code say. Settings that cannot be read say nothing."""
    codex = _inner(_toml(_home("CODEX_HOME", ".codex") / "config.toml"), "sandbox_workspace_write")
    claude = _inner(_json(_home("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"), "sandbox", "filesystem")
    found = [*_texts(codex.get("writable_roots")), *_texts(claude.get("allowWrite"))]
    # `//` in front stands for the root of the file system in the settings of Claude Code.
    paths = [os.path.expanduser(path[1:] if path.startswith("//") else path) for path in found]
    return [path for path in paths if os.path.isabs(path)]


def _home(variable: str, folder: str) -> Path:
    return Path(os.environ.get(variable) or os.path.join(os.path.expanduser("~"), folder))


def _toml(path: Path) -> Any:
    try:
        return tomllib.loads((read_bounded(path, _LONGEST) or b"").decode())
    except (ValueError, RecursionError, UnreadableFile):
        return {}


def _json(path: Path) -> Any:
    try:
        return json.loads(read_bounded(path, _LONGEST) or b"{}")
    except (ValueError, RecursionError, UnreadableFile):
        return {}


def _inner(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
