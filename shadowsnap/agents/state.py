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
from itertools import takewhile
from pathlib import Path
from typing import Any

from shadowsnap.agents.agent import SECONDS_TO_WAIT, Agent
from shadowsnap.agents.catalog import AGENTS, agent_named
from shadowsnap.agents.edit import Command, Edit, read_text, read_value, table_in
from shadowsnap.agents.install import edits_of, folder_of, launcher, launcher_problem, quoted
from shadowsnap.cli.text import ago
from shadowsnap.errors import GitMissing, GitTooOld, SettingsRefused, ShadowsnapError
from shadowsnap.git.repository import usable_git
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
_PROTECTED = ("taken", "unchanged", "already-taken")
_PARTIAL = "partial"
_UNPROTECTED = ("failed", "refused", "disabled")
_LINES_READ = 2000


@dataclass(frozen=True)
class HookRun:
    """One line of the hook log about a run of an agent's hook."""

    agent: str
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
        return self.status not in _UNPROTECTED


def read_runs() -> list[HookRun]:
    """The runs of hooks in the log, newest first. Calls that find everything safe already are not logged."""
    return list(_runs_among(read_log(_LINES_READ)))


def _runs_among(lines: Iterable[dict[str, Any]]) -> Iterator[HookRun]:
    for line in lines:
        at = as_moment(line.get("time"))
        if at is None or line.get("status") not in (*_PROTECTED, _PARTIAL, *_UNPROTECTED):
            continue  # a malformed line, or one about something else than a snapshot, as the start of a session
        names = ("agent", "status", "error", "session", "version")
        facts = {name: str(line.get(name) or "") for name in names}
        yield HookRun(at=at, workdir=str(line.get("workdir") or line.get("cwd") or ""), **facts)


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
    last_run: HookRun | None = None

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
    return _state(agent_named(agent), project, read_runs(), session)


def agent_states(project: Path | None = None) -> list[AgentState]:
    """The state of every agent that has the hook."""
    runs = read_runs()
    return [state for agent in AGENTS.values() if (state := _state(agent, project, runs)).installed]


def _state(agent: Agent, project: Path | None, runs: list[HookRun], session: str = "") -> AgentState:
    states = [_state_in(agent, where, project) for where in dict.fromkeys((None, project))]
    state = next((each for each in states if each.installed), states[0])
    state = replace(state, problem=state.problem or git_problem())
    return replace(state, last_run=last_run(agent.name, runs, session))


def git_problem() -> str:
    """Why no snapshot can be taken here at all: git is missing, or too old; empty if it can be used."""
    try:
        usable_git(Store(log_file().parent).git_dir / "git-version.json")
    except (GitMissing, GitTooOld) as problem:
        return str(problem)
    except (ShadowsnapError, OSError):
        return ""  # it could not be asked; a hook says why it failed
    return ""


def last_run(agent: str, runs: list[HookRun], session: str = "") -> HookRun | None:
    """The newest run of an agent's hook, or of that in one session, with the newest known version of the agent."""
    own = [run for run in runs if run.agent == agent]
    version = next((run.version for run in own if run.version), "")
    newest = next((run for run in own if session in ("", run.session)), None)
    return None if newest is None else replace(newest, version=version)


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


_HOST_PROGRAM, _UNNAMED = "a host program", "an agent"
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
    last = _last_of_each(_runs_in(workdir, read_runs()))
    is_broken = all(state.problem for state in states.values())
    return [
        _project_agent(name, states.get(name), last.get(name), is_broken=is_broken)
        for name in dict.fromkeys((*states, *filter(None, last)))
    ]


def _project_agent(
    name: str, state: AgentState | None, last: HookRun | None, *, is_broken: bool
) -> ProjectAgent:
    problem, remedy = "", ""
    if last is not None and not last.ok:
        error = f": {last.error}" if last.error else ""
        problem, remedy = f"the last snapshot of {name} {last.status}{error}", "shadowsnap doctor"
    if state is None and is_broken and name in AGENTS:
        problem, remedy = f"the hook of {name} is not installed", f"shadowsnap install {name}"
    if state is not None and state.problem:
        problem, remedy = f"{name}: {state.sentence}", ""  # the sentence includes the remedy
    return ProjectAgent(
        name,
        installed=state is not None,
        consented=state.consented if state is not None else None,
        last_run_at=last.at if last is not None else None,
        result=last.status if last is not None else "",
        version=state.last_run.version if state is not None and state.last_run is not None else "",
        problem=problem,
        remedy=remedy,
    )


def protection_of(workdir: Path, hooks: Iterable[AgentState]) -> Protection:
    """Whether the next turn in a directory will be protected: the hook must be in the settings of its agent,
    allowed to run, and its last run must not have failed. A run in the past alone proves nothing. Without settings
    to look into (a host that calls the API, a hook set up by hand), a recent turn counts as a sign."""
    if problem := git_problem():
        return Protection(False, f"NOT protected: {problem}")
    states = {state.agent: state for state in hooks}
    runs = _runs_in(workdir, read_runs())
    last = _last_of_each(runs)
    recent = [run for run in last.values() if run.agent in states or (run.agent not in AGENTS and _is_recent(run))]
    recent += _host_runs(workdir, {*last, *AGENTS})
    if recent:
        run = max(recent, key=lambda each: each.at)
        return _protection_by_run(run, runs, states.get(run.agent))
    good = [state.agent for state in states.values() if not state.problem]
    if good:
        return Protection(True, f"the hook of {', '.join(good)} is installed; no turn here yet", good[0])
    if states:
        state = next(iter(states.values()))
        return Protection(False, f"{state.agent}: {state.sentence}", state.agent)
    return _unprotected(runs)


def _protection_by_run(run: HookRun, runs: list[HookRun], state: AgentState | None) -> Protection:
    """Protection by the last run of an agent and its settings."""
    agent = run.agent or _UNNAMED
    if state is not None and state.problem:
        text = f"{agent}: NOT protected: {state.problem}"
        return Protection(False, text, agent, _since(runs, ok=False), run.status)
    if not run.ok:
        why = f": {run.error}" if run.error else ""
        text = f"NOT protected: the hook of {agent} {run.status} {ago(run.at)}{why}"
        return Protection(False, text, agent, _since(runs, ok=False), run.status)
    if run.status == _PARTIAL:
        text = f"only partly protected by {agent}: {ago(run.at)} only files that it named were captured"
        return Protection(False, text, agent, None, run.status)
    text = f"protected by {agent}, last check {ago(run.at)}"
    return Protection(True, text, agent, _since(runs, ok=True), run.status)


def _unprotected(runs: list[HookRun]) -> Protection:
    """The answer if no hook is installed."""
    if not runs:
        return Protection(False, "no agent's hook has run here yet: shadowsnap install AGENT")
    last = runs[0]
    if last.agent in AGENTS:
        text = f"NOT protected: no hook: shadowsnap install {last.agent}"
    else:
        text = f"NOT protected: the hook of {last.agent or _UNNAMED} last ran {ago(last.at)}"
    return Protection(False, text, last.agent or None, None, last.status)


def _host_runs(workdir: Path, hooks: set[str]) -> list[HookRun]:
    """The newest run of a program that calls the API, if it is recent: a turn of an agent without a hook."""
    lines = last_lines(Store(log_file().parent), project_of(workdir).id)
    begins = [line for line in lines if line["op"] == "begin" and line.get("agent") not in hooks]
    if not begins:
        return []
    turn = begins[-1].get("turn")
    at = as_moment(max(line["at"] for line in lines if line.get("turn") == turn))
    run = None if at is None else HookRun(str(begins[-1].get("agent") or _HOST_PROGRAM), at, "taken")
    return [run] if run is not None and _is_recent(run) else []


def _is_recent(run: HookRun) -> bool:
    return time.time() - run.at.timestamp() < _RECENT_SECONDS


def _last_of_each(runs: list[HookRun]) -> dict[str, HookRun]:
    """The newest run of each agent."""
    found: dict[str, HookRun] = {}
    for run in runs:
        found.setdefault(run.agent, run)
    return found


def _runs_in(workdir: Path, runs: list[HookRun]) -> list[HookRun]:
    """The runs of hooks in a directory."""
    below = str(workdir) + os.sep
    return [run for run in runs if run.workdir == str(workdir) or run.workdir.startswith(below)]


def _since(runs: list[HookRun], *, ok: bool) -> float | None:
    """The time of the oldest of the newest runs that all went well, or all badly."""
    same = [*takewhile(lambda run: run.ok == ok, runs)]
    return same[-1].at.timestamp() if same else None


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
