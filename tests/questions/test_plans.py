"""What a model may ask over MCP, and the plans that a person confirms by their token."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stories import Story, ask, run_command

from helpers import manifest
from shadowsnap.errors import NoSuchCheckpoint, NothingToBlame
from shadowsnap.integrations.mcp_server import Tools


@pytest.fixture
def story(tmp_path: Path, base: Path) -> Story:
    project = tmp_path / "work"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    (project / "b.txt").write_text("b\n")
    story = Story(project, base)
    story.begin("s1")
    (project / "a.txt").write_text("one\ntwo\n")
    (project / "b.txt").unlink()
    story.end("s1")
    return story


@pytest.fixture
def tools(story: Story) -> Tools:
    return Tools(story.manager(), story.project)


def test_the_tools_read(story: Story, tools: Tools) -> None:
    answer = tools.timeline()
    assert [(entry["number"], entry["prompt"]) for entry in answer["entries"]] == [(1, "a prompt in s1")]
    assert answer["now"]["files_changed"] == 0
    assert tools.timeline(path="c.txt")["entries"] == []
    diff = tools.diff("1", "1:after", ["a.txt"])
    assert "+two\n" in diff["patch"] and [change["path"] for change in diff["changes"]] == ["a.txt"]
    lines = tools.blame("a.txt", 2)["lines"]
    assert [(line["line"], line["who"], line["number"], line["text"]) for line in lines] == [(2, "turn", 1, "two")]
    for answer in (tools.timeline(), diff, tools.blame("a.txt")):
        json.dumps(answer)
    with pytest.raises(NoSuchCheckpoint):
        tools.diff("nothing")
    with pytest.raises(NothingToBlame):
        tools.blame("b.txt")


def test_a_proposed_restore_changes_nothing_until_a_person_confirms_it(story: Story, tools: Tools) -> None:
    before = manifest(story.project)
    plan = tools.restore("1")
    assert plan["would_write"] == ["a.txt", "b.txt"] and plan["would_delete"] == []
    assert manifest(story.project) == before
    words = shlex.split(plan["command"])
    assert words[-1] == plan["token"]
    environment = {**os.environ, "SHADOWSNAP_HOME": str(story.base)}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert b"restored to" in done.stdout
    assert (story.project / "a.txt").read_text() == "one\n" and (story.project / "b.txt").exists()
    error = ask(story.project, story.base, "restore", "--plan", plan["token"], code=3)["error"]
    assert error["type"] == "NoSuchPlan"  # it was carried out
    story.manager().undo(story.project)
    assert manifest(story.project) == before


def test_a_plan_is_about_the_paths_it_names(story: Story, tools: Tools) -> None:
    plan = tools.restore("1", ["b.txt"])
    assert plan["would_write"] == ["b.txt"]
    dry = ask(story.project, story.base, "restore", "--plan", plan["token"], "--dry-run")
    assert dry["written"] == ["b.txt"] and not (story.project / "b.txt").exists()
    ask(story.project, story.base, "restore", "--plan", plan["token"])
    assert (story.project / "a.txt").read_text() == "one\ntwo\n" and (story.project / "b.txt").exists()


def test_a_plan_is_not_carried_out_on_other_files_than_it_was_made_for(story: Story, tools: Tools) -> None:
    plan = tools.restore("1")
    (story.project / "c.txt").write_text("edited since\n")
    before = manifest(story.project)
    error = ask(story.project, story.base, "restore", "--plan", plan["token"], code=4)["error"]
    assert error["type"] == "PlanOutdated"
    assert manifest(story.project) == before


def test_a_token_is_good_for_one_project_and_one_hour(story: Story, tools: Tools, tmp_path: Path) -> None:
    token = tools.restore("1")["token"]
    other = tmp_path / "other"
    other.mkdir()
    story.manager().snapshot(other)
    assert ask(other, story.base, "restore", "--plan", token, code=3)["error"]["type"] == "NoSuchPlan"
    for wrong in ("0" * 12, "../../etc/passwd", "x", ""):
        assert ask(story.project, story.base, "restore", "--plan", wrong, code=3)["error"]
    record = story.base / "run" / f"plan-{token}.json"
    facts: dict[str, Any] = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "at": time.time() - 3601}))
    assert ask(story.project, story.base, "restore", "--plan", token, code=3)["error"]["type"] == "NoSuchPlan"
    words = ("restore", "--plan", token, "1")
    assert ask(story.project, story.base, *words, code=2)["error"]["type"] == "WrongUsage"


def test_without_the_package_the_command_says_what_is_missing(story: Story, tmp_path: Path) -> None:
    (tmp_path / "hidden" / "mcp").mkdir(parents=True)
    (tmp_path / "hidden" / "mcp" / "__init__.py").write_text("raise ImportError('not installed')\n")
    environment = {**os.environ, "SHADOWSNAP_HOME": str(story.base), "PYTHONPATH": str(tmp_path / "hidden")}
    done = subprocess.run(
        [sys.executable, "-m", "shadowsnap", "mcp"], cwd=story.project, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and b"pip install 'shadowsnap[mcp]'" in done.stderr
    assert "model read this project" in run_command(story.project, story.base, "mcp", "--help").stdout.decode()
