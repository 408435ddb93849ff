"""Whatever a project holds or an agent sends, everything is bounded in time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from capturing import content, names, skipped
from thorough import depth

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.git.objects import object_id
from shadowsnap.hook.handle import run_hook
from shadowsnap.hook.payload import read_event
from shadowsnap.settings import Layers, Settings
from shadowsnap.snapshot.tools import bounded_id

SLOW_RULES = "**/a/" * 25 + "b\n"


def slow_to_match(project: Path) -> None:
    """Rules and a name that git compares for hours."""
    folder = project / "/".join(["a"] * 40)
    folder.mkdir(parents=True)
    (folder / "file").write_text("deep\n")
    (project / ".gitignore").write_text(SLOW_RULES)


def test_rules_that_take_for_ever_cost_only_what_they_decide_about(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "-A")
    manager = CheckpointManager(base=base, deadline=4, background_upkeep=False, fsync=False)
    slow_to_match(project)
    (project / "named.txt").write_text("named\n")
    began = time.monotonic()
    outcome = manager.ensure_checkpoint(project, paths=["named.txt"])
    assert time.monotonic() - began < 6
    assert outcome.checkpoint is not None
    assert outcome.status == "partial" and "ignore rules" in str(outcome.error)
    held = names(base, outcome.checkpoint)
    assert {"README.md", "src/main.py", "named.txt"} <= held
    assert "undecided" in skipped(outcome.checkpoint).values()


def test_known_files_are_captured_anew_though_rules_cannot_be_had(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, deadline=4, background_upkeep=False, fsync=False)
    first = manager.snapshot(project).checkpoint
    assert first is not None
    slow_to_match(project)
    (project / "README.md").write_text("changed\n")
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.checkpoint is not None
    assert content(base, outcome.checkpoint, "README.md") == b"changed\n"


def test_a_restore_does_not_wait_for_such_rules(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, deadline=6, background_upkeep=False, fsync=False)
    first = manager.snapshot(project).checkpoint
    assert first is not None
    slow_to_match(project)
    (project / "README.md").unlink()
    began = time.monotonic()
    manager.restore(project, first.id)
    assert time.monotonic() - began < 8
    assert (project / "README.md").exists()


def test_an_object_that_unfolds_to_gigabytes_is_not_unfolded(base: Path, project: Path) -> None:
    """Its name and its size are right: a few MB that inflate to a GB."""
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    first = manager.snapshot(project).checkpoint
    assert first is not None
    size = 1 << 30
    squeeze = zlib.compressobj(1)
    parts = [squeeze.compress(b"tree %d\0" % size)]
    zeros = bytes(1 << 20)
    parts += [squeeze.compress(zeros) for _ in range(size >> 20)]
    parts.append(squeeze.flush())
    bomb = b"".join(parts)
    name = "12" * 20
    folder = base / "store" / "objects" / name[:2]
    folder.mkdir(exist_ok=True)
    (folder / name[2:]).write_bytes(bomb)
    from shadowsnap.errors import DamagedObject
    from shadowsnap.git.reading import ObjectReader
    from shadowsnap.store.layout import open_store

    git_in_store = open_store(Settings(base=base)).git()
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ObjectReader(git_in_store) as reader, pytest.raises(DamagedObject):
        reader.read(name, b"tree")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_a_session_id_of_a_megabyte_is_shortened(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.new_turn(session_id="x" * (1 << 20))
    outcome = manager.ensure_checkpoint(project)
    assert outcome.checkpoint is not None and outcome.checkpoint.session_id is not None
    assert len(outcome.checkpoint.session_id) < 250
    assert bounded_id("x" * 1000) != bounded_id("x" * 999 + "y")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        *((each, "ordinary files") for each in ("src/", "/**", "**", "*.py", "*.kt", "main.*", "*ser*", "core")),
        *((each, "three characters") for each in ("a*", "*", "**/*", "*.*", "*a*b*", "se*", "/src/*")),
        *((each, "only names") for each in ("[!/]*", "**/[!/]*", "[^\\]]*", "?*", "[\\*-z]*", "[[:print:]]*")),
    ],
)
def test_a_clone_cannot_leave_out_ordinary_files(tmp_path: Path, pattern: str, why: str) -> None:
    (tmp_path / ".shadowsnap.toml").write_text(f"excludes = ['{pattern}']\n")
    settings, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert settings.excludes == () and why in warnings[0]


def test_a_clone_can_leave_out_what_is_large_or_generated(tmp_path: Path) -> None:
    patterns = ["*.bin", "data/", "models/**", "fixtures/large-*", "/big", "**/generated/", "a.tar.gz"]
    (tmp_path / ".shadowsnap.toml").write_text(f"excludes = {patterns!r}\n")
    settings, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert list(settings.excludes) == patterns and warnings == []


def test_a_clone_cannot_go_around_the_names_it_is_judged_by(tmp_path: Path) -> None:
    """With many patterns that each match a few names, all but the known names could be left out."""
    many = [f"*{first}{second}x*" for first in "abcdefgh" for second in "abcdefgh"]
    (tmp_path / ".shadowsnap.toml").write_text(f"excludes = {many!r}\n")
    settings, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert len(settings.excludes) == 20 and "too many" in warnings[0]


def test_millions_of_small_values_in_the_input_of_a_hook_are_not_all_read() -> None:
    values = b",".join(b'"k%d":1' % number for number in range(1_500_000))
    head = b'{"hook_event_name":"PreToolUse","tool_name":"Write","cwd":"/p","tool_input":{"file_path":"/p/x",'
    event = read_event("claude", head + values + b"}}")
    assert event.tool == "Write" and event.tool_input["file_path"] == "/p/x" and len(event.tool_input) < 1_000_000


@pytest.mark.parametrize("text", ["x", 'a,"b\n', "\\", "\u00e9\0", '\\"'])
def test_a_long_text_in_the_middle_of_an_input_hides_nothing(text: str) -> None:
    for more in range(depth(2, 7)):
        content = "y" * more + text * ((9 << 20) // len(text))
        payload: dict[str, Any] = {"hook_event_name": "PreToolUse", "tool_name": "Write", "cwd": "/p"}
        payload |= {"tool_input": {"content": content, "file_path": "/p/x"}}
        event = read_event("claude", json.dumps(payload).encode())
        assert event.problem == "" and event.tool_input["file_path"] == "/p/x"


def test_patterns_of_a_clone_are_compared_in_linear_time(tmp_path: Path) -> None:
    (tmp_path / ".shadowsnap.toml").write_text(f"excludes = {[('*a' * 240) + 'b'] * 200!r}\n")
    began = time.monotonic()
    Layers(Settings()).narrowed_by(tmp_path)
    assert time.monotonic() - began < 3


def test_a_link_to_an_endless_device_is_not_followed(base: Path, project: Path) -> None:
    for name in (".gitignore", ".shadowsnap.toml", "pyproject.toml", "endless"):
        os.symlink("/dev/zero", project / name)
    outcome = CheckpointManager(base=base, deadline=8, fsync=False).ensure_checkpoint(project)
    assert outcome.status == "taken"
    assert object_id(b"blob", b"x")


def test_what_a_host_or_an_agent_tells_does_not_make_lists_slow(base: Path, project: Path) -> None:
    """A reason, a tool and a session of a megabyte each."""
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    long = "x" * (1 << 20)
    manager.snapshot(project, long, tool=long, session_id=long)
    began = time.monotonic()
    (listed,) = manager.list_checkpoints(project)
    assert len(listed.reason) == 1 << 16
    shown = subprocess.run(
        [sys.executable, "-m", "shadowsnap", "list"], cwd=project, capture_output=True, check=True,
        env={**os.environ, "SHADOWSNAP_HOME": str(base)},
    ).stdout  # fmt: skip
    assert time.monotonic() - began < 5 and len(shown) < 1000


HUGE = "s" * (1 << 20)


@pytest.mark.parametrize(
    "more",
    [{"cwd": f"/{HUGE}"}, {"tool_name": HUGE}, {"session_id": HUGE}, {"prompt_id": HUGE},
     {"hook_event_name": HUGE}, {"transcript_path": f"/{HUGE}"}, {"tool_input": {"file_path": HUGE}}],
    ids=lambda more: next(iter(more)),
)  # fmt: skip
def test_the_log_of_hooks_keeps_its_lines_whatever_is_sent(
    base: Path, project: Path, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is longer than the log would have emptied it."""
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    told = {"hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": "t", "cwd": str(project)}
    told |= {"tool_name": "Write", "tool_input": {"file_path": "README.md"}}
    run_hook("claude", json.dumps(told).encode())
    run_hook("claude", json.dumps({**told, "prompt_id": "t2", **more}).encode())
    lines = (base / "hook.log.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["status"] == "taken" and all(len(line) < 10_000 for line in lines)
    for path in (base / "log.jsonl", *(base / "turns").glob("*.json")):
        assert not path.exists() or path.stat().st_size < 100_000


@pytest.mark.parametrize("content_first", [False, True])
def test_fifty_megabytes_of_input_are_read_in_time(
    base: Path, project: Path, content_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    parts = [("content", "x" * (50 << 20)), ("file_path", "README.md")]
    told = {"hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": "t", "cwd": str(project)}
    told |= {"tool_name": "Write", "tool_input": dict(parts if content_first else parts[::-1])}
    data = json.dumps(told).encode()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "shadowsnap", "hook", "claude"], input=data, capture_output=True, check=True
    )
    assert time.monotonic() - began < 12 and done.stdout == done.stderr == b""
    assert len(CheckpointManager(base=base, fsync=False).list_checkpoints(project)) == 1
