"""Conversations that are kept with checkpoints: exact, cheap, redacted, and dropped on their own."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import git, loose_object, manifest, unpack
from shadowsnap import CheckpointManager
from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import BadArguments, DeadlineExceeded, LockTimeout, NoConversation
from shadowsnap.model import Checkpoint
from shadowsnap.store.conversations import (
    LEAST,
    MOST,
    ConversationContent,
    before_prompt,
    from_file,
    from_json,
    keep_conversation,
    read_conversation,
    split,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import alone
from shadowsnap.store.projects import Project, project_of

TOKEN = "ghp_" + "aB3dE5gH7j" * 4


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


def message(number: int, size: int = 0) -> dict[str, str]:
    noise = random.Random(number)
    words = " ".join(f"{noise.randrange(1 << 40):x}" for _ in range(size // 10))
    return {"role": ("user", "assistant")[number % 2], "content": f"message {number} {words}"}


def talk(count: int, size: int = 0) -> list[dict[str, str]]:
    return [message(number, size) for number in range(count)]


def take_turn(
    manager: CheckpointManager, project: Path, number: int, session: str = "s1", **more: Any
) -> Checkpoint:
    """A turn that writes, after the person wrote something; its first checkpoint."""
    (project / "notes").write_text(f"by the person, before turn {number}\n")
    manager.new_turn(session, f"prompt {number}", **more)
    taken = manager.ensure_checkpoint(project).checkpoint
    assert taken is not None
    (project / "README.md").write_text(f"turn {number}\n")
    return taken


def meta_refs(base: Path) -> set[str]:
    return set(git(base / "store", "for-each-ref", "--format=%(refname)", "refs/shadowsnap-meta").split())


def stored_bytes(base: Path) -> int:
    return sum(path.stat().st_size for path in (base / "store" / "objects").rglob("*") if path.is_file())


# --- cutting ------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.binary(max_size=50), st.integers(1, 4000)), max_size=20))
def test_the_pieces_put_together_are_the_text(parts: list[tuple[bytes, int]]) -> None:
    data = b"".join(part * times for part, times in parts)
    pieces = list(split(data))
    assert b"".join(pieces) == data
    assert all(pieces) and all(len(piece) <= MOST for piece in pieces)
    assert all(len(piece) >= LEAST for piece in pieces[:-1])


def test_texts_that_begin_alike_have_the_same_pieces() -> None:
    lines = [json.dumps(each).encode() + b"\n" for each in talk(400, 2000)]
    short, long = list(split(b"".join(lines[:300]))), list(split(b"".join(lines)))
    assert len(short) > 10
    assert short[:-1] == long[: len(short) - 1]


def test_a_change_in_the_middle_moves_few_pieces() -> None:
    lines = [json.dumps(each).encode() + b"\n" for each in talk(400, 2000)]
    before = set(split(b"".join(lines)))
    after = set(split(b"".join([*lines[:100], b"summary\n", *lines[120:]])))
    assert len(after - before) <= 4


# --- keeping ------------------------------------------------------------------------------------------


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def test_json_comes_back_as_it_was(base: Path, project: Path, manager: CheckpointManager) -> None:
    taken = manager.snapshot(project).checkpoint
    assert taken is not None
    store, place = Store(base, fsync=False), (project_of(project), taken.ref)

    @settings(max_examples=20)
    @given(st.lists(json_values, max_size=5) | st.dictionaries(st.text(), json_values, max_size=5))
    def check(value: Any) -> None:
        keep_conversation(store, from_json(value), "s1", [place], NO_DEADLINE)
        found = read_conversation(store, taken.ref, ["s1"], NO_DEADLINE)
        assert found is not None
        assert found.data == value or found.redacted
        assert found.message_count == (len(value) if isinstance(value, list) else found.message_count)

    check()


def test_a_conversation_is_what_it_was_when_it_was_handed_over(project: Path, manager: CheckpointManager) -> None:
    growing = talk(2)
    taken = take_turn(manager, project, 1, conversation=growing)
    growing.append(message(2))
    growing[0]["content"] = "changed"
    (ended,) = manager.end_turn(growing)
    assert ended.checkpoint is not None
    assert manager.restore(project, taken.id, conversation=True).conversation.data == talk(2)
    then = manager.restore(project, ended.checkpoint.id, conversation=True).conversation
    assert (then.data, then.message_count, then.session_id) == (growing, 3, "s1")


def test_it_is_kept_while_the_turn_still_goes_on(base: Path, project: Path, manager: CheckpointManager) -> None:
    taken = take_turn(manager, project, 1, conversation=talk(3))
    again = CheckpointManager(base=base, fsync=False)  # another program, as after a crash
    manager._loop.jobs.wait()
    assert again.restore(project, taken.id, conversation=True).conversation.message_count == 3


def test_the_tool_does_not_wait_for_it(project: Path, manager: CheckpointManager) -> None:
    gate = threading.Event()
    manager._loop.jobs.add(lambda: assert_waited(gate))
    taken = take_turn(manager, project, 1, conversation=talk(3))
    gate.set()
    manager.end_turn()
    assert manager.restore(project, taken.id, conversation=True).conversation.message_count == 3


def assert_waited(gate: threading.Event) -> None:
    assert gate.wait(60)


def test_every_directory_of_a_turn_has_the_conversation(
    tmp_path: Path, project: Path, manager: CheckpointManager
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("x")
    take_turn(manager, project, 1, conversation=talk(3))
    manager.ensure_checkpoint(other)
    manager.end_turn()
    for place in (project, other):
        oldest = manager.list_checkpoints(place)[-1]
        content = manager.restore(place, oldest.id, conversation=True, files=False).conversation
        assert content.message_count == 3


def test_two_sessions_that_go_on_from_the_same_files_have_their_own(
    project: Path, manager: CheckpointManager
) -> None:
    for session, count in (("one", 2), ("two", 5)):
        manager.new_turn(session, conversation=talk(count))
        manager.ensure_checkpoint(project)
        manager.end_turn()
    (taken,) = manager.list_checkpoints(project)
    for session, count in (("one", 2), ("two", 5)):
        found = manager.restore(project, taken.id, conversation=True, session_id=session).conversation
        assert (found.session_id, found.message_count) == (session, count)
    with pytest.raises(NoConversation, match="for session three"):
        manager.restore(project, taken.id, conversation=True, files=False, session_id="three")
    manager.new_turn("two")
    assert manager.restore(project, taken.id, conversation=True).conversation.session_id == "two"


def test_what_was_said_since_without_writing_belongs_to_the_files_as_they_are(
    project: Path, manager: CheckpointManager
) -> None:
    take_turn(manager, project, 1, conversation=talk(1))
    manager.end_turn(talk(2))
    manager.new_turn("s1", conversation=talk(6))
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "unchanged" and outcome.checkpoint is not None
    assert manager.restore(project, outcome.checkpoint.id, conversation=True).conversation.message_count == 6


def test_a_conversation_without_a_session_is_kept_too(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    manager.new_turn(conversation={"messages": talk(4), "model": "m"})
    taken = manager.ensure_checkpoint(project).checkpoint
    assert taken is not None
    found = manager.restore(project, taken.id, conversation=True).conversation
    assert (found.session_id, found.message_count, found.data["model"]) == (None, 4, "m")
    assert not (base / "sessions").exists()


def test_nothing_is_kept_with_a_checkpoint_that_is_gone(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    taken = manager.snapshot(project).checkpoint
    assert taken is not None
    manager.delete(project, taken.id)
    place = (project_of(project), taken.ref)
    assert keep_conversation(Store(base), from_json(talk(2)), "s1", [place], NO_DEADLINE) == []
    assert meta_refs(base) == set()


def test_the_hash_is_of_what_is_kept(project: Path, manager: CheckpointManager) -> None:
    from hashlib import sha256

    taken = take_turn(manager, project, 1, conversation=talk(2))
    manager.end_turn()
    found = manager.restore(project, taken.id, conversation=True).conversation
    lines = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in talk(2)).encode()
    assert (found.sha256, found.bytes) == (sha256(lines).hexdigest(), len(lines))


# --- files --------------------------------------------------------------------------------------------


def test_a_transcript_is_kept_as_long_as_it_was(tmp_path: Path, project: Path, manager: CheckpointManager) -> None:
    transcript = tmp_path / "session.jsonl"
    transcript.write_text("".join(json.dumps(each) + "\n" for each in talk(2)))
    taken = take_turn(manager, project, 1, conversation=str(transcript))
    with open(transcript, "a") as file:
        file.write(json.dumps(message(2)) + "\n")
    manager.end_turn(transcript)
    before = manager.restore(project, taken.id, conversation=True, files=False).conversation
    after = manager.restore(project, "1:after", conversation=True, files=False).conversation
    assert (before.data, before.message_count) == (talk(2), 2)
    assert (after.data, after.message_count) == (talk(3), 3)


CLAUDE_ROWS = [
    {"type": "queue-operation", "operation": "enqueue", "content": "go on"},
    {"type": "queue-operation", "operation": "dequeue"},
]
QWEN_ROWS = [{"type": "user", "message": {"role": "user", "parts": [{"text": "go on"}]}}]
CODEX_ROWS = [{"type": "response_item", "payload": {"role": "user", "content": [{"text": "go on"}]}}]
ANSWERED = [
    {"type": "user", "message": {"role": "user", "content": "go on"}},
    {"type": "assistant", "message": {"role": "assistant", "content": "I went on."}},
]


@pytest.mark.parametrize("rows", [CLAUDE_ROWS, QWEN_ROWS, CODEX_ROWS], ids=["claude", "qwen", "codex"])
@pytest.mark.parametrize("earlier", [[], ANSWERED], ids=["first turn", "later turn"])
def test_a_prompt_that_is_written_down_before_its_event_is_not_in_the_conversation_before_it(
    tmp_path: Path, project: Path, manager: CheckpointManager, rows: list[Any], earlier: list[Any]
) -> None:
    transcript = tmp_path / "session.jsonl"
    transcript.write_text("".join(json.dumps(each) + "\n" for each in [*earlier, *rows]))
    manager.new_turn("s", prompt="go on", conversation=str(transcript))
    (project / "a").write_text("1")
    taken = manager.ensure_checkpoint(project).checkpoint
    assert taken is not None
    manager.end_turn()
    found = manager.restore(project, taken.id, conversation=True, files=False).conversation
    assert (found.data, found.message_count) == (earlier, len(earlier))


def test_a_line_that_is_half_written_is_left_out(tmp_path: Path) -> None:
    transcript = tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"a":1}\n{"b":2}\n{"c":3}\n')
    content = from_file(str(transcript), None, 12)
    assert not isinstance(content, str) and (content.data, content.count) == (b'{"a":1}\n', 1)


@pytest.mark.parametrize(
    ("content", "form", "count"),
    [
        (b'{"a":1}\n{"b":2}\n', "messages", 2),
        (b'[{"a":1},\n {"b":2}]', "value", 2),
        (b'{"messages": [1, 2, 3]}', "value", 3),
        (b"plain talk\nin lines\n", "text", None),
        (b"\xff\xfe not text \n", "text", None),
        (b"", "messages", 0),
    ],
)
def test_a_transcript_may_have_any_form(tmp_path: Path, content: bytes, form: str, count: int | None) -> None:
    (tmp_path / "t").write_bytes(content)
    found = from_file(str(tmp_path / "t"), None)
    assert not isinstance(found, str)
    assert (found.data, found.form, found.count) == (content, form, count)


def test_a_transcript_that_was_still_empty_is_an_empty_conversation(
    tmp_path: Path, project: Path, manager: CheckpointManager
) -> None:
    (tmp_path / "t.jsonl").touch()
    taken = take_turn(manager, project, 1, conversation=tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl").write_text("{}\n{}\n")
    manager.end_turn()
    found = manager.restore(project, taken.id, conversation=True).conversation
    assert (found.data, found.message_count) == ([], 0)


def test_a_file_that_is_written_anew_is_not_passed_off_as_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "t").write_text('{"messages": [\n 1,\n 2]}')
    assert from_file(str(tmp_path / "t"), None, 18) == "changed"
    assert from_file(str(tmp_path / "t"), None, 1000) == "changed"  # it was longer
    assert from_file(str(tmp_path / "t"), 5) == "too-large"
    assert from_file(str(tmp_path), None) == "unreadable"
    assert from_file(str(tmp_path / "none"), None) == "unreadable"


@pytest.mark.parametrize(
    ("conversation", "told"),
    [(talk(3, 50_000), "too-large"), ("/no/such/transcript", "unreadable"), ([{1: object()}], "kept")],
)
def test_whatever_is_handed_over_the_snapshot_is_taken(
    base: Path, project: Path, conversation: Any, told: str
) -> None:
    manager = CheckpointManager(base=base, fsync=False, max_conversation_mb=0.1)
    taken = take_turn(manager, project, 1, conversation=conversation)
    assert [each.status for each in manager.end_turn()] == ["taken"]
    (turn,) = manager.session("s1").turns
    assert turn.conversation == told and turn.places[0].before == taken.id


def test_a_conversation_that_contains_itself_does_no_harm(project: Path, manager: CheckpointManager) -> None:
    knot: list[Any] = []
    knot.append(knot)
    take_turn(manager, project, 1, conversation=knot)
    assert [each.status for each in manager.end_turn(knot)] == ["taken"]
    assert manager.session("s1").turns[0].conversation == "unreadable"


def test_nothing_is_kept_if_the_person_does_not_want_it(base: Path, project: Path, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("talk\n")
    manager = CheckpointManager(base=base, fsync=False, keep_conversations=False)
    take_turn(manager, project, 1, conversation=talk(2))
    manager.end_turn(tmp_path / "t")
    assert meta_refs(base) == set()
    assert manager.session("s1").turns[0].conversation == "none"


# --- what it costs ------------------------------------------------------------------------------------


def test_growing_turns_cost_little_more_than_one_copy(base: Path, tmp_path: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False, max_snapshots=0)
    whole = talk(160, 5000)  # 0.9 MB; all turns together say 7 MB
    alone = CheckpointManager(base=tmp_path / "alone", fsync=False, background_upkeep=False)
    take_turn(alone, project, 0, conversation=whole)
    alone.end_turn()
    for number in range(1, 17):
        take_turn(manager, project, number, conversation=whole[: number * 10])
        manager.end_turn()
    assert len(meta_refs(base)) == 16
    assert stored_bytes(base) < 1.4 * stored_bytes(tmp_path / "alone")
    manager.prune(reclaim="always")
    alone.prune(reclaim="always")
    assert stored_bytes(base) < 1.25 * stored_bytes(tmp_path / "alone")
    (oldest,) = manager.search(text="prompt 1", kind="turn")[-1:]
    assert manager.restore(project, oldest.id, conversation=True, files=False).conversation.data == whole[:10]


def test_what_is_known_to_be_there_is_not_written_again(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    whole = talk(200, 3000)
    take_turn(manager, project, 1, conversation=whole)
    manager.end_turn()
    manager.prune(reclaim="always")  # all in one pack now
    (pack,) = (base / "store" / "objects" / "pack").glob("*.pack")
    take_turn(manager, project, 2, conversation=[*whole, message(200)])
    manager.end_turn()
    pack.rename(pack.with_suffix(".aside"))
    unpack(base / "store")
    loose = list((base / "store" / "objects").glob("[0-9a-f][0-9a-f]/*"))
    assert 4 <= len(loose) < 25 < len(list(split(from_json(whole).data)))


# --- redaction ----------------------------------------------------------------------------------------


def test_secrets_are_in_no_object_record_or_index(base: Path, project: Path, manager: CheckpointManager) -> None:
    (project / "config.txt").write_text(f"token = {TOKEN}\n")
    manager.new_turn("s1", f"use {TOKEN}", [{"content": f"my key is {TOKEN}", "password": "hunter22"}])
    taken = manager.ensure_checkpoint(project).checkpoint
    (project / "README.md").write_text("changed\n")
    manager.end_turn([{"content": f"again {TOKEN}"}])
    assert taken is not None and manager.search(TOKEN) == [] and manager.sessions(text=TOKEN) == []
    found = manager.restore(project, taken.id, conversation=True).conversation
    assert found.redacted == 2 and TOKEN not in json.dumps(found.data) and "hunter22" not in json.dumps(found.data)
    # The file is what it was: checkpoints are exact.
    (project / "config.txt").unlink()
    manager.restore(project, taken.id)
    assert (project / "config.txt").read_text() == f"token = {TOKEN}\n"
    holding = [
        name
        for name in git(base / "store", "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
        if TOKEN in git(base / "store", "cat-file", "-p", name)
    ]
    assert len(holding) == 1  # the file
    for path in base.rglob("*"):
        if path.is_file() and "objects" not in path.parts:
            assert TOKEN.encode() not in path.read_bytes(), path


def test_the_persons_own_patterns_are_taken_out(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False, redact=(r"Project \w+",))
    taken = take_turn(manager, project, 1, conversation=[{"content": "about Project Walrus and more"}])
    manager.end_turn()
    found = manager.restore(project, taken.id, conversation=True).conversation
    assert found.data == [{"content": "about [redacted: own] and more"}]


# --- going back ---------------------------------------------------------------------------------------


def test_files_the_conversation_or_both_come_back(project: Path, manager: CheckpointManager) -> None:
    taken = take_turn(manager, project, 1, conversation=talk(2))
    manager.end_turn()
    changed = manifest(project)
    only = manager.restore(project, taken.id, conversation=True, files=False)
    assert manifest(project) == changed
    assert (only.conversation.data, only.written, only.applied, only.undo_id) == (talk(2), (), True, None)
    plan = manager.restore(project, taken.id, conversation=True, dry_run=True)
    assert manifest(project) == changed and not plan.applied and plan.conversation.data == talk(2)
    files = manager.restore(project, taken.id)
    assert files.written == ("README.md",) and files.conversation is None
    manager.undo(project)
    both = manager.restore(project, taken.id, conversation=True)
    assert (both.written, both.conversation.data) == (("README.md",), talk(2))
    assert json.loads(json.dumps(both.to_dict()))["conversation"]["message_count"] == 2
    with pytest.raises(BadArguments):
        manager.restore(project, taken.id, files=False)


def test_where_none_is_kept_that_is_said(project: Path, manager: CheckpointManager) -> None:
    taken = take_turn(manager, project, 1)
    manager.end_turn()
    with pytest.raises(NoConversation, match=f"no conversation is kept with checkpoint {taken.short_id}$"):
        manager.restore(project, taken.id, conversation=True, files=False)
    result = manager.restore(project, taken.id, conversation=True)
    assert result.written and result.conversation is None
    assert result.note == "no conversation is kept with it"


def test_a_damaged_conversation_does_not_keep_the_files_from_coming_back(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    taken = take_turn(manager, project, 1, conversation=talk(3, 2000))
    manager.end_turn()
    (ref,) = meta_refs(base)
    piece = git(base / "store", "rev-parse", f"{ref}:s1/0000/00")
    loose_object(base / "store", piece).unlink()
    result = manager.restore(project, taken.id, conversation=True)
    assert result.written and result.conversation is None and "cannot be read" in result.note
    with pytest.raises(NoConversation, match="cannot be read"):
        manager.restore(project, taken.id, conversation=True, files=False)


# --- letting go ---------------------------------------------------------------------------------------


def kept_turns(manager: CheckpointManager, project: Path, count: int, size: int = 0) -> list[Checkpoint]:
    taken = []
    for number in range(count):
        # Nothing in common, so that each has its own size.
        content = [message(number * 100 + at, size) for at in range(10)]
        taken.append(take_turn(manager, project, number, conversation=content))
        manager.end_turn()
    return taken


@pytest.mark.parametrize("limit", [{"attachment_days": 1e-9}, {"max_attachments_mb": 0.001}])
def test_conversations_go_by_age_and_size_and_the_checkpoints_stay(
    base: Path, project: Path, manager: CheckpointManager, limit: dict[str, float]
) -> None:
    taken = kept_turns(manager, project, 3, size=3000)
    before = [each.id for each in manager.list_checkpoints(project)]
    result = manager.prune(**limit)
    assert len(result.attachments_dropped) == 3 and not result.dropped
    assert meta_refs(base) == set()
    assert [each.id for each in manager.list_checkpoints(project)] == before
    # The record says that there was one.
    assert [turn.conversation for turn in manager.session("s1").turns] == ["dropped"] * 3
    assert [turn.message_count for turn in manager.session("s1").turns] == [10] * 3
    with pytest.raises(NoConversation, match="any more"):
        manager.restore(project, taken[0].id, conversation=True, files=False)
    assert manager.restore(project, taken[0].id).applied
    assert manager.doctor().findings == ()


def test_the_newest_conversations_stay_within_the_limit(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    kept_turns(manager, project, 6, size=8000)
    each = stored_bytes(base) / 6
    manager.prune(max_attachments_mb=each * 2.5 / 2**20)
    assert [turn.conversation for turn in manager.session("s1").turns] == ["dropped"] * 4 + ["kept"] * 2


def test_reclaiming_space_keeps_every_piece(base: Path, project: Path, manager: CheckpointManager) -> None:
    taken = kept_turns(manager, project, 4, size=3000)
    manager.prune(max_snapshots=2, reclaim="always")
    assert len(meta_refs(base)) == 2
    assert git(base / "store", "fsck", "--strict", "--full") == ""
    for number in (2, 3):
        found = manager.restore(project, taken[number].id, conversation=True, files=False).conversation
        assert found.data == [message(number * 100 + at, 3000) for at in range(10)]
    assert manager.doctor().findings == ()
    assert (manager.status().attachments_bytes or 0) > 10_000


def test_nobody_removes_objects_while_one_is_being_kept(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    taken = manager.snapshot(project).checkpoint
    assert taken is not None
    store, tried = Store(base, fsync=False), list[type[Exception]]()

    def places() -> Iterator[tuple[Project, str]]:
        # The pieces are written, and no ref leads to them yet.
        try:
            with alone(store.store_lock(), "removing old packs", Deadline(0.2)):
                pass
        except (DeadlineExceeded, LockTimeout) as problem:
            tried.append(type(problem))
        yield project_of(project), taken.ref

    keep_conversation(store, from_json(talk(3)), "s1", places(), NO_DEADLINE)
    assert len(tried) == 1
    assert manager.restore(project, taken.id, conversation=True).conversation.message_count == 3


def test_a_conversation_that_lost_pieces_is_set_aside_and_all_else_stays(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    taken = kept_turns(manager, project, 3, size=3000)
    before = manager.list_checkpoints(project)
    ref = taken[0].ref.replace("refs/shadowsnap/", "refs/shadowsnap-meta/")
    piece = git(base / "store", "rev-parse", f"{ref}:s1/0000/00")
    loose_object(base / "store", piece).unlink()
    (finding,) = manager.doctor().findings
    assert (finding.code, finding.severity, finding.subject) == ("conversation-damaged", "error", ref)
    assert manager.prune(reclaim="always").error is not None  # git packs nothing
    mended = manager.doctor(repair=True)
    assert [each.code for each in mended.repaired] == ["conversation-damaged"] and mended.healthy
    assert mended.set_aside is not None and list(Path(mended.set_aside).rglob("*"))
    assert manager.prune(reclaim="always").error is None
    assert [each.conversation for each in manager.session("s1").turns] == ["dropped", "kept", "kept"]
    assert manager.list_checkpoints(project) == before
    assert manager.restore(project, taken[1].id, conversation=True).conversation.message_count == 10


def test_a_checkpoint_that_is_recorded_anew_keeps_its_conversation(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    (project / "lost").write_text("unlike anything else\n")
    (taken,) = kept_turns(manager, project, 1)
    (project / "lost").unlink()
    blob = git(base / "store", "rev-parse", f"{taken.id}:lost")
    loose_object(base / "store", blob).unlink()
    manager.doctor(repair=True)
    mended = manager.list_checkpoints(project)[-1]
    assert mended.id != taken.id and mended.metadata["mended_from"] == taken.id
    assert manager.restore(project, mended.id, conversation=True, files=False).conversation.message_count == 10
    assert len(meta_refs(base)) == 1


def test_a_deleted_checkpoint_takes_its_conversation_along(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    taken = kept_turns(manager, project, 2)
    manager.delete(project, taken[0].id)
    assert {ref.rpartition("/")[2] for ref in meta_refs(base)} == {taken[1].ref.rpartition("/")[2]}


def test_a_conversation_that_lost_its_checkpoint_goes_with_the_next_prune(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    taken = kept_turns(manager, project, 2)
    git(base / "store", "update-ref", "-d", taken[0].ref)
    manager.prune()
    assert len(meta_refs(base)) == 1


def test_clearing_a_project_takes_its_conversations_along(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    kept_turns(manager, project, 2)
    manager.clear(project)
    assert meta_refs(base) == set()


def _row(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, **more}).encode() + b"\n"


EARLIER = _row("user", message={"role": "user", "content": "go on"}) + _row(
    "assistant", message={"role": "assistant", "content": "Done."}
)
ASKED = (
    _row("queue", content="go on")
    + _row("queue", operation="dequeue")
    + _row("user", message={"role": "user", "content": "go on"})
)
ANSWERED = _row("attachment", names=["a"]) + _row(
    "assistant", message={"role": "assistant", "content": [{"type": "tool_use", "name": "Write"}]}
)
NOTED = _row("last-prompt", lastPrompt="go on") + _row("latch")


@pytest.mark.parametrize("before", [b"", EARLIER], ids=["first", "second"])
@pytest.mark.parametrize(
    ("after", "answered"),
    [(ASKED, False), (ASKED, True), (ASKED + ANSWERED, True), (ASKED + ANSWERED + NOTED, True)],
    ids=["asked", "asked-late", "answered", "noted"],
)
def test_a_transcript_ends_before_the_prompt_of_the_turn(before: bytes, after: bytes, answered: bool) -> None:
    """Also if it was first seen at a tool call, with the answer and a note of the prompt behind it."""
    content = ConversationContent(before + after, "messages", None)
    kept = before_prompt(content, lambda text: text == "go on", answered=answered)
    assert kept.data == before


def test_a_transcript_without_the_prompt_is_kept_whole() -> None:
    content = ConversationContent(EARLIER + ANSWERED, "messages", 4)
    assert before_prompt(content, lambda text: text == "another", answered=True) is content


@pytest.mark.parametrize("place", ["row", "payload"])
@pytest.mark.parametrize("answered", [False, True])
def test_a_transcript_whose_rows_name_their_turn_ends_before_the_first_of_it(place: str, answered: bool) -> None:
    """Whenever it was looked at, and also if the message is not word for word what the event reported."""

    def row(role: str, text: str, turn: str) -> bytes:
        ids = {"promptId": turn} if place == "row" else {"payload": {"role": role, "turn_id": turn}}
        return _row(role, message={"role": role, "content": text}, **ids)

    before = row("user", "go on", "turn-1") + row("assistant", "See turn-2.", "turn-1")
    after = row("user", "<command-name>go</command-name>", "turn-2") + row("assistant", "Done.", "turn-2")
    content = ConversationContent(before + _row("queue", content="/go on") + after, "messages", None)
    kept = before_prompt(content, lambda text: text == "/go on", turn="turn-2", answered=answered)
    assert kept.data == before


def test_a_prompt_is_found_however_long_the_turn_went_on_before_the_first_write() -> None:
    looked = _row("assistant", message={"role": "assistant", "content": "I look."}) * 300
    content = ConversationContent(EARLIER + ASKED + looked, "messages", None)
    assert before_prompt(content, lambda text: text == "go on", answered=True).data == EARLIER
