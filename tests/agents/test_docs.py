"""What the documentation of hooks and agents says is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import hook_command

from helpers import ROOT
from reference import PLAYED
from shadowsnap import CheckpointManager
from shadowsnap.agents.agent import SECONDS_TO_WAIT, Agent
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.agents.install import BACKUP, install
from shadowsnap.hook import client
from shadowsnap.hook import handle as hook
from shadowsnap.hook import session as hooklog
from shadowsnap.hook import session as turns
from shadowsnap.hook.payload import read_event
from shadowsnap.turns import _PROMPT_LENGTH

HOOKS = (ROOT / "shadowsnap" / "docs" / "hooks.md").read_text()
PAGE = (ROOT / "shadowsnap" / "docs" / "agents.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_everything_about_an_agent_is_on_the_page(agent: Agent) -> None:
    section = PAGE.split(f"\n## {agent.title}\n")[1].split("\n## ")[0]
    consent = (agent.consent.step, agent.consent.record) if agent.consent else ()
    facts = [*(event.name for event in agent.events), *agent.readers, *agent.versions, *agent.gaps, *agent.notes]
    for fact in [*facts, *consent, agent.rollback, agent.transcript]:
        assert fact in section


def test_the_versions_that_played_the_stories_are_known() -> None:
    played = json.loads(PLAYED.read_text("utf-8"))
    assert {"claude", "codex", "gemini", "qwen", "opencode", "copilot", "cline", "goose", "hermes"} <= set(played)
    for name, row in played.items():
        assert row["version"] in AGENTS[name].versions
        assert f"| {AGENTS[name].title} | {row['version']} | {row['month']} | " in PAGE


@pytest.mark.parametrize("agent", AGENTS)
def test_the_settings_are_where_the_table_says(agent: str, home: Path, project: Path) -> None:
    user, own, *_ = rows()[agent]
    for scope, cell in ((None, user), (project, own)):
        if cell == "-":
            continue
        start = cell.strip("`").replace("~/", "").split("*")[0].rstrip("/")
        top = scope or home
        changes = [change for change in install(agent, scope, dry_run=True) if change.path.parent.name != "bin"]
        paths = [str(change.path.relative_to(top)) for change in changes]
        assert any(path.startswith(start) for path in paths), paths


def rows() -> dict[str, list[str]]:
    """Agent -> the cells of its row."""
    found = re.findall(r"^\| (\w+) \([^)]+\) \|(.+)\|$", PAGE, re.MULTILINE)
    return {agent: [cell.strip() for cell in rest.split("|")] for agent, rest in found}


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_the_python_examples_run(code: str, project: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=project, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_guard_example_takes_a_snapshot(project: Path) -> None:
    code = next(block for block in blocks(PAGE, "python") if "guard" in block)
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True)
    assert CheckpointManager().get(project, "last").tool == "write_file"


def test_the_generic_example_is_understood() -> None:
    (example,) = blocks(HOOKS, "json")
    event = read_event("generic", example.encode())
    assert (event.kind, event.session, event.turn) == ("tool", "any id of the conversation", "any id of the turn")
    assert (event.cwd, event.tool) == ("/home/me/project", "write_file")
    assert event.roots == ("/home/me/project", "/home/me/library")
    assert event.tool_input["path"] == "src/main.py"


def test_the_example_by_hand_is_what_is_installed(home: Path) -> None:
    (example,) = blocks(PAGE, "json")
    install("codex")
    written = json.loads((home / ".codex" / "hooks.json").read_text())
    text = json.dumps(json.loads(example)).replace("/full/path/to/shadowsnap hook claude", hook_command("codex"))
    assert json.loads(text)["hooks"]["PreToolUse"] == written["hooks"]["PreToolUse"]


def test_the_figures_are_right() -> None:
    for figure, words in (
        (hook.DEADLINE, "after {:.0f} seconds it captures just the files"),
        (client._MOST_SECONDS, "after {} seconds it\n  ends in any case"),
        (SECONDS_TO_WAIT, "The installed setting lets agents wait {}."),
        (turns._DAYS_KEPT, "after\n  {} days"),
        (turns._SESSIONS_KEPT, "more than {}."),
        (hooklog._MOST_LOG_BYTES // 1024, "at most {} KB"),
        (_PROMPT_LENGTH, "first {:,} characters"),
    ):
        assert words.format(figure) in HOOKS
    assert turns._SILENCE_SECONDS == 60 and "a minute of\n  silence" in HOOKS
    assert BACKUP in PAGE
