"""Conversations in the databases of opencode, Goose and Hermes, in the tables that these agents make."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shadowsnap.store.conversations import ConversationContent, from_database, is_database, spoken_messages

OPENCODE = """
    CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);
    CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_created integer, data text);
"""
GOOSE = """
    CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT, role TEXT, content_json TEXT,
        created_timestamp INTEGER, timestamp TIMESTAMP, tokens INTEGER, metadata_json TEXT);
"""
HERMES = """
    CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT,
        timestamp REAL);
"""


def opencode(path: Path, content: list[tuple[str, str, int]]) -> None:
    db = sqlite3.connect(path)
    db.executescript(OPENCODE)
    for at, (role, text, second) in enumerate(content):
        message = (f"msg_{at:03}", "s1", second * 1000, json.dumps({"role": role}))
        db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", message)
        parts = [{"type": "step-start"}, {"type": "text", "text": text}]
        for number, part in enumerate(parts):
            row = (f"prt_{at:03}_{number}", f"msg_{at:03}", "s1", second * 1000, json.dumps(part))
            db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?)", row)
    db.commit()
    db.close()


def goose(path: Path, content: list[tuple[str, str, int]]) -> None:
    db = sqlite3.connect(path)
    db.executescript(GOOSE)
    for role, text, second in content:
        content = json.dumps([{"type": "text", "text": text}])
        db.execute(
            "INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES ('s1', ?, ?, ?)",
            (role, content, second),
        )
    db.commit()
    db.close()


def hermes(path: Path, content: list[tuple[str, str, int]]) -> None:
    db = sqlite3.connect(path)
    db.executescript(HERMES)
    for role, text, second in content:
        row = (role, text, second)
        db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s1', ?, ?, ?)", row)
    db.commit()
    db.close()


TALK = [("user", "add it", 10), ("assistant", "It's added.", 11), ("user", "now remove it", 20)]
AGENTS = {"opencode.db": opencode, "sessions.db": goose, "state.db": hermes}


@pytest.fixture(params=AGENTS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    AGENTS[request.param](path, TALK)
    return path


def texts(content: ConversationContent | str) -> list[tuple[str, str]]:
    assert isinstance(content, ConversationContent)
    rows = [json.loads(line) for line in content.data.splitlines()]
    return [(row["role"], row["content"][0]["text"]) for row in rows]


def test_a_session_is_read_up_to_a_moment(database: Path) -> None:
    assert is_database(str(database))
    assert texts(from_database(str(database), "s1", 15_000, None)) == [each[:2] for each in TALK[:2]]
    whole = from_database(str(database), "s1", None, None)
    assert texts(whole) == [each[:2] for each in TALK]
    assert isinstance(whole, ConversationContent)
    assert spoken_messages([json.loads(line) for line in whole.data.splitlines()]) == 3


def test_another_session_is_not_read(database: Path) -> None:
    assert texts(from_database(str(database), "s2", None, None)) == []


def test_reading_changes_nothing(database: Path) -> None:
    before = database.read_bytes()
    from_database(str(database), "s1", None, None)
    assert database.read_bytes() == before
    assert os.listdir(database.parent) == [database.name]


def test_what_cannot_be_read_has_a_reason(database: Path) -> None:
    assert from_database(str(database), "s1", None, 5) == "too-large"
    database.write_bytes(b"no database at all, but long enough to be looked at" * 50)
    assert from_database(str(database), "s1", None, None) == "unreadable"
    database.unlink()
    assert from_database(str(database), "s1", None, None) == "unreadable"
    os.mkfifo(database)
    assert from_database(str(database), "s1", None, None) == "unreadable"


def test_tables_of_another_version_are_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE message (id text)")
    assert from_database(str(path), "s1", None, None) == "unreadable"
