"""What the documentation of hooks and agents says is so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from helpers import ROOT
from shadowsnap import CheckpointManager
from shadowsnap.agents import targets
from shadowsnap.agents.install import BACKUP, install
from shadowsnap.agents.slash import HELP
from shadowsnap.agents.targets import AGENTS, Home
from shadowsnap.hook import client as hook
from shadowsnap.hook import log as hooklog
from shadowsnap.hook import session as turns
from shadowsnap.hook.payload import read_event
from shadowsnap.manager import _PROMPT_LENGTH

HOOKS = (ROOT / "shadowsnap" / "docs" / "hooks.md").read_text()
PAGE = (ROOT / "shadowsnap" / "docs" / "agents.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def rows() -> dict[str, list[str]]:
    """Agent -> the cells of its row."""
    found = re.findall(r"^\| (\w+) \([^)]+\) \|(.+)\|$", PAGE, re.MULTILINE)
    return {agent: [cell.strip() for cell in rest.split("|")] for agent, rest in found}


def test_every_agent_has_its_row() -> None:
    assert list(rows()) == list(AGENTS)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_settings_are_where_the_table_says(agent: str, home: Path, project: Path) -> None:
    user, own, _ = rows()[agent]
    for scope, cell in ((None, user), (project, own)):
        if cell == "-":
            continue
        place = cell.strip("`").replace("~/", "").split("*")[0].rstrip("/")
        top = scope or home
        paths = [str(change.path.relative_to(top)) for change in install(agent, scope, dry_run=True)]
        assert any(path.startswith(place) for path in paths), paths


@pytest.mark.parametrize("agent", AGENTS)
def test_the_events_are_those_the_table_says(agent: str) -> None:
    told = {"tool": "tool", "prompt": "prompt", "start": "session-start", "stop": "stop"}
    text = "".join(edit.add(None) for edit in AGENTS[agent](Home(("shadowsnap",))))
    names = re.findall(r"\w+(?=\"?: ?\[)|\w+(?=:\n)|(?<=event: \")[\w-]+", text)
    if agent == "cline":
        names = [edit.path.name for edit in AGENTS[agent](Home(("shadowsnap",)))]
    kinds = {read_event(agent, b"{}", said=name).kind for name in names} - {"other"}
    assert kinds == {told[event] for event in rows()[agent][2].split(", ")}


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_the_python_examples_run(code: str, project: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=project, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_guard_example_takes_a_snapshot(project: Path) -> None:
    code = next(block for block in blocks(PAGE, "python") if "guard" in block)
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True)
    assert CheckpointManager().get(project, "last").tool == "write_file"


def test_the_help_of_rollback_is_the_same() -> None:
    assert textwrap.indent(HELP, "    ") in PAGE


def test_the_generic_example_is_understood() -> None:
    (example,) = blocks(HOOKS, "json")
    event = read_event("generic", example.encode())
    assert (event.kind, event.session, event.turn) == ("tool", "any id of the conversation", "any id of the turn")
    assert (event.cwd, event.tool) == ("/home/me/project", "write_file")
    assert event.roots == ("/home/me/project", "/home/me/library")
    assert event.tool_input["path"] == "src/main.py"


def test_the_example_by_hand_is_what_is_installed(home: Path) -> None:
    (example,) = blocks(PAGE, "json")
    install("claude", program=("/full/path/to/shadowsnap",))
    written = json.loads((home / ".claude" / "settings.json").read_text())
    shown = json.loads(example)["hooks"]["PreToolUse"][0]
    real = written["hooks"]["PreToolUse"][0]
    assert shown["hooks"] == real["hooks"]
    assert set(shown["matcher"].split("|")) <= set(real["matcher"].split("|"))


def test_the_figures_are_right() -> None:
    for figure, words in (
        (hook.DEADLINE, "after {:.0f} seconds it captures just the files"),
        (hook._LAST_RESORT, "after {} seconds it\n  ends in any case"),
        (targets._SECONDS, "Agents are told to wait {}."),
        (turns._DAYS_KEPT, "after\n  {} days"),
        (turns._SESSIONS_KEPT, "more than {}."),
        (hooklog._MOST_BYTES // 1024, "at most {} KB"),
        (_PROMPT_LENGTH, "first {:,} characters"),
    ):
        assert words.format(figure) in HOOKS
    assert turns._SILENCE == 60 and "a minute of\n  silence" in HOOKS
    assert BACKUP in PAGE
