"""Installing into other programs' settings, and leaving no trace when it is taken out."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.agents.install import BACKUP, install, installed, program_words, uninstall
from shadowsnap.agents.targets import AGENTS
from shadowsnap.cli.main import main
from shadowsnap.errors import SettingsRefused, UnknownAgent
from shadowsnap.hook.log import read_log

PROGRAM = ("/opt/my tools/bin/shadowsnap",)
HOOK = "'/opt/my tools/bin/shadowsnap' hook"

# Where an agent's settings lie that are not ours alone.
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
    before = manifest(home), manifest(project)
    changes = install(agent, where, program=PROGRAM)
    assert changes and all(change.changes for change in changes)
    top = project if where else home
    assert all(change.path.is_relative_to(top) for change in changes)
    assert "shadowsnap" in "".join(change.path.read_text() for change in changes)

    uninstall(agent, where, program=PROGRAM)
    after = manifest(home), manifest(project)
    files = [{name: entry for name, entry in each.items() if entry[0] != "dir"} for each in (*before, *after)]
    assert files[:2] == files[2:]


@pytest.mark.parametrize("agent", AGENTS)
def test_installing_twice_is_installing_once(agent: str, home: Path) -> None:
    install(agent, program=PROGRAM)
    once = manifest(home)
    assert not any(change.changes for change in install(agent, program=PROGRAM))
    assert manifest(home) == once


@pytest.mark.parametrize("agent", AGENTS)
def test_a_dry_run_tells_and_changes_nothing(agent: str, home: Path) -> None:
    before = manifest(home)
    changes = install(agent, program=PROGRAM, dry_run=True)
    assert manifest(home) == before
    assert all(change.diff().startswith(f"--- {os.devnull}\n+++ {change.path}\n") for change in changes)
    install(agent, program=PROGRAM)
    there = manifest(home)
    assert all(change.diff().splitlines()[1] == f"+++ {os.devnull}" for change in uninstall(agent, dry_run=True))
    assert manifest(home) == there


def test_a_diff_of_a_file_without_a_last_newline_keeps_its_lines_apart(home: Path) -> None:
    (home / ".qwen").mkdir()
    (home / ".qwen" / "settings.json").write_text("{}")
    change, _ = install("qwen", program=PROGRAM, dry_run=True)
    assert "\n-{}\n\\ No newline at end of file\n+{\n" in change.diff()


@pytest.mark.parametrize("agent", AGENTS)
def test_what_is_installed_is_found(agent: str, home: Path, project: Path) -> None:
    assert installed(project) == []
    install(agent)
    if agent != "hermes":
        install(agent, project)
    found = installed(project)
    assert {(each.agent, each.scope, each.current) for each in found} == {
        (agent, scope, True) for scope in (("user",) if agent == "hermes" else ("user", "project"))
    }
    install(agent, program=PROGRAM)
    assert {each.current for each in installed() if not each.path.endswith("plugin.json")} == {False}
    uninstall(agent)
    uninstall(agent, project) if agent != "hermes" else None
    assert installed(project) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_a_newer_program_takes_the_place_of_the_older(agent: str, home: Path) -> None:
    before = manifest(home)
    install(agent, program=("/old/shadowsnap",))
    install(agent, program=PROGRAM)
    everything = b"".join(entry[2] or b"" for entry in manifest(home).values())
    assert b"/old/shadowsnap" not in everything
    uninstall(agent, program=PROGRAM)
    after = {name: entry for name, entry in manifest(home).items() if entry[0] != "dir"}
    assert after == {name: entry for name, entry in before.items() if entry[0] != "dir"}


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
def test_foreign_settings_stay_and_come_back_byte_for_byte(agent: str, original: str, home: Path) -> None:
    path = settings(home, agent)
    path.write_bytes(original.encode())
    install(agent, program=PROGRAM)
    text = path.read_bytes().decode()
    assert HOOK in text.replace("\\\\", "\\")
    # Taking out what we put in by hand leaves the rest, in its order and with its comments.
    rest = iter(text)
    assert all(char in rest for char in original.strip()), "something of theirs is gone or moved"
    assert Path(f"{path}{BACKUP}").read_bytes() == original.encode()
    uninstall(agent, program=PROGRAM)
    assert path.read_bytes() == original.encode()
    assert not Path(f"{path}{BACKUP}").exists()


@pytest.mark.parametrize("agent", [agent for agent in SHARED if agent != "kiro"])
def test_what_others_changed_meanwhile_stays(agent: str, home: Path) -> None:
    path = settings(home, agent)
    path.write_text(FOREIGN)
    install(agent, program=PROGRAM)
    path.write_text(path.read_text().replace('"best"', '"better"').replace("mine too", "mine still"))
    uninstall(agent, program=PROGRAM)
    expected = FOREIGN.replace('"best"', '"better"').replace("mine too", "mine still")
    left = path.read_text()
    assert "shadowsnap" not in left
    for line in expected.splitlines():
        if "hooks" not in line and "Notification" not in line and line.strip() not in ("}", "},", "],", "]"):
            assert line.rstrip(",") in left, line
    assert '"command": "mine"' in left and '"command": "mine still"' in left


def test_a_hook_of_ours_in_a_group_of_theirs_is_taken_out_alone(home: Path) -> None:
    path = settings(home, "claude")
    group = {"matcher": "Write", "hooks": [{"command": "theirs"}, {"command": f"{HOOK} claude"}]}
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
        install(agent, program=PROGRAM)
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
            install("claude", program=PROGRAM)
        except OSError as problem:
            return type(problem).__name__
        finally:
            path.parent.chmod(0o755)
        return "installed"

    assert as_user(attempt) == "PermissionError"
    assert path.read_text() == FOREIGN


# --- what each agent gets -------------------------------------------------------------------------------


def test_claude(home: Path) -> None:
    install("claude", program=PROGRAM)
    written = json.loads((home / ".claude" / "settings.json").read_text())
    entry = {"type": "command", "command": f"{HOOK} claude", "timeout": 20}
    assert set(written["hooks"]) == {"PreToolUse", "UserPromptSubmit", "SessionStart", "Stop", "SessionEnd"}
    tools = written["hooks"]["PreToolUse"]
    assert len(tools) == 1 and tools[0]["hooks"] == [entry]
    assert {"Write", "Edit", "MultiEdit", "NotebookEdit", "Bash"} <= set(tools[0]["matcher"].split("|"))
    assert written["hooks"]["Stop"] == [{"hooks": [entry]}]
    command = (home / ".claude" / "commands" / "rollback.md").read_text()
    assert "!`'/opt/my tools/bin/shadowsnap' rollback $ARGUMENTS`" in command


def test_gemini_and_qwen_count_in_milliseconds(home: Path) -> None:
    tomllib = pytest.importorskip("tomllib")
    install("gemini", program=PROGRAM)
    install("qwen", program=PROGRAM)
    gemini = json.loads((home / ".gemini" / "settings.json").read_text())["hooks"]
    qwen = json.loads((home / ".qwen" / "settings.json").read_text())["hooks"]
    assert gemini["BeforeTool"][0]["hooks"][0]["timeout"] == qwen["PreToolUse"][0]["hooks"][0]["timeout"] == 20000
    assert set(gemini) == {"BeforeTool", "BeforeAgent", "SessionStart", "AfterAgent"}
    command = tomllib.loads((home / ".gemini" / "commands" / "rollback.toml").read_text())
    assert "!{'/opt/my tools/bin/shadowsnap' rollback {{args}}}" in command["prompt"]
    assert command["description"]


def test_cursor_and_copilot_have_a_version(home: Path) -> None:
    install("cursor", program=PROGRAM)
    install("copilot", program=PROGRAM)
    cursor = json.loads((home / ".cursor" / "hooks.json").read_text())
    copilot = json.loads((home / ".copilot" / "hooks" / "shadowsnap.json").read_text())
    assert cursor["version"] == copilot["version"] == 1
    assert cursor["hooks"]["preToolUse"] == [{"command": f"{HOOK} cursor", "timeout": 20}]
    assert copilot["hooks"]["preToolUse"] == [
        {"type": "command", "exec": PROGRAM[0], "args": ["hook", "copilot", "preToolUse"], "timeoutSec": 20}
    ]


def test_goose_gets_a_plugin(home: Path) -> None:
    install("goose", program=PROGRAM)
    plugin = home / ".agents" / "plugins" / "shadowsnap"
    assert json.loads((plugin / "plugin.json").read_text())["name"] == "shadowsnap"
    assert commands_in(json.loads((plugin / "hooks" / "hooks.json").read_text())) == [f"{HOOK} goose"] * 4
    uninstall("goose")
    assert not plugin.exists()


def test_kiro_gets_it_in_every_agent_or_one_of_its_own(home: Path) -> None:
    folder = home / ".kiro" / "agents"
    install("kiro", program=PROGRAM)
    assert [path.name for path in folder.iterdir()] == ["shadowsnap.json"]
    assert json.loads((folder / "shadowsnap.json").read_text())["tools"] == ["*"]
    uninstall("kiro", program=PROGRAM)
    for name in ("one", "two"):
        (folder / f"{name}.json").write_text(json.dumps({"name": name, "tools": ["fs_write"]}))
    install("kiro", program=PROGRAM)
    for name in ("one", "two"):
        agent = json.loads((folder / f"{name}.json").read_text())
        assert list(agent) == ["name", "tools", "hooks"]
        assert agent["hooks"]["preToolUse"] == [{"command": f"{HOOK} kiro", "timeout_ms": 20000}]
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
    install("hermes", program=PROGRAM)
    text = path.read_bytes().decode()
    position = 0
    for piece in lines:
        position = text.index(piece, position) + 1
    empties = (": {}", ": []", ": null")
    kept = [line for line in original.splitlines() if not any(empty in line for empty in empties)]
    remaining = iter(text.splitlines())
    assert all(line in remaining for line in kept)
    assert text.count("\r\n") == (text.count("\n") if "\r\n" in original else 0)
    assert not any(change.changes for change in install("hermes", program=PROGRAM))
    uninstall("hermes", program=PROGRAM)
    assert path.read_bytes() == original.encode()


def test_hermes_settings_that_changed_meanwhile_lose_only_our_lines(home: Path) -> None:
    path = home / ".hermes" / "config.yaml"
    path.parent.mkdir()
    path.write_text(HERMES)
    install("hermes", program=PROGRAM)
    path.write_text(path.read_text().replace("best", "better"))
    uninstall("hermes", program=PROGRAM)
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


@pytest.mark.parametrize("agent", ["qwen", "cursor"])
def test_agents_that_put_arguments_behind_a_command_are_told_so(agent: str, home: Path) -> None:
    install(agent, program=["/opt/my tools/bin/shadowsnap"])
    command = (home / f".{agent}" / "commands" / "rollback.md").read_text()
    assert command.endswith("\n    '/opt/my tools/bin/shadowsnap' rollback\n")
    assert "the words behind /rollback" in command
    uninstall(agent)
    assert not (home / f".{agent}" / "commands" / "rollback.md").exists()


def test_a_rollback_command_of_their_own_is_left_alone(home: Path) -> None:
    path = home / ".claude" / "commands" / "rollback.md"
    path.parent.mkdir(parents=True)
    path.write_text("theirs\n")
    changes = {change.path: change for change in install("claude")}
    assert "not ours" in changes[path].why_kept
    assert "shadowsnap" in (home / ".claude" / "settings.json").read_text()
    uninstall("claude")
    assert path.read_text() == "theirs\n"


def test_a_file_of_ours_that_somebody_changed_is_left_with_a_word(home: Path) -> None:
    install("claude")
    path = home / ".claude" / "commands" / "rollback.md"
    path.write_text(path.read_text() + "and be brief\n")
    changes = {change.path: change for change in uninstall("claude")}
    assert changes[path].why_kept == "it was changed by hand"
    assert path.exists()


def test_an_unknown_agent_is_told_which_there_are() -> None:
    with pytest.raises(UnknownAgent, match="claude, codex") as caught:
        install("nobody")
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


def test_the_module_is_run_by_the_python_that_runs_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert program_words() == (sys.executable, "-I", "-m", "shadowsnap")
    (tmp_path / "python3").symlink_to(sys.executable)  # not in the environment that has the package
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(SettingsRefused, match="isolated"):
        program_words()


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
def test_the_plugin_for_opencode_runs(home: Path, project: Path, tmp_path: Path) -> None:
    install("opencode")
    plugin = home / ".config" / "opencode" / "plugins" / "shadowsnap.ts"
    (tmp_path / "plugin.mjs").write_text(plugin.read_text())
    (tmp_path / "run.mjs").write_text(
        f"""
        import {{ Shadowsnap }} from "./plugin.mjs"
        import {{ writeFileSync }} from "node:fs"
        const hooks = await Shadowsnap({{ directory: {json.dumps(str(project))} }})
        const message = {{ message: {{ id: "m1" }}, parts: [{{ type: "text", text: "tidy up" }}] }}
        await hooks["chat.message"]({{ sessionID: "s1" }}, message)
        for (const text of ["1", "2"]) {{
          const call = {{ sessionID: "s1", tool: "write", callID: text }}
          await hooks["tool.execute.before"](call, {{ args: {{ filePath: "README.md" }} }})
          writeFileSync({json.dumps(str(project / "README.md"))}, text)
        }}
        await hooks.event({{ event: {{ type: "session.idle", properties: {{ sessionID: "s1" }} }} }})
        await hooks.event({{ event: {{ type: "session.created", properties: {{ info: {{ id: "s2" }} }} }} }})
        """
    )
    done = subprocess.run(["node", str(tmp_path / "run.mjs")], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    taken = CheckpointManager().list_checkpoints(project)
    assert [(each.kind, each.session_id, each.tool) for each in taken] == [
        ("turn-end", "s1", None),
        ("turn", "s1", "write"),
    ]
    assert taken[-1].metadata["prompt"] == "tidy up"
    last = read_log(1)[0]
    assert (last["agent"], last["session"], last["status"]) == ("opencode", "s2", "session started")


def test_the_command_line(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(project)
    assert main(["install", "claude", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"--- {os.devnull}\n+++ {home}") and '+  "hooks": {' in shown
    assert not (home / ".claude").exists()

    assert main(["install", "claude", "--project", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [file["change"] for file in answer["files"]] == ["wrote", "wrote"]
    assert (project / ".claude" / "settings.json").exists()
    assert main(["install", "claude", "--project"]) == 0
    assert "already installed" in capsys.readouterr().err
    assert main(["uninstall", "claude", "--project"]) == 0
    assert not (project / ".claude" / "settings.json").exists()
    assert main(["uninstall", "claude"]) == 0
    assert "not installed" in capsys.readouterr().err
    assert main(["install", "nobody"]) == 2
    settings(home, "claude").write_text("{")
    assert main(["install", "claude"]) == 4
    assert settings(home, "claude").read_text() == "{"
