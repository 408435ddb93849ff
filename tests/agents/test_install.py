"""Installing into other programs' settings, and leaving no trace after uninstalling."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.agents.install import BACKUP, FileChange, install, installed, uninstall
from shadowsnap.cli.main import main
from shadowsnap.errors import SettingsRefused, UnknownAgent
from shadowsnap.hook.session import read_log

# Where an agent's settings are that are not ours alone.
SHARED = {
    "claude": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
    "qwen": ".qwen/settings.json",
    "windsurf": ".codeium/windsurf/hooks.json",
    "kiro": ".kiro/agents/mine.json",
}

FOREIGN = """\
{
    // my settings
    "model": "best",
    "hooks": {
        "PreToolUse": [ { "matcher": "Bash", "hooks": [ {"type": "command", "command": "mine"} ] } ], // keep
        "preToolUse": [
            {"command": "mine too"}
        ],
        "Notification": []
    },
    "zebra": [1,2,   3], /* odd */
    "unicode": "\\u00e4 ü",
}
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The script that settings name, in a base directory whose name has to be quoted."""
    monkeypatch.setenv("SHADOWSNAP_HOME", str(tmp_path / "my tools"))
    return str(tmp_path / "my tools" / "bin" / "shadowsnap")


def in_settings(changes: list[FileChange]) -> list[FileChange]:
    """Without the scripts of our own."""
    return [change for change in changes if change.path.parent.name != "bin"]


def settings(home: Path, agent: str) -> Path:
    path = home / SHARED[agent]
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def commands_in(value: Any) -> list[str]:
    """Every command line of ours in a JSON value."""
    if isinstance(value, dict) and "exec" in value:
        return [" ".join([value["exec"], *value["args"]])]
    if isinstance(value, dict) and isinstance(value.get("command"), str):
        return [value["command"]] if "shadowsnap" in value["command"] else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [command for item in items for command in commands_in(item)]


# --- every agent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_installing_and_uninstalling_leaves_everything_as_it_was(
    agent: str, scope: str, home: Path, project: Path
) -> None:
    where = project if scope == "project" else None
    if agent == "hermes" and where:
        with pytest.raises(SettingsRefused, match="no settings for a single project"):
            install(agent, where)
        return
    before = files_of(home), files_of(project)
    changes = [change for change in in_settings(install(agent, where)) if change.after is not None]
    assert changes and all(change.changes for change in changes)
    top = project if where else home
    assert all(change.path.is_relative_to(top) for change in changes)
    assert "shadowsnap" in "".join(change.path.read_text() for change in changes)

    uninstall(agent, where)
    assert (files_of(home), files_of(project)) == before


def files_of(top: Path) -> dict[bytes, Any]:
    """Everything but directories: an agent's empty folder may stay."""
    return {name: entry for name, entry in manifest(top).items() if entry[0] != "dir"}


@pytest.mark.parametrize("agent", AGENTS)
def test_installing_twice_is_installing_once(agent: str, home: Path) -> None:
    install(agent)
    once = manifest(home)
    assert not any(change.changes for change in install(agent))
    assert manifest(home) == once


@pytest.mark.parametrize("agent", AGENTS)
def test_a_dry_run_shows_the_change_and_changes_nothing(agent: str, home: Path, tmp_path: Path) -> None:
    before = manifest(home)
    changes = [change for change in install(agent, dry_run=True) if change.changes]
    assert manifest(home) == before and not (tmp_path / "my tools").exists()
    assert all(change.diff().startswith(f"--- {os.devnull}\n+++ {change.path}\n") for change in changes)
    install(agent)
    there = manifest(home)
    gone = [change for change in uninstall(agent, dry_run=True) if change.changes]
    assert gone and all(change.diff().splitlines()[1] == f"+++ {os.devnull}" for change in gone)
    assert manifest(home) == there


def test_a_diff_of_a_file_without_a_last_newline_keeps_its_lines_apart(home: Path) -> None:
    (home / ".qwen").mkdir()
    (home / ".qwen" / "settings.json").write_text("{}")
    change, _ = in_settings(install("qwen", dry_run=True))
    assert "\n-{}\n\\ No newline at end of file\n+{\n" in change.diff()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_installation_is_found(
    agent: str, home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed(project) == []
    install(agent)
    if agent != "hermes":
        install(agent, project)
    found = installed(project)
    assert {(each.agent, each.scope, each.current) for each in found} == {
        (agent, scope, True) for scope in (("user",) if agent == "hermes" else ("user", "project"))
    }
    monkeypatch.setenv("SHADOWSNAP_HOME", str(tmp_path / "elsewhere"))
    assert {each.current for each in installed() if not each.path.endswith("plugin.json")} == {False}
    uninstall(agent)
    uninstall(agent, project) if agent != "hermes" else None
    assert installed(project) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_a_newer_command_replaces_the_older(
    agent: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    before = files_of(home)
    monkeypatch.setenv("SHADOWSNAP_HOME", str(tmp_path / "old"))
    install(agent)
    monkeypatch.setenv("SHADOWSNAP_HOME", str(tmp_path / "my tools"))
    install(agent)
    everything = b"".join(entry[2] or b"" for entry in manifest(home).values())
    assert os.fsencode(tmp_path / "old") not in everything and os.fsencode(program) in everything
    uninstall(agent)
    assert files_of(home) == before


OLDER = "/usr/bin/python3 -I -m shadowsnap hook"


@pytest.mark.parametrize("agent", SHARED)
def test_settings_of_an_older_version_are_replaced_and_removed(agent: str, home: Path) -> None:
    """They named the Python, had a matcher with the tools that write, and fewer events."""
    path = settings(home, agent)
    path.write_text(FOREIGN)
    Path(f"{path}{BACKUP}").write_text(FOREIGN)
    older = {"matcher": "Write|Edit|Bash", "hooks": [{"type": "command", "command": f"{OLDER} {agent}"}]}
    path.write_text(
        FOREIGN.replace(
            '{"type": "command", "command": "mine"} ] } ]',
            f'{{"type": "command", "command": "mine"}} ] }}, {json.dumps(older)} ]',
        )
    )
    install(agent)
    assert OLDER not in path.read_text()
    uninstall(agent)
    assert path.read_text() == FOREIGN


# --- settings that are there already --------------------------------------------------------------------


@pytest.mark.parametrize("agent", SHARED)
@pytest.mark.parametrize(
    "original",
    [
        FOREIGN,
        FOREIGN.replace("\n", "\r\n"),
        "\ufeff" + FOREIGN,
        FOREIGN.replace("    ", "\t"),
        "{}",
        "{}\n",
        "",
        "\n",
        '{"hooks":{}}',
        '{"a":1,"hooks":{"PreToolUse":[],"BeforeTool":[{"hooks":[{"command":"x"}]}]}}',
        "// only a comment\n{\n  // nothing yet\n}\n",
        '{\n  "hooks": {\n  }\n}',
        '{"version": 2, "hooks": {"stop": [{"command": "x"}]}}\n',
    ],
)
@pytest.mark.each_value
def test_foreign_settings_stay_and_come_back_byte_for_byte(
    agent: str, original: str, home: Path, program: str
) -> None:
    path = settings(home, agent)
    path.write_bytes(original.encode())
    install(agent)
    text = path.read_bytes().decode()
    assert f"'{program}' hook {agent}" in text
    # Taking out what we put in by hand leaves the rest, in its order and with its comments.
    rest = iter(text)
    assert all(char in rest for char in original.strip()), "something of theirs is gone or moved"
    assert Path(f"{path}{BACKUP}").read_bytes() == original.encode()
    uninstall(agent)
    assert path.read_bytes() == original.encode()
    assert not Path(f"{path}{BACKUP}").exists()


@pytest.mark.parametrize("agent", [agent for agent in SHARED if agent != "kiro"])
def test_what_others_changed_meanwhile_stays(agent: str, home: Path) -> None:
    path = settings(home, agent)
    path.write_text(FOREIGN)
    install(agent)
    path.write_text(path.read_text().replace('"best"', '"better"').replace("mine too", "mine still"))
    uninstall(agent)
    expected = FOREIGN.replace('"best"', '"better"').replace("mine too", "mine still")
    left = path.read_text()
    assert "shadowsnap" not in left
    for line in expected.splitlines():
        if "hooks" not in line and "Notification" not in line and line.strip() not in ("}", "},", "],", "]"):
            assert line.rstrip(",") in left, line
    assert '"command": "mine"' in left and '"command": "mine still"' in left


def test_a_hook_of_ours_in_a_group_of_theirs_is_taken_out_alone(home: Path) -> None:
    path = settings(home, "claude")
    group = {"matcher": "Write", "hooks": [{"command": "theirs"}, {"command": f"{OLDER} claude"}]}
    path.write_text(json.dumps({"hooks": {"PreToolUse": [group]}}))
    uninstall("claude")
    assert json.loads(path.read_text()) == {
        "hooks": {"PreToolUse": [{"matcher": "Write", "hooks": [{"command": "theirs"}]}]}
    }


@pytest.mark.parametrize("agent", SHARED)
@pytest.mark.parametrize(
    "broken",
    [b"{", b'{"hooks": ', b"[]", b'"text"', b'{"hooks": []}', b'{"hooks": {} "a": 1}', b"\xff\xfe", b"{'a': 1}"],
)
def test_broken_settings_are_refused_and_left_untouched(agent: str, broken: bytes, home: Path) -> None:
    path = settings(home, agent)
    path.write_bytes(broken)
    before = manifest(home)
    with pytest.raises(SettingsRefused, match=str(path.name)) as caught:
        install(agent)
    assert caught.value.exit_code == 4
    assert manifest(home) == before


def test_an_event_that_is_no_list_is_refused(home: Path) -> None:
    path = settings(home, "claude")
    path.write_text('{"hooks": {"PreToolUse": {}}}')
    with pytest.raises(SettingsRefused, match="hooks.PreToolUse is not a list"):
        install("claude")
    assert path.read_text() == '{"hooks": {"PreToolUse": {}}}'


def test_if_one_file_is_refused_none_is_written(home: Path) -> None:
    hooks = home / "Documents" / "Cline" / "Hooks"
    hooks.mkdir(parents=True)
    (hooks / "TaskStart").write_text("#!/bin/sh\necho theirs\n")
    before = manifest(home)
    with pytest.raises(SettingsRefused, match="not ours"):
        install("cline")
    assert manifest(home) == before


def test_settings_that_are_a_link_stay_a_link_with_their_permissions(home: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(FOREIGN)
    real.chmod(0o640)
    settings(home, "claude").symlink_to(real)
    install("claude")
    assert settings(home, "claude").is_symlink()
    assert "shadowsnap" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    uninstall("claude")
    assert settings(home, "claude").is_symlink()
    assert real.read_text() == FOREIGN


def test_a_read_only_folder_is_an_error_and_changes_nothing(
    home: Path, as_user: Callable[..., Any], tmp_path: Path
) -> None:
    path = settings(home, "claude")
    path.write_text(FOREIGN)

    def attempt() -> str:
        path.parent.chmod(0o555)
        try:
            install("claude")
        except OSError as problem:
            return type(problem).__name__
        finally:
            path.parent.chmod(0o755)
        return "installed"

    assert as_user(attempt) == "PermissionError"
    assert path.read_text() == FOREIGN


# --- what each agent gets -------------------------------------------------------------------------------


def test_claude(home: Path, program: str) -> None:
    install("claude")
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    entry = {"type": "command", "command": f"'{program}' hook claude", "timeout": 20}
    assert set(hooks) == {
        "PreToolUse", "UserPromptSubmit", "UserPromptExpansion", "SessionStart", "Stop", "SessionEnd",
    }  # fmt: skip
    assert [group["hooks"] for group in hooks["PreToolUse"]] == [[entry]]
    assert hooks["UserPromptExpansion"] == [{"matcher": "rollback", "hooks": [entry]}]
    assert hooks["Stop"] == [{"hooks": [entry]}]
    command = (home / ".claude" / "commands" / "rollback.md").read_text()
    assert f"```!\n'{program}-rollback' - <<'END_OF_ARGUMENTS'\n$ARGUMENTS\nEND_OF_ARGUMENTS\n```\n" in command
    assert f"allowed-tools: Bash('{program}-rollback':*)\n" in command


def test_codex_gets_a_skill_and_a_session_end_within_its_limit(home: Path, program: str) -> None:
    prompts = home / ".codex" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "mine.md").write_text("mine\n")
    install("codex")
    hooks = json.loads((home / ".codex" / "hooks.json").read_text())["hooks"]
    assert not any("matcher" in group for groups in hooks.values() for group in groups)
    assert {event: groups[0]["hooks"][0]["timeout"] for event, groups in hooks.items()} == {
        "PreToolUse": 20, "UserPromptSubmit": 20, "SessionStart": 20, "Stop": 20, "SessionEnd": 3,
    }  # fmt: skip
    skill = (home / ".codex" / "skills" / "rollback" / "SKILL.md").read_text()
    assert skill.startswith("---\nname: rollback\ndescription: ")
    assert f"\n    '{program}-rollback'\n" in skill
    uninstall("codex")
    assert not (home / ".codex" / "skills" / "rollback").exists()
    assert (prompts / "mine.md").exists()


RETIRED_PROMPT = """\
---
description: "Bring files back"
---
<!-- Written by `shadowsnap install codex` (sum d2a413ad7205). -->
Run this command once:

    /usr/bin/python3 -I -m shadowsnap rollback $ARGUMENTS
"""


@pytest.mark.parametrize("remove", [install, uninstall])
def test_the_prompt_that_older_versions_gave_codex_is_removed(
    remove: Callable[[str], list[FileChange]], home: Path
) -> None:
    path = home / ".codex" / "prompts" / "rollback.md"
    path.parent.mkdir(parents=True)
    path.write_text(RETIRED_PROMPT)
    remove("codex")
    assert not path.exists()
    path.write_text(RETIRED_PROMPT + "and be brief\n")
    remove("codex")
    assert path.read_text() == RETIRED_PROMPT + "and be brief\n"


def test_gemini_and_qwen_count_in_milliseconds(home: Path, program: str) -> None:
    install("gemini")
    install("qwen")
    gemini = json.loads((home / ".gemini" / "settings.json").read_text())["hooks"]
    qwen = json.loads((home / ".qwen" / "settings.json").read_text())["hooks"]
    assert gemini["BeforeTool"][0]["hooks"][0]["timeout"] == qwen["PreToolUse"][0]["hooks"][0]["timeout"] == 20000
    assert set(gemini) == {"BeforeTool", "BeforeAgent", "SessionStart", "AfterAgent", "SessionEnd"}
    command = tomllib.loads((home / ".gemini" / "commands" / "rollback.toml").read_text())
    # Inside !{...} both agents quote what stands for {{args}}.
    assert f"!{{'{program}-rollback' {{{{args}}}}}}" in command["prompt"]
    assert command["description"]
    assert f"!{{'{program}-rollback' {{{{args}}}}}}" in (home / ".qwen" / "commands" / "rollback.md").read_text()


def test_cursor_and_copilot_have_a_version(home: Path, program: str) -> None:
    install("cursor")
    install("copilot")
    cursor = json.loads((home / ".cursor" / "hooks.json").read_text())
    copilot = json.loads((home / ".copilot" / "hooks" / "shadowsnap.json").read_text())
    assert cursor["version"] == copilot["version"] == 1
    assert cursor["hooks"]["preToolUse"] == [{"command": f"'{program}' hook cursor", "timeout": 20}]
    assert copilot["hooks"]["preToolUse"] == [
        {"type": "command", "exec": program, "args": ["hook", "copilot", "preToolUse"], "timeoutSec": 20}
    ]
    assert copilot["hooks"]["sessionEnd"][0]["args"] == ["hook", "copilot", "sessionEnd"]


def test_goose_gets_a_plugin(home: Path, program: str) -> None:
    install("goose")
    plugin = home / ".agents" / "plugins" / "shadowsnap"
    assert json.loads((plugin / "plugin.json").read_text())["name"] == "shadowsnap"
    hooks = json.loads((plugin / "hooks" / "hooks.json").read_text())
    assert commands_in(hooks) == [f"'{program}' hook goose"] * 5
    assert "SessionEnd" in hooks["hooks"]
    uninstall("goose")
    assert not plugin.exists()


def test_kiro_gets_it_in_every_agent_or_one_of_its_own(home: Path, program: str) -> None:
    folder = home / ".kiro" / "agents"
    install("kiro")
    assert [path.name for path in folder.iterdir()] == ["shadowsnap.json"]
    assert json.loads((folder / "shadowsnap.json").read_text())["tools"] == ["*"]
    uninstall("kiro")
    for name in ("one", "two"):
        (folder / f"{name}.json").write_text(json.dumps({"name": name, "tools": ["fs_write"]}))
    install("kiro")
    for name in ("one", "two"):
        agent = json.loads((folder / f"{name}.json").read_text())
        assert list(agent) == ["name", "tools", "hooks"]
        assert agent["hooks"]["preToolUse"] == [{"command": f"'{program}' hook kiro", "timeout_ms": 20000}]
    assert not (folder / "shadowsnap.json").exists()


def test_homes_that_variables_name_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, agent, name in (
        ("CLAUDE_CONFIG_DIR", "claude", "settings.json"),
        ("CODEX_HOME", "codex", "hooks.json"),
        ("HERMES_HOME", "hermes", "config.yaml"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / agent))
        install(agent)
        assert (tmp_path / agent / name).is_file()


HERMES = """\
# my configuration
model: best  # the best

hooks:
  # before tools
  pre_tool_call:
    - matcher: "terminal"
      command: ~/bin/mine   # mine
      timeout: 5

  post_tool_call:
  - command: ~/bin/other
# the end
terminal:
  hooks: no
"""


@pytest.mark.parametrize(
    ("original", "lines"),
    [
        (HERMES, ["pre_tool_call:", "mine", "timeout", "matcher", "shadowsnap", "timeout", "post_tool_call"]),
        (HERMES.replace("\n", "\r\n"), ["mine", "shadowsnap", "post_tool_call", "terminal:"]),
        (HERMES.replace("pre_tool_call", "on_session_end"), ["on_session_end", "post_tool_call", "pre_tool_call"]),
        ("model: x\n", ["model", "hooks:", "pre_tool_call", "shadowsnap"]),
        ("model: x", ["model", "hooks:", "pre_tool_call", "shadowsnap"]),
        ("", ["hooks:", "pre_tool_call", "shadowsnap"]),
        ("hooks: {}  # none\nmodel: x\n", ["hooks:", "pre_tool_call", "shadowsnap", "model"]),
        ("hooks:\nmodel: x\n", ["hooks:", "pre_tool_call", "shadowsnap", "model"]),
        ("hooks:\n    pre_tool_call: []\n    a: 1\n", ["pre_tool_call", "shadowsnap", "a: 1"]),
        ("---\nhooks: null\n", ["---", "hooks:", "shadowsnap"]),
    ],
)
def test_hermes_keeps_its_lines_and_comments(original: str, lines: list[str], home: Path) -> None:
    path = home / ".hermes" / "config.yaml"
    path.parent.mkdir()
    path.write_bytes(original.encode())
    install("hermes")
    text = path.read_bytes().decode()
    position = 0
    for piece in lines:
        position = text.index(piece, position) + 1
    empties = (": {}", ": []", ": null")
    kept = [line for line in original.splitlines() if not any(empty in line for empty in empties)]
    remaining = iter(text.splitlines())
    assert all(line in remaining for line in kept)
    assert text.count("\r\n") == (text.count("\n") if "\r\n" in original else 0)
    assert not any(change.changes for change in install("hermes"))
    uninstall("hermes")
    assert path.read_bytes() == original.encode()


def test_hermes_settings_that_changed_meanwhile_lose_only_our_lines(home: Path) -> None:
    path = home / ".hermes" / "config.yaml"
    path.parent.mkdir()
    path.write_text(HERMES)
    install("hermes")
    path.write_text(path.read_text().replace("best", "better"))
    uninstall("hermes")
    assert path.read_text() == HERMES.replace("best", "better")


@pytest.mark.parametrize(
    "odd",
    [
        "hooks: {pre_tool_call: [{command: x}]}\n",
        "hooks: *shared\n",
        "hooks:\n  pre_tool_call: [x]\n",
        "hooks: {}\nhooks: {}\n",
        "a: 1\n---\nb: 2\n",
        "hooks:\n\t- x\n",
    ],
)
def test_hermes_settings_that_are_written_otherwise_are_refused(odd: str, home: Path) -> None:
    path = home / ".hermes" / "config.yaml"
    path.parent.mkdir()
    path.write_text(odd)
    with pytest.raises(SettingsRefused, match="line"):
        install("hermes")
    assert path.read_text() == odd
    assert [each.name for each in path.parent.iterdir()] == ["config.yaml"]


def test_cursor_appends_arguments_to_the_command_of_rollback(home: Path, program: str) -> None:
    install("cursor")
    command = (home / ".cursor" / "commands" / "rollback.md").read_text()
    assert command.endswith(f"\n    '{program}-rollback'\n")
    assert "the words after /rollback" in command
    uninstall("cursor")
    assert not (home / ".cursor" / "commands" / "rollback.md").exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_no_command_names_python(agent: str, program: str) -> None:
    """A permission to always run Python would allow everything."""
    for change in in_settings(install(agent)):
        if change.after is not None:
            assert "python" not in change.after.decode().replace(program, "").lower()


def test_a_rollback_command_of_their_own_is_left_alone(home: Path) -> None:
    path = home / ".claude" / "commands" / "rollback.md"
    path.parent.mkdir(parents=True)
    path.write_text("theirs\n")
    changes = {change.path: change for change in install("claude")}
    assert "not ours" in changes[path].why_kept
    assert "shadowsnap" in (home / ".claude" / "settings.json").read_text()
    uninstall("claude")
    assert path.read_text() == "theirs\n"


def test_a_file_of_ours_that_was_edited_stays_with_a_reason(home: Path) -> None:
    install("claude")
    path = home / ".claude" / "commands" / "rollback.md"
    path.write_text(path.read_text() + "and be brief\n")
    changes = {change.path: change for change in uninstall("claude")}
    assert changes[path].why_kept == "it was changed by hand"
    assert path.exists()


def test_an_unknown_agent_is_refused_with_the_list_of_agents() -> None:
    with pytest.raises(UnknownAgent, match="claude, codex") as caught:
        install("unknown")
    assert caught.value.exit_code == 2


# --- it works -------------------------------------------------------------------------------------------


def test_the_command_that_is_written_runs_without_a_path(home: Path, project: Path) -> None:
    install("claude")
    (entry,) = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]["PreToolUse"]
    event = {
        "session_id": "s", "prompt_id": "t", "cwd": str(project), "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": {"command": "make"},
    }  # fmt: skip
    git_only = os.path.dirname(shutil.which("git") or "")
    done = subprocess.run(
        ["/bin/sh", "-c", entry["hooks"][0]["command"]], cwd="/", input=json.dumps(event).encode(),
        capture_output=True, env={**os.environ, "PATH": git_only}, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(CheckpointManager().list_checkpoints(project)) == 1


def test_the_scripts_for_cline_run(home: Path, project: Path) -> None:
    install("cline")
    script = home / "Documents" / "Cline" / "Hooks" / "PreToolUse"
    event = {
        "hookName": "PreToolUse", "taskId": "s", "workspaceRoots": [str(project)],
        "preToolUse": {"toolName": "execute_command", "parameters": {"command": "make"}},
    }  # fmt: skip
    done = subprocess.run([str(script)], input=json.dumps(event).encode(), capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(CheckpointManager().list_checkpoints(project)) == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("agent", ["opencode", "kilo"])
def test_the_plugin_runs(agent: str, home: Path, project: Path, tmp_path: Path) -> None:
    install(agent)
    run_plugin(
        home / ".config" / agent / "plugins" / "shadowsnap.ts",
        project,
        tmp_path,
        """
        const message = { message: { id: "m1" }, parts: [{ type: "text", text: "tidy up" }] }
        await hooks["chat.message"]({ sessionID: "s1" }, message)
        for (const text of ["1", "2"]) {
          const call = { sessionID: "s1", tool: "write", callID: text }
          await hooks["tool.execute.before"](call, { args: { filePath: "README.md" } })
          writeFileSync(readme, text)
        }
        await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s1" } } })
        const info = { id: "s2", version: "1.18.33" }
        await hooks.event({ event: { type: "session.created", properties: { info } } })
        """,
    )
    taken = CheckpointManager().list_checkpoints(project)
    assert [(each.kind, each.session_id, each.tool) for each in taken] == [
        ("turn-end", "s1", None),
        ("turn", "s1", "write"),
    ]
    assert taken[-1].metadata["prompt"] == "tidy up"
    last = read_log(1)[0]
    assert (last["agent"], last["session"], last["status"]) == (agent, "s2", "session started")
    assert last["version"] == "1.18.33"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_plugin_starts_nothing_for_a_reader_and_gives_a_subagent_the_turn_of_its_parent(
    home: Path, project: Path, tmp_path: Path
) -> None:
    install("opencode")
    plugin = home / ".config" / "opencode" / "plugins" / "shadowsnap.ts"
    events = tmp_path / "events.jsonl"
    recorder = tmp_path / "recorder"
    recorder.write_text(f"#!/bin/sh\ncat >> {events}\necho >> {events}\n")
    recorder.chmod(0o755)
    lines = plugin.read_text().splitlines(keepends=True)
    (at,) = (number for number, line in enumerate(lines) if line.startswith("const program = "))
    lines[at] = f'const program = ["{recorder}"]\n'
    plugin.write_text("".join(lines))
    run_plugin(
        plugin,
        project,
        tmp_path,
        """
        const message = { message: { id: "m1" }, parts: [{ type: "text", text: "tidy up" }] }
        await hooks["chat.message"]({ sessionID: "s1" }, message)
        await hooks["tool.execute.before"]({ sessionID: "s1", tool: "read" }, { args: { filePath: "README.md" } })
        await hooks["tool.execute.before"]({ sessionID: "s1", tool: "task" }, { args: {} })
        const info = { id: "child", parentID: "s1" }
        await hooks.event({ event: { type: "session.created", properties: { info } } })
        await hooks["chat.message"]({ sessionID: "child" }, { message: { id: "m2" }, parts: [] })
        await hooks["tool.execute.before"]({ sessionID: "child", tool: "bash" }, { args: { command: "make" } })
        await hooks.event({ event: { type: "session.idle", properties: { sessionID: "child" } } })
        await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s1" } } })
        """,
    )
    sent = [json.loads(line) for line in events.read_text().splitlines()]
    assert [(each["event"], each["session"], each["turn"], each.get("tool")) for each in sent] == [
        ("prompt", "s1", "m1", None),
        ("tool", "s1", "m1", "task"),
        ("tool", "s1", "m1", "bash"),
        ("stop", "s1", "m1", None),
    ]
    assert [each.get("agent_id") for each in sent] == [None, None, "child", None]


def run_plugin(plugin: Path, project: Path, folder: Path, code: str) -> None:
    (folder / "plugin.mjs").write_text(plugin.read_text())
    (folder / "run.mjs").write_text(
        f"""
        import {{ Shadowsnap }} from "./plugin.mjs"
        import {{ writeFileSync }} from "node:fs"
        const readme = {json.dumps(str(project / "README.md"))}
        const hooks = await Shadowsnap({{ directory: {json.dumps(str(project))} }})
        {code}
        """
    )
    done = subprocess.run(["node", str(folder / "run.mjs")], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- the status line ------------------------------------------------------------------------------------


@pytest.mark.parametrize("original", [None, FOREIGN, "{}"])
def test_a_status_line_is_added_on_request_and_stays_until_uninstalling(
    original: str | None, home: Path, program: str
) -> None:
    path = settings(home, "claude")
    if original is not None:
        path.write_text(original)
    install("claude")
    assert "statusLine" not in path.read_text()
    install("claude", status_line=True)
    assert f"\"'{program}' statusline claude\"" in path.read_text()
    once = path.read_text()
    assert not any(change.changes for change in install("claude"))
    assert path.read_text() == once
    uninstall("claude")
    assert (path.read_text() if path.exists() else None) == original


def test_a_status_line_of_their_own_stays(home: Path) -> None:
    path = settings(home, "claude")
    path.write_text('{"statusLine": {"type": "command", "command": "mine"}}')
    (change,) = (change for change in install("claude", status_line=True) if change.path == path)
    assert "there is a status line already" in change.why_kept
    assert json.loads(path.read_text())["statusLine"]["command"] == "mine"
    assert "hook claude" in path.read_text()
    uninstall("claude")
    assert path.read_text() == '{"statusLine": {"type": "command", "command": "mine"}}'


def test_an_agent_without_a_status_line_says_so(home: Path) -> None:
    assert "no status line" in next(change.why_kept for change in install("gemini", status_line=True)[2:])


# --- the command line -----------------------------------------------------------------------------------


def test_the_command_line(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(project)
    assert main(["install", "claude", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"--- {os.devnull}\n+++ ") and '+  "hooks": {' in shown
    assert not (home / ".claude").exists()

    assert main(["install", "claude", "--project", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [file["change"] for file in answer["settings_files"]] == ["wrote"] * 4
    assert (project / ".claude" / "settings.json").exists()
    assert main(["install", "claude", "--project"]) == 0
    assert "already installed" in capsys.readouterr().err
    assert main(["uninstall", "claude", "--project"]) == 0
    assert not (project / ".claude" / "settings.json").exists()
    assert main(["uninstall", "claude"]) == 0
    assert "not installed" in capsys.readouterr().err
    assert main(["install", "unknown"]) == 2
    settings(home, "claude").write_text("{")
    assert main(["install", "claude"]) == 4
    assert settings(home, "claude").read_text() == "{"
