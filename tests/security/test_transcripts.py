"""A hook reads a transcript only where its agent keeps them: no other file is copied into the store."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from forking import run_program

from shadowsnap import CheckpointManager
from shadowsnap.files import OutsideFolder, open_below
from shadowsnap.hook.payload import transcripts_folder
from shadowsnap.store.conversations import ConversationContent, from_file

CANARY = "canary-0123456789abcdef"
LINES = "".join(json.dumps({"type": "message", "text": f"{CANARY} {number}"}) + "\n" for number in range(3))

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def manager(home: Path) -> CheckpointManager:
    return CheckpointManager(base=home / ".local" / "state" / "shadowsnap", fsync=False, background_upkeep=False)


@pytest.fixture
def folder(home: Path) -> Path:
    folder = home / ".claude" / "projects" / "-project"
    folder.mkdir(parents=True)
    return folder


def turn(project: Path, transcript: Path | str, agent: str = "claude") -> None:
    """A whole turn, told by hooks."""
    for event in ("UserPromptSubmit", "PreToolUse", "Stop"):
        told: dict[str, Any] = {
            "session_id": "s1", "prompt_id": "t1", "cwd": str(project), "hook_event_name": event,
            "transcript_path": str(transcript), "prompt": "do it",
        }  # fmt: skip
        if event == "PreToolUse":
            told |= {"tool_name": "Write", "tool_input": {"file_path": "README.md"}}
        done = run_program("hook", agent, stdin=json.dumps(told).encode(), check=True)
        assert (done.stdout, done.stderr) == (b"", b"")
        (project / "README.md").write_text(f"after {event}\n")


def kept(manager: CheckpointManager) -> list[str]:
    """Every object of the store that has the canary in it."""
    store = manager.settings.resolved_base() / "store"
    objects = ["git", "--git-dir", store, "cat-file", "--batch-all-objects", "--batch"]
    found = subprocess.run(objects, capture_output=True, check=True).stdout
    return [line for line in found.decode("utf-8", "replace").splitlines() if CANARY in line]


def why_not(manager: CheckpointManager) -> str:
    """What the hook log says about the transcript."""
    log = (manager.settings.resolved_base() / "hook.log.jsonl").read_text().splitlines()
    errors = [entry["error"] for entry in map(json.loads, log) if entry["status"] == "conversation not kept"]
    return errors[-1] if errors else ""


def test_a_transcript_of_the_agent_is_kept(folder: Path, project: Path, manager: CheckpointManager) -> None:
    (folder / "s1.jsonl").write_text(LINES)
    turn(project, folder / "s1.jsonl")
    assert kept(manager) and not why_not(manager)
    assert manager.session("s1").turns[0].conversation == "kept"


@pytest.mark.parametrize(
    "name", ["secret.jsonl", ".ssh/id_rsa", ".claude/settings.json", ".claude/projects-2/a.jsonl"]
)
def test_a_file_elsewhere_is_not_read(
    home: Path, folder: Path, project: Path, manager: CheckpointManager, name: str
) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LINES)
    for told in (path, f"{folder}/../../../{name}"):
        turn(project, told)
        assert kept(manager) == []
        assert "keeps its transcripts" in why_not(manager)


def test_a_file_of_the_project_is_not_read(project: Path, manager: CheckpointManager) -> None:
    (project / ".gitignore").write_text("notes.jsonl\n")
    (project / "notes.jsonl").write_text(LINES)
    turn(project, project / "notes.jsonl")
    assert kept(manager) == [] and "keeps its transcripts" in why_not(manager)


@pytest.mark.parametrize("agent", ["codex", "gemini", "opencode", "", "../claude"])
def test_the_place_of_another_agent_is_none(
    folder: Path, project: Path, manager: CheckpointManager, agent: str
) -> None:
    (folder / "s1.jsonl").write_text(LINES)
    turn(project, folder / "s1.jsonl", agent or "unheard-of")
    assert kept(manager) == [] and "keeps its transcripts" in why_not(manager)


@pytest.mark.parametrize("how", ["file", "folder"])
def test_a_link_that_leads_out_is_not_followed(
    home: Path, folder: Path, project: Path, manager: CheckpointManager, how: str
) -> None:
    (home / "private").mkdir()
    (home / "private" / "s1.jsonl").write_text(LINES)
    if how == "file":
        (folder / "s1.jsonl").symlink_to(home / "private" / "s1.jsonl")
    else:
        folder.rmdir()
        folder.symlink_to(home / "private")
    turn(project, folder / "s1.jsonl")
    assert kept(manager) == [] and why_not(manager).endswith("outside")
    assert manager.session("s1").turns[0].conversation == "outside"


def test_the_place_itself_may_be_a_link(
    home: Path, project: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    (tmp_path / "dotfiles" / "projects" / "-p").mkdir(parents=True)
    (tmp_path / "dotfiles" / "projects" / "-p" / "s1.jsonl").write_text(LINES)
    (home / ".claude").symlink_to(tmp_path / "dotfiles")
    turn(project, home / ".claude" / "projects" / "-p" / "s1.jsonl")
    assert kept(manager)


def test_a_pipe_or_a_device_is_not_read(folder: Path, project: Path, manager: CheckpointManager) -> None:
    os.mkfifo(folder / "s1.jsonl")
    turn(project, folder / "s1.jsonl")
    assert why_not(manager).endswith("unreadable")
    (folder / "s1.jsonl").unlink()
    (folder / "s1.jsonl").symlink_to("/dev/zero")
    turn(project, folder / "s1.jsonl")
    assert why_not(manager).endswith("outside")


@root_only
def test_a_file_of_another_user_is_not_read(folder: Path, project: Path, manager: CheckpointManager) -> None:
    (folder / "s1.jsonl").write_text(LINES)
    os.chown(folder / "s1.jsonl", 65534, 65534)
    turn(project, folder / "s1.jsonl")
    assert kept(manager) == [] and why_not(manager).endswith("of-another-user")


@pytest.mark.parametrize(
    "text",
    [
        f"-----BEGIN KEY-----\n{CANARY}\n",
        f"[default]\naws_access_key_id = {CANARY}\n",
        f'{{"token": "{CANARY}"}}',
        f'{{"token": "{CANARY}", "cut": ',
        f'["{CANARY}"]',
        "[" * 100_000 + CANARY,
        f"{CANARY}\n" + LINES,
    ],
    ids=["key", "ini", "object", "cut", "texts", "deep", "later"],
)
def test_what_does_not_look_like_a_transcript_is_not_kept(
    folder: Path, project: Path, manager: CheckpointManager, text: str
) -> None:
    (folder / "s1.json").write_text(text)
    turn(project, folder / "s1.json")
    assert kept(manager) == [] and why_not(manager).endswith("not-a-transcript")


def test_the_size_is_bounded_whatever_the_settings_say(folder: Path) -> None:
    with open(folder / "s1.jsonl", "wb") as file:
        file.truncate((256 << 20) + 1)
    assert from_file(str(folder / "s1.jsonl"), None, None, str(folder)) == "too-large"


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """A racer exchanges the directory for a link to the outside, all the time."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "s1.jsonl").write_text('{"outside": 1}\n')
    (folder / "s1.jsonl").write_text('{"inside": 1}\n')
    away, over = folder.with_name("away"), threading.Event()

    def race() -> None:
        while not over.is_set():
            folder.rename(away)
            folder.symlink_to(outside)
            folder.unlink()
            away.rename(folder)

    racer = threading.Thread(target=race)
    racer.start()
    answers = set[str]()
    try:
        end = time.monotonic() + 60
        tries = 0
        while tries < 3000 or ('{"inside": 1}\n' not in answers and time.monotonic() < end):
            tries += 1
            content = from_file(str(folder / "s1.jsonl"), None, None, str(folder.parent))
            answers.add(content.data.decode() if isinstance(content, ConversationContent) else content)
    finally:
        over.set()
        racer.join()
    assert '{"outside": 1}\n' not in answers and '{"inside": 1}\n' in answers


def test_links_inside_the_place_are_followed(folder: Path) -> None:
    (folder / "real.jsonl").write_text(LINES)
    (folder / "link.jsonl").symlink_to("real.jsonl")
    os.close(open_below(str(folder), str(folder / "link.jsonl")))
    with pytest.raises(OutsideFolder):
        open_below(str(folder), str(folder))


@pytest.mark.parametrize(
    ("agent", "path"),
    [
        ("claude", "~/.claude/projects/-home-dev-shop/1d903a2f.jsonl"),
        ("codex", "~/.codex/sessions/2026/11/17/rollout-2026-11-17T05-04-48-01a1.jsonl"),
        ("gemini", "~/.gemini/tmp/shop/chats/session-2026-11-17T05-12-835f70a0.jsonl"),
        ("qwen", "~/.qwen/projects/-home-dev-shop/chats/8aa4a065.jsonl"),
        ("copilot", "~/.copilot/session-state/0a223247/events.jsonl"),
        ("cursor", "~/.cursor/projects/shop/agent-transcripts/a1/a1.jsonl"),
    ],
)
def test_the_recorded_paths_of_real_agents_are_known(agent: str, path: str) -> None:
    assert transcripts_folder(agent, os.path.expanduser(path)) is not None
    assert transcripts_folder(agent, path) is None  # an agent writes the whole path


def test_an_agent_whose_home_was_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    assert transcripts_folder("codex", str(tmp_path / "codex" / "sessions" / "a.jsonl"))
    assert not transcripts_folder("codex", os.path.expanduser("~/.codex/sessions/a.jsonl"))
    monkeypatch.setenv("CODEX_HOME", "codex")  # depends on where the hook is started
    assert not transcripts_folder("codex", str(Path.cwd() / "codex" / "sessions" / "a.jsonl"))
