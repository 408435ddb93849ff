"""The face of Entire CLI's committed checkpoints: reading, attaching, exporting."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers import git, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.compat import entire
from shadowsnap.compat.entire import EntireRepository, attach_entire, export_entire, read_entire
from shadowsnap.errors import BadArguments, GitFailed, MalformedObject, NoSuchSession

ID, OTHER, ULID = "a3b2c4d5e6f7", "0123456789ab", "01KVBJCWYA4YW6J5M9GP655HZN"
TRANSCRIPT = b'{"role":"user","content":"please"}\n{"role":"assistant","content":"done"}\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A person's repository with one commit."""
    path = tmp_path / "work"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("one\n")
    return commit(path, "first")


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


def commit(path: Path, message: str) -> Path:
    git(path, "add", "-A")
    git(path, "-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-q", "-m", message)
    return path


def session_files(session_id: str = "s1", transcript: bytes | None = TRANSCRIPT, **more: Any) -> dict[str, bytes]:
    """What Entire writes into the folder of a session."""
    now = datetime.now(UTC)
    metadata = {"session_id": session_id, "created_at": now.isoformat(), "agent": "Claude Code", **more}
    files = {"metadata.json": json.dumps(metadata).encode(), "prompt.txt": b"please\n\n---\n\nand thanks"}
    if transcript is not None:
        files["full.jsonl"] = transcript
        files["content_hash.txt"] = f"sha256:{hashlib.sha256(transcript).hexdigest()}".encode()
    return files


def checkpoint_files(id: str = ID, *sessions: dict[str, bytes]) -> dict[str, bytes]:
    files = {"metadata.json": json.dumps({"checkpoint_id": id, "strategy": "manual-commit"}).encode()}
    for number, session in enumerate(sessions or (session_files(),)):
        files.update({f"{number}/{name}": content for name, content in session.items()})
    return files


def write_ref(repository: Path, ref: str, files: dict[str, bytes]) -> None:
    """A commit with these files and no others, without touching the work tree or index."""
    stream = f"commit {ref}\ncommitter e <e@localhost> 1 +0000\ndata 10\nCheckpoint\ndeleteall\n".encode()
    for path, content in files.items():
        stream += f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n"
    git(repository, "-c", "fastimport.unpackLimit=1000", "fast-import", "--quiet", "--force", stdin=stream)


def write_branch(repository: Path, checkpoints: dict[str, dict[str, bytes]], ref: str = "") -> None:
    files = {
        f"{id[:2]}/{id[2:]}/{name}": content for id, each in checkpoints.items() for name, content in each.items()
    }
    write_ref(repository, ref or "refs/heads/entire/checkpoints/v1", files)


def write_one_ref(repository: Path, id: str, files: dict[str, bytes]) -> None:
    write_ref(repository, f"refs/entire/checkpoints/{id[-2:]}/{id}", files)


# --- reading -----------------------------------------------------------------------------------------------


def test_a_branch_of_checkpoints_is_read(repository: Path) -> None:
    write_branch(repository, {ID: checkpoint_files(ID, session_files("s1"), session_files("s2", None, extra=7))})
    before = snapshot_dotgit(repository)
    source = EntireRepository(repository)
    record = source.read()
    (found,) = record.checkpoints
    assert record.problems == ()
    assert (found.id, found.layout, found.ref) == (ID, "branch", "refs/heads/entire/checkpoints/v1")
    assert found.metadata["strategy"] == "manual-commit"
    first, second = found.sessions
    assert first.id == "s1" and first.prompts == ("please", "and thanks") and first.created_at is not None
    assert source.transcript(first) == TRANSCRIPT and source.transcript(second) is None
    assert second.metadata["extra"] == 7
    assert snapshot_dotgit(repository) == before


def test_one_ref_for_each_checkpoint_is_read(repository: Path) -> None:
    for id in (ULID, OTHER):
        write_one_ref(repository, id, checkpoint_files(id))
    record = read_entire(repository)
    assert {each.id: each.layout for each in record.checkpoints} == {ULID: "refs", OTHER: "refs"}
    assert record.problems == ()


def test_both_layouts_are_read_at_once_and_a_ref_of_its_own_counts(repository: Path) -> None:
    write_branch(repository, {ID: checkpoint_files(ID), OTHER: checkpoint_files(OTHER)})
    write_one_ref(repository, OTHER, checkpoint_files(OTHER, session_files("newer")))
    write_one_ref(repository, ULID, checkpoint_files(ULID))
    record = read_entire(repository)
    assert {each.id: each.layout for each in record.checkpoints} == {ID: "branch", OTHER: "refs", ULID: "refs"}
    assert next(each for each in record.checkpoints if each.id == OTHER).sessions[0].id == "newer"


def test_they_are_sorted_by_age(repository: Path) -> None:
    late, early = (session_files(created_at=f"2026-0{month}-01T00:00:00Z") for month in (5, 2))
    write_branch(repository, {ID: checkpoint_files(ID, late), OTHER: checkpoint_files(OTHER, early)})
    assert [each.id for each in read_entire(repository).checkpoints] == [OTHER, ID]


def test_what_was_fetched_counts_less_than_the_persons_own(repository: Path) -> None:
    remote = "refs/remotes/origin/entire/checkpoints/v1"
    write_branch(
        repository, {ID: checkpoint_files(ID, session_files("theirs")), OTHER: checkpoint_files(OTHER)}, remote
    )
    write_branch(repository, {ID: checkpoint_files(ID, session_files("own"))})
    found = {each.id: each for each in read_entire(repository).checkpoints}
    assert found[ID].sessions[0].id == "own" and found[OTHER].ref == remote


def test_the_oldest_form_of_a_checkpoint_is_read(repository: Path) -> None:
    flat = {**session_files("s0"), "full.log": TRANSCRIPT}
    del flat["full.jsonl"]
    write_branch(repository, {ID: flat})
    source = EntireRepository(repository)
    (found,) = source.read().checkpoints
    assert found.sessions[0].id == "s0" and source.transcript(found.sessions[0]) == TRANSCRIPT


@pytest.mark.parametrize("broken", ["branch", "refs"])
def test_a_layout_that_fails_does_not_block_the_other(repository: Path, broken: str) -> None:
    write_branch(repository, {ID: checkpoint_files(ID)})
    write_one_ref(repository, ULID, checkpoint_files(ULID))
    ref = "refs/heads/entire/checkpoints/v1" if broken == "branch" else f"refs/entire/checkpoints/ZN/{ULID}"
    tree = git(repository, "rev-parse", f"{ref}^{{tree}}")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    record = read_entire(repository)
    assert [each.id for each in record.checkpoints] == [ULID if broken == "branch" else ID]
    assert len(record.problems) == 1 and ref in record.problems[0]


def test_a_ref_that_git_cannot_list_does_not_block_the_branch(repository: Path) -> None:
    write_branch(repository, {ID: checkpoint_files(ID)})
    folder = repository / ".git" / "refs" / "entire" / "checkpoints" / "ZN"
    folder.mkdir(parents=True)
    (folder / ULID).write_text("not a commit\n")
    (folder.parent / "odd").write_text(git(repository, "rev-parse", "HEAD") + "\n")
    record = read_entire(repository)
    assert [each.id for each in record.checkpoints] == [ID] and record.problems


def test_one_checkpoint_that_fails_does_not_block_the_others(repository: Path) -> None:
    write_branch(
        repository, {ID: checkpoint_files(ID), OTHER: {"metadata.json": b"{"}, "ffffffffffff": {"x": b""}}
    )
    record = read_entire(repository)
    assert [each.id for each in record.checkpoints] == [ID]
    assert sorted(problem.split()[1] for problem in record.problems) == [OTHER, "ffffffffffff"]


def test_names_that_are_none_of_entires_are_left_out(repository: Path) -> None:
    write_branch(repository, {ID: checkpoint_files(ID), "zz-not-an-id": checkpoint_files("x")})
    write_ref(repository, f"refs/entire/checkpoints/00/{ULID}", checkpoint_files(ULID))
    record = read_entire(repository)
    assert [each.id for each in record.checkpoints] == [ID]
    assert len(record.problems) == 1 and ULID in record.problems[0]


def test_a_transcript_in_parts_is_put_together(repository: Path) -> None:
    lines = [b'{"n":%d}' % number for number in range(12)]
    transcript = b"\n".join(lines) + b"\n"
    files = session_files(transcript=transcript)
    del files["full.jsonl"]
    for number in range(12):  # more than nine: in the order of numbers
        name = f"full.jsonl.{number:03d}" if number else "full.jsonl"
        files[name] = lines[number] + (b"\n" if number == 11 else b"")
    files["full.jsonl.123abc.tmp"] = b"what an interrupted write left"
    write_branch(repository, {ID: checkpoint_files(ID, files)})
    source = EntireRepository(repository)
    assert source.transcript(source.read().checkpoints[0].sessions[0]) == transcript


def test_a_transcript_with_a_part_missing_is_refused_and_the_rest_is_read(repository: Path) -> None:
    files = {**session_files(), "full.jsonl.002": b"the third"}
    write_branch(repository, {ID: checkpoint_files(ID, files)})
    source = EntireRepository(repository)
    (session,) = source.read().checkpoints[0].sessions
    assert session.prompts == ("please", "and thanks")
    with pytest.raises(MalformedObject, match="part 1"):
        source.transcript(session)


def test_a_transcript_that_is_not_what_its_hash_says_is_refused(repository: Path) -> None:
    changed = {**session_files(), "full.jsonl": TRANSCRIPT + b"more\n"}
    unhashed = session_files()
    del unhashed["content_hash.txt"]
    write_branch(repository, {ID: checkpoint_files(ID, changed, unhashed)})
    source = EntireRepository(repository)
    first, second = source.read().checkpoints[0].sessions
    with pytest.raises(MalformedObject, match="sha256:"):
        source.transcript(first)
    assert source.transcript(second) == TRANSCRIPT and second.content_hash is None


def test_a_repository_without_entire_has_nothing(repository: Path, tmp_path: Path) -> None:
    assert read_entire(repository).checkpoints == () == read_entire(repository).problems
    with pytest.raises(BadArguments):
        read_entire(tmp_path)


def test_packed_and_linked_repositories_are_read(repository: Path, tmp_path: Path) -> None:
    write_branch(repository, {ID: checkpoint_files(ID)})
    git(repository, "gc", "-q")
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(tmp_path / "bare.git"))
    for path in (repository, repository / ".git", tmp_path / "linked", tmp_path / "bare.git"):
        source = EntireRepository(path)
        (found,) = source.read().checkpoints
        assert source.transcript(found.sessions[0]) == TRANSCRIPT


# --- what older and newer versions of Entire write ---------------------------------------------------------


def write_v2(repository: Path, generation: str, *ids: str, **raw: bytes) -> None:
    """The transcripts of checkpoints in one generation, without their metadata."""
    content = raw or {"raw_transcript": TRANSCRIPT, "raw_transcript_hash.txt": hash_of(TRANSCRIPT)}
    files = {f"{id[:2]}/{id[2:]}/0/{name}": each for id in ids for name, each in content.items()}
    write_ref(repository, f"refs/entire/checkpoints/v2/full/{generation}", files)


def hash_of(content: bytes) -> bytes:
    return f"sha256:{hashlib.sha256(content).hexdigest()}".encode()


def v2_files(id: str, session_id: str = "s1") -> dict[str, bytes]:
    return checkpoint_files(id, {**session_files(session_id, None), "transcript.jsonl": b"shortened"})


def test_refs_of_the_second_layout_are_read_as_what_they_are(repository: Path) -> None:
    third, lost = "cccccccccccc", "dddddddddddd"
    ids = (ID, OTHER, third, lost)
    write_branch(repository, {id: v2_files(id) for id in ids}, "refs/entire/checkpoints/v2/main")
    write_v2(repository, "current", ID)
    write_v2(repository, "0000000000001", OTHER, ID, raw_transcript=b"older")
    write_v2(repository, "0000000000002", third, OTHER)
    source = EntireRepository(repository)
    record = source.read()
    assert record.problems == () and {each.id for each in record.checkpoints} == set(ids)
    assert {(each.layout, each.ref) for each in record.checkpoints} == {("v2", "refs/entire/checkpoints/v2/main")}
    found = {each.id: source.transcript(each.sessions[0]) for each in record.checkpoints}
    assert found == {ID: TRANSCRIPT, OTHER: TRANSCRIPT, third: TRANSCRIPT, lost: None}
    assert record.checkpoints[0].sessions[0].prompts == ("please", "and thanks")


def test_what_both_designs_wrote_counts_once(repository: Path) -> None:
    both = {ID: v2_files(ID, "second"), OTHER: v2_files(OTHER)}
    write_branch(repository, both, "refs/entire/checkpoints/v2/main")
    write_v2(repository, "current", ID, OTHER)
    write_branch(repository, {ID: checkpoint_files(ID, session_files("first"))})
    write_ref(repository, "refs/entire/checkpoints/v1/main", {"x": b"a shortened copy"})
    found = {each.id: (each.layout, each.sessions[0].id) for each in read_entire(repository).checkpoints}
    assert found == {ID: ("branch", "first"), OTHER: ("v2", "s1")} and read_entire(repository).problems == ()


def test_a_damaged_generation_is_reported_and_blocks_nothing(repository: Path) -> None:
    write_branch(repository, {ID: v2_files(ID), OTHER: v2_files(OTHER)}, "refs/entire/checkpoints/v2/main")
    write_v2(repository, "current", ID)
    write_v2(repository, "0000000000001", OTHER)
    tree = git(repository, "rev-parse", "refs/entire/checkpoints/v2/full/current^{tree}")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    source = EntireRepository(repository)
    record = source.read()
    found = {each.id: source.transcript(each.sessions[0]) for each in record.checkpoints}
    assert found == {ID: None, OTHER: TRANSCRIPT}
    assert len(record.problems) == 1 and "v2/full/current" in record.problems[0]


def test_what_the_person_deleted_is_left_out(repository: Path) -> None:
    write_branch(repository, {ID: checkpoint_files(ID), OTHER: checkpoint_files(OTHER)})
    noted = repository / ".git" / "entire-deleted-checkpoints.json"
    noted.write_text(json.dumps({"checkpoint_ids": [OTHER, "not an id", 7]}))
    assert [each.id for each in read_entire(repository).checkpoints] == [ID]
    for damaged in ("{", "[]", '{"checkpoint_ids": "all"}'):  # then what was deleted is not known
        noted.write_text(damaged)
        record = read_entire(repository)
        assert record.checkpoints == () and noted.name in record.problems[0]
    noted.unlink()
    os.mkfifo(noted)
    assert read_entire(repository).checkpoints == () and noted.name in read_entire(repository).problems[0]


def test_images_are_put_back_into_the_transcript(repository: Path) -> None:
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(100))
    there, lost = "img-0123abcd.png", "img-ffff.png"
    named = {"image": there, "again": there, "lost": lost}
    message = {key: f"entire-asset:assets/{name}" for key, name in named.items()}
    files = session_files(transcript=json.dumps(message).encode() + b"\n")
    files[f"assets/{there}"] = image
    files["assets/manifest.json"] = b"{}"
    write_branch(repository, {ID: checkpoint_files(ID, files)})
    source = EntireRepository(repository)
    found = json.loads(source.transcript(source.read().checkpoints[0].sessions[0]) or b"")
    assert base64.b64decode(found["image"]) == image and found["again"] == found["image"]
    assert found["lost"] == f"entire-asset:assets/{lost}"


def test_images_that_would_fill_the_memory_are_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transcript of a few bytes can name one image any number of times."""
    monkeypatch.setattr(entire, "_MOST_IMAGES", 1000)
    files = session_files(transcript=b"entire-asset:assets/img-00.png " * 11)
    files["assets/img-00.png"] = b"x" * 100
    write_branch(repository, {ID: checkpoint_files(ID, files)})
    source = EntireRepository(repository)
    with pytest.raises(MalformedObject, match="images"):
        source.transcript(source.read().checkpoints[0].sessions[0])


# --- attaching ---------------------------------------------------------------------------------------------


def conversation_of(manager: CheckpointManager, work: Path, ref: str, session_id: str | None = None) -> Any:
    found = manager.restore(work, ref, files=False, conversation=True, session_id=session_id, dry_run=True)
    return found.conversation


def test_a_conversation_goes_to_the_last_checkpoint_of_its_session(
    repository: Path, manager: CheckpointManager
) -> None:
    manager.snapshot(repository, "another's", session_id="other")
    (repository / "a.txt").write_text("two\n")
    manager.snapshot(repository, "earlier", session_id="s1")
    (repository / "a.txt").write_text("three\n")
    mine = manager.snapshot(repository, "mine", session_id="s1").checkpoint
    assert mine is not None
    write_branch(repository, {ID: checkpoint_files(ID, session_files("s1"))})
    before = snapshot_dotgit(repository)
    report = attach_entire(repository, manager=manager)
    assert snapshot_dotgit(repository) == before
    (item,) = report.attached
    assert (item.conversation.key, item.conversation.session_id) == (f"entire-{ID}-0", "s1")
    assert item.checkpoint_id == mine.id
    kept = conversation_of(manager, repository, mine.id)
    assert kept.session_id == "s1" and kept.data == [json.loads(line) for line in TRANSCRIPT.splitlines()]
    session = manager.session("s1")
    assert session.status == "completed"
    assert session.agent == "claude" and session.turns[0].prompt == "and thanks"
    assert session.turns[0].places[0].before == mine.id and session.turns[0].conversation == "kept"


def test_attaching_again_changes_nothing(repository: Path, manager: CheckpointManager, base: Path) -> None:
    manager.snapshot(repository, "mine", session_id="s1")
    write_one_ref(repository, ULID, checkpoint_files(ULID, session_files("2026-04-08-s1")))
    first = attach_entire(repository, manager=manager)
    refs = git(base / "store", "for-each-ref", "refs/shadowsnap-meta")
    assert attach_entire(repository, manager=manager) == first and len(first.attached) == 1
    assert len(manager.session("s1").turns) == 1
    assert refs and git(base / "store", "for-each-ref", "refs/shadowsnap-meta").count("\n") == refs.count("\n")


def test_what_the_session_itself_handed_over_stays(repository: Path, manager: CheckpointManager) -> None:
    manager.new_turn("s1", conversation=[{"role": "user", "content": "ours"}])
    mine = manager.ensure_checkpoint(repository).checkpoint
    assert mine is not None
    manager.end_turn()
    write_branch(repository, {ID: checkpoint_files(ID, session_files("s1"))})
    for _ in range(2):
        (item,) = attach_entire(repository, manager=manager).items
        assert item.checkpoint_id is None and "handed over" in item.why
    assert conversation_of(manager, repository, mine.id).data == [{"role": "user", "content": "ours"}]
    assert len(manager.session("s1").turns) == 1


def test_a_checkpoint_that_is_later_does_not_match(repository: Path, manager: CheckpointManager) -> None:
    manager.snapshot(repository, "later", session_id="s1")
    past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    write_branch(repository, {ID: checkpoint_files(ID, session_files("s1", created_at=past))})
    (item,) = attach_entire(repository, manager=manager).items
    assert item.checkpoint_id is None and "same session or commit" in item.why


def test_without_a_session_the_commit_leads_to_the_checkpoint(
    repository: Path, manager: CheckpointManager
) -> None:
    (repository / "a.txt").write_text("two\n")
    mine = manager.snapshot(repository, "before the commit").checkpoint
    assert mine is not None
    commit(repository, f"second\n\nEntire-Checkpoint: {ID}")
    (repository / "a.txt").write_text("three\n")
    manager.snapshot(repository, "after the commit")
    write_branch(repository, {ID: checkpoint_files(ID, session_files("s1")), OTHER: checkpoint_files(OTHER)})
    report = attach_entire(repository, manager=manager)
    assert {item.conversation.key: item.checkpoint_id for item in report.items} == {
        f"entire-{ID}-0": mine.id, f"entire-{OTHER}-0": None,
    }  # fmt: skip
    assert conversation_of(manager, repository, mine.id).message_count == 2


def test_a_commit_that_the_checkpoint_names_leads_there_too(repository: Path, manager: CheckpointManager) -> None:
    """An amended commit lost its trailer, and Entire noted the link on its own side."""
    (repository / "a.txt").write_text("two\n")
    mine = manager.snapshot(repository, "before the commit").checkpoint
    assert mine is not None
    commit(repository, "amended")
    (repository / "a.txt").write_text("three\n")
    manager.snapshot(repository, "after the commit")
    linked = [{"sha": "0" * 40}, "odd", {"sha": git(repository, "rev-parse", "HEAD")}, {"sha": "--all"}]
    files = checkpoint_files(ID, session_files("s1"))
    files["metadata.json"] = json.dumps({"checkpoint_id": ID, "linked_commits": linked}).encode()
    write_one_ref(repository, ID, files)
    (found,) = read_entire(repository).checkpoints
    assert found.linked_commits == ("0" * 40, git(repository, "rev-parse", "HEAD"))
    (item,) = attach_entire(repository, manager=manager).items
    assert item.checkpoint_id == mine.id


def test_a_conversation_of_another_session_stays_its_own(repository: Path, manager: CheckpointManager) -> None:
    mine = manager.snapshot(repository, "mine", session_id="my-session").checkpoint
    assert mine is not None
    files = checkpoint_files(ID, session_files("their-session"))
    linked = [{"sha": git(repository, "rev-parse", "HEAD")}]
    files["metadata.json"] = json.dumps({"checkpoint_id": ID, "linked_commits": linked}).encode()
    write_one_ref(repository, ID, files)
    (item,) = attach_entire(repository, manager=manager).items
    assert item.checkpoint_id == mine.id
    assert [turn.prompt for turn in manager.session("their-session").turns] == ["and thanks"]
    assert all(turn.prompt is None for turn in manager.session("my-session").turns)


def test_a_damaged_transcript_is_reported_and_blocks_nothing(repository: Path, manager: CheckpointManager) -> None:
    manager.snapshot(repository, "mine", session_id="s1")
    damaged = {**session_files("s1"), "full.jsonl": b"something else"}
    write_branch(repository, {ID: checkpoint_files(ID, damaged, session_files("s1", None), session_files("s1"))})
    write_one_ref(repository, ULID, {"metadata.json": b"{"})
    report = attach_entire(repository, manager=manager)
    assert [bool(item.checkpoint_id) for item in report.items] == [False, False, True]
    assert "sha256" in report.items[0].why and "no transcript" in report.items[1].why
    assert len(report.problems) == 1 and ULID in report.problems[0]


def test_secrets_are_taken_out(repository: Path, manager: CheckpointManager) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    mine = manager.snapshot(repository, "mine", session_id="s1").checkpoint
    assert mine is not None
    transcript = json.dumps({"role": "user", "content": f"use {secret}"}).encode() + b"\n"
    write_branch(repository, {ID: checkpoint_files(ID, session_files("s1", transcript))})
    attach_entire(repository, manager=manager)
    assert secret not in json.dumps(conversation_of(manager, repository, mine.id).data)


def test_without_checkpoints_here_nothing_matches(repository: Path, manager: CheckpointManager) -> None:
    write_branch(repository, {ID: checkpoint_files(ID)})
    report = attach_entire(repository, manager=manager)
    assert report.attached == () and len(report.items) == 1


# --- exporting ---------------------------------------------------------------------------------------------


def two_turns(manager: CheckpointManager, work: Path) -> list[list[dict[str, str]]]:
    """A session of two turns; the conversation at the end of each."""
    transcript: list[dict[str, str]] = []
    ends = []
    for number, prompt in enumerate(("do it", "do more"), 1):
        manager.new_turn("our-session", prompt, list(transcript), agent="codex")
        transcript.append({"role": "user", "content": prompt})
        assert manager.ensure_checkpoint(work, "before write").checkpoint is not None
        (work / f"new-{number}.txt").write_text(prompt)
        transcript.append({"role": "assistant", "content": f"did {number}"})
        manager.end_turn(list(transcript))
        ends.append(list(transcript))
    manager.end_session("our-session")
    return ends


@pytest.mark.parametrize("layout", ["branch", "refs"])
def test_an_exported_session_is_read_back(
    repository: Path, manager: CheckpointManager, tmp_path: Path, layout: str
) -> None:
    ends = two_turns(manager, repository)
    before = snapshot_dotgit(repository)
    exported = export_entire(tmp_path / "out.git", "our-session", layout=layout, manager=manager)
    assert snapshot_dotgit(repository) == before
    assert git(tmp_path / "out.git", "rev-parse", "--is-bare-repository") == "true"
    git(tmp_path / "out.git", "fsck", "--strict")
    source = EntireRepository(tmp_path / "out.git")
    record = source.read()
    assert record.problems == () and [each.id for each in record.checkpoints] == list(exported.ids)
    assert {each.layout for each in record.checkpoints} == {layout}
    assert {each.ref for each in record.checkpoints} == set(exported.refs)
    for number, each in enumerate(record.checkpoints):
        (session,) = each.sessions
        transcript = source.transcript(session)
        assert transcript is not None and session.content_hash is not None
        assert [json.loads(line) for line in transcript.splitlines()] == ends[number]
        assert session.id == "our-session" and session.prompts == (["do it", "do more"][number],)
        assert session.metadata["files_touched"] == [f"new-{number + 1}.txt"] == each.metadata["files_touched"]
        assert session.metadata["agent"] == "Codex" and session.metadata["branch"] == "main"
        assert each.metadata["checkpoint_id"] == each.id and each.metadata["strategy"] == "import"


def test_the_paths_in_the_summary_lead_to_the_files(
    repository: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    two_turns(manager, repository)
    session = manager.session("our-session")
    exported = export_entire(str(tmp_path / "out.git"), session, layout="branch", manager=manager)
    branch = "entire/checkpoints/v1"
    assert exported.refs == (f"refs/heads/{branch}",) and exported.repository == tmp_path / "out.git"
    for id in exported.ids:
        summary = json.loads(git(tmp_path / "out.git", "show", f"{branch}:{id[:2]}/{id[2:]}/metadata.json"))
        for path in summary["sessions"][0].values():
            git(tmp_path / "out.git", "cat-file", "-e", f"{branch}:{path.lstrip('/')}")
    message = git(tmp_path / "out.git", "log", "-1", "--format=%B", branch)
    assert message.startswith(f"Checkpoint: {exported.ids[-1]}\n")
    assert {"Entire-Session: our-session", "Entire-Strategy: import", "Entire-Agent: Codex"} <= set(
        message.splitlines()
    )


def test_exporting_again_adds_only_what_is_new(
    repository: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    two_turns(manager, repository)
    out = tmp_path / "out.git"
    first = export_entire(out, "our-session", layout="branch", manager=manager)
    tip = git(out, "rev-parse", "entire/checkpoints/v1")
    assert export_entire(out, "our-session", layout="branch", manager=manager) == first
    assert git(out, "rev-parse", "entire/checkpoints/v1") == tip
    manager.new_turn("our-session", "a third", [{"role": "user", "content": "a third"}])
    (repository / "a.txt").write_text("by hand\n")
    manager.ensure_checkpoint(repository)
    manager.end_turn()
    again = export_entire(out, "our-session", layout="branch", manager=manager)
    assert again.ids[:2] == first.ids and len(again.ids) == 3
    assert git(out, "rev-parse", "entire/checkpoints/v1^") == tip


def test_what_others_wrote_there_stays(repository: Path, manager: CheckpointManager, tmp_path: Path) -> None:
    out = tmp_path / "out.git"
    git(tmp_path, "init", "-q", "--bare", str(out))
    write_branch(out, {ID: checkpoint_files(ID)})
    two_turns(manager, repository)
    exported = export_entire(out, "our-session", layout="branch", manager=manager)
    assert {each.id for each in read_entire(out).checkpoints} == {ID, *exported.ids}


def test_a_repository_without_entire_that_is_worked_in_is_refused(
    repository: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    two_turns(manager, repository)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear\n")
    before = snapshot_dotgit(repository)
    for path in (repository, repository / ".git", tmp_path / "full"):
        with pytest.raises(BadArguments, match="bare"):
            export_entire(path, "our-session", manager=manager)
    git(tmp_path, "init", "-q", "--bare", "--object-format=sha256", str(tmp_path / "other.git"))
    with pytest.raises(BadArguments, match="SHA-1"):
        export_entire(tmp_path / "other.git", "our-session", manager=manager)
    assert snapshot_dotgit(repository) == before and [path.name for path in (tmp_path / "full").iterdir()] == [
        "letter.txt"
    ]


def test_agents_are_spelt_as_entire_does(repository: Path, manager: CheckpointManager, tmp_path: Path) -> None:
    spelt = {
        "claude": "Claude Code", "claude-code": "Claude Code", "gemini": "Gemini CLI", "gemini-cli": "Gemini CLI",
        "codex": "Codex", "cursor": "Cursor", "copilot": "Copilot CLI", "opencode": "OpenCode", "kiro": "kiro",
    }  # fmt: skip
    for number, agent in enumerate(spelt):
        (repository / "a.txt").write_text(f"{number}\n")
        manager.new_turn(f"session of {agent}", "do it", agent=agent)
        manager.ensure_checkpoint(repository)
        manager.end_turn()
        exported = export_entire(tmp_path / f"{number}.git", f"session of {agent}", manager=manager)
        (found,) = read_entire(exported.repository).checkpoints
        assert found.sessions[0].metadata["agent"] == spelt[agent]
        assert f"Entire-Agent: {spelt[agent]}" in git(exported.repository, "log", "-1", "--format=%B", found.ref)


def test_an_exported_checkpoint_is_marked_as_imported_and_names_the_model(
    repository: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    transcript = [
        {"type": "assistant", "message": {"role": "assistant", "model": "large-1", "content": "x"}},
        {"type": "user", "message": {"role": "user", "content": 'no "model" here'}},
    ]
    manager.new_turn("our-session", "do it", agent="claude")
    manager.ensure_checkpoint(repository)
    (repository / "a.txt").write_text("two\n")
    manager.end_turn(transcript)
    export_entire(tmp_path / "out.git", "our-session", manager=manager)
    (found,) = read_entire(tmp_path / "out.git").checkpoints
    (session,) = found.sessions
    head = git(repository, "rev-parse", "HEAD")
    assert found.metadata["imported"] is True and found.metadata["commit_sha"] == head
    assert session.metadata["kind"] == "imported" and session.metadata["commit_sha"] == head
    assert session.metadata["model"] == "large-1"
    manager.new_turn("quiet", "do it")
    manager.ensure_checkpoint(repository)
    manager.end_turn()
    export_entire(tmp_path / "quiet.git", "quiet", manager=manager)
    assert read_entire(tmp_path / "quiet.git").checkpoints[0].sessions[0].metadata["model"] == ""


@pytest.mark.parametrize("layout", ["branch", "refs"])
def test_a_repository_in_which_entire_was_used_can_be_written_to(
    repository: Path, manager: CheckpointManager, layout: str
) -> None:
    write_branch(repository, {ID: checkpoint_files(ID)})
    write_one_ref(repository, ULID, checkpoint_files(ULID))
    two_turns(manager, repository)
    tip, others = git(repository, "rev-parse", "entire/checkpoints/v1"), git(repository, "status", "--porcelain")
    exported = export_entire(repository, "our-session", layout=layout, manager=manager)
    record = read_entire(repository)
    assert {each.id for each in record.checkpoints} == {ID, ULID, *exported.ids} and record.problems == ()
    assert git(repository, "merge-base", "--is-ancestor", tip, "entire/checkpoints/v1") == ""
    assert (git(repository, "rev-parse", "entire/checkpoints/v1") == tip) is (layout == "refs")
    assert git(repository, "status", "--porcelain") == others
    assert git(repository, "branch", "--show-current") == "main"
    git(repository, "fsck", "--strict")


def test_the_branch_goes_on_from_where_it_was_fetched(repository: Path, manager: CheckpointManager) -> None:
    """Of several remotes, origin counts."""
    remote = "refs/remotes/origin/entire/checkpoints/v1"
    write_branch(repository, {ID: checkpoint_files(ID)}, remote)
    write_branch(repository, {OTHER: checkpoint_files(OTHER)}, remote.replace("origin", "fork"))
    two_turns(manager, repository)
    export_entire(repository, "our-session", layout="branch", manager=manager)
    assert git(repository, "rev-list", "--count", f"{remote}..entire/checkpoints/v1") == "2"
    assert git(repository, "rev-list", "--count", f"entire/checkpoints/v1..{remote}") == "0"


def test_a_branch_that_is_checked_out_is_left_alone(
    repository: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    write_branch(repository, {ID: checkpoint_files(ID)})
    two_turns(manager, repository)
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"), "entire/checkpoints/v1")
    with pytest.raises(BadArguments, match="checked out"):
        export_entire(repository, "our-session", layout="branch", manager=manager)
    assert export_entire(repository, "our-session", manager=manager).problems == ()


def test_no_hook_of_the_repository_is_run(repository: Path, manager: CheckpointManager, tmp_path: Path) -> None:
    write_one_ref(repository, ULID, checkpoint_files(ULID))
    hook = repository / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'hook-was-run'}\n")
    hook.chmod(0o755)
    two_turns(manager, repository)
    assert len(export_entire(repository, "our-session", manager=manager).ids) == 2
    assert not (tmp_path / "hook-was-run").exists()


@pytest.mark.parametrize("broken", ["refs", "branch", "none"])
def test_both_layouts_are_written_and_a_failure_in_one_does_not_block_the_other(
    repository: Path, manager: CheckpointManager, tmp_path: Path, broken: str
) -> None:
    two_turns(manager, repository)
    out = tmp_path / "out.git"
    git(tmp_path, "init", "-q", "--bare", str(out))
    heads = out / "refs" / "heads" / "entire" / "checkpoints"
    if broken == "branch":
        heads.mkdir(parents=True)
        (heads / "v1.lock").touch()  # another process is at it
    elif broken == "refs":
        (out / "refs" / "entire").write_text("in the way\n")
    exported = export_entire(out, "our-session", keep_going=True, manager=manager)
    assert len(exported.ids) == 2 and len(exported.refs) == {"none": 3, "branch": 2, "refs": 1}[broken]
    assert len(exported.problems) == (0 if broken == "none" else 2)
    assert all(broken in problem for problem in exported.problems)
    (heads / "v1.lock").unlink(missing_ok=True)
    layouts = {each.layout for each in read_entire(out).checkpoints}
    assert layouts == {"none": {"refs"}, "branch": {"refs"}, "refs": {"branch"}}[broken]
    if broken == "branch":
        again = export_entire(out, "our-session", keep_going=True, manager=manager)
        assert again.problems == () and again.ids == exported.ids and len(again.refs) == 3
    elif broken == "refs":
        with pytest.raises(GitFailed):
            export_entire(out, "our-session", manager=manager)


def test_an_unknown_session_or_layout_is_an_error(manager: CheckpointManager, tmp_path: Path) -> None:
    with pytest.raises(NoSuchSession):
        export_entire(tmp_path / "out.git", "unknown", manager=manager)
    with pytest.raises(BadArguments):
        export_entire(tmp_path / "out.git", "unknown", layout="tarball", manager=manager)
    assert not (tmp_path / "out.git").exists()


def test_what_was_deleted_there_is_not_written_again(
    repository: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    two_turns(manager, repository)
    out = tmp_path / "out.git"
    first, second = export_entire(out, "our-session", manager=manager).ids
    git(out, "update-ref", "-d", f"refs/entire/checkpoints/{first[-2:]}/{first}")
    (out / "entire-deleted-checkpoints.json").write_text(json.dumps({"checkpoint_ids": [first]}))
    again = export_entire(out, "our-session", keep_going=True, manager=manager)
    assert again.ids == (second,) and len(again.problems) == 1 and first in again.problems[0]
    assert first not in git(out, "for-each-ref") + git(out, "ls-tree", "-r", "-d", "entire/checkpoints/v1")
    (out / "entire-deleted-checkpoints.json").write_text("{")
    with pytest.raises(MalformedObject):
        export_entire(out, "our-session", manager=manager)


def test_a_turn_without_a_conversation_is_exported_without(
    repository: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    manager.new_turn("quiet", "just do it")
    manager.ensure_checkpoint(repository)
    manager.end_turn()
    manager.end_session("quiet")
    export_entire(tmp_path / "out.git", "quiet", manager=manager)
    source = EntireRepository(tmp_path / "out.git")
    (session,) = source.read().checkpoints[0].sessions
    assert source.transcript(session) is None and session.prompts == ("just do it",)


def test_a_long_transcript_is_exported_in_parts(
    repository: Path, manager: CheckpointManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entire, "_CHUNK", 100)
    ends = two_turns(manager, repository)
    exported = export_entire(tmp_path / "out.git", "our-session", manager=manager)
    source = EntireRepository(tmp_path / "out.git")
    last = next(each for each in source.read().checkpoints if each.id == exported.ids[-1]).sessions[0]
    transcript = source.transcript(last)
    assert len(last.chunks) > 1 and transcript is not None
    assert [json.loads(line) for line in transcript.splitlines()] == ends[-1]


def test_what_was_exported_can_be_attached(
    repository: Path, manager: CheckpointManager, tmp_path: Path, base: Path
) -> None:
    """There and back: into another store that has the checkpoints, but not the conversations."""
    two_turns(manager, repository)
    exported = export_entire(tmp_path / "out.git", "our-session", manager=manager)
    other = CheckpointManager(base=tmp_path / "other", fsync=False)
    taken = other.snapshot(repository, "theirs", session_id="our-session").checkpoint
    assert taken is not None
    git(repository, "fetch", "-q", str(tmp_path / "out.git"), "refs/entire/*:refs/entire/*")
    late = CheckpointManager(base=tmp_path / "other", fsync=False)
    report = attach_entire(repository, manager=late)
    assert [item.conversation.key for item in report.attached] == [f"entire-{id}-0" for id in exported.ids]
