"""Conversations that are kept with checkpoints, each under a ref of its own beside the checkpoint's.

The ref leads to a tree with one folder per session, as two sessions may go on from the same files:

    refs/shadowsnap-meta/<project>/<ms>-<hash12>
        <session>/about       what it is, how many messages, its hash
        <session>/0000/00     the first piece; 64 of them in a folder

Pieces and full folders are shared by all conversations that begin alike, so one more turn costs
what was said in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject
from shadowsnap.files import READ_FLAGS, OutsideFolder, open_below, parse_json
from shadowsnap.git.objects import LooseObjects, object_id
from shadowsnap.git.reading import ObjectReader, object_sizes, read_many
from shadowsnap.git.refs import create_ref, read_ref, ref_exists, set_ref
from shadowsnap.git.trees import DIRECTORY, REGULAR, Leaf, format_tree, parse_tree
from shadowsnap.model import Conversation
from shadowsnap.store.checkpoints import attachment_of
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project
from shadowsnap.store.redaction import redact

FORMAT = 1
NO_SESSION = "-"
_IN_FOLDER = 64
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
# Windows opens a device under these names, whatever the ending.
_DEVICES = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
_ABOUT = b"about"
_MOST_UNTRUSTED = 256 << 20
"""A transcript whose path came from outside is read up to this size, whatever the settings say."""

MESSAGES, VALUE, TEXT = "messages", "value", "text"


@dataclass(frozen=True)
class ConversationContent:
    """A conversation as bytes, as it was handed over."""

    data: bytes
    form: str
    """`messages` (one JSON value per line), `value` (one JSON value) or `text`."""
    count: int | None = None
    """How many messages or rows, if known."""

    @property
    def spoken(self) -> int | None:
        """How many messages of people and agents, if known."""
        found = spoken_messages(_parsed(self.data, self.form))
        return self.count if found is None else found


def session_key(session_id: str) -> str:
    """A name for the folder of a session, different for every id. Most ids serve as the name. Ids with
    capitals are hashed, because some file systems ignore case."""
    if _PLAIN.fullmatch(session_id) and not _DEVICES.fullmatch(session_id):
        return session_id
    return f"x.{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def from_json(conversation: Any) -> ConversationContent:
    """JSON data as text; a list has one line for each message, so that it grows by lines."""
    if isinstance(conversation, (list, tuple)):
        lines = [_line(message) for message in conversation]
        return ConversationContent(b"".join(lines), MESSAGES, len(lines))
    inner = conversation.get("messages") if isinstance(conversation, dict) else None
    return ConversationContent(_line(conversation), VALUE, len(inner) if isinstance(inner, list) else None)


_PERSON = ("user", "human", "person")
_AGENT = ("assistant", "agent", "ai", "model", "bot", "gemini")


def spoken_messages(rows: Any) -> int | None:
    """How many messages of people and agents there are in a list of messages or the rows of a transcript: not what
    tools answered, nor the records that an agent keeps between the messages. A row of no known shape counts if no
    row has a known one; None if this is no list."""
    if isinstance(rows, dict):
        rows = rows.get("messages")
    if not isinstance(rows, list):
        return None
    known: set[Any] = set()
    seen = False
    for at, row in enumerate(rows):
        role, message = _role(row), message_of(row)
        if not role:
            continue
        seen = True
        if not _only_tools(message):
            # Some agents write one message in several rows, with the same id.
            known.add((role, message.get("id")) if isinstance(message.get("id"), str) else at)
    return len(known) if seen else len(rows)


def message_of(row: Any) -> dict[str, Any]:
    """The message in a row of a transcript, which may be the row itself."""
    if not isinstance(row, dict):
        return {}
    return next((row[key] for key in ("message", "payload", "data") if isinstance(row.get(key), dict)), row)


def _role(row: Any) -> str:
    """Who speaks in a row of a transcript; empty if it is no message."""
    role = message_of(row).get("role") or (row.get("type") if isinstance(row, dict) else "")
    role = str(role or "").casefold().removesuffix(".message")
    return role if role in (*_PERSON, *_AGENT) else ""


def _only_tools(message: dict[str, Any]) -> bool:
    """Whether a message has nothing but calls of tools and their results."""
    content = message.get("content")
    if not content and (message.get("tool_calls") or message.get("toolRequests")):
        return True
    parts = content if isinstance(content, list) else []
    kinds = [part.get("type") for part in parts if isinstance(part, dict)]
    return bool(kinds) and all(isinstance(kind, str) and kind.startswith("tool") for kind in kinds)


def before_prompt(
    content: ConversationContent, is_prompt: Callable[[str], bool], *, turn: str = "", answered: bool = False
) -> ConversationContent:
    """A transcript up to the prompt of a turn. Agents write at different times: the prompt may be at its end, in a
    row of its own kind or as a message, and the turn may have gone on for long where the transcript was first seen
    at a tool call (`answered`). Where rows name the `turn` that they belong to, it begins with the first of them;
    else with the message that is the prompt."""
    lines = content.data.split(b"\n") if content.form == MESSAGES else []
    end = _first_of_turn(lines, turn)
    if end is None:
        end = _after_prompt(lines, is_prompt) if answered else len(lines)
    for at in range(end - 1, -1, -1):
        row = _parsed(lines[at], VALUE)
        if _mentions(row, is_prompt):
            end = at
        elif _role(row):
            break  # what was said before
    if end == len(lines):
        return content
    kept = [line for line in lines[:end] if line.strip()]
    return ConversationContent(b"".join(line + b"\n" for line in kept), MESSAGES, len(kept))


def _first_of_turn(lines: list[bytes], turn: str) -> int | None:
    """The first row that names a turn as its own; None if no row does."""
    name = json.dumps(turn).encode()
    for at, line in enumerate(lines) if turn else ():
        row = _parsed(line, VALUE) if name in line else None
        places = [row, *row.values()] if isinstance(row, dict) else []
        if any(place.get(key) == turn for place in places if isinstance(place, dict) for key in _TURN_OF_ROW):
            return at
    return None


# Claude Code has it in the row, Codex below `payload`.
_TURN_OF_ROW = ("promptId", "turn_id")


def _after_prompt(lines: list[bytes], is_prompt: Callable[[str], bool]) -> int:
    """Just after the last message that is the prompt. Rows that only mention it, such as a note of the last
    prompt, may come after the answer: they count only if there is no such message."""
    mention = None
    for at in range(len(lines) - 1, max(-1, len(lines) - 1 - _MOST_ROWS_AFTER), -1):
        row = _parsed(lines[at], VALUE)
        if _mentions(row, is_prompt):
            if _role(row) in _PERSON:
                return at + 1
            mention = at if mention is None else mention
    return len(lines) if mention is None else mention + 1


_MOST_ROWS_AFTER = 5000
"""Number of rows that are searched for a prompt, from the end."""


def _mentions(row: Any, is_prompt: Callable[[str], bool]) -> bool:
    return any(is_prompt(text) for text in _texts(row))


def _texts(value: Any, depth: int = 6) -> Iterator[str]:
    """The texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)) and depth:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each, depth - 1)


def from_transcript(data: bytes) -> ConversationContent:
    """A transcript that was read elsewhere, most likely with one JSON object per line."""
    return _transcript(data, by_lines=True)


def from_file(
    path: str, most_bytes: int | None, size: int | None = None, folder: str | None = None
) -> ConversationContent | str:
    """A transcript, or what it was when it had this size; a text says why there is none. With a `folder` the
    path is not trusted: only a file of the person's is read, only below that directory, only up to a bound,
    and only if it is JSON."""
    if folder is not None:
        most_bytes = min(most_bytes or _MOST_UNTRUSTED, _MOST_UNTRUSTED)
    try:
        descriptor = os.open(path, READ_FLAGS) if folder is None else open_below(folder, path)
    except OutsideFolder:
        return "outside"
    except (OSError, ValueError):
        return "unreadable"
    try:
        known = os.fstat(descriptor)
        wanted = known.st_size if size is None else size
        if not stat.S_ISREG(known.st_mode):
            return "unreadable"
        if folder is not None and sys.platform != "win32" and known.st_uid != os.geteuid():
            return "of-another-user"
        if most_bytes is not None and wanted > most_bytes:
            return "too-large"
        data = _read(descriptor, wanted)
    finally:
        os.close(descriptor)
    content = _as_it_was(data, wanted, known.st_size, path.endswith((".jsonl", ".ndjson")))
    if folder is not None and isinstance(content, ConversationContent) and not _is_transcript(content):
        return "not-a-transcript"
    return content


def _as_it_was(data: bytes, wanted: int, size: int, by_lines: bool) -> ConversationContent | str:
    """A file of this size, of which the beginning is wanted."""
    if not data:
        return ConversationContent(b"", MESSAGES, 0)  # nothing was said yet
    if wanted == size:
        return _transcript(data, by_lines)
    then = _transcript(data[: data.rfind(b"\n") + 1], by_lines=True)  # a line may have been half written
    # A file that does not grow by lines is written anew each time: what it was then is gone.
    return then if wanted < size and then.data and then.form != VALUE else "changed"


def keep_conversation(
    store: Store,
    content: ConversationContent,
    session_id: str | None,
    places: Iterable[tuple[Project, str]],
    deadline: Deadline,
    *,
    own: Iterable[str] = (),
    like: str | None = None,
) -> list[str]:
    """Keep a conversation with each of these checkpoints (project and ref), without its secrets. `like`
    is the ref of one that most likely begins alike. Returns the refs under which it is now."""
    data, redacted = redact(content.data, own)
    about = {
        "format": FORMAT, "session_id": session_id, "form": content.form, "messages": content.count,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(), "redacted": redacted, "at": time.time(),
    }  # fmt: skip
    key = session_key(session_id).encode() if session_id else NO_SESSION.encode()
    objects = LooseObjects(store.git_dir / "objects", fsync=store.fsync)
    # Held until the refs are there: upkeep must not remove objects without a ref.
    with locked(store.store_lock(), "keeping a conversation", deadline, shared=True):
        known = _known(store, like, key, deadline)
        tree = _write(objects, known, about, data)
        done = []
        for project, ref in places:
            with locked(store.project_lock(project.id), "keeping a conversation", deadline):
                if ref_exists(store.git_dir, ref):  # it may have been dropped meanwhile
                    _put(store, objects, attachment_of(ref), key, tree, deadline)
                    done.append(attachment_of(ref))
        return done


def read_conversation(
    store: Store, checkpoint_ref: str, sessions: Iterable[str | None], deadline: Deadline
) -> Conversation | None:
    """The conversation that is kept with a checkpoint: of the first of these sessions that has one
    there, or else the newest."""
    top = read_ref(store.git_dir, attachment_of(checkpoint_ref))
    return None if top is None else conversation_in(store, top, sessions, deadline)


def conversation_in(
    store: Store, top: str, sessions: Iterable[str | None], deadline: Deadline, *, foreign: bool = False
) -> Conversation | None:
    """The same, from the tree of a checkpoint's conversations. A `foreign` one, from another machine, may be so
    large that it is not read: then there is none."""
    git = store.git(deadline)
    with ObjectReader(git) as reader:
        folders = parse_tree(reader.read(top, b"tree"))
        wanted = [session_key(each).encode() if each else NO_SESSION.encode() for each in sessions]
        found = {key: _about(reader, folder[1]) for key, folder in folders.items()}
        if not found:
            return None
        newest = max(found, key=lambda key: found[key].at)
        chosen = next((key for key in wanted if key in found), newest)
        names = list(_pieces(reader, folders[chosen][1]))
    if foreign:
        sizes = object_sizes(git, sorted({*names}))
        if sum(sizes.get(name, 0) for name in names) > _MOST_UNTRUSTED:
            return None
    read = {name: data for name, _, data in read_many(git, set(names))}
    missing = next((name for name in names if name not in read), None)
    data = b"".join(read.get(name, b"") for name in names)
    about = found[chosen]
    if missing or hashlib.sha256(data).hexdigest() != about.sha256:
        raise DamagedObject(id=missing or top)
    return Conversation(
        session_id=about.session_id,
        data=_parsed(data, about.form),
        message_count=about.messages,
        at=datetime.fromtimestamp(about.at, UTC),
        bytes=len(data),
        sha256=about.sha256,
        redacted=about.redacted,
    )


# --- text ----------------------------------------------------------------------------------------


def _line(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _read(descriptor: int, size: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(size)


def _transcript(data: bytes, by_lines: bool) -> ConversationContent:
    """What form a file has: most agents write one JSON object per line."""
    first = data[: data.find(b"\n") + 1] or data
    if first.lstrip()[:1] == b"{" and (by_lines or len(first) < len(data)) and _is_json(first):
        return ConversationContent(data, MESSAGES, sum(bool(line.strip()) for line in data.split(b"\n")))
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            value = parse_json(data)
        except ValueError:
            return ConversationContent(data, VALUE)  # of which a part is missing
        inner = value.get("messages") if isinstance(value, dict) else value
        return ConversationContent(data, VALUE, len(inner) if isinstance(inner, list) else None)
    return ConversationContent(data, TEXT)


def _is_json(data: bytes) -> bool:
    try:
        parse_json(data)
    except ValueError:
        return False
    return True


def _is_transcript(content: ConversationContent) -> bool:
    """Whether it looks like one: one JSON object per line, or one JSON value with a list of objects in it."""
    if content.form != VALUE:
        return content.form == MESSAGES
    try:
        value = json.loads(content.data)
    except (ValueError, RecursionError):
        return False
    lists = [value] if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    return any(isinstance(each, list) and all(isinstance(item, dict) for item in each) for each in lists)


def _parsed(data: bytes, form: str) -> Any:
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
    try:
        if form == MESSAGES:
            return [parse_json(line) for line in text.split("\n") if line.strip()]
        if form == VALUE:
            return parse_json(text)
    except ValueError:
        pass  # a line that the agent did not finish: then all of it as it is
    return text


# --- trees ---------------------------------------------------------------------------------------


def _write(objects: LooseObjects, known: set[str], about: dict[str, Any], data: bytes) -> str:
    """Write what is not known to be there; the id of the folder."""

    def put(kind: bytes, content: bytes) -> str:
        name = object_id(kind, content)
        if name not in known:
            objects.write(kind, content)
            known.add(name)
        return name

    names = [put(b"blob", piece) for piece in split(data)]
    top: dict[bytes, Leaf] = {_ABOUT: (REGULAR, put(b"blob", json.dumps(about).encode()))}
    for number in range(0, len(names), _IN_FOLDER):
        folder = {b"%02x" % at: (REGULAR, name) for at, name in enumerate(names[number : number + _IN_FOLDER])}
        top[b"%04x" % (number // _IN_FOLDER)] = (DIRECTORY, put(b"tree", format_tree(folder)))
    return put(b"tree", format_tree(top))


def _put(store: Store, objects: LooseObjects, ref: str, key: bytes, tree: str, deadline: Deadline) -> None:
    git = store.git(deadline)
    before = read_ref(store.git_dir, ref)
    folders: dict[bytes, Leaf] = {}
    if before is not None:
        with ObjectReader(git) as reader:
            folders = parse_tree(reader.read(before, b"tree"))
    top = objects.write(b"tree", format_tree({**folders, key: (DIRECTORY, tree)}))
    objects.flush()
    if before is None:
        create_ref(store.git_dir, ref, top, fsync=store.fsync)
    elif before != top:
        set_ref(git, ref, top)


def _known(store: Store, ref: str | None, key: bytes, deadline: Deadline) -> set[str]:
    """Every object of an earlier conversation of the session. As its ref is there, they all are."""
    top = read_ref(store.git_dir, ref) if ref else None
    if top is None:
        return set()
    try:
        with ObjectReader(store.git(deadline)) as reader:
            folder = parse_tree(reader.read(top, b"tree")).get(key)
            return set(_below(reader, folder[1])) if folder else set()
    except DamagedObject:
        return set()


def _below(reader: ObjectReader, tree: str) -> Iterator[str]:
    for mode, name in parse_tree(reader.read(tree, b"tree")).values():
        yield name
        if mode == DIRECTORY:
            yield from _below(reader, name)


def _pieces(reader: ObjectReader, folder: str) -> Iterator[str]:
    """The pieces in order: git sorts names, and these have the same length each."""
    for mode, name in parse_tree(reader.read(folder, b"tree")).values():
        if mode == DIRECTORY:
            yield from (piece for _, piece in parse_tree(reader.read(name, b"tree")).values())


@dataclass(frozen=True)
class _About:
    """What the record beside a conversation says. It may be another machine's."""

    session_id: str | None = None
    form: str = ""
    messages: int | None = None
    sha256: str = ""
    redacted: int = 0
    at: float = 0.0


def _about(reader: ObjectReader, folder: str) -> _About:
    leaf = parse_tree(reader.read(folder, b"tree")).get(_ABOUT)
    if leaf is None or (reader.size(leaf[1]) or 0) > _MOST_ABOUT:
        return _About()
    try:
        about = parse_json(reader.read(leaf[1], b"blob"))
    except ValueError:
        return _About()
    about = about if isinstance(about, dict) else {}
    session, count, redacted, at = (about.get(name) for name in ("session_id", "messages", "redacted", "at"))
    return _About(
        session if isinstance(session, str) and len(session) <= _LONGEST_SESSION else None,
        str(about.get("form")),
        count if isinstance(count, int) else None,
        str(about.get("sha256")),
        redacted if isinstance(redacted, int) else 0,
        float(at) if isinstance(at, (int, float)) and 0 <= at < _LAST_MOMENT else 0.0,
    )


_MOST_ABOUT = 1 << 20
_LONGEST_SESSION = 10_000
_LAST_MOMENT = 1e11


LEAST = 4 << 10
USUAL = 12 << 10
MOST = 64 << 10


def split(data: bytes) -> Iterator[bytes]:
    """The pieces of a text, in order; put together they are the text again."""
    start = at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        end = min(end, at + MOST, start + MOST)
        if _ends_here(data[at:end], end - start):
            yield data[start:end]
            start = end
        at = end
    if start < len(data):
        yield data[start:]


def _ends_here(line: bytes, size: int) -> bool:
    # A longer line ends a piece more often. So pieces have about the same size, however long lines are.
    return size >= MOST or (size >= LEAST and zlib.crc32(line) % USUAL < len(line))


# --- conversations in databases of agents ----------------------------------------------------------------
# These are SQLite databases. They are only read, up to a bound of bytes and time.


MOST_BYTES = 64 << 20
_SECONDS = 2.0
_STEPS = 10_000
"""How often SQLite asks whether to go on, in steps of its machine."""

# The role, the content and more of each message of a session up to a moment in milliseconds, oldest first.
_QUERIES = {
    "opencode.db": """
        SELECT m.id, json_extract(m.data, '$.role'), p.data
        FROM message AS m LEFT JOIN part AS p ON p.message_id = m.id
        WHERE m.session_id = ? AND m.time_created <= ? ORDER BY m.time_created, m.id, p.id""",
    "sessions.db": """
        SELECT id, role, content_json FROM messages
        WHERE session_id = ? AND created_timestamp * 1000 <= ? ORDER BY id""",
    "state.db": """
        SELECT id, role, json_array(json_object('type', iif(role = 'tool', 'tool', 'text'), 'text', content))
        FROM messages WHERE session_id = ? AND timestamp * 1000 <= ? AND content != '' ORDER BY id""",
}
"""By the name of the file: opencode, Goose and Hermes."""


def is_database(path: str) -> bool:
    """Whether a conversation is in a database of a known kind."""
    return os.path.basename(path) in _QUERIES


def from_database(
    path: str, session: str, moment: int | None, most_bytes: int | None
) -> ConversationContent | str:
    """The conversation of a session, up to a moment in milliseconds; a text says why there is none."""
    try:
        import sqlite3  # here: few turns need it, and some builds of Python lack it

        known = os.lstat(path)
    except (ImportError, OSError, ValueError):
        return "unreadable"
    if not stat.S_ISREG(known.st_mode):
        return "unreadable"
    if sys.platform != "win32" and known.st_uid != os.geteuid():
        return "of-another-user"
    end = time.monotonic() + _SECONDS
    try:
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_SECONDS)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            query = _QUERIES[os.path.basename(path)]
            rows = connection.execute(query, (session, (1 << 62) if moment is None else moment))
            messages = list(_messages(rows, min(most_bytes or MOST_BYTES, MOST_BYTES)))
        finally:
            connection.close()
    except sqlite3.Error:
        return "unreadable"
    except _TooLarge:
        return "too-large"
    return from_json(messages)


class _TooLarge(Exception):
    """There is more than may be kept."""


def _messages(rows: Iterable[tuple[Any, Any, Any]], most_bytes: int) -> Iterator[dict[str, Any]]:
    """Rows with a message or a part of one, as messages."""
    message: dict[str, Any] = {}
    size = 0
    for identity, role, text in rows:
        size += len(text or "")
        if size > most_bytes:
            raise _TooLarge
        if message.get("id") != str(identity):
            if message:
                yield message
            message = {"id": str(identity), "role": str(role), "content": []}
        message["content"] += _parts(text)
    if message:
        yield message


def _parts(text: str | None) -> list[Any]:
    """What was said or done in a part of a message: not the marks that an agent sets between them."""
    try:
        value = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return [text]
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if not (isinstance(part, dict) and part.get("type") in _MARKS)]


_MARKS = ("step-start", "step-finish", "snapshot", "patch")
