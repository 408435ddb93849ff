"""The adapters of agent frameworks, as far as they go without a framework. With the real ones they are
tested in tests/frameworks, by `scripts/test --frameworks`."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers import ROOT
from shadowsnap import CheckpointManager
from shadowsnap.integrations import common
from shadowsnap.integrations.common import ById, Runs, last_user_message, never_raises, text_of

PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
PAGE = (ROOT / "shadowsnap" / "docs" / "frameworks.md").read_text("utf-8")
ADAPTERS = {
    # module: (extra, what it imports)
    "langchain": ("langchain", "langchain"),
    "openai_agents": ("openai-agents", "agents"),
    "pydantic_ai": ("pydantic-ai", "pydantic_ai"),
    "claude_sdk": ("claude-sdk", "claude_agent_sdk"),
    "google_adk": ("google-adk", "google"),
    "strands": ("strands", "strands"),
    "smolagents": ("smolagents", "smolagents"),
}


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


# --- without the framework --------------------------------------------------------------------------

IMPORT_EACH = """
import importlib, json, sys
adapters = json.loads(sys.argv[1])
sys.modules.update({name: None for _, name in adapters.values()})  # as if it were not there
messages = {}
for adapter in adapters:
    try:
        importlib.import_module(f"shadowsnap.integrations.{adapter}")
    except ImportError as problem:
        messages[adapter] = str(problem)
print(json.dumps(messages))
"""


@pytest.fixture(scope="module")
def messages() -> dict[str, str]:
    """What each adapter says when it is imported without its framework."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, json.dumps(ADAPTERS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_without_its_framework_an_adapter_says_what_to_install(adapter: str, messages: dict[str, str]) -> None:
    assert messages[adapter].startswith("this adapter needs ")
    assert messages[adapter].endswith(f": pip install 'shadowsnap[{ADAPTERS[adapter][0]}]'")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_what_it_says_to_install_exists(adapter: str, messages: dict[str, str]) -> None:
    extra = ADAPTERS[adapter][0]
    (version,) = re.findall(rf'^{extra} = \["[\w-]+>=([\d.]+)"\]$', PYPROJECT, re.MULTILINE)
    assert f" {version} or newer: " in messages[adapter]
    (everything,) = re.findall(r'^    "shadowsnap\[([\w,-]+)\]",$', PYPROJECT, re.MULTILINE)
    assert extra in everything.split(",")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_is_documented_and_tested(adapter: str) -> None:
    assert f"from shadowsnap.integrations.{adapter} import " in PAGE
    assert f"pip install 'shadowsnap[{ADAPTERS[adapter][0]}]'" in PAGE
    assert (ROOT / "tests" / "frameworks" / f"test_{adapter}.py").exists()


def test_an_adapter_is_not_imported_unless_it_is_used() -> None:
    script = "import sys, shadowsnap; shadowsnap.CheckpointManager; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {name for _, name in ADAPTERS.values()} & loaded
    assert not {name for name in loaded if name.startswith("shadowsnap.agents")}
    assert "asyncio" not in loaded


# --- runs -------------------------------------------------------------------------------------------


def prompts(manager: CheckpointManager, project: Path) -> list[Any]:
    """Of the checkpoints from before a write, oldest first."""
    taken = manager.list_checkpoints(project)
    return [each.metadata.get("prompt") for each in reversed(taken) if each.kind == "turn"]


def test_runs_at_the_same_time_have_turns_of_their_own(manager: CheckpointManager, project: Path) -> None:
    runs, file = Runs(manager, project, "tests"), project / "README.md"
    runs.begin("a", "session-a", "ask a")
    runs.before_tool("a", "write_file")
    file.write_text("a\n")
    runs.begin("b", "session-b", "ask b")
    runs.before_tool("b", "write_file")
    file.write_text("b\n")
    runs.before_tool("a", "write_file")  # still its turn, which has its snapshot
    assert prompts(manager, project) == ["ask a", "ask b"]
    file.write_text("a again\n")
    runs.end("a")
    ended = manager.get(project, "1:after")
    assert (ended.kind, ended.session_id) == ("turn-end", "session-a")
    assert [entry.status for entry in manager.timeline(project)] == ["running", "done"]


def test_the_turn_of_the_managers_owner_is_left_alone(manager: CheckpointManager, project: Path) -> None:
    manager.new_turn("mine", "my own loop")
    manager.before_tool("write_file", cwd=project)
    runs = Runs(manager, project, "tests")
    runs.begin("a", "theirs", "another loop")
    runs.before_tool("a", "write_file")
    runs.end("a")
    assert manager.turn_state()["prompt"] == "my own loop"
    (turn,) = manager.session("mine").turns
    assert turn.ended is None
    assert manager.session("theirs").turns[0].ended
    assert manager.session("theirs").agent == "tests"


def test_an_unknown_run_begins_with_its_first_tool(manager: CheckpointManager, project: Path) -> None:
    runs = Runs(manager, project, "tests")
    for _ in range(2):
        runs.before_tool("a", "write_file")
        (project / "README.md").write_text("a\n")
    assert prompts(manager, project) == [None]


def test_a_run_that_has_ended_is_over(manager: CheckpointManager, project: Path) -> None:
    runs = Runs(manager, project, "tests")
    for text in ("one\n", "two\n"):
        runs.before_tool("a", "write_file")
        (project / "README.md").write_text(text)
        runs.end("a")
        (project / "README.md").write_text("by me\n")
    assert len(prompts(manager, project)) == 2
    runs.end("a")
    runs.end("unknown")


def test_the_working_directory_does_not_move(
    manager: CheckpointManager, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)
    runs = Runs(manager, "project", "tests")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    runs.before_tool("a", "write_file")
    assert len(manager.list_checkpoints(project)) == 1


def test_runs_that_never_end_are_forgotten(
    manager: CheckpointManager, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_MAX_RUNS", 3)
    runs = Runs(manager, project, "tests")
    for run in range(10):
        runs.begin(run)
    runs.begin(8)
    assert list(runs._managers) == [7, 9, 8]


def test_tools_at_once_share_the_turn_that_the_first_begins(manager: CheckpointManager, project: Path) -> None:
    runs, start = Runs(manager, project, "tests"), threading.Barrier(4)

    def call(name: str) -> None:
        start.wait()
        runs.before_tool("a", "write_file", {"path": name})
        (project / name).write_text("new\n")

    threads = [threading.Thread(target=call, args=(f"new-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (before,) = manager.list_checkpoints(project)
    assert not any(path.startswith("new-") for path in manager.files(project, before.id))


def test_an_event_loop_goes_on_while_a_snapshot_is_taken(base: Path, project: Path) -> None:
    threads = []
    manager = CheckpointManager(
        base=base, fsync=False, on_event=lambda event: threads.append(threading.current_thread())
    )
    runs = Runs(manager, project, "tests")

    async def run() -> None:
        await runs.before_tool_async("a", "write_file")
        (project / "README.md").write_text("new\n")
        await runs.end_async("a")

    asyncio.run(run())
    assert [each.kind for each in manager.list_checkpoints(project)] == ["turn-end", "turn"]
    assert threads and threading.main_thread() not in threads


def test_each_call_has_a_checkpoint_if_the_manager_takes_them(base: Path, project: Path) -> None:
    runs = Runs(manager := CheckpointManager(base=base, fsync=False, granularity="tool"), project, "tests")

    async def run() -> None:
        for name in ("one", "two"):
            await runs.before_tool_async("a", "write_file", {"path": name})
            (project / name).write_text("new\n")
            await runs.after_tool_async("a", "write_file", {"path": name})

    asyncio.run(run())
    after = [each for each in manager.list_checkpoints(project) if each.reason == "after write_file"]
    assert len(after) == 2
    assert "two" not in manager.files(project, after[-1].id)
    runs.after_tool("unknown", "write_file")


# --- never in the way -------------------------------------------------------------------------------


def test_an_exception_in_a_hook_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    @never_raises
    def hook() -> None:
        raise KeyError("x")

    @never_raises
    async def async_hook() -> None:
        raise KeyError("y")

    with caplog.at_level(logging.ERROR, "shadowsnap"):
        assert hook() is None  # type: ignore[func-returns-value]
        assert asyncio.run(async_hook()) is None
    assert [record.getMessage().rpartition(".")[2] for record in caplog.records] == [
        "hook failed; the run goes on",
        "async_hook failed; the run goes on",
    ]


def test_a_run_that_is_cancelled_is_cancelled() -> None:
    @never_raises
    async def hook() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(hook())


def test_a_failing_manager_does_not_stop_a_run(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    runs = Runs(None, project, "tests")  # type: ignore[arg-type]
    with caplog.at_level(logging.DEBUG, "shadowsnap"):
        runs.begin("a")
        runs.before_tool("a", "write_file")
        runs.end("a")
    assert caplog.records


# --- keys and messages ------------------------------------------------------------------------------


def test_a_key_compares_objects_by_identity() -> None:
    one, equal = [1], [1]
    assert {ById(one), ById(one)} == {ById(one)}
    assert ById(one) != ById(equal) and ById(one) != one


@pytest.mark.parametrize(
    "message",
    [
        "make it\nshorter",
        {"role": "user", "content": "make it\nshorter"},
        {"role": "user", "content": [{"text": "make it"}, {"image": {"data": "x"}}, {"text": "shorter"}]},
        SimpleNamespace(role="user", parts=[SimpleNamespace(text="make it"), SimpleNamespace(text="shorter")]),
        SimpleNamespace(type="human", content=[{"type": "text", "text": "make it"}, "shorter"]),
        ["make it", SimpleNamespace(data=b"an image"), "shorter"],
    ],
)
def test_a_message_is_understood_in_every_form(message: object) -> None:
    assert text_of(message) == "make it\nshorter"


@pytest.mark.parametrize("message", [None, 7, {}, [], {"content": None}, SimpleNamespace(text=7)])
def test_a_message_without_text_is_empty(message: object) -> None:
    assert text_of(message) == ""


def test_a_message_that_holds_itself_ends() -> None:
    message: dict[str, Any] = {}
    message["content"] = [message, "x"]
    assert set(text_of(message)) <= {"x", "\n"}


def test_the_last_message_of_the_user_is_the_prompt() -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "yes"},
    ]
    assert text_of(last_user_message(messages)) == "second"
    assert last_user_message(messages[2:]) is None
    assert last_user_message("just this") == "just this"
    person, model = SimpleNamespace(type="human", content="hello"), SimpleNamespace(type="ai", content="hi")
    assert last_user_message([person, model], "type", "human") is person
