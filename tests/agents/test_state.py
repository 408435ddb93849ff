"""Installed is not protected: whether an agent runs the hook, and when it last did."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import hook_command, on_terminal

from helpers import ROOT
from shadowsnap import CheckpointManager
from shadowsnap.agents import codex
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.agents.edit import JsonHooks
from shadowsnap.agents.install import edits_of, install, installed, uninstall
from shadowsnap.agents.state import (
    AgentState,
    agent_state,
    agent_states,
    checked_states,
    last_run,
    probe,
    protection_of,
    read_runs,
    wait_for_consent,
)
from shadowsnap.base import configured_base
from shadowsnap.cli.main import main
from shadowsnap.errors import SettingsRefused, UnknownAgent
from shadowsnap.hook.handle import run_hook

# --- what Codex and Hermes write when a person agrees ---------------------------------------------------


def trust_in_codex(hooks: Path, config: Path) -> None:
    """Write what Codex writes after "Trust all and continue". This is its algorithm, spelled out once more."""
    lines = ['model = "gpt-5.5"\n']
    for event, groups in json.loads(hooks.read_text())["hooks"].items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for at, group in enumerate(groups):
            for number, hook in enumerate(group["hooks"]):
                timeout = hook.get("timeout", 600)
                entry = {"async": False, "command": hook["command"], "timeout": timeout, "type": "command"}
                matcher = {"matcher": group["matcher"]} if "matcher" in group else {}
                text = json.dumps(
                    {"event_name": name, "hooks": [entry], **matcher}, sort_keys=True, separators=(",", ":")
                )
                lines.append(f'\n[hooks.state."{hooks}:{name}:{at}:{number}"]\n')
                lines.append(f'trusted_hash = "sha256:{hashlib.sha256(text.encode()).hexdigest()}"\n')
    config.write_text("".join(lines))


def allow_in_hermes(home: Path, *events: str) -> None:
    approvals = [
        {
            "approved_at": "2026-11-17T13:11:42.981772Z",
            "command": hook_command("hermes"),
            "event": event,
            "script_mtime_at_approval": "2026-11-17T13:10:43.063559Z",
        }
        for event in events
    ]
    (home / ".hermes" / "shell-hooks-allowlist.json").write_text(json.dumps({"approvals": approvals}, indent=2))


TRUST = 'trust the hook: start codex and choose "Trust all and continue"'
HERMES_EVENTS = [event.name for event in AGENTS["hermes"].events]


# --- every agent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_without_the_hook_is_not_protected(agent: str) -> None:
    state = agent_state(agent)
    assert (state.installed, state.protected) == (False, False)
    assert state.sentence == f"NOT protected: the hook is not installed: shadowsnap install {agent}"
    assert agent_states() == []


@pytest.mark.parametrize("agent", [name for name, each in AGENTS.items() if each.consent is None])
def test_an_agent_that_never_asks_is_protected_once_installed(agent: str) -> None:
    install(agent)
    state = agent_state(agent)
    assert (state.installed, state.current, state.consented) == (True, True, None)
    assert state.sentence == "protected, no turn yet"
    assert [each.agent for each in agent_states()] == [agent]
    uninstall(agent)
    assert not agent_state(agent).installed


def test_the_hook_of_a_project_counts_there(project: Path) -> None:
    install("cursor", project)
    state = agent_state("cursor", project)
    assert (state.installed, state.scope) == (True, "project")
    assert state.paths == (str(project / ".cursor" / "hooks.json"),)
    assert not agent_state("cursor").installed
    install("cursor")
    assert agent_state("cursor", project).scope == "user"


def test_an_unknown_agent_is_refused() -> None:
    with pytest.raises(UnknownAgent):
        agent_state("unknown")


def test_settings_that_cannot_be_read_have_no_hook(home: Path) -> None:
    install("claude")
    path = home / ".claude" / "settings.json"
    path.write_text(path.read_text()[:-3])
    state = agent_state("claude")
    assert not state.installed
    assert state.sentence.startswith(f"NOT protected: {path} cannot be read: line ")


@pytest.mark.parametrize("agent", ["claude", "cline", "opencode", "copilot", "qwen"])
def test_a_missing_program_is_reported(agent: str) -> None:
    install(agent)
    script = Path(configured_base(), "bin", "shadowsnap")
    script.write_text(script.read_text().replace("python=", "python=/nowhere"))
    missing = agent_state(agent)
    assert not missing.protected
    assert re.fullmatch(
        rf"the Python of shadowsnap is missing: /nowhere/.+; run: shadowsnap install {agent}", missing.problem
    )
    script.unlink()
    gone = f"the program of the hook is missing: {script}; run: shadowsnap install {agent}"
    assert agent_state(agent).problem == gone
    install(agent)
    assert agent_state(agent).protected


def test_a_script_that_is_not_executable_is_reported(home: Path) -> None:
    install("cline")
    script = home / "Documents" / "Cline" / "Hooks" / "PreToolUse"
    script.chmod(0o644)
    assert agent_state("cline").problem == f"{script} is not executable; run: shadowsnap install cline"
    install("cline")
    assert agent_state("cline").protected


@pytest.mark.parametrize(
    ("agent", "file", "value", "key"),
    [
        ("claude", ".claude/settings.json", {"disableAllHooks": True}, "disableAllHooks"),
        ("claude", ".claude/settings.local.json", {"disableAllHooks": True}, "disableAllHooks"),
        ("qwen", ".qwen/settings.json", {"disableAllHooks": True}, "disableAllHooks"),
        ("gemini", ".gemini/settings.json", {"hooksConfig": {"enabled": False}}, "hooksConfig.enabled"),
        ("gemini", ".gemini/settings.json", {"hooksConfig": {"disabled": ["shadowsnap"]}}, "hooksConfig.disabled"),
    ],
)
def test_a_setting_that_turns_hooks_off_is_reported(
    agent: str, file: str, value: dict[str, Any], key: str, home: Path, project: Path
) -> None:
    (home / file).parent.mkdir(parents=True)
    (home / file).write_text(json.dumps(value))
    install(agent)
    assert key in agent_state(agent).problem and "turned off" in agent_state(agent).problem
    (home / file).write_text((home / file).read_text().replace("true", "1").replace("false", "true"))
    (home / file).write_text((home / file).read_text().replace('"shadowsnap"]', '"others"]'))
    assert agent_state(agent).protected

    (project / file).parent.mkdir(parents=True)
    (project / file).write_text(json.dumps(value))
    assert key in agent_state(agent, project).problem
    assert agent_state(agent).protected


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes and devices")
@pytest.mark.parametrize("odd", [pipe, endless, huge, Path.mkdir])
def test_what_a_clone_has_in_the_place_of_settings_is_neither_waited_for_nor_read(
    odd: Callable[[Path], None], home: Path, project: Path
) -> None:
    """Each file of each agent, of the hook and of the switches that turn it off."""
    folders = {agent: project / known.folder.project for agent, known in AGENTS.items() if known.folder.project}
    files = {edit.path for agent in folders for edit in edits_of(agent, project)}
    files |= {folders[agent] / switch.file for agent in folders for switch in AGENTS[agent].switches}
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        odd(file)
    install("claude")
    assert agent_state("claude", project).protected
    assert [state.agent for state in agent_states(project)] == ["claude"]
    assert [part.scope for part in installed(project)].count("project") == 0
    for agent in folders:
        with pytest.raises(SettingsRefused):
            install(agent, project)
    assert all(stat.S_IFMT(file.lstat().st_mode) != stat.S_IFREG or odd is huge for file in files)


# --- consent --------------------------------------------------------------------------------------------

# What Codex 0.166.0 itself wrote into config.toml for these hooks.
RECORDED = {
    "pre_tool_use": "3f97375192b069f29b9ed69612873f7dec862827ce06bfbf75960df1d16b5f7b",
    "user_prompt_submit": "c747f22c06a9ae0b26de39fb5a128774b167d9a6eea585dd83fa39ad5be90568",
    "session_start": "75dc6120e22472fa7222570e47ec56ca87e6c5b4dd0278a8140e8466a3b04777",
    "stop": "e06f56df2a41f08a7f4836cd1564ddada5869e059e027a4edb712a476367e0b6",
    "session_end": "f3384e64cf5f693040c87837ec9ce0ef63ce019b484e51e34767a3a7a6bd3e9c",
}


def test_the_hash_of_a_hook_is_the_one_that_codex_writes(home: Path) -> None:
    install("codex")
    path = home / ".codex" / "hooks.json"
    base = configured_base()
    path.write_text(path.read_text().replace(base, "/home/dev/.local/state/shadowsnap"))
    (edit,) = (edit for edit in edits_of("codex") if isinstance(edit, JsonHooks))
    assert {keys[0]: value for keys, value in codex.hashes_of(edit)} == {
        f"{path}:{name}:0:0": f"sha256:{value}" for name, value in RECORDED.items()
    }


def test_codex_runs_the_hook_only_once_it_is_trusted(home: Path) -> None:
    install("codex")
    state = agent_state("codex")
    assert (state.installed, state.consented, state.protected) == (True, False, False)
    assert state.sentence.startswith(f"NOT protected: {TRUST}")
    trust_in_codex(home / ".codex" / "hooks.json", home / ".codex" / "config.toml")
    assert agent_state("codex").consented is True
    assert agent_state("codex").protected


@pytest.mark.parametrize("foreign", ["before", "same group", "after"])
def test_trust_belongs_to_the_position_of_a_hook(foreign: str, home: Path) -> None:
    path = home / ".codex" / "hooks.json"
    path.parent.mkdir()
    mine = {"type": "command", "command": "mine"}
    if foreign == "before":
        path.write_text(json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [mine]}]}}))
    install("codex")
    hooks = json.loads(path.read_text())
    if foreign == "same group":
        hooks["hooks"]["Stop"][0]["hooks"].insert(0, mine)
    elif foreign == "after":
        hooks["hooks"]["Stop"].append({"hooks": [mine]})
    path.write_text(json.dumps(hooks))
    trust_in_codex(path, home / ".codex" / "config.toml")
    assert agent_state("codex").consented
    hooks["hooks"]["Stop"].insert(0, {"hooks": [mine]})
    path.write_text(json.dumps(hooks))
    assert "trust the hook: start codex" in agent_state("codex").problem


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("trusted_hash", "old_hash", "trust the hook"),
        ('"sha256:', '"sha256:0', "it changed since you trusted it"),
        ("trusted_hash", "enabled = false\ntrusted_hash", "turned off in codex"),
        ('model = "gpt-5.5"', "[features]\nhooks = false", "features.hooks"),
        ('model = "gpt-5.5"', "[features]\ncodex_hooks = false", "features.hooks"),
        ("model", "]", "cannot be read"),
    ],
)
def test_what_makes_codex_skip_the_hook(before: str, after: str, why: str, home: Path) -> None:
    install("codex")
    config = home / ".codex" / "config.toml"
    trust_in_codex(home / ".codex" / "hooks.json", config)
    config.write_text(config.read_text().replace(before, after, 1))
    assert why in agent_state("codex").problem
    assert agent_state("codex").consented is False


def test_trust_survives_another_python_and_another_version(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("codex")
    trust_in_codex(home / ".codex" / "hooks.json", home / ".codex" / "config.toml")
    moved = tmp_path / "python3"
    moved.write_text("#!/bin/sh\n")
    moved.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(moved))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(ROOT)])  # as if it were installed there
    install("codex")
    assert agent_state("codex").consented


def test_codex_resolves_links_in_its_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "link"))
    install("codex")
    trust_in_codex(tmp_path / "real" / "hooks.json", tmp_path / "real" / "config.toml")
    assert agent_state("codex").consented


def test_hermes_runs_the_hook_only_for_allowed_events(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("hermes")
    assert agent_state("hermes").problem == f"allow the hook (6 of its events): {AGENTS['hermes'].consent.step}"  # type: ignore[union-attr]
    allow_in_hermes(home, *HERMES_EVENTS[1:])
    assert agent_state("hermes").problem.startswith("allow the hook (1 of its events): start hermes")
    allow_in_hermes(home, *HERMES_EVENTS)
    assert agent_state("hermes").consented is True
    allowed = home / ".hermes" / "shell-hooks-allowlist.json"
    allowed.write_text(allowed.read_text().replace(hook_command("hermes"), "/old/shadowsnap hook hermes"))
    assert agent_state("hermes").consented is False
    monkeypatch.setenv("HERMES_ACCEPT_HOOKS", "1")
    assert agent_state("hermes").consented is True


@pytest.mark.parametrize("text", ["[]", "{", '{"approvals": {}}', '{"approvals": [1, null]}'])
def test_an_allow_list_that_is_damaged_allows_nothing(text: str, home: Path) -> None:
    install("hermes")
    (home / ".hermes" / "shell-hooks-allowlist.json").write_text(text)
    assert agent_state("hermes").consented is False


def test_a_setting_of_hermes_accepts_all_hooks(home: Path) -> None:
    (home / ".hermes").mkdir()
    (home / ".hermes" / "config.yaml").write_text("hooks_auto_accept: true\n")
    install("hermes")
    assert agent_state("hermes").consented is True


def test_gemini_runs_hooks_in_trusted_folders_only(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("gemini")
    trusted = home / ".gemini" / "trustedFolders.json"
    assert agent_state("gemini", project).problem.startswith("gemini does not trust this folder: start gemini")
    for rules, allowed in (
        ({str(project): "TRUST_FOLDER"}, True),
        ({str(project.parent): "TRUST_FOLDER"}, True),
        ({str(project / "src"): "TRUST_PARENT"}, True),
        ({str(project.parent): "TRUST_FOLDER", str(project): "DO_NOT_TRUST"}, False),
        ({f"{project}-2": "TRUST_FOLDER"}, False),
    ):
        trusted.write_text(json.dumps(rules))
        assert agent_state("gemini", project).consented is allowed, rules
    monkeypatch.setenv("GEMINI_CLI_TRUST_WORKSPACE", "true")
    assert agent_state("gemini", project).consented
    monkeypatch.delenv("GEMINI_CLI_TRUST_WORKSPACE")
    path = home / ".gemini" / "settings.json"
    path.write_text(path.read_text().replace("{", '{"security": {"folderTrust": {"enabled": false}},', 1))
    assert agent_state("gemini", project).consented


# --- seen running ---------------------------------------------------------------------------------------


def log(*entries: dict[str, Any]) -> None:
    path = Path(configured_base(), "hook.log.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_the_last_run_comes_from_the_log(project: Path) -> None:
    install("cline")
    event = {
        "hookName": "PreToolUse", "taskId": "s", "workspaceRoots": [str(project)], "clineVersion": "3.0.65",
        "preToolUse": {"toolName": "execute_command", "parameters": {"command": "make"}},
    }  # fmt: skip
    run_hook("cline", json.dumps(event).encode())
    state = agent_state("cline")
    assert state.last_run is not None and CheckpointManager().list_checkpoints(project)
    assert (state.last_run.status, state.last_run.session) == ("taken", "s")
    assert (state.last_run.workdir, state.last_run.version) == (str(project), "3.0.65")
    assert state.sentence == "protected just now"
    row = state.to_dict()
    assert row["agent"] == "cline" and row["result"] == "taken" and row["last_run_at"]


def test_probes_and_other_agents_are_no_runs() -> None:
    now = time.time()
    log(
        {"agent": "claude", "status": "taken", "time": now - 12, "version": "2.1.325"},
        {"agent": "codex", "status": "failed", "time": now - 5},
        {"agent": "claude", "status": "unchanged", "time": now - 4},
        {"agent": "claude", "status": "probe", "time": now},
        {"agent": "claude"},
    )
    run = last_run("claude", read_runs())
    assert run is not None and (run.status, run.version) == ("unchanged", "2.1.325")
    assert last_run("gemini", read_runs()) is None


def test_a_session_sees_its_own_runs() -> None:
    install("claude")
    now = time.time()
    log(
        {"agent": "claude", "status": "taken", "time": now - 90, "session": "mine"},
        {"agent": "claude", "status": "failed", "time": now - 5, "session": "other", "error": "OSError: full"},
    )
    assert agent_state("claude").sentence == "NOT protected: the last snapshot failed: OSError: full"
    assert agent_state("claude", session="mine").sentence == "protected 1 min ago"
    assert agent_state("claude", session="new").sentence == "protected, no turn yet"


@pytest.fixture
def claude_session(project: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Claude Code gives a status line on standard input."""
    monkeypatch.chdir(project)
    return {"hook_event_name": "Status", "session_id": "mine", "cwd": str(project), "version": "2.1.325"}


def test_the_status_line_says_whether_it_is_protected(
    claude_session: dict[str, str], home: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(given: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        assert main(["statusline", "claude"]) == 0
        return str(capsys.readouterr().out)

    given = json.dumps(claude_session)
    not_installed = "shadowsnap: NOT protected: the hook is not installed: shadowsnap install claude\n"
    assert line(given) == not_installed
    install("claude", status_line=True)
    log({"agent": "claude", "status": "taken", "time": time.time() - 12.5, "session": "mine"})
    assert line(given) == "shadowsnap: protected 12 s ago\n"
    for odd in ("", "[]", "{", '{"session_id": 3, "cwd": null}'):
        assert line(odd) == "shadowsnap: protected 12 s ago\n"
    (home / ".claude" / "settings.local.json").write_text('{"disableAllHooks": true}')
    assert line(given).startswith("shadowsnap: NOT protected: hooks are turned off: disableAllHooks")


# --- waiting for consent --------------------------------------------------------------------------------


def test_waiting_ends_when_the_person_agreed(home: Path) -> None:
    install("codex")
    waits: list[float] = []

    def agree_at_the_third(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            trust_in_codex(home / ".codex" / "hooks.json", home / ".codex" / "config.toml")

    state: AgentState = wait_for_consent("codex", sleep=agree_at_the_third)
    assert state.protected and len(waits) == 3


def test_waiting_ends_after_its_time() -> None:
    install("codex")
    assert wait_for_consent("codex", seconds=0).consented is False


def test_nothing_is_waited_for_where_no_consent_is_needed() -> None:
    install("claude")
    assert wait_for_consent("claude", sleep=lambda seconds: pytest.fail("waited")).consented is None


def test_install_says_what_is_needed_and_does_not_wait_without_a_terminal(home: Path, capsys: Any) -> None:
    assert main(["install", "codex"]) == 0
    assert f"NOT protected: {TRUST}" in capsys.readouterr().err
    assert main(["install", "claude"]) == 0
    assert "NOT protected" not in capsys.readouterr().err


def test_ctrl_c_ends_the_waiting_and_the_hook_stays(home: Path, project: Path) -> None:
    code, screen = on_terminal(
        [sys.executable, "-m", "shadowsnap", "install", "codex"],
        project,
        [("waiting until that is done", "\x03")],
        {"TERM": "xterm"},
    )
    assert code == 0
    assert "codex: NOT protected: trust the hook" in screen
    assert agent_state("codex").installed


# --- running the hook -----------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
def test_a_probe_runs_each_installed_hook_and_records_nothing(agent: str, home: Path) -> None:
    assert probe(agent) == []
    install(agent)
    (done,) = probe(agent)
    assert (done.agent, done.ok, done.problem) == (agent, True, "")
    assert 0 < done.seconds < 20 and f"hook {agent}" in done.command
    assert last_run(agent, read_runs()) is None
    assert sorted(path.name for path in Path(configured_base()).iterdir()) == ["bin", "hook.log.jsonl"]


def broken(body: str) -> None:
    Path(configured_base(), "bin", "shadowsnap").write_text(f"#!/bin/sh\npython={sys.executable}\n{body}\n")


@pytest.mark.parametrize("agent", ["claude", "opencode"])
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("echo no; exit 3", "it exits with 3: no"),
        ("echo hello", "it prints something: hello"),
        ("echo hello >&2", "it prints something: hello"),
        ("exit 0", "it exits with 0 but does nothing: shadowsnap, or its Python, is missing"),
        ("sleep 30", "it did not end within 1 s"),
        ("exec /nowhere/python3", "its program is missing: "),
    ],
)
def test_a_hook_that_does_not_answer_is_found(agent: str, body: str, problem: str) -> None:
    install(agent)
    broken(body)
    (done,) = probe(agent, seconds=1)
    assert not done.ok and done.problem.startswith(problem)


def test_a_state_is_checked_by_running_the_hook(home: Path, project: Path) -> None:
    install("claude")
    install("cursor", project)
    assert [(each.agent, each.sentence) for each in checked_states(project)] == [
        ("claude", "protected, no turn yet"),
        ("cursor", "protected, no turn yet"),
    ]
    broken("exit 3")
    assert [each.problem for each in checked_states(project)] == [
        f"the hook does not answer: it exits with 3; run: shadowsnap install {agent}"
        for agent in ("claude", "cursor")
    ]


def test_a_program_that_is_gone_is_found() -> None:
    for agent in ("claude", "copilot"):
        install(agent)
        Path(configured_base(), "bin", "shadowsnap").unlink()
        (done,) = probe(agent)
        assert not done.ok
        assert done.problem.startswith(("its program is missing: ", "it cannot be started: "))


def test_a_hook_of_an_older_version_is_run_as_it_is(home: Path) -> None:
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    command = "/nowhere/python -I -m shadowsnap hook claude"
    path.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}))
    (done,) = probe("claude")
    assert done.command == command and done.problem.startswith("its program is missing: ")
    state = agent_state("claude")
    assert (state.installed, state.current) == (True, False)
    assert state.problem == "the program of the hook is missing: /nowhere/python; run: shadowsnap install claude"


# --- what counts as protection of a directory ---------------------------------------------------------


def protection(project: Path) -> tuple[bool, str]:
    found = protection_of(project, agent_states(project))
    return found.protected, found.text


def test_the_start_of_a_session_is_no_sign_of_protection(project: Path) -> None:
    install("claude")
    now, line = time.time(), {"agent": "claude", "workdir": str(project)}
    failed = {**line, "status": "failed", "time": now - 9, "error": "full"}
    log(failed, {**line, "status": "session started", "time": now})
    assert protection(project) == (False, "NOT protected: the hook of claude failed 9 s ago: full")
    log({**line, "status": "conversation not kept", "time": now})
    assert protection(project) == (True, "the hook of claude is installed; no turn here yet")


def test_named_files_alone_are_no_whole_protection(project: Path) -> None:
    install("claude")
    log({"agent": "claude", "workdir": str(project), "status": "partial", "time": time.time()})
    told = "only partly protected by claude: just now only files that it named were captured"
    assert protection(project) == (False, told)


def test_without_git_nothing_is_protected(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("claude")
    log({"agent": "claude", "workdir": str(project), "status": "taken", "time": time.time()})
    assert protection(project)[0] and agent_state("claude").protected
    monkeypatch.setenv("PATH", str(project))
    assert protection(project) == (False, "NOT protected: git was not found on the PATH")
    assert agent_state("claude").sentence == "NOT protected: git was not found on the PATH"
