"""Whether an agent's hook protects: installed, allowed to run, seen running, and answering.

`agent_state` is what `status`, `doctor`, `install` and the status line say about an agent. It reads settings, the
agent's own record of the person's consent, and the hook log, and runs nothing. `probe` runs an installed hook with
an event that asks for nothing, and looks for its line in the log.

Codex, Hermes and Gemini skip a hook without a message until the person agreed. Nothing here gives that consent.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from shadowsnap.agents.agent import SECONDS_TO_WAIT, Agent
from shadowsnap.agents.catalog import AGENTS, agent_named
from shadowsnap.agents.edit import Command, Edit, read_text, read_value, table_in
from shadowsnap.agents.install import edits_of, folder_of, launcher, launcher_problem, quoted
from shadowsnap.cli.text import ago
from shadowsnap.errors import SettingsRefused
from shadowsnap.hook.payload import PROBE_EVENT
from shadowsnap.hook.session import log_file, read_log
from shadowsnap.store.layout import Store
from shadowsnap.store.log import last_lines
from shadowsnap.store.projects import as_moment, project_of


def why_switched_off(agent: Agent, project: Path | None) -> str:
    """The setting that turns all hooks of an agent off, if there is one."""
    folders = [folder_of(agent)]
    if project is not None and agent.folder.project is not None:
        folders.append(project / agent.folder.project)
    for switch in agent.switches:
        for folder in folders:
            found: Any = read_value(folder / switch.file)
            for key in switch.keys:
                found = found.get(key) if isinstance(found, dict) else None
            if found == switch.off and type(found) is type(switch.off):
                return f"hooks are turned off: {'.'.join(switch.keys)} in {folder / switch.file}"
            if isinstance(found, list) and switch.off in found:
                return f"the hook is turned off: {'.'.join(switch.keys)} in {folder / switch.file}"
    return ""


PROBED = "probe"
"""The status of a log line that comes from `probe`."""
_BAD_STATUSES = ("failed", "refused", "disabled")
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
    """The version of the agent, if the log has it."""

    @property
    def ok(self) -> bool:
        return self.status not in _BAD_STATUSES


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
    """Why the hook does not protect, as a phrase; empty if no reason is known."""
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
    """The newest run of an agent's hook in the log, or in that of one session. Calls that find everything safe
    already are not logged."""
    lines = [line for line in read_log(_LINES_READ) if line.get("agent") == agent]
    version = str(next((line["version"] for line in lines if line.get("version")), ""))
    for line in lines:
        if line.get("status") == PROBED or session not in ("", line.get("session")):
            continue
        at = as_moment(line.get("time"))
        if at is None:
            continue  # a malformed line
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
    """Wait until the person allowed the hook in the agent, at most `seconds`; returns the state then."""
    ends = time.monotonic() + seconds
    while (state := agent_state(agent, project)).consented is False and time.monotonic() < ends:
        sleep(every)
    return state


# --- the state in one settings file --------------------------------------------------------------


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
    consent = agent.consent.missing(folder_of(agent), found, project) if agent.consent else ""
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


_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_PROBE_LINES_READ = 200


@dataclass(frozen=True)
class HookProbe:
    """One hook command that was run."""

    agent: str
    command: str
    ok: bool
    seconds: float
    problem: str = ""
    """What is wrong, as a phrase."""


def checked_states(project: Path | None = None) -> list[AgentState]:
    """The state of every agent that has the hook, after running it: a hook that does not answer is a problem."""
    return [_with_probe(state, project) for state in agent_states(project)]


def _with_probe(state: AgentState, project: Path | None) -> AgentState:
    failed = [each for each in probe(state.agent, project if state.scope == "project" else None) if not each.ok]
    if not failed or state.problem:
        return state
    problem = f"the hook does not answer: {failed[0].problem}; run: shadowsnap install {state.agent}"
    return replace(state, problem=problem)


def probe(agent: str, project: Path | None = None, *, seconds: float = SECONDS_TO_WAIT) -> list[HookProbe]:
    """Run each hook command in the settings of an agent once. If no line could be added to the log, none is run.
    Raises UnknownAgent."""
    base = log_file().parent
    if base.is_dir() and not os.access(base, os.W_OK):  # in the sandbox of an agent
        return []
    commands: dict[tuple[str, ...] | str, Command] = {}
    try:
        edits = edits_of(agent, project)
    except SettingsRefused:
        return []
    for edit in edits:
        try:
            text = read_text(edit.path)
            if text is not None and edit.is_hook:
                # Commands that differ only in the name of an event count as one.
                commands |= {_without_event(command): command for command in edit.commands(text)}
        except (ValueError, OSError):
            continue  # agent_state says that the file cannot be read
    return [_run(agent, command, seconds) for command in commands.values()]


def _without_event(command: Command) -> Command:
    return command if isinstance(command, str) else command[: command.index("hook") + 2]


def _run(agent: str, command: Command, seconds: float) -> HookProbe:
    token = uuid.uuid4().hex
    event = json.dumps({"hook_event_name": PROBE_EVENT, "session_id": token, "cwd": str(Path.home())})
    line = command if isinstance(command, str) else quoted(command)
    began = time.monotonic()
    problem = _run_problem(command, event.encode(), seconds)
    took = time.monotonic() - began
    if not problem and not any(entry.get("session") == token for entry in read_log(_PROBE_LINES_READ)):
        problem = "it exits with 0 but does nothing: shadowsnap, or its Python, is missing"
    return HookProbe(agent, line, not problem, took, problem)


def _run_problem(command: Command, event: bytes, seconds: float) -> str:
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


# --- whether a project is protected ----------------------------------------------------------------


_RUNS_READ = 400
_HOST_PROGRAM = "a host program"
_RECENT_SECONDS = 3600.0
"""A turn as recent as this is a sign that a host program takes snapshots: it has no settings to look into."""


@dataclass(frozen=True)
class Protection:
    """Whether the next turn will be protected, as far as that is known."""

    protected: bool
    text: str
    agent: str | None = None
    since: float | None = None
    """When it became so."""
    result: str = ""


@dataclass(frozen=True)
class ProjectAgent:
    """An agent whose hook is installed, or was seen to run in a directory."""

    agent: str
    installed: bool
    consented: bool | None = None
    """Whether the agent may run it; None if that is not known, or if it never asks."""
    last_run_at: datetime | None = None
    """When its hook last ran in the directory."""
    result: str = ""
    """The result of that run: `taken`, `unchanged`, `failed` ..."""
    version: str = ""
    """The version of the agent in its newest run."""
    problem: str = ""
    """Why it does not protect; empty if no reason is known."""
    remedy: str = ""
    """The command that solves the problem."""

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
        return f"{place}, last ran {ago(self.last_run_at)}{version}: {self.result}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "installed": self.installed,
            "consented": self.consented,
            "last_run_at": None if self.last_run_at is None else self.last_run_at.isoformat(),
            "agent_version": self.version,
            "result": self.result,
        }


def project_agents(workdir: Path, hooks: Iterable[AgentState]) -> list[ProjectAgent]:
    """Every agent that has the hook, or whose hook ran in a directory."""
    states = {state.agent: state for state in hooks}
    names: dict[str, None] = dict.fromkeys(states)
    names |= dict.fromkeys(str(entry["agent"]) for entry in _runs(workdir) if entry.get("agent"))
    agents = []
    for name in names:
        state = states.get(name)
        last = last_run_in(workdir, name)
        status = str(last.get("status", "")) if last else ""
        problem, remedy = "", ""
        if status in _BAD_STATUSES:
            error = f": {last['error']}" if last and last.get("error") else ""
            problem, remedy = f"the last snapshot of {name} {status}{error}", "shadowsnap doctor"
        if name in AGENTS and all(other.problem for other in states.values()) and state is None:
            problem, remedy = f"the hook of {name} is not installed", f"shadowsnap install {name}"
        if state is not None and state.problem:
            problem, remedy = f"{name}: {state.sentence}", ""  # the sentence includes the remedy
        when = as_moment(last.get("time")) if last else None
        consented = state.consented if state is not None else None
        version = state.last_run.version if state is not None and state.last_run is not None else ""
        agents.append(ProjectAgent(name, state is not None, consented, when, status, version, problem, remedy))
    return agents


def protection_of(workdir: Path, hooks: Iterable[AgentState]) -> Protection:
    """Whether the next turn in a directory will be protected: the hook must be in the settings of its agent,
    allowed to run, and its last run must not have failed. A run in the past alone proves nothing. Without settings
    to look into (a host that calls the API, a hook set up by hand), a recent turn counts as a sign."""
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
        return _protection_by_run(workdir, agent, run, states.get(agent))
    good = [state.agent for state in states.values() if not state.problem]
    if good:
        return Protection(True, f"the hook of {', '.join(good)} is installed; no turn here yet", good[0])
    if states:
        state = next(iter(states.values()))
        return Protection(False, f"{state.agent}: {state.sentence}", state.agent)
    return _unprotected(workdir)


def _protection_by_run(workdir: Path, agent: str, run: dict[str, Any], state: AgentState | None) -> Protection:
    """Protection by the last run of an agent and its settings."""
    status = str(run.get("status"))
    if state is not None and state.problem:
        text = f"{agent}: NOT protected: {state.problem}"
        return Protection(False, text, agent, _since(workdir, True), status)
    if status in _BAD_STATUSES:
        why = f": {run['error']}" if run.get("error") else ""
        text = f"NOT protected: the hook of {agent} {status} {_ago(run)}{why}"
        return Protection(False, text, agent, _since(workdir, True), status)
    since = _since(workdir, False)
    return Protection(True, f"protected by {agent}, last check {_ago(run)}", agent, since, status)


def _unprotected(workdir: Path) -> Protection:
    """The answer if no hook is installed."""
    last = last_run_in(workdir)
    if last is None:
        return Protection(False, "no agent's hook has run here yet: shadowsnap install AGENT")
    agent, status = str(last.get("agent") or ""), str(last.get("status"))
    if agent in AGENTS:
        text = f"NOT protected: no hook: shadowsnap install {agent}"
    else:
        text = f"NOT protected: the hook of {agent or 'an agent'} last ran {_ago(last)}"
    return Protection(False, text, agent or None, None, status)


def _host_run(workdir: Path) -> dict[str, Any] | None:
    """The newest run of a program that calls the API: a recent turn of an agent that has no hook."""
    hooks = {*_last_runs(workdir), *AGENTS}
    lines = last_lines(Store(log_file().parent), project_of(workdir).id)
    begins = [line for line in lines if line["op"] == "begin" and line.get("agent") not in hooks]
    if not begins:
        return None
    turn = begins[-1].get("turn")
    last = max(line["at"] for line in lines if line.get("turn") == turn)
    run = {"agent": begins[-1].get("agent") or _HOST_PROGRAM, "time": last, "status": "taken"}
    return run if _is_recent(run) else None


def _is_recent(run: dict[str, Any]) -> bool:
    return time.time() - _seconds(run.get("time")) < _RECENT_SECONDS


def _last_runs(workdir: Path) -> dict[str, dict[str, Any]]:
    """The newest run of each agent's hook in a directory."""
    found: dict[str, dict[str, Any]] = {}
    for run in _runs(workdir):
        found.setdefault(str(run.get("agent") or "an agent"), run)
    return found


def last_run_in(workdir: Path, agent: str | None = None) -> dict[str, Any] | None:
    """The newest entry of the hook log about a directory."""
    return next((entry for entry in _runs(workdir) if agent in (None, entry.get("agent"))), None)


def _runs(workdir: Path) -> Iterator[dict[str, Any]]:
    """The runs of hooks in a directory, newest first."""
    for entry in read_log(_RUNS_READ):
        where = str(entry.get("workdir") or entry.get("cwd") or "")
        inside = where == str(workdir) or where.startswith(str(workdir) + os.sep)
        if inside and entry.get("status") not in ("settings", PROBED):
            yield entry


def _since(workdir: Path, bad: bool) -> float | None:
    """The time of the oldest of the newest runs that all went well, or all badly."""
    since = None
    for entry in _runs(workdir):
        if (str(entry.get("status")) in _BAD_STATUSES) != bad:
            break
        since = entry.get("time", since)
    return since if isinstance(since, (int, float)) else None


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _ago(run: dict[str, Any]) -> str:
    moment = as_moment(run.get("time"))
    return ago(moment) if moment is not None else "at an unknown time"


def writable_folders() -> list[str]:
    """The directories that the person's settings of Codex and Claude Code let sandboxed commands write to.
    Settings that cannot be read are ignored."""
    codex = table_in(_toml(folder_of(AGENTS["codex"]) / "config.toml"), "sandbox_workspace_write")
    claude = table_in(read_value(folder_of(AGENTS["claude"]) / "settings.json"), "sandbox", "filesystem")
    found = [*_texts(codex.get("writable_roots")), *_texts(claude.get("allowWrite"))]
    # `//` in front stands for the root of the file system in the settings of Claude Code.
    paths = [os.path.expanduser(path[1:] if path.startswith("//") else path) for path in found]
    return [path for path in paths if os.path.isabs(path)]


def _toml(path: Path) -> Any:
    try:
        return tomllib.loads(read_text(path) or "")
    except (ValueError, RecursionError):
        return {}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
