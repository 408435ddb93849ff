"""Hooks as agents run them: a process per event, that says nothing and never fails.

Most are forked children: starting Python takes longer than the hook."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from forking import run_child, run_program
from restoring import killed_at

from helpers import ROOT, git, manifest, wait_until
from shadowsnap import CheckpointManager
from shadowsnap.deadline import Deadline
from shadowsnap.hook import client, handle
from shadowsnap.hook import session as hooklog
from shadowsnap.hook.handle import run_hook
from shadowsnap.hook.session import remove_old_sessions
from shadowsnap.snapshot.tools import bounded_id
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import project_of


@pytest.fixture
def store(home: Path) -> Path:
    return home / ".local" / "state" / "shadowsnap"


@pytest.fixture
def manager(store: Path) -> CheckpointManager:
    return CheckpointManager(base=store, fsync=False)


def hook(agent: str, event: dict[str, Any] | bytes, *more: str, **options: Any) -> None:
    """Run one hook to its end, in a process of its own."""
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    done = run_program("hook", agent, *more, stdin=data, **options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def started_hook(agent: str, event: dict[str, Any] | bytes, **options: Any) -> None:
    """The same with a Python of its own, as an agent does."""
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    done = subprocess.run(
        [sys.executable, "-m", "shadowsnap", "hook", agent],
        input=data, capture_output=True, check=False, timeout=60, **options,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def tool(
    project: Path, turn: str = "t1", name: str = "Write", session: str = "s1", **tool_input: Any
) -> dict[str, Any]:
    return {
        "session_id": session, "prompt_id": turn, "cwd": str(project), "hook_event_name": "PreToolUse",
        "tool_name": name, "tool_input": tool_input,
    }  # fmt: skip


def untimed(project: Path, session: str = "s1", **tool_input: Any) -> dict[str, Any]:
    """A tool event of an agent that has no ids for turns."""
    return {
        "session_id": session, "cwd": str(project), "hook_event_name": "BeforeTool", "tool_name": "replace",
        "tool_input": tool_input,
    }  # fmt: skip


def change(project: Path, text: str) -> None:
    (project / "README.md").write_text(text)


# --- one snapshot per turn ------------------------------------------------------------------------------


def test_the_first_hook_of_a_turn_takes_a_checkpoint_and_the_others_do_not(
    project: Path, manager: CheckpointManager
) -> None:
    started_hook("claude", tool(project, file_path="README.md"))
    change(project, "by the agent\n")
    started_hook("claude", tool(project, file_path="README.md"))
    started_hook("claude", tool(project, name="Bash", command="make"))
    taken = manager.list_checkpoints(project)
    assert [(each.session_id, each.tool, each.turn) for each in taken] == [("s1", "Write", 1)]
    started_hook("claude", tool(project, turn="t2", file_path="README.md"))
    turns = manager.timeline(project)
    assert [(entry.number, entry.status) for entry in turns] == [(2, "running"), (1, "interrupted")]
    assert turns[0].before == turns[1].after  # the end of the first turn holds the beginning of the second


def test_sessions_do_not_share_turns(project: Path, manager: CheckpointManager) -> None:
    hook("claude", tool(project, session="s1"))
    change(project, "one\n")
    hook("claude", tool(project, session="s10"))
    assert [each.session_id for each in manager.list_checkpoints(project)] == ["s10", "s1"]


def test_a_tool_that_reads_leaves_no_trace(project: Path, store: Path) -> None:
    hook("claude", tool(project, name="Read", file_path="README.md"))
    hook("claude", {"hook_event_name": "PostToolUse", "tool_name": "Write", "cwd": str(project)})
    assert not store.exists()


def test_a_second_directory_in_the_same_turn_is_taken_too(
    project: Path, tmp_path: Path, manager: CheckpointManager
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    (other / "f").write_text("1")
    hook("claude", tool(project, name="Bash"))
    hook("claude", tool(project, file_path=str(other / "f")))
    hook("claude", tool(other, name="Bash"))
    assert len(manager.list_checkpoints(project)) == len(manager.list_checkpoints(other)) == 1


def test_a_command_that_names_another_project_has_it_taken_too(
    project: Path, tmp_path: Path, manager: CheckpointManager
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    (other / "f").write_text("1")
    hook("claude", tool(project, name="Bash", command="make"))
    hook("claude", tool(project, name="Bash", command="cd ../other && rm -rf f"))
    assert manager.files(other, "last") == ["f"]
    hook("claude", tool(project, name="Bash", command="cd ../other && rm -rf f"))
    assert len(manager.list_checkpoints(project)) == len(manager.list_checkpoints(other)) == 1


@pytest.mark.parametrize("step", ["snapshot:recorded", "snapshot:logged", "snapshot:remembered"])
def test_a_hook_that_is_killed_does_not_begin_the_turn_twice(
    project: Path, manager: CheckpointManager, step: str
) -> None:
    prompt = {"session_id": "s1", "prompt_id": "t1", "cwd": str(project), "hook_event_name": "UserPromptSubmit"}
    hook("claude", {**prompt, "prompt": "do it"})
    before = (project / "README.md").read_bytes()
    data = json.dumps(tool(project, file_path="README.md")).encode()
    assert killed_at(step, 0, lambda: run_hook("claude", data))
    change(project, "by the agent\n")
    hook("claude", tool(project, file_path="README.md"))
    change(project, "and once more\n")
    hook("claude", {**prompt, "hook_event_name": "Stop"})
    (entry,) = manager.timeline(project)
    assert (entry.number, entry.prompt, entry.status) == (1, "do it", "done")
    assert manager.contents(project, 1, ["README.md"]) == {"README.md": before}


@pytest.mark.parametrize("step", ["snapshot:captured", "snapshot:recorded", "snapshot:logged"])
def test_a_stop_that_is_killed_is_made_good_by_the_next_one(
    project: Path, manager: CheckpointManager, step: str
) -> None:
    stop = {**tool(project), "hook_event_name": "Stop"}
    hook("claude", tool(project))
    change(project, "by the agent\n")
    assert killed_at(step, 0, lambda: run_hook("claude", json.dumps(stop).encode()))
    if step == "snapshot:captured":
        hook("claude", stop)
    (project / "other.txt").write_text("mine\n")
    hook("claude", stop)
    hook("claude", tool(project, turn="t2"))
    entries = [(entry.kind, entry.status, entry.files_changed) for entry in manager.timeline(project)]
    assert entries == [("turn", "running", None), ("edits", None, 1), ("turn", "done", 1)]


def test_a_subdirectory_is_the_same_project(project: Path, manager: CheckpointManager) -> None:
    git(project, "init")
    hook("claude", tool(project))
    change(project, "by the agent\n")
    hook("claude", tool(project / "src"))
    assert len(manager.list_checkpoints(project)) == 1


def test_an_ignored_file_that_a_later_tool_names_is_captured_then(
    project: Path, manager: CheckpointManager
) -> None:
    git(project, "init")
    (project / ".gitignore").write_text("*.local\n")
    (project / "my.local").write_text("mine\n")
    hook("claude", tool(project, name="Bash"))
    assert "my.local" not in manager.files(project, "last")
    hook("claude", tool(project, file_path=str(project / "my.local")))
    assert "my.local" in manager.files(project, "last")
    assert [entry.number for entry in manager.timeline(project)] == [1]
    (project / "my.local").write_text("by the agent\n")
    manager.restore(project, 1)
    assert (project / "my.local").read_text() == "mine\n"


def test_a_failed_attempt_is_tried_again_in_the_same_turn(
    project: Path, store: Path, manager: CheckpointManager
) -> None:
    hook("claude", tool(project, turn="t0"))
    change(project, "second\n")
    lock = Store(store).project_lock(project_of(project).id)
    with locked(lock, "a test", Deadline(5)):
        run_with("handle.DEADLINE = 0.2", tool(project))
    assert hooklog.read_log(1)[0]["error"].startswith("waited ")
    assert len(manager.list_checkpoints(project)) == 1
    hook("claude", tool(project))
    assert len(manager.list_checkpoints(project)) == 2


# --- turns without ids ----------------------------------------------------------------------------------


def test_a_prompt_begins_a_turn_and_its_checkpoint_remembers_it(
    project: Path, manager: CheckpointManager
) -> None:
    for number in (1, 2):
        prompt = {"session_id": "s1", "cwd": str(project), "hook_event_name": "BeforeAgent"}
        hook("gemini", {**prompt, "prompt": f"wish {number} " + "x" * 5000})
        for text in ("a", "b"):
            hook("gemini", untimed(project, file_path="README.md"))
            change(project, f"{number} {text}\n")
    prompts = [entry.prompt or "" for entry in manager.timeline(project)]
    assert [prompt[:7] for prompt in prompts] == ["wish 2 ", "wish 1 "]
    assert {len(prompt) for prompt in prompts} == {2000}


def test_a_prompt_with_an_id_is_remembered_for_that_turn(project: Path, manager: CheckpointManager) -> None:
    prompt = {"session_id": "s1", "cwd": str(project), "hook_event_name": "UserPromptSubmit"}
    hook("claude", {**prompt, "prompt_id": "t1", "prompt": "first"})
    hook("claude", {**prompt, "prompt_id": "t2", "prompt": "second"})
    hook("claude", tool(project, turn="t1"))
    change(project, "1\n")
    hook("claude", tool(project, turn="t2"))
    assert [entry.prompt for entry in manager.timeline(project)] == ["second", "first"]


def test_a_tool_result_that_comes_as_a_prompt_is_no_turn(project: Path, manager: CheckpointManager) -> None:
    prompt = {"session_id": "s1", "cwd": str(project), "hook_event_name": "UserPromptSubmit"}
    hook("qwen", {**prompt, "prompt": "wish"})
    hook("qwen", untimed(project))
    change(project, "1\n")
    hook("qwen", {**prompt, "prompt": ""})
    hook("qwen", untimed(project))
    assert len(manager.list_checkpoints(project)) == 1


def test_without_a_session_the_directory_is_the_session(project: Path, manager: CheckpointManager) -> None:
    event = {"hook_event_name": "preToolUse", "cwd": str(project), "tool_name": "fs_write"}
    prompt = {"hook_event_name": "userPromptSubmit", "cwd": str(project), "prompt": "wish"}
    for sent, text in ((prompt, "0"), (event, "1"), (event, "2"), (prompt, "3"), (event, "4")):
        hook("kiro", sent)
        change(project, text)
    assert [entry.prompt for entry in manager.timeline(project) if entry.kind == "turn"] == ["wish", "wish"]


@pytest.mark.parametrize("granularity", ["turn", "tool"])
def test_each_call_may_have_checkpoints_of_its_own(
    project: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch, granularity: str
) -> None:
    monkeypatch.setenv("SHADOWSNAP_GRANULARITY", granularity)
    for number in range(2):
        event = tool(project, file_path=f"{number}.txt")
        hook("claude", event)
        (project / f"{number}.txt").write_text("by the agent")
        hook("claude", {**event, "hook_event_name": "PostToolUse", "tool_response": {"ok": True}})
        (project / f"person{number}.txt").write_text("by the person")
    hook("claude", {"session_id": "s1", "cwd": str(project), "hook_event_name": "Stop"})
    kinds = [checkpoint.kind for checkpoint in reversed(manager.list_checkpoints(project))]
    deleted = manager.revert(project, session_id="s1").deleted
    if granularity == "tool":
        assert kinds == ["turn", "turn-end", "turn", "turn-end"]
        assert deleted == ("0.txt", "1.txt")
    else:
        assert kinds == ["turn", "turn-end"]
        assert deleted == ("0.txt", "1.txt", "person0.txt", "person1.txt")


def test_if_prompts_are_never_told_silence_ends_a_turn(
    project: Path, store: Path, manager: CheckpointManager
) -> None:
    def silence(seconds: float) -> None:
        moment = time.time() - seconds
        os.utime(store / "run" / "s-s1.json", (moment, moment))

    hook("generic", untimed(project))
    change(project, "1\n")
    for _ in range(2):
        silence(40)  # not long enough
        hook("generic", untimed(project))
        assert time.time() - (store / "run" / "s-s1.json").stat().st_mtime < 30  # each call is heard
    assert len(manager.list_checkpoints(project)) == 1
    silence(100)
    hook("generic", untimed(project))
    assert len(manager.list_checkpoints(project)) == 2


# --- the end of a turn ----------------------------------------------------------------------------------


def test_a_stop_closes_the_turn_once(project: Path, manager: CheckpointManager) -> None:
    stop = {"session_id": "s1", "cwd": str(project), "hook_event_name": "Stop"}
    started_hook("claude", tool(project))
    change(project, "by the agent\n")
    started_hook("claude", stop)
    change(project, "by the person\n")
    started_hook("claude", stop)
    kinds = [(each.kind, each.turn, each.session_id) for each in manager.list_checkpoints(project)]
    assert kinds == [("turn-end", 1, "s1"), ("turn", 1, "s1")]


def test_after_a_stop_the_next_tool_is_of_another_turn(project: Path, manager: CheckpointManager) -> None:
    hook("gemini", untimed(project))
    change(project, "by the agent\n")
    hook("gemini", {"session_id": "s1", "cwd": str(project), "hook_event_name": "AfterAgent"})
    change(project, "by the person\n")
    hook("gemini", untimed(project))
    assert [each.kind for each in manager.list_checkpoints(project)] == ["turn", "turn-end", "turn"]


def test_a_stop_without_a_turn_does_nothing(project: Path, store: Path) -> None:
    hook("claude", {"session_id": "s1", "cwd": str(project), "hook_event_name": "Stop"})
    assert not (store / "store").exists()


def test_a_session_start_prunes_and_begins_the_first_snapshot(
    project: Path, store: Path, manager: CheckpointManager
) -> None:
    start = {"session_id": "s1", "cwd": str(project), "hook_event_name": "SessionStart"}
    started_hook("claude", start)
    assert hooklog.read_log(1)[0]["status"] == "session started, first snapshot begun"
    wait_until(lambda: project.resolve() in manager.projects())
    (first,) = manager.list_checkpoints(project)
    assert (first.reason, manager.timeline(project)) == ("first snapshot", [])
    started_hook("claude", start)
    assert hooklog.read_log(1)[0]["status"] == "session started"
    assert (store / ".last_prune").exists()


# --- several at once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["run", "record", "lock"])
def test_a_session_that_cannot_be_recorded_is_protected_all_the_same(
    project: Path, store: Path, manager: CheckpointManager, damage: str
) -> None:
    """Its folder or file cannot be written, or a process that hangs holds its lock."""
    hook("claude", tool(project, "t1", file_path="README.md"))
    run = store / "run"
    change(project, "by the person\n")
    with locked(run / "s-s1.lock", "hanging", Deadline(1)) if damage == "lock" else nullcontext():
        if damage == "run":
            shutil.rmtree(run)
            run.write_text("a file")
        elif damage == "record":
            (run / "s-s1.json").unlink()
            (run / "s-s1.json").mkdir()
        run_with("handle.DEADLINE = 1.0", tool(project, "t2", name="Bash", command="make"))
    assert manager.contents(project, "last", ["README.md"]) == {"README.md": b"by the person\n"}


def test_two_agents_that_fire_for_the_same_tool_take_one_checkpoint(
    project: Path, manager: CheckpointManager
) -> None:
    cursor = {
        "conversation_id": "s1", "generation_id": "t1", "hook_event_name": "preToolUse", "cwd": str(project),
        "workspace_roots": [str(project)], "tool_name": "Write", "tool_input": {"file_path": "README.md"},
    }  # fmt: skip
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(started_hook, "cursor", cursor), pool.submit(started_hook, "claude", tool(project))]
        for run in runs:
            run.result()
    assert len(manager.list_checkpoints(project)) == 1


def test_eight_hooks_at_once_take_one_checkpoint_before_any_tool_runs(
    project: Path, manager: CheckpointManager
) -> None:
    original = (project / "README.md").read_bytes()

    def hook_then_tool(number: int) -> None:
        started_hook("claude", tool(project, file_path=f"new-{number}.txt"))
        change(project, f"tool {number} ran\n")
        (project / f"new-{number}.txt").write_text("made by the tool\n")

    with ThreadPoolExecutor(8) as pool:
        for run in [pool.submit(hook_then_tool, number) for number in range(8)]:
            run.result()
    assert len(manager.list_checkpoints(project)) == 1
    assert not any("new-" in path for path in manager.files(project, "last"))
    manager.restore(project, "last")
    assert (project / "README.md").read_bytes() == original


# --- never in the way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"garbage", b"{", b"[]", b"\xff\xfe\x00"])
def test_input_that_cannot_be_read_still_protects_the_current_directory(
    data: bytes, project: Path, manager: CheckpointManager
) -> None:
    hook("claude", data, cwd=project)
    assert len(manager.list_checkpoints(project)) == 1
    assert "input" in hooklog.read_log(1)[0]


def test_a_store_that_cannot_be_made_stops_nobody(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = {**os.environ, "SHADOWSNAP_HOME": str(tmp_path / "file")}
    for event in (tool(project), {"hook_event_name": "Stop"}, {"hook_event_name": "SessionStart"}):
        started_hook("claude", event, env=blocked)
    assert (tmp_path / "file").read_text() == ""


def test_a_missing_git_stops_nobody_and_is_told(project: Path) -> None:
    started_hook("claude", tool(project), env={**os.environ, "PATH": ""})
    entry = hooklog.read_log(1)[0]
    assert (entry["status"], entry["error"]) == ("refused", "git was not found on the PATH")


def test_unknown_agents_and_words_stop_nobody(project: Path, manager: CheckpointManager) -> None:
    hook("nobody-knows-it", tool(project))
    hook("--what", tool(project, turn="t2"))
    hook("", tool(project, turn="t3"))
    assert len(manager.list_checkpoints(project)) == 1


def test_an_event_can_be_named_where_the_input_does_not_tell(project: Path, manager: CheckpointManager) -> None:
    event = {"sessionId": "s1", "cwd": str(project)}
    hook("copilot", event, "agentStop")
    hook("copilot", {**event, "toolName": "bash", "toolArgs": "{}"}, "preToolUse")
    assert len(manager.list_checkpoints(project)) == 1


def run_with(change: str, event: dict[str, Any], *, closed: bool = True) -> None:
    """A hook with one of its limits changed."""

    def limited() -> None:
        exec(change, {"client": client, "handle": handle})
        client.main(["claude"])

    if closed:
        done = run_child(limited, stdin=json.dumps(event).encode())
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        return
    script = f"from shadowsnap.hook import client, handle; {change}; client.main(['claude'])"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(json.dumps(event).encode())
        process.stdin.flush()
        assert process.wait(30) == 0
        assert process.stdout.read() == process.stderr.read() == b""


def test_when_time_runs_out_the_named_files_are_captured(project: Path, manager: CheckpointManager) -> None:
    run_with("handle.DEADLINE = 0.0001", tool(project, file_path="README.md"))
    assert manager.get(project, "last").scope == "paths"
    assert manager.files(project, "last") == ["README.md"]
    # and the next hook of the turn tries the whole again
    hook("claude", tool(project, file_path="README.md"))
    assert manager.get(project, "last").scope == "tree"
    assert [entry.number for entry in manager.timeline(project)] == [1]


def test_what_was_captured_before_time_ran_out_is_the_state_before_the_turn(
    project: Path, store: Path, manager: CheckpointManager
) -> None:
    (project / "other.txt").write_text("mine\n")
    (project / "README.md").chmod(0o600)
    before = manifest(project)
    run_with("handle.DEADLINE = 0.0001", tool(project, file_path="README.md"))
    change(project, "by the agent\n")
    (project / "README.md").chmod(0o644)
    run_with("handle.DEADLINE = 0.0001", tool(project, file_path="new/file.txt"))
    (project / "new").mkdir()
    (project / "new" / "file.txt").write_text("by the agent\n")
    hook("claude", tool(project, file_path="other.txt"))
    (project / "other.txt").unlink()
    hook("claude", {**tool(project), "hook_event_name": "Stop"})
    assert [(entry.number, entry.status) for entry in manager.timeline(project)] == [(1, "done")]
    shutil.rmtree(store / "log")
    assert manager.get(project, 1).scope == "tree"  # a log that was lost is made again from the checkpoints
    manager.undo(project)
    assert manifest(project) == before


def test_an_agent_that_never_ends_its_input_does_not_keep_us(project: Path) -> None:
    run_with("client._MOST_SECONDS = 1", tool(project), closed=False)


def test_a_damaged_session_file_is_as_good_as_none(
    project: Path, store: Path, manager: CheckpointManager
) -> None:
    for damage in (b"", b"{", b"[]", b'{"run": 7}', b'{"run": {"t1": {"state": {"places": [{}]}}}}', b"\xff"):
        hook("claude", tool(project))
        change(project, repr(damage))
        (store / "run" / "s-s1.json").write_bytes(damage)
    hook("claude", tool(project))
    assert len(manager.list_checkpoints(project)) == 7


@pytest.mark.parametrize("session", ["../../x", "a/b", "nul\0l", "x" * 300, "ü", "con", ".", " ", "a:b"])
def test_any_session_id_is_a_safe_file_name(
    session: str, project: Path, store: Path, manager: CheckpointManager
) -> None:
    hook("claude", tool(project, session=session))
    change(project, "by the agent\n")
    hook("claude", tool(project, session=session))
    assert [each.session_id for each in manager.list_checkpoints(project)] == [bounded_id(session)]
    assert sorted(path.suffix for path in (store / "run").iterdir()) == [".json", ".lock", ".tools"]


# --- cheap ----------------------------------------------------------------------------------------------


def modules_of_a_hook(event: dict[str, Any], **environment: str) -> set[str]:
    """What a hook has imported when it ends."""
    # The import times go to standard error, which the hook closes at once: so they are asked for inside.
    script = (
        "import sys, os; from shadowsnap.hook import client as hook; out = os.dup(1); exit = os._exit\n"
        "os._exit = lambda code: (os.write(out, ' '.join(sys.modules).encode()), exit(code))\n"
        "hook.main(['claude'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(event).encode(), capture_output=True, check=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return set(done.stdout.decode().split())


def test_what_is_already_safe_costs_no_git_and_no_manager(project: Path) -> None:
    hook("claude", tool(project, file_path="README.md"))
    loaded = modules_of_a_hook(tool(project, file_path="README.md"), PATH="")
    assert "shadowsnap.hook.session" in loaded
    rooms = ("shadowsnap.git", "shadowsnap.loop", "shadowsnap.manager", "shadowsnap.model", "subprocess")
    assert not [name for name in loaded if name.startswith(rooms)]


def test_a_snapshot_loads_nothing_that_only_people_ask_for(project: Path) -> None:
    hook("claude", tool(project))
    change(project, "by the agent\n")
    loaded = modules_of_a_hook(tool(project, turn="t2"))
    assert "shadowsnap.loop" in loaded
    asked_for = {"manager", "events", "timeline", "upkeep.prune", "cli.commands"}
    assert not loaded & {*(f"shadowsnap.{name}" for name in asked_for), "argparse", "asyncio"}
    assert not [name for name in loaded if name.startswith("shadowsnap.remote.")]


def test_hooks_are_fast(project: Path, tmp_path: Path) -> None:
    """Without the helper, and with room for a busy machine; `scripts/bench hook` has the figures."""
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compiled["PYTHONPYCACHEPREFIX"] = str(tmp_path / "compiled")

    def time_of(command: list[str], event: dict[str, Any] | None = None) -> float:
        began = time.perf_counter()
        data = json.dumps(event).encode()
        subprocess.run(command, input=data, capture_output=True, check=True, env=compiled)
        return time.perf_counter() - began

    for number in range(1000):
        folder = project / f"d{number % 30}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number}.txt").write_text(f"{number}\n")
    hook("claude", tool(project))
    command = [sys.executable, "-m", "shadowsnap", "hook", "claude"]
    rounds = range(4)
    python = min(time_of([sys.executable, "-c", "pass"]) for _ in rounds)
    already_taken = min(time_of(command, tool(project)) for _ in rounds)
    unchanged = min(time_of(command, tool(project, turn=f"u{number}")) for number in rounds)
    assert already_taken < python * 10 + 0.1
    assert unchanged < python * 20 + 0.2


# --- what stays behind ----------------------------------------------------------------------------------


def test_the_log_says_what_was_done_newest_first(project: Path, manager: CheckpointManager) -> None:
    hook("claude", tool(project))
    hook("claude", tool(project))  # nothing to say
    hook("codex", tool(project, turn="t2"))
    entries = hooklog.read_log()
    told = [(entry["agent"], entry["status"]) for entry in entries]
    assert told == [("codex", "unchanged"), ("claude", "taken")]
    assert entries[1]["checkpoint"] == manager.get(project, "last").id
    assert entries[1]["workdir"] == str(project.resolve())
    assert abs(entries[1]["time"] - time.time()) < 60


def test_the_log_stays_small_and_whole() -> None:
    for number in range(4000):
        hooklog.log_event("claude", None, f"entry {number} " + "x" * 200)
    assert hooklog.log_file().stat().st_size <= 256 * 1024
    entries = hooklog.read_log(10_000)
    assert entries[0]["status"].startswith("entry 3999 ")
    assert len(entries) > 300


def test_a_log_line_that_was_cut_short_is_passed_over() -> None:
    hooklog.log_event("claude", None, "one")
    with hooklog.log_file().open("ab") as file:
        file.write(b'{"status": "cut\n')
    hooklog.log_event("claude", None, "two")
    assert [entry["status"] for entry in hooklog.read_log()] == ["two", "one"]


def test_old_sessions_are_removed_when_a_new_one_begins(project: Path, store: Path) -> None:
    turns = store / "run"
    turns.mkdir(parents=True)
    for number in range(1100):
        (turns / f"s-{number}.json").write_text("{}")
        os.utime(turns / f"s-{number}.json", (time.time() - number, time.time() - number))
    (turns / "s-ancient.json").write_text("{}")
    os.utime(turns / "s-ancient.json", (0, 0))
    hook("claude", tool(project))
    names = {path.name for path in turns.iterdir()}
    assert len(names) <= 1002
    assert {"s-s1.json", "s-0.json"} <= names
    assert not {"s-ancient.json", "s-1099.json"} & names


def test_a_missing_folder_of_sessions_is_nothing_to_clean(tmp_path: Path) -> None:
    remove_old_sessions(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


@pytest.mark.only_thorough
def test_the_benchmark_of_hooks_measures_every_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a short path, as the socket of a helper needs it."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from benchmark import hook as bench

    monkeypatch.setattr(bench, "wait_for_next_second", lambda: None)
    found = tmp_path / "found.json"
    with tempfile.TemporaryDirectory(prefix="ss-") as short:
        assert bench.main(["--files", "20", "--rounds", "2", "--scratch", short, "--json", str(found)]) == 0
        assert os.listdir(short) == []
    cases = {"already covered", "prompt", "unchanged", "one file changed", "one file changed, no helper"}
    assert set(json.loads(found.read_text())["ratios"]) == cases


@pytest.mark.parametrize(
    "deed",
    ["print('noise', flush=True)", "1 / 0", "sys.exit(2)", "os.write(2, b'noise')", "os.kill(os.getpid(), 2)"],
)
def test_whatever_happens_inside_nothing_is_printed_and_the_end_is_0(deed: str, project: Path) -> None:
    run_with(f"import os, sys; handle.run_hook = lambda *_: {deed}", tool(project))


def test_what_was_refused_is_tried_again_in_the_same_turn(
    project: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    (tmp_path / "nothing").mkdir()
    hook("claude", tool(project), env={**os.environ, "PATH": str(tmp_path / "nothing")})
    assert not list((manager.settings.resolved_base() / "store" / "refs" / "shadowsnap").rglob("*-*"))
    hook("claude", tool(project))
    assert len(manager.list_checkpoints(project)) == 1


def test_half_a_surrogate_in_a_name_costs_only_the_name(project: Path, manager: CheckpointManager) -> None:
    hook("claude", tool(project, file_path="\ud83d"))
    assert len(manager.list_checkpoints(project)) == 1


@pytest.mark.parametrize("name", ["before_tool_call", "PreToolExecution", "tool.before"])
def test_an_event_of_an_unknown_name_about_a_tool_counts(
    project: Path, manager: CheckpointManager, name: str
) -> None:
    hook("generic", {**tool(project, file_path="a"), "hook_event_name": name})
    assert len(manager.list_checkpoints(project)) == 1


def test_an_input_that_is_never_closed_is_read_once_it_is_whole(project: Path, manager: CheckpointManager) -> None:
    command = [sys.executable, "-m", "shadowsnap", "hook", "claude"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(tool(project)).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(timeout=15) == 0
    assert len(manager.list_checkpoints(project)) == 1


@pytest.mark.parametrize("sent", [0, 80])
def test_an_input_that_is_never_completed_counts_as_a_tool_that_may_write(
    project: Path, manager: CheckpointManager, sent: int
) -> None:
    command = [sys.executable, "-m", "shadowsnap", "hook", "claude"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=project) as process:
        process.stdin.write(json.dumps(tool(project)).encode()[:sent])
        process.stdin.flush()
        assert process.wait(timeout=15) == 0
    assert len(manager.list_checkpoints(project)) == 1


def test_a_long_input_that_comes_slowly_is_not_parsed_again_and_again(
    project: Path, manager: CheckpointManager
) -> None:
    """Each piece of it could be the end of the JSON."""
    script = (
        "import time; from shadowsnap.hook import client\n"
        "client._is_whole = lambda pieces: time.sleep(4); client.main(['claude'])"
    )
    data = json.dumps(tool(project, content="}" * (2 << 20))).encode()
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        for at in range(0, len(data), 1 << 18):
            process.stdin.write(data[at : at + (1 << 18)])
            process.stdin.flush()
            time.sleep(0.05)  # it has read all of that by then
        process.stdin.close()
        assert process.wait(timeout=15) == 0
    assert len(manager.list_checkpoints(project)) == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "0>/dev/null"])
def test_the_directory_is_safe_whatever_streams_the_agent_has_closed(
    closed: str, project: Path, manager: CheckpointManager
) -> None:
    command = shlex.join([sys.executable, "-m", "shadowsnap", "hook", "claude"])
    given = json.dumps(tool(project)).encode() if closed[0] == ">" or closed[0] == "2" else b""
    done = subprocess.run(f"{command} {closed}", shell=True, cwd=project, input=given, check=True)
    assert done.returncode == 0
    assert len(manager.list_checkpoints(project)) == 1


def test_the_installed_hook_runs_whatever_modules_a_project_has(project: Path, manager: CheckpointManager) -> None:
    from shadowsnap.agents.install import program_words

    (project / "types.py").write_text("raise SystemExit(3)\n")
    done = subprocess.run(
        [*program_words(), "hook", "copilot"], input=json.dumps(tool(project)).encode(), cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "PYTHONVERBOSE": "1"}, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(manager.list_checkpoints(project)) == 1


@pytest.mark.parametrize("looks_like_one", [False, True], ids=["plain", "project"])
def test_a_session_that_used_cd_still_protects_where_it_began(
    looks_like_one: bool, tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory that does not look like a project, the one below was taken for another."""
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    notes = tmp_path / "notes"
    below = notes / "sub"
    below.mkdir(parents=True)
    (notes / "n.txt").write_text("1\n")
    if looks_like_one:
        (below / "Makefile").touch()

    def send(name: str, cwd: Path, turn: str, **facts: object) -> None:
        event = {"session_id": "s1", "prompt_id": turn, "cwd": str(cwd), "hook_event_name": name, **facts}
        run_hook("claude", json.dumps(event).encode())

    send("UserPromptSubmit", notes, "t1", prompt="one")
    send("PreToolUse", notes, "t1", tool_name="Bash", tool_input={"command": "cd sub"})
    send("Stop", below, "t1")
    (notes / "n.txt").write_text("edited\n")
    send("UserPromptSubmit", below, "t2", prompt="two")
    send("PreToolUse", below, "t2", tool_name="Bash", tool_input={"command": "rm ../n.txt"})
    (notes / "n.txt").unlink()
    send("Stop", below, "t2")
    manager = CheckpointManager(base=base, fsync=False)
    if looks_like_one:
        assert manager.projects() == [notes, below]
        return
    assert manager.projects() == [notes]
    manager.restore(notes, 2)
    assert (notes / "n.txt").read_text() == "edited\n"


def test_a_turn_that_named_one_file_elsewhere_ends_there_too(
    project: Path, home: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    (home / "Downloads").mkdir()
    named = home / "Downloads" / "a.txt"
    named.write_text("1\n")
    facts = {"session_id": "s1", "prompt_id": "t1", "cwd": str(project)}
    tool = {"tool_name": "Write", "tool_input": {"file_path": str(named)}}
    for event in ({"hook_event_name": "PreToolUse", **tool}, {"hook_event_name": "Stop"}):
        run_hook("claude", json.dumps({**facts, **event}).encode())
    manager = CheckpointManager(base=base, fsync=False)
    for place in (project, named.parent):
        assert [entry.status for entry in manager.timeline(place)] == ["done"]


def prompt_and_stop(project: Path, turn: str) -> tuple[dict[str, Any], dict[str, Any]]:
    facts = {"session_id": "s1", "prompt_id": turn, "cwd": str(project)}
    asked = {**facts, "hook_event_name": "UserPromptSubmit", "prompt": f"ask {turn}"}
    return asked, {**facts, "hook_event_name": "Stop"}


def turns_of(project: Path, manager: CheckpointManager) -> list[tuple[str | None, str | None, int | None]]:
    return [(each.prompt, each.status, each.files_changed) for each in manager.timeline(project)][::-1]


def test_a_turn_that_was_not_allowed_to_stop_goes_on(project: Path, manager: CheckpointManager) -> None:
    """A stop hook of another program may send the agent back to work, in the same turn."""
    asked, stop = prompt_and_stop(project, "t1")
    hook("claude", asked)
    for name in ("a", "b"):
        hook("claude", tool(project))
        (project / name).write_text(f"{name}\n")
        hook("claude", {**stop, "stop_hook_active": name == "b"})
    assert turns_of(project, manager) == [("ask t1", "done", 2)]
    assert manager.now(project).files_changed == 0


def test_a_late_stop_does_not_end_the_next_turn(project: Path, manager: CheckpointManager) -> None:
    stops = []
    for turn in ("t1", "t2"):
        asked, stop = prompt_and_stop(project, turn)
        hook("claude", asked)
        hook("claude", tool(project, turn=turn))
        (project / turn).write_text("1\n")
        stops.append(stop)
    hook("claude", stops[0])
    assert turns_of(project, manager)[-1][:2] == ("ask t2", "running")
    (project / "more").write_text("1\n")
    hook("claude", stops[1])
    assert turns_of(project, manager) == [("ask t1", "interrupted", 1), ("ask t2", "done", 2)]


def test_a_late_tool_of_the_last_turn_begins_no_turn(project: Path, manager: CheckpointManager) -> None:
    """Its hook waited for a lock when the person interrupted the agent and asked for something else."""
    for turn in ("t1", "t2"):
        hook("claude", prompt_and_stop(project, turn)[0])
        hook("claude", tool(project, turn))
        change(project, f"by {turn}\n")
    hook("claude", tool(project, "t1", file_path="new.txt"))
    (project / "new.txt").write_text("late\n")
    hook("claude", tool(project, "t2"))
    hook("claude", prompt_and_stop(project, "t2")[1])
    assert turns_of(project, manager) == [("ask t1", "interrupted", 1), ("ask t2", "done", 2)]
    assert manager.contents(project, "2", ["README.md"]) == {"README.md": b"by t1\n"}


def test_a_task_that_never_ends_keeps_no_turn_open(project: Path, manager: CheckpointManager) -> None:
    """Claude Code lists a server that runs in the background at each stop, of later turns too."""
    server = [{"id": "b1", "type": "shell", "status": "running", "command": "npm run dev"}]
    for turn in ("t1", "t2", "t3"):
        asked, stop = prompt_and_stop(project, turn)
        hook("claude", asked)
        hook("claude", tool(project, turn=turn))
        (project / turn).write_text("of the agent\n")
        hook("claude", {**stop, "background_tasks": server})
        (project / f"mine-{turn}").write_text("of the person\n")
    turns = [turn for turn in turns_of(project, manager) if turn[0] is not None]
    assert turns == [(f"ask {turn}", "done", 1) for turn in ("t1", "t2", "t3")]
    manager.undo(project)
    assert (project / "mine-t3").exists() and not (project / "t3").exists()


def test_a_turn_that_was_given_up_ends_where_others_began(
    project: Path, store: Path, manager: CheckpointManager
) -> None:
    """The agent was killed, and its session goes on days later."""
    asked, _ = prompt_and_stop(project, "t1")
    hook("claude", asked)
    hook("claude", tool(project, turn="t1"))
    (project / "by-a").write_text("of the agent\n")
    files = [*store.rglob("s-s1*")]
    assert files
    for file in files:
        os.utime(file, (time.time() - 7200,) * 2)
    for name in ("PreToolUse", "Stop"):
        hook("claude", {**tool(project, turn="b1", session="s2"), "hook_event_name": name})
        (project / f"mine-{name}").write_text("of the person, or of the other session\n")
    asked, stop = prompt_and_stop(project, "t2")
    hook("claude", asked)
    assert turns_of(project, manager)[0] == ("ask t1", "interrupted", 1)
    manager.revert(project, 1)
    assert {path.name for path in project.iterdir()} >= {"mine-PreToolUse", "mine-Stop"}
    assert not (project / "by-a").exists()


def test_a_relative_directory_is_that_of_each_hook(
    project: Path, tmp_path: Path, manager: CheckpointManager
) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    (other / "precious").write_text("1\n")
    for folder in (project, other):
        facts = {"event": "tool", "session": "s1", "turn": "t1", "cwd": ".", "tool": "bash"}
        started_hook("generic", {**facts, "input": {"command": "x"}}, cwd=folder)
    assert manager.files(other, "1") == ["precious"]


@pytest.mark.parametrize("prompt", ["/rollback-db staging", "/rollbacks are broken", "rollback_all is broken"])
def test_a_prompt_that_only_begins_like_a_rollback_is_the_models(
    prompt: str, project: Path, manager: CheckpointManager
) -> None:
    asked, stop = prompt_and_stop(project, "t1")
    for event in ({**asked, "prompt": prompt}, tool(project), stop):
        hook("claude", event)
    assert turns_of(project, manager)[0][0] == prompt


def test_an_ignored_file_that_a_later_tool_makes_is_held_at_the_end(
    project: Path, manager: CheckpointManager
) -> None:
    """The tool that makes it is covered: nothing can be lost yet, so that its hook takes no snapshot."""
    (project / ".gitignore").write_text("gen/\n")
    asked, stop = prompt_and_stop(project, "t1")
    hook("claude", asked)
    hook("claude", tool(project, name="Bash"))
    (project / "gen").mkdir()
    hook("claude", tool(project, file_path=str(project / "gen" / "report")))
    (project / "gen" / "report").write_text("1\n")
    hook("claude", stop)
    assert manager.contents(project, "1:after", ["gen/report"]) == {"gen/report": b"1\n"}
