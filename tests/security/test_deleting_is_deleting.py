"""Deleting is deleting: after a clear, delete, prune or purge a search for the bytes finds nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine
from forking import run_program
from restoring import assert_sound, checkpoint, content_in, die, in_child, killed_at, listening

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchCheckpoint, NoSuchPath, NoSuchProject, PathRefused
from shadowsnap.store.projects import project_of

KEY = b"canary-" + b"0123456789abcdef" * 4
PROMPT = "canary: rewrite the parser of the treasury"

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a child to kill")


def traces(base: Path, *wanted: bytes) -> list[str]:
    """Where any of these bytes is below the base: in a file, in an object of the store, or in a name."""
    found = []
    for top, _, names in os.walk(base):
        for name in names:
            path = Path(top, name)
            data = path.read_bytes() + os.fsencode(path.relative_to(base))
            found += [str(path) for text in wanted if text in data]
    # Packs and loose objects are compressed: git unpacks every one of them, reachable or not.
    listed = subprocess.run(
        ["git", "--git-dir", base / "store", "cat-file", "--batch-all-objects", "--batch"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    return found + [f"an object with {text!r}" for text in wanted if text in listed]


def told_by_hooks(base: Path, project: Path, session: str) -> None:
    """A turn of an agent: a prompt, a tool, the end."""
    events: list[dict[str, object]] = [
        {"hook_event_name": "UserPromptSubmit", "prompt": PROMPT},
        {"hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": {"file_path": str(project / "a")}},
        {"hook_event_name": "PostToolUse", "tool_name": "Write", "tool_input": {"file_path": str(project / "a")}},
        {"hook_event_name": "Stop"},
        {"hook_event_name": "UserPromptSubmit", "prompt": PROMPT},
    ]
    for event in events:
        (project / "a").write_bytes(KEY + os.urandom(4).hex().encode())
        told = {"session_id": session, "cwd": str(project), **event}
        environment = {**os.environ, "SHADOWSNAP_HOME": str(base)}
        told_to = {"stdin": json.dumps(told).encode(), "env": environment, "cwd": project}
        done = run_program("hook", "claude-code", **told_to, check=True)
        assert done.stderr == b""


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    other = tmp_path / "project-2"
    other.mkdir()
    (other / "own").write_text("of the other\n")
    return other


# --- clear ------------------------------------------------------------------------------------------


def test_a_cleared_project_leaves_no_byte_anywhere(
    base: Path, project: Path, other: Path, manager: CheckpointManager
) -> None:
    told_by_hooks(base, project, "aaaa-1")
    manager.new_turn("bbbb-2", PROMPT, conversation=[{"role": "user", "content": PROMPT}])
    manager.ensure_checkpoint(project, "by a host")
    (project / "b").write_bytes(KEY)
    manager.end_turn()
    manager.pin(project, "last")
    manager.label(project, "last", "canary-label")
    manager.new_turn("cccc-3", "about the other project")
    manager.ensure_checkpoint(other, "of the other")
    (other / "own").write_text("changed\n")
    manager.end_turn()
    manager.list_checkpoints(project)  # makes the statistics
    assert manager.ensure_checkpoint(project / "a").status in ("refused", "failed")  # a line in the log
    wanted = [str(project).encode() + end for end in (b'"', b"/", b"\n", b"'")]
    wanted += [KEY, PROMPT.encode(), b"canary", project_of(project).id.encode()]
    assert len(traces(base, *wanted)) > 10

    report = manager.clear(project)

    locks = base / "store" / "locks" / f"{project_of(project).id}.lock"
    assert report.applied and report.pending_bytes == 0
    assert [each for each in traces(base, *wanted) if each != str(locks)] == []
    assert [path for path in base.rglob("*") if "aaaa-1" in path.name] == []
    with pytest.raises(NoSuchProject):
        manager.list_checkpoints(project)
    assert [each.id for each in manager.sessions()] == ["cccc-3"]
    assert manager.sessions()[0].turns[0].prompt == "about the other project"
    manager.restore(other, "last")
    assert (other / "own").read_text() == "of the other\n"
    assert manager.doctor().findings == ()


def test_of_a_session_in_two_projects_the_part_in_the_other_stays(
    base: Path, project: Path, other: Path, manager: CheckpointManager
) -> None:
    for turn, where in enumerate((project, other)):
        manager.new_turn("both", f"prompt {turn}")
        manager.ensure_checkpoint(where)
        (where / "new").write_text("written\n")
        manager.end_turn()
    manager.clear(project)
    (session,) = manager.sessions()
    assert [turn.prompt for turn in session.turns] == ["prompt 1"]
    assert [place.workdir for turn in session.turns for place in turn.places] == [str(other)]


def test_a_project_below_a_cleared_one_keeps_its_log(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    below = project / "below"
    below.mkdir()
    (below / "file").write_text("x\n")
    manager.ensure_checkpoint(below)
    manager.ensure_checkpoint(project)
    lines = [{"time": 1, "cwd": str(project / "src")}, {"time": 2, "cwd": str(below)}]
    (base / "hook.log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    manager.clear(project)
    assert (base / "hook.log.jsonl").read_text() == json.dumps(lines[1]) + "\n"


def test_what_was_set_aside_of_a_cleared_project_goes_too(
    base: Path, project: Path, other: Path, manager: CheckpointManager
) -> None:
    (project / "key").write_bytes(KEY)
    manager.ensure_checkpoint(project)
    manager.ensure_checkpoint(other)
    aside = base / "corrupt-20200101-000000"
    blob = git(base / "store", "hash-object", project / "key")
    for path, data in {
        f"store/objects/{blob[:2]}/{blob[2:]}": b"damaged",
        f"store/journal/{project_of(project).id}.json": b"{",
        f"store/journal/{project_of(other).id}.json": b"{",
        ".shadowsnap-restore-1/0": KEY,
        "sessions/s.json": json.dumps({"workdir": str(project)}).encode(),
    }.items():
        (aside / path).parent.mkdir(parents=True, exist_ok=True)
        (aside / path).write_bytes(data)
    manager.clear(project)
    assert [path.name for path in aside.rglob("*") if path.is_file()] == [f"{project_of(other).id}.json"]


def test_clearing_everything_leaves_no_prompt(base: Path, project: Path, manager: CheckpointManager) -> None:
    told_by_hooks(base, project, "aaaa-1")
    manager.clear_all()
    assert traces(base, KEY, PROMPT.encode(), str(project).encode()) == []


# --- delete and prune -------------------------------------------------------------------------------


def with_a_key(manager: CheckpointManager, project: Path) -> str:
    """The id of a checkpoint that alone holds a key, between two others."""
    checkpoint(manager, project)
    (project / "key").write_bytes(KEY)
    found = checkpoint(manager, project)
    (project / "key").unlink()
    checkpoint(manager, project)
    return found.id


def test_what_is_deleted_now_is_gone_now(base: Path, project: Path, manager: CheckpointManager) -> None:
    manager.delete(project, with_a_key(manager, project), now=True)
    assert traces(base, KEY) == []
    assert len(manager.list_checkpoints(project)) == 2
    assert_sound(base, project)


def test_the_newest_can_be_deleted_now_too(base: Path, project: Path, manager: CheckpointManager) -> None:
    """The stat cache builds on it, and would keep its objects."""
    checkpoint(manager, project)
    (project / "key").write_bytes(KEY)
    newest = checkpoint(manager, project)
    manager.delete(project, newest.id, now=True)
    (project / "key").unlink()
    assert traces(base, KEY) == []
    again = checkpoint(CheckpointManager(base=base, fsync=False), project)
    assert again.tree == manager.list_checkpoints(project)[-1].tree


def test_an_undo_does_not_keep_what_was_deleted(base: Path, project: Path, manager: CheckpointManager) -> None:
    first = checkpoint(manager, project)
    (project / "key").write_bytes(KEY)
    undo_id = manager.restore(project, first.id).undo_id
    assert undo_id is not None and not (project / "key").exists()
    manager.delete(project, undo_id, now=True)
    assert traces(base, KEY) == []
    with pytest.raises(NoSuchCheckpoint):
        manager.undo(project)


def test_a_prune_reclaims_what_no_checkpoint_holds(base: Path, project: Path, manager: CheckpointManager) -> None:
    (project / "key").write_bytes(KEY + os.urandom(50_000))
    checkpoint(manager, project)
    (project / "key").unlink()
    for number in range(3):
        (project / "a").write_text(f"{number}\n")
        checkpoint(manager, project)
    result = manager.prune(max_snapshots=2)
    assert len(result.dropped) == 2 and result.bytes_freed > 40_000
    assert traces(base, KEY) == []


def test_a_prune_reclaims_what_was_deleted_before(base: Path, project: Path, manager: CheckpointManager) -> None:
    manager.delete(project, with_a_key(manager, project))
    assert traces(base, KEY) != []
    manager.prune()
    assert traces(base, KEY) == []
    packs = sorted((base / "store" / "objects" / "pack").iterdir())
    manager.prune()  # nothing is left over, so nothing is repacked
    assert sorted((base / "store" / "objects" / "pack").iterdir()) == packs


def test_delete_now_on_the_command_line_says_what_was_freed(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(project, base, monkeypatch, capsys)
    cli.snap()
    (project / "key").write_bytes(KEY + os.urandom(50_000))
    key = cli.snap()
    (project / "key").unlink()
    cli.snap()
    answer = cli.json("delete", key, "--now", "--yes")
    assert answer["complete"] and answer["bytes_freed"] > 40_000
    assert traces(base, KEY) == []


# --- purge ------------------------------------------------------------------------------------------


class Leaked:
    """A project with a key in two of its three checkpoints, as a file of a directory that holds nothing else."""

    def __init__(self, base: Path, project: Path) -> None:
        self.base, self.project = base, project
        self.before = checkpoint(self.manager, project)
        (project / "conf").mkdir(mode=0o750)
        (project / "conf" / "key").write_bytes(KEY)
        (project / "conf" / "key").chmod(0o600)
        self.first = checkpoint(self.manager, project)
        (project / "src" / "main.py").write_text("print('changed')\n")
        self.second = checkpoint(self.manager, project)

    @property
    def manager(self) -> CheckpointManager:
        return CheckpointManager(base=self.base, fsync=False, background_upkeep=False)

    def purge(self) -> None:
        self.manager.purge(self.project, ["conf/key"])

    def without_key(self) -> dict[bytes, object]:
        return {path: entry for path, entry in manifest(self.project).items() if path != b"conf/key"}


@pytest.fixture
def leaked(base: Path, project: Path) -> Leaked:
    return Leaked(base, project)


def test_the_plan_of_a_purge_changes_nothing(leaked: Leaked) -> None:
    before = manifest(leaked.base)
    plan = leaked.manager.purge(leaked.project, "conf/key", dry_run=True)
    assert (plan.applied, plan.files, plan.checkpoints) == (
        False,
        ("conf/key",),
        (leaked.first.id, leaked.second.id),
    )
    assert plan.bytes > 0 and any("still on disk" in note for note in plan.notes)
    assert manifest(leaked.base) == before


def test_a_purged_file_is_in_no_byte_of_the_store(leaked: Leaked) -> None:
    assert traces(leaked.base, KEY) != []
    result = leaked.manager.purge(leaked.project, ["conf/key"])
    assert result.applied and result.reclaimed and result.contents_left == 0 and result.error is None
    assert traces(leaked.base, KEY) == []
    assert_sound(leaked.base, leaked.project)
    assert leaked.manager.doctor().findings == ()


def test_a_purged_file_that_was_packed_and_deltified_is_gone_too(leaked: Leaked) -> None:
    for number in range(3):
        (leaked.project / "conf" / "key").write_bytes(KEY * 200 + str(number).encode())
        checkpoint(leaked.manager, leaked.project)
    git(leaked.base / "store", "repack", "-q", "-a", "-d", "-f")
    leaked.purge()
    assert traces(leaked.base, KEY) == []


def test_old_ids_go_on_answering_for_the_rest(leaked: Leaked) -> None:
    result = leaked.manager.purge(leaked.project, ["conf/key"])
    assert set(result.ids) == {leaked.first.id, leaked.second.id}
    for old in (leaked.first, leaked.second):
        for ref in (old.id, old.short_id, old.id[:12], old.id.upper()):
            found = leaked.manager.get(leaked.project, ref)
            assert found.id == result.ids[old.id]
        assert (found.created_at, found.reason, found.turn) == (old.created_at, old.reason, old.turn)
        assert found.metadata["purged"] == ["conf/key"]
        assert [(item.path, item.why) for item in found.skipped] == [("conf/key", "purged")]
    assert leaked.manager.get(leaked.project, leaked.before.id).id == leaked.before.id
    assert "purged" in (leaked.base / "log.jsonl").read_text()
    assert leaked.manager.status().failures == ()
    with pytest.raises(NoSuchCheckpoint):
        leaked.manager.get(leaked.project, leaked.first.id[:39] + ("0" if leaked.first.id[39] != "0" else "1"))


def test_a_restore_of_what_was_purged_from_keeps_what_is_on_disk(leaked: Leaked) -> None:
    leaked.purge()
    (leaked.project / "conf" / "key").write_bytes(b"another key\n")
    (leaked.project / "README.md").write_text("changed since\n")
    result = leaked.manager.restore(leaked.project, leaked.first.id)
    assert (leaked.project / "conf" / "key").read_bytes() == b"another key\n"
    assert [(kept.path, kept.why) for kept in result.kept] == [("conf/key", "purged at the checkpoint")]
    assert (leaked.project / "README.md").read_text() == "# A project\n"


def test_the_directory_of_a_purged_file_comes_back_with_its_bits(leaked: Leaked) -> None:
    picture = leaked.without_key()
    leaked.purge()
    (leaked.project / "conf" / "key").unlink()
    (leaked.project / "conf").rmdir()
    leaked.manager.restore(leaked.project, leaked.second.id)
    assert manifest(leaked.project) == picture


def test_a_whole_directory_can_be_purged(leaked: Leaked) -> None:
    (leaked.project / "conf" / "more").write_bytes(KEY + b"more")
    checkpoint(leaked.manager, leaked.project)
    result = leaked.manager.purge(leaked.project, "conf/")
    assert result.files == ("conf/key", "conf/more") and len(result.checkpoints) == 3
    assert traces(leaked.base, KEY) == []
    kept = leaked.manager.restore(leaked.project, leaked.first.id).kept
    assert ("conf/", "purged at the checkpoint") in [(each.path, each.why) for each in kept]
    assert (leaked.project / "conf" / "more").exists()


def test_two_purges_lead_the_oldest_ids_to_the_newest(leaked: Leaked) -> None:
    leaked.purge()
    leaked.manager.purge(leaked.project, "data.bin")
    found = leaked.manager.get(leaked.project, leaked.first.id)
    assert found.metadata["purged"] == ["conf/key", "data.bin"]
    assert len(leaked.manager.list_checkpoints(leaked.project)) == 3


def test_pins_labels_and_conversations_stay_with_the_checkpoint(leaked: Leaked) -> None:
    manager = leaked.manager
    manager.new_turn("talk", "a prompt", conversation=[{"role": "user", "content": "hello"}])
    (leaked.project / "README.md").write_text("with a conversation\n")
    taken = manager.ensure_checkpoint(leaked.project).checkpoint
    assert taken is not None
    manager.end_turn()
    manager.pin(leaked.project, leaked.first.id)
    manager.label(leaked.project, leaked.second.id, "before the leak")
    result = manager.purge(leaked.project, "conf/key")
    assert manager.get(leaked.project, leaked.first.id).pinned
    assert manager.get(leaked.project, "before the leak").id == result.ids[leaked.second.id]
    said = manager.restore(leaked.project, taken.id, conversation=True, files=False).conversation
    assert said.data == [{"role": "user", "content": "hello"}]
    (session,) = manager.sessions()
    assert session.turns[0].conversation == "kept"
    assert [place.before for place in session.turns[0].places] == [result.ids[taken.id]]


def test_undo_and_redo_go_on_after_a_purge(leaked: Leaked) -> None:
    now = leaked.without_key()
    leaked.manager.restore(leaked.project, leaked.before.id)
    before = manifest(leaked.project)
    leaked.manager.purge(leaked.project, "conf/key")
    assert traces(leaked.base, KEY) == []
    leaked.manager.undo(leaked.project)
    assert manifest(leaked.project) == now
    leaked.manager.redo(leaked.project)
    assert manifest(leaked.project) == before


def test_a_turn_can_be_reverted_after_a_purge(base: Path, project: Path, manager: CheckpointManager) -> None:
    (project / "key").write_bytes(KEY)
    manager.new_turn("s", "work")
    taken = manager.ensure_checkpoint(project).checkpoint
    (project / "README.md").write_text("by the agent\n")
    manager.end_turn()
    manager.purge(project, "key")
    assert taken is not None and taken.turn is not None
    manager.revert(project, turn=taken.turn)
    assert (project / "README.md").read_text() == "# A project\n"
    assert (project / "key").read_bytes() == KEY


def test_what_another_project_holds_too_stays_there(leaked: Leaked, other: Path) -> None:
    (other / "copy").write_bytes(KEY)
    taken = checkpoint(leaked.manager, other)
    plan = leaked.manager.purge(leaked.project, "conf/key", dry_run=True)
    assert plan.bytes == 0 and any(str(other) in note for note in plan.notes)
    result = leaked.manager.purge(leaked.project, "conf/key")
    assert result.reclaimed and result.contents_left == 1 and any(str(other) in note for note in result.notes)
    assert content_in(leaked.base, taken.id, "copy").encode() == KEY
    assert not any(
        "key" in leaked.manager.files(leaked.project, each.id) for each in (leaked.first, leaked.second)
    )
    leaked.manager.purge(other, "copy")
    assert traces(leaked.base, KEY) == []


def test_a_copy_in_the_same_project_is_told_of(leaked: Leaked) -> None:
    (leaked.project / "copy").write_bytes(KEY)
    checkpoint(leaked.manager, leaked.project)
    result = leaked.manager.purge(leaked.project, "conf/key")
    assert result.contents_left == 1 and any("also at copy" in note for note in result.notes)
    leaked.manager.purge(leaked.project, "copy")
    assert traces(leaked.base, KEY) == []


def test_what_was_set_aside_or_left_over_is_searched_too(leaked: Leaked) -> None:
    store = leaked.base / "store"
    blob = git(store, "hash-object", leaked.project / "conf" / "key")
    aside = leaked.base / "corrupt-20200101-000000"
    for path, data in {
        f"store/objects/{blob[:2]}/{blob[2:]}": KEY, "staging/0": KEY, "staging/1": b"something else",
    }.items():  # fmt: skip
        (aside / path).parent.mkdir(parents=True, exist_ok=True)
        (aside / path).write_bytes(data)
    (store / "scratch-1-x").mkdir()
    (store / "scratch-1-x" / "tmp").write_bytes(KEY)
    (store / "objects" / "aa").mkdir(exist_ok=True)
    (store / "objects" / "aa" / "tmp_obj_1").write_bytes(KEY)
    leaked.purge()
    assert traces(leaked.base, KEY) == []
    assert (aside / "staging" / "1").exists()


def test_what_no_checkpoint_holds_cannot_be_purged(leaked: Leaked) -> None:
    for path in ("nowhere", "conf/key/below", "conf/ke"):
        with pytest.raises(NoSuchPath) as caught:
            leaked.manager.purge(leaked.project, path)
        assert caught.value.exit_code == 3
    for path in (".", "..", "../other", "", str(leaked.base)):
        with pytest.raises(PathRefused):
            leaked.manager.purge(leaked.project, path)
    leaked.purge()
    (leaked.project / "conf" / "key").unlink()
    with pytest.raises(NoSuchPath):
        leaked.purge()


def test_a_path_below_what_is_a_link_now_can_be_purged(leaked: Leaked, tmp_path: Path) -> None:
    (leaked.project / "conf").rename(tmp_path / "moved")
    (leaked.project / "conf").symlink_to(tmp_path / "moved")
    leaked.manager.purge(leaked.project, str(leaked.project / "conf" / "key"))
    assert traces(leaked.base, KEY) == []
    assert (tmp_path / "moved" / "key").read_bytes() == KEY


def test_the_next_snapshot_reads_every_file_again(leaked: Leaked) -> None:
    leaked.purge()
    (leaked.project / "conf" / "key").rename(leaked.project / "key")
    again = checkpoint(leaked.manager, leaked.project)
    assert content_in(leaked.base, again.id, "key").encode() == KEY
    assert leaked.manager.doctor().findings == ()


def test_an_ignored_file_that_a_tool_had_named_is_not_captured_again(leaked: Leaked) -> None:
    (leaked.project / ".gitignore").write_text("*.secretive\n")
    for name in ("one.secretive", "two.secretive"):
        (leaked.project / name).write_bytes(KEY + name.encode())
    checkpoint(leaked.manager, leaked.project, leaked.project / "one.secretive", leaked.project / "two.secretive")
    leaked.manager.purge(leaked.project, ["one.secretive"])
    (leaked.project / "README.md").write_text("changed since\n")
    newest = checkpoint(leaked.manager, leaked.project)
    files = leaked.manager.files(leaked.project, newest.id)
    assert "two.secretive" in files and "one.secretive" not in files


def test_after_the_directory_is_gone_it_can_still_be_purged(leaked: Leaked, tmp_path: Path) -> None:
    leaked.project.rename(tmp_path / "elsewhere")
    leaked.purge()
    assert traces(leaked.base, KEY) == []


# --- kill -9 ----------------------------------------------------------------------------------------


@needs_fork
def test_a_purge_killed_at_any_step_loses_nothing_and_can_be_finished(tmp_path: Path) -> None:
    def fresh(number: int) -> Leaked:
        where = tmp_path / str(number)
        project = where / "project"
        (project / "src").mkdir(parents=True)
        (project / "src" / "main.py").write_text("print('hello')\n")
        leaked = Leaked(where / "base", project)
        leaked.manager.pin(project, leaked.first.id)
        leaked.manager.label(project, leaked.second.id, "named")
        leaked.manager.restore(project, leaked.first.id)
        return leaked

    passed: list[str] = []
    with listening(passed.append):
        fresh(0).purge()
    ours = [name for name in passed if name.startswith("purge:")]
    assert set(ours) == {
        "purge:begun", "purge:recorded-one", "purge:noted", "purge:led", "purge:records", "purge:dropped",
        "purge:reclaimed",
    }  # fmt: skip
    points = [(name, which) for name in dict.fromkeys(ours) for which in range(ours.count(name))]
    for number, (name, which) in enumerate(points, 1):
        leaked = fresh(number)
        assert killed_at(name, which, leaked.purge), name
        lists_each_once(leaked, f"{name} {which}")
        can_be_finished(leaked, f"{name} {which}")


def lists_each_once(leaked: Leaked, at: str) -> None:
    """The first call after it finishes what it began: it never shows a checkpoint twice, nor the key."""
    assert leaked.manager.status().checkpoints == 3, at
    found = leaked.manager.list_checkpoints(leaked.project)
    assert len(found) == 3 and len({each.created_at for each in found}) == 3, at
    files = [leaked.manager.files(leaked.project, each.id) for each in found]
    assert not any("conf/key" in each for each in files), at
    assert [each.id for each in leaked.manager.list_checkpoints(leaked.project)] == [each.id for each in found], at


def can_be_finished(leaked: Leaked, at: str) -> None:
    for old, text in ((leaked.first, "print('hello')"), (leaked.second, "print('changed')")):
        found = leaked.manager.get(leaked.project, old.id)
        assert content_in(leaked.base, found.id, "src/main.py") == text, at
    assert leaked.manager.get(leaked.project, leaked.first.id).pinned, at
    (leaked.project / "conf" / "key").unlink()
    try:
        leaked.purge()
    except NoSuchPath:
        assert traces(leaked.base, KEY) == [], at
    assert traces(leaked.base, KEY) == [], at
    assert len(leaked.manager.list_checkpoints(leaked.project)) == 3, at
    assert leaked.manager.get(leaked.project, "named").label == "named", at
    assert leaked.manager.get(leaked.project, leaked.first.id).pinned, at
    leaked.manager.undo(leaked.project)
    assert (leaked.project / "src" / "main.py").read_text() == "print('changed')\n", at
    assert_sound(leaked.base, leaked.project)
    assert leaked.manager.doctor().findings == (), at


@needs_fork
def test_a_restore_that_died_is_finished_before_a_purge(leaked: Leaked) -> None:
    def restore() -> None:
        with listening(lambda name: die() if name == "restore:applying" else None):
            leaked.manager.restore(leaked.project, leaked.before.id)

    assert in_child(restore) == -9
    leaked.purge()
    assert not (leaked.project / "conf").exists()
    assert traces(leaked.base, KEY) == []


# --- the command line -------------------------------------------------------------------------------


@pytest.fixture
def cli(leaked: Leaked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(leaked.project, leaked.base, monkeypatch, capsys)


def test_a_purge_asks_first_and_tells_what_it_did(leaked: Leaked, cli: CommandLine) -> None:
    assert "conf/key" in cli("purge", "conf/key", "--dry-run").out
    asked = cli("purge", "conf/key", code=4)
    assert "2 checkpoints would be changed" in asked.err
    assert traces(leaked.base, KEY) != []
    done = cli("purge", "conf/key", "--yes")
    assert "purged 1 file from 2 checkpoints" in done.out and "none of it is left" in done.out
    assert "still on disk" in done.err
    assert traces(leaked.base, KEY) == []
    assert "conf/key (purged)" in cli("show", leaked.first.id).out
    assert cli("purge", "conf/key", "--yes", code=3).err.startswith("error: no checkpoint of")
    assert "at least one path" in cli("purge", code=2).err


def test_a_purge_as_json(leaked: Leaked, cli: CommandLine) -> None:
    plan = cli.json("purge", "--dry-run", "conf/key")
    assert (plan["applied"], plan["files"], len(plan["checkpoint_ids"])) == (False, ["conf/key"], 2)
    before = cli.json("status", "--store")["store_bytes"]
    done = cli.json("purge", "--yes", "--", "conf/key")
    assert done["bytes_freed"] == max(0, before - cli.json("status", "--store")["store_bytes"])
    assert done["applied"] and done["reclaimed"] and len(done["ids"]) == 2 and done["bytes_freed"] >= 0
