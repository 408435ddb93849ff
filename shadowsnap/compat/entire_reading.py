"""Reading the committed checkpoints of Entire: metadata, prompts and transcripts, no files.

Both layouts have the same tree for a checkpoint (`metadata.json`, and `0/`, `1/`, ... for each session):

branch    `entire/checkpoints/v1`, where it is at `<id[:2]>/<id[2:]>/`
refs      `refs/entire/checkpoints/<id[-2:]>/<id>`, where it is the whole tree

Nothing is written there, and nothing is fetched.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from shadowsnap import lightjson as json
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import BadArguments, MalformedObject, ShadowsnapError
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git, usable_git
from shadowsnap.git.trees import DIRECTORY, Leaf, parse_tree
from shadowsnap.upkeep.importing import READ_ONLY, common_dir

BRANCH = "entire/checkpoints/v1"
REFS = "refs/entire/checkpoints/"
PROMPTS_APART = "\n\n---\n\n"

_ID = re.compile(r"[0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26}")
_PART = re.compile(rb"full\.(?:jsonl|log)\.(\d{3,4})")
_TRANSCRIPTS = (b"full.jsonl", b"full.log")
_TROUBLE = (ShadowsnapError, ValueError, OSError)

Folder = dict[bytes, Leaf]


@dataclass(frozen=True)
class EntireSession:
    """What a checkpoint holds of one session."""

    id: str
    metadata: dict[str, Any]
    prompts: tuple[str, ...] = ()
    content_hash: str | None = None
    chunks: tuple[str, ...] = field(default=(), repr=False)
    """The objects that the transcript is in."""

    @property
    def created_at(self) -> datetime | None:
        try:
            return datetime.fromisoformat(str(self.metadata.get("created_at")).replace("Z", "+00:00"))
        except ValueError:
            return None


@dataclass(frozen=True)
class EntireCheckpoint:
    id: str
    layout: str
    ref: str
    metadata: dict[str, Any]
    sessions: tuple[EntireSession, ...] = ()


@dataclass(frozen=True)
class EntireRecord:
    """Everything that could be read, and what could not, and why."""

    checkpoints: tuple[EntireCheckpoint, ...] = ()
    problems: tuple[str, ...] = ()


class EntireRepository:
    """A repository in which Entire keeps checkpoints: its work tree, or the repository itself."""

    def __init__(self, path: str | Path) -> None:
        git_dir = common_dir(Path(path).expanduser())
        if git_dir is None:
            raise BadArguments(what=f"{path} is not a git repository")
        self.git = Git(usable_git(), git_dir.resolve(), config=READ_ONLY, deadline=NO_DEADLINE)

    def read(self) -> EntireRecord:
        """Both layouts. What is wrong with one, or with one checkpoint, does not keep the others from
        being read. Of a checkpoint that is in both, the one under a ref of its own counts."""
        found: dict[str, EntireCheckpoint] = {}
        problems: list[str] = []
        for layout in (self._in_branches, self._under_refs):  # the later ones replace the earlier
            try:
                with ObjectReader(self.git) as reader:
                    for each in layout(reader):
                        if isinstance(each, EntireCheckpoint):
                            found[each.id] = each
                        else:
                            problems.append(each)
            except _TROUBLE as problem:
                problems.append(f"{layout.__name__.strip('_').replace('_', ' ')}: {problem}")
        return EntireRecord(tuple(sorted(found.values(), key=_age)), tuple(problems))

    def transcript(self, session: EntireSession) -> bytes | None:
        """The transcript of a session, put together and compared with its hash; None if it has none."""
        if not session.chunks:
            return None
        if "" in session.chunks:
            raise MalformedObject(what="the transcript", why=f"part {session.chunks.index('')} of it is missing")
        with ObjectReader(self.git) as reader:
            # Lines are never cut in two, and the end of the last line of a chunk is left out.
            data = b"\n".join(reader.read(name, b"blob") for name in session.chunks)
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if session.content_hash not in (None, found):
            raise MalformedObject(what="the transcript", why=f"it is {found}, not {session.content_hash}")
        return data

    def _in_branches(self, reader: ObjectReader) -> Iterator[EntireCheckpoint | str]:
        """The person's own branch last: it counts before those of remotes."""
        remote = [ref for ref in self._refs("refs/remotes/") if ref[0].endswith(f"/{BRANCH}")]
        for ref, commit in [*remote, *self._refs(f"refs/heads/{BRANCH}")]:
            try:
                shards = _folder(reader, _tree_of(reader, commit))
            except _TROUBLE as problem:
                yield f"{ref}: {problem}"
                continue
            for first, shard in shards.items():
                if shard[0] == DIRECTORY and len(first) == 2:
                    yield from _shard(reader, ref, first, shard[1])

    def _under_refs(self, reader: ObjectReader) -> Iterator[EntireCheckpoint | str]:
        for ref, commit in self._refs(REFS):
            shard, _, id = ref.removeprefix(REFS).partition("/")
            if not _ID.fullmatch(id) or shard != id[-2:]:
                yield f"{ref}: its name is not that of a checkpoint"
                continue
            try:
                tree = _tree_of(reader, commit)
            except _TROUBLE as problem:
                yield f"{ref}: {problem}"
                continue
            yield _attempt(reader, id, "refs", ref, tree)

    def _refs(self, prefix: str) -> list[tuple[str, str]]:
        rows = self.git.run("for-each-ref", "--format=%(objectname) %(refname)", prefix).decode().splitlines()
        return [(ref, name) for name, _, ref in (row.partition(" ") for row in rows)]


def _shard(reader: ObjectReader, ref: str, first: bytes, tree: str) -> Iterator[EntireCheckpoint | str]:
    try:
        folders = _folder(reader, tree)
    except _TROUBLE as problem:
        yield f"{ref}: {problem}"
        return
    for rest, folder in folders.items():
        id = (first + rest).decode("ascii", "replace")
        if folder[0] == DIRECTORY and _ID.fullmatch(id):
            yield _attempt(reader, id, "branch", ref, folder[1])


def _attempt(reader: ObjectReader, id: str, layout: str, ref: str, tree: str) -> EntireCheckpoint | str:
    try:
        return _checkpoint(reader, id, layout, ref, _folder(reader, tree))
    except _TROUBLE as problem:
        return f"checkpoint {id} in {ref}: {problem}"


def _checkpoint(reader: ObjectReader, id: str, layout: str, ref: str, folder: Folder) -> EntireCheckpoint:
    metadata = _json(reader, folder, b"metadata.json")
    numbers = sorted((name for name, leaf in folder.items() if leaf[0] == DIRECTORY and name.isdigit()), key=int)
    sessions = [_session(reader, _folder(reader, folder[name][1]), {}) for name in numbers]
    if not numbers and any(name in folder for name in _TRANSCRIPTS):  # as the first versions had it
        sessions = [_session(reader, folder, metadata)]
    return EntireCheckpoint(id, layout, ref, metadata, tuple(sessions))


def _session(reader: ObjectReader, folder: Folder, otherwise: dict[str, Any]) -> EntireSession:
    metadata = _json(reader, folder, b"metadata.json") if b"metadata.json" in folder else otherwise
    prompts = _text(reader, folder, b"prompt.txt").split(PROMPTS_APART)
    return EntireSession(
        id=str(metadata.get("session_id", "")),
        metadata=metadata,
        prompts=tuple(prompt for prompt in prompts if prompt.strip()),
        content_hash=_text(reader, folder, b"content_hash.txt").strip() or None,
        chunks=_chunks(folder),
    )


def _chunks(folder: Folder) -> tuple[str, ...]:
    """`full.jsonl`, then `full.jsonl.001` and so on; empty for one that is missing."""
    base = next((name for name in _TRANSCRIPTS if name in folder), None)
    if base is None:
        return ()
    names = {base: 0, **{name: int(found[1]) for name in folder if (found := _PART.fullmatch(name))}}
    parts = {number: folder[name][1] for name, number in names.items()}
    return tuple(parts.get(number, "") for number in range(max(parts) + 1))


def _tree_of(reader: ObjectReader, commit: str) -> str:
    return reader.read(commit, b"commit")[5:45].decode("ascii")


def _folder(reader: ObjectReader, tree: str) -> Folder:
    return parse_tree(reader.read(tree, b"tree"))


def _json(reader: ObjectReader, folder: Folder, name: bytes) -> dict[str, Any]:
    value = json.loads(_text(reader, folder, name) or "null")
    if not isinstance(value, dict):
        raise MalformedObject(what=name.decode(), why="it is missing, or not a JSON object")
    return value


def _text(reader: ObjectReader, folder: Folder, name: bytes) -> str:
    return reader.read(folder[name][1], b"blob").decode("utf-8", "replace") if name in folder else ""


def _age(checkpoint: EntireCheckpoint) -> tuple[float, str]:
    times = [session.created_at for session in checkpoint.sessions]
    return (min((time.timestamp() for time in times if time), default=0.0), checkpoint.id)
