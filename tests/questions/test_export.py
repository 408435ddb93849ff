"""export: Agent Trace 0.1 records and git-ai 3.0.0 notes, checked against the published formats."""

from __future__ import annotations

import hashlib
import json
import random
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from stories import Story, ask, run_command

from helpers import git

# --- the published formats --------------------------------------------------------------------------------


def check_record(record: dict[str, Any]) -> None:
    """The rules of https://agent-trace.dev/schemas/v1/trace-record.json."""
    assert {"version", "id", "timestamp", "files"} <= record.keys()
    assert record.keys() <= {"version", "id", "timestamp", "vcs", "tool", "files", "metadata"}
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", record["version"]) and record["version"].startswith("0.1")
    assert str(uuid.UUID(record["id"])) == record["id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["timestamp"])
    assert datetime.fromisoformat(record["timestamp"])
    if "vcs" in record:
        assert record["vcs"]["type"] == "git" and re.fullmatch("[0-9a-f]{40}", record["vcs"]["revision"])
    assert all(isinstance(record["tool"][name], str) for name in ("name", "version"))
    for file in record["files"]:
        assert isinstance(file["path"], str) and not file["path"].startswith("/")
        for conversation in file["conversations"]:
            assert conversation["contributor"]["type"] in ("human", "ai", "mixed", "unknown")
            for each in conversation["ranges"]:
                assert 1 <= each["start_line"] <= each["end_line"]
                assert isinstance(each["content_hash"], str)


_KEY = re.compile(r"s_[0-9a-f]{14}::t_[0-9a-f]{14}")


def parse_note(text: str, commit: str) -> dict[str, dict[int, dict[str, Any]]]:
    """A note by section 1 of the standard: for each file and line, the record of its session."""
    attestations, divider, metadata = text.partition("---\n")
    assert divider and (not attestations or attestations.endswith("\n"))
    known = json.loads(metadata)
    assert known["schema_version"] == "authorship/3.0.0"
    assert known["base_commit_sha"] == commit
    assert known["prompts"] == {}
    for name, session in known["sessions"].items():
        agent = session["agent_id"]
        assert agent.keys() == {"tool", "id", "model"} and all(isinstance(each, str) for each in agent.values())
        assert not {"messages", "messages_url", "total_additions"} & session.keys()
        digest = hashlib.sha256(f"{agent['tool']}:{agent['id']}".encode()).hexdigest()
        assert name == f"s_{digest[:14]}"
    found: dict[str, dict[int, dict[str, Any]]] = {}
    lines: dict[int, dict[str, Any]] = {}
    for row in attestations.splitlines():
        if not row.startswith(" "):
            quoted = any(char in row for char in " \t")
            assert quoted == (row[0] == row[-1] == '"')
            lines = found.setdefault(row.strip('"'), {})
            continue
        assert row.startswith("  ") and row[2] != " "
        key, ranges = row[2:].split(" ")
        assert _KEY.fullmatch(key)
        last = 0
        for part in ranges.split(","):
            first, _, end = part.partition("-")
            assert last < int(first) <= int(end or first)
            last = int(end or first)
            for number in range(int(first), last + 1):
                assert number not in lines
                lines[number] = known["sessions"][key.partition("::")[0]]["agent_id"]
    assert all(found.values())
    return found


# --- a repository with commits between turns --------------------------------------------------------------


@pytest.fixture
def story(tmp_path: Path, base: Path) -> Story:
    project = tmp_path / "work"
    project.mkdir()
    git(project, "init", "-q")
    (project / "a.txt").write_text("one\ntwo\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    return Story(project, base)


def commit(story: Story) -> str:
    git(story.project, "add", ".")
    git(story.project, "commit", "-q", "-m", "more")
    return git(story.project, "rev-parse", "HEAD")


def notes(story: Story) -> dict[str, str]:
    rows = git(story.project, "notes", "--ref=ai", "list").splitlines()
    return {row.split()[1]: git(story.project, "cat-file", "blob", row.split()[0]) + "\n" for row in rows}


def test_trace_records_have_the_lines_of_each_turn(story: Story, tmp_path: Path) -> None:
    path, head = story.project / "a.txt", git(story.project, "rev-parse", "HEAD")
    story.begin("s1")
    path.write_text("zero\none\ntwo\nthree\nfour\n")
    (story.project / "sub").mkdir()
    (story.project / "sub" / "new.txt").write_text("new\n")
    story.end("s1")
    path.write_text("zero\none\nmine\ntwo\nthree\nfour\n")
    story.begin("s2")
    (story.project / "sub" / "new.txt").unlink()
    story.end("s2")
    story.begin("s2")
    path.write_text("one\nmine\ntwo\nthree\nfive")
    story.end("s2")
    answer = ask(story.project, story.base, "export", "--agent-trace", "-o", str(tmp_path / "trace.jsonl"))
    assert answer["record_count"] == 2
    records = [json.loads(row) for row in (tmp_path / "trace.jsonl").read_text().splitlines()]
    for record in records:
        check_record(record)
    ranges = [
        {file["path"]: [(each["start_line"], each["end_line"]) for each in file["conversations"][0]["ranges"]]
         for file in record["files"]}
        for record in records
    ]  # fmt: skip
    assert ranges == [{"a.txt": [(1, 1), (4, 5)], "sub/new.txt": [(1, 1)]}, {"a.txt": [(5, 5)]}]
    about = records[0]["metadata"]["dev.shadowsnap"]
    assert (about["turn"], about["agent"], about["session"]) == (1, "claude", "s1")
    assert records[0]["vcs"] == {"type": "git", "revision": head}
    hashes = [each["content_hash"] for each in records[0]["files"][0]["conversations"][0]["ranges"]]
    assert hashes[1] == "sha256:" + hashlib.sha256(b"three\nfour\n").hexdigest()
    again = run_command(story.project, story.base, "export", "--agent-trace").stdout
    assert again == (tmp_path / "trace.jsonl").read_bytes()


@pytest.mark.parametrize("seed", range(4))
def test_trace_records_of_random_histories(story: Story, seed: int) -> None:
    chance = random.Random(seed)
    states: dict[int, dict[str, list[str]]] = {}
    for _ in range(8):
        name = chance.choice(("a.txt", "b.txt"))
        if chance.random() < 0.4:
            story.edit(name, ("person", None), chance)
            continue
        _, number = story.turn(chance.choice(("s1", "s2")), name, chance)
        assert number is not None
        files = story.project.glob("*.txt")
        states[number] = {path.name: path.read_text().splitlines() for path in files}
    records = ask(story.project, story.base, "export", "--agent-trace")["records"]
    found: dict[int, dict[str, set[int]]] = {}
    for record in records:
        check_record(record)
        lines = found.setdefault(record["metadata"]["dev.shadowsnap"]["turn"], {})
        for file in record["files"]:
            for each in file["conversations"][0]["ranges"]:
                lines.setdefault(file["path"], set()).update(range(each["start_line"], each["end_line"] + 1))
    truth: dict[int, dict[str, set[int]]] = {}
    for number, texts in states.items():
        for name, rows in texts.items():
            own = {at for at, text in enumerate(rows, 1) if story.authors.get(text) == ("turn", number)}
            if own:
                truth.setdefault(number, {})[name] = own
    assert found == truth


def test_notes_say_which_lines_of_a_commit_came_from_which_session(story: Story) -> None:
    path = story.project / "a.txt"
    story.begin("s1")
    path.write_text("zero\none\ntwo\nthree\n")
    (story.project / "a file.txt").write_text("new\n")
    story.end("s1")
    path.write_text("zero\none\nmine\ntwo\nthree\n")
    first = commit(story)
    story.begin("s2")
    path.write_text("zero\none\nmine\ntwo\nthree\nfour\nfive\n")
    story.end("s2")
    path.write_text("zero\none\nmine\ntwo\nthree\nfour\nfive\nsix\n")  # after the last state that is known
    second = commit(story)
    path.write_text("by hand\n")
    third = commit(story)
    answer = ask(story.project, story.base, "export", "--git-notes")
    assert [(note["commit"], note["lines"], note["status"]) for note in answer["git_notes"]] == [
        (second, 2, "written"),
        (first, 3, "written"),
    ]
    texts = notes(story)
    assert texts.keys() == {first, second} and third not in texts
    parsed = parse_note(texts[first], first)
    agent = {"tool": "claude", "id": "s1", "model": "unknown"}
    assert parsed == {"a.txt": {1: agent, 5: agent}, "a file.txt": {1: agent}}
    assert parse_note(texts[second], second) == {"a.txt": dict.fromkeys((6, 7), {**agent, "id": "s2"})}


def test_notes_of_others_stay_and_ours_are_written_once(story: Story) -> None:
    story.begin("s1")
    (story.project / "a.txt").write_text("one\ntwo\nthree\n")
    story.end("s1")
    first = commit(story)
    story.begin("s1")
    (story.project / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    story.end("s1")
    second = commit(story)
    foreign = 'a.txt\n  abcd1234abcd1234 1\n---\n{"schema_version": "authorship/3.0.0", "prompts": {}}\n'
    git(story.project, "notes", "--ref=ai", "add", "-F", "-", first, stdin=foreign.encode())
    dry = ask(story.project, story.base, "export", "--git-notes", "--dry-run")["git_notes"]
    assert [note["status"] for note in dry] == ["planned", "foreign"]
    assert notes(story).keys() == {first}
    assert [note["status"] for note in ask(story.project, story.base, "export", "--git-notes")["git_notes"]] == [
        "written",
        "foreign",
    ]
    head = git(story.project, "rev-parse", "refs/notes/ai")
    again = ask(story.project, story.base, "export", "--git-notes")["git_notes"]
    assert [note["status"] for note in again] == ["unchanged", "foreign"]
    assert git(story.project, "rev-parse", "refs/notes/ai") == head
    assert notes(story)[first].strip() == foreign.strip() and second in notes(story)
    assert git(story.project, "for-each-ref", "--format=%(refname)").splitlines() == [
        "refs/heads/main",
        "refs/notes/ai",
    ]


def test_a_project_below_the_top_of_a_repository_is_named_from_there(tmp_path: Path, base: Path) -> None:
    git(tmp_path, "init", "-q", "top")
    project = tmp_path / "top" / "pkg"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    story = Story(project, base)
    manager = story.manager("s1")
    manager.new_turn("s1", prompt="p", agent="codex")
    manager.ensure_checkpoint(project)
    (project / "a.txt").write_text("one\ntwo\n")
    manager.end_turn()
    done = commit(story)
    (record,) = ask(project, base, "export", "--agent-trace")["records"]
    assert [file["path"] for file in record["files"]] == ["pkg/a.txt"]
    ask(project, base, "export", "--git-notes")
    assert list(parse_note(notes(story)[done], done)) == ["pkg/a.txt"]


def test_usage_is_explained(story: Story, tmp_path: Path) -> None:
    project, base = story.project, story.base
    assert ask(project, base, "export", "--git-notes", code=3)["error"]["type"] == "NoSuchProject"
    story.begin("s1")
    for words in ((), ("--git-notes", "--agent-trace"), ("--git-notes", "-o", "x"), ("--agent-trace", "-n")):
        assert ask(project, base, "export", *words, code=2)["error"]["type"] == "WrongUsage"
    (tmp_path / "plain").mkdir()
    story.manager().snapshot(tmp_path / "plain")
    error = ask(tmp_path / "plain", base, "export", "--git-notes", code=2)["error"]
    assert "is not in a git repository" in error["message"]
    text = run_command(project, base, "export", "--git-notes").stdout.decode()
    assert text == "no commit holds lines of a turn\n"
