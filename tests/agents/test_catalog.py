"""The facts about agents hold together."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from shadowsnap.agents import NAMES, agent
from shadowsnap.agents.agent import all_but
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.hook import client, handle
from shadowsnap.snapshot.tools import may_write

MATCHING = [name for name, each in AGENTS.items() if any(event.matcher for event in each.events)]


def test_the_names_are_those_of_the_agents() -> None:
    assert tuple(AGENTS) == NAMES


@pytest.mark.parametrize("name", AGENTS)
def test_a_tool_that_is_excluded_only_reads(name: str) -> None:
    assert [tool for tool in AGENTS[name].readers if may_write(tool)] == []


@pytest.mark.parametrize("name", AGENTS)
def test_an_event_before_a_tool_is_registered_without_a_list_of_writers(name: str) -> None:
    """A list of writers misses the tools of the next version."""
    events = [event for event in AGENTS[name].events if event.kind == "tool"]
    assert events
    for event in events:
        assert event.matcher in ("", all_but(AGENTS[name].readers))


@pytest.mark.parametrize("name", MATCHING)
def test_a_matcher_excludes_the_readers_and_nothing_else(name: str) -> None:
    known = AGENTS[name]
    (matcher,) = (event.matcher for event in known.events if event.kind == "tool")
    for tool in known.readers:
        assert re.fullmatch(matcher, tool) is None and re.search(matcher, tool) is None
    for tool in ("Write", "Bash", "monitor", "mcp__files__read", "ReadAndWrite", "my_read_file", "", "terminal"):
        assert re.fullmatch(matcher, tool) and re.search(matcher, tool)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("name", [name for name in MATCHING if name != "hermes"])
def test_javascript_reads_the_matcher_alike(name: str) -> None:
    (matcher,) = (event.matcher for event in AGENTS[name].events if event.kind == "tool")
    tools = [*AGENTS[name].readers, "Write", "monitor", "mcp__files__read"]
    matches = f"{json.dumps(tools)}.filter((tool) => new RegExp({json.dumps(matcher)}).test(tool))"
    script = f"console.log(JSON.stringify({matches}))"
    done = subprocess.run(["node", "-e", script], capture_output=True, check=True)
    assert json.loads(done.stdout) == ["Write", "monitor", "mcp__files__read"]


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_has_what_its_documentation_needs(name: str) -> None:
    known = AGENTS[name]
    assert known.title and known.rollback and known.transcript
    assert bool(known.versions) == bool(known.tested)
    assert all(text.endswith(".") for text in (*known.notes, *known.gaps))
    if known.consent:
        assert not known.consent.step.endswith(".") and known.consent.record


def test_agents_wait_longer_than_the_hook_takes() -> None:
    assert handle.DEADLINE < client._MOST_SECONDS < agent.SECONDS_TO_WAIT
