"""Sessions for other tools: a record of each turn, and conversations of foreign logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.compat.session_log import ForeignConversation, attach_conversations, split_at_lines, turn_records
from shadowsnap.errors import MalformedObject

SAID = b'{"role": "user", "content": "please"}\n{"role": "assistant", "content": "done"}\n'


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\n")
    return tmp_path / "work"


def conversation(session: str = "s1", **more: Any) -> ForeignConversation:
    facts: dict[str, Any] = {"key": f"log-{session}", "read": lambda: SAID, "at": datetime.now(UTC), **more}
    return ForeignConversation(session_id=session, **facts)


# --- records ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transcript", "parts"),
    [
        (b"", [b""]),
        (b"ab\ncd\n", [b"ab\ncd\n"]),
        (b"ab\ncd\nef\ngh\n", [b"ab\ncd", b"ef\ngh\n"]),
        (b"ab\nlonger than a part\ncd", [b"ab", b"longer than a part\ncd"]),
    ],
)
def test_a_long_transcript_is_cut_between_lines(transcript: bytes, parts: list[bytes]) -> None:
    assert split_at_lines(transcript, 6) == parts
    assert b"\n".join(parts) == transcript


def test_a_record_has_what_is_known_of_a_turn(manager: CheckpointManager, work: Path) -> None:
    git(work, "init", "-q", "-b", "trunk")
    git(work, "-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-q", "--allow-empty", "-m", "x")
    manager.new_turn("s1", "make a file", agent="claude")
    manager.ensure_checkpoint(work)
    (work / "new.txt").write_text("new\n")
    manager.end_turn([{"role": "user", "content": "make a file"}, {"role": "assistant", "model": "large-1"}])
    manager.new_turn("s1", "nothing")
    manager.ensure_checkpoint(work)
    manager.end_turn()
    first, second = turn_records(manager, manager.session("s1"))
    assert (first.prompt, first.model, first.branch) == ("make a file", "large-1", "trunk")
    assert first.files == ("new.txt",)
    assert first.commit == git(work, "rev-parse", "HEAD") and first.ended is not None
    assert first.transcript is not None and first.transcript.count(b"\n") == 2
    assert (second.prompt, second.files, second.model) == ("nothing", (), "large-1")


def test_what_is_not_known_any_more_is_empty(manager: CheckpointManager, work: Path) -> None:
    manager.new_turn("s1")
    manager.ensure_checkpoint(work)
    (work / "a.txt").write_text("two\n")
    manager.end_turn()
    session = manager.session("s1")
    manager.clear(work)
    (record,) = turn_records(manager, session)
    assert (record.prompt, record.transcript, record.model, record.files) == ("", None, "", ())
    assert (record.branch, record.commit) == ("", "")


# --- foreign logs ----------------------------------------------------------------------------------------


def test_a_conversation_goes_to_its_session_and_once(manager: CheckpointManager, work: Path) -> None:
    taken = manager.snapshot(work, "mine", session_id="s1").checkpoint
    assert taken is not None
    mine = conversation("s1", prompt="please", agent="codex")
    said = [mine, conversation("2026-01-02-s1"), conversation("other")]
    for _ in range(2):
        matches = attach_conversations(manager, work, said)
        assert [match.checkpoint_id for match in matches] == [taken.id, taken.id, None]
        assert "same session or commit" in matches[2].why and matches[0].conversation is mine
    session = manager.session("s1")
    assert session.agent == "codex" and [turn.prompt for turn in session.turns] == ["please", None]
    assert manager.restore(work, "last", files=False, conversation=True).conversation.message_count == 2


def test_a_checkpoint_that_is_later_than_the_log_is_not_meant(manager: CheckpointManager, work: Path) -> None:
    manager.snapshot(work, "mine", session_id="s1")
    for at, found in ((datetime.now(UTC) - timedelta(hours=1), False), (datetime.now(), True), (None, True)):
        (match,) = attach_conversations(manager, work, [conversation(at=at)])
        assert (match.checkpoint_id is not None) is found


def test_a_commit_leads_to_the_state_before_it(manager: CheckpointManager, work: Path) -> None:
    git(work, "init", "-q")
    heads, taken = [], []
    for text in ("one", "two", "three"):
        git(work, "-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-q", "--allow-empty", "-m", text)
        heads.append(git(work, "rev-parse", "HEAD"))
        (work / "a.txt").write_text(text)
        made = manager.snapshot(work, text).checkpoint
        assert made is not None
        taken.append(made.id)
    unknown = ("f" * 40, "e" * 40)
    (match,) = attach_conversations(manager, work, [conversation("x", commits=(unknown, (heads[2], heads[1])))])
    assert match.checkpoint_id == taken[1]
    (match,) = attach_conversations(manager, work, [conversation("y", commits=((heads[0], "9" * 40),))])
    assert match.checkpoint_id == taken[0]  # the first one after it


def test_what_cannot_be_read_is_reported_and_blocks_nothing(manager: CheckpointManager, work: Path) -> None:
    manager.snapshot(work, "mine", session_id="s1")

    def damaged() -> bytes:
        raise MalformedObject(what="the transcript", why="a part is missing")

    said = [conversation(read=damaged, key="1"), conversation(read=lambda: None, key="2"), conversation(key="3")]
    matches = attach_conversations(manager, work, said)
    assert [bool(match.checkpoint_id) for match in matches] == [False, False, True]
    assert "part is missing" in matches[0].why and "no transcript" in matches[1].why


def test_without_checkpoints_nothing_matches(manager: CheckpointManager, work: Path) -> None:
    assert [match.checkpoint_id for match in attach_conversations(manager, work, [conversation()])] == [None]
