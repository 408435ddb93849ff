"""Writing a session as Entire keeps its committed checkpoints: one for each turn, with its prompt and what
was said, into a bare repository. Whoever has Entire can fetch them from there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shadowsnap import __version__
from shadowsnap.compat.entire_reading import BRANCH, PROMPTS_APART, REFS
from shadowsnap.errors import BadArguments, NoConversation, NoSuchCheckpoint, NoSuchProject
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git, usable_git
from shadowsnap.git.trees import REGULAR, Leaf, patch_tree
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Session, SessionTurn, TurnPlace

_NOTHING = "0" * 40
_CHUNK = 50 << 20
_STRATEGY = "manual-commit"


@dataclass(frozen=True)
class Exported:
    """The checkpoints of Entire that a session became, oldest first, and the refs that lead to them."""

    repository: Path
    ids: tuple[str, ...]
    refs: tuple[str, ...]


def export_entire(
    directory: str | Path,
    session: str | Session,
    *,
    layout: str = "branch",
    manager: CheckpointManager | None = None,
) -> Exported:
    """Write a session into the bare repository `directory`, which is made if there is nothing yet.
    `layout` is `branch` or `refs`. Writing it again replaces what was written before."""
    if layout not in ("branch", "refs"):
        raise BadArguments(what="layout is branch or refs")
    manager = manager or CheckpointManager.from_settings()
    known = session if isinstance(session, Session) else manager.session(session)
    repository = _Repository(Path(directory).expanduser().absolute())
    ids, refs = [], []
    for turn in known.turns:
        id = _id_of(known, turn)
        files = dict(_files(manager, known, turn, id, layout))
        refs.append(repository.write(layout, id, files, known, turn))
        ids.append(id)
    return Exported(repository.path, tuple(ids), tuple(dict.fromkeys(refs)))


def _id_of(session: Session, turn: SessionTurn) -> str:
    """The same at every export."""
    return hashlib.sha256(f"{session.id}\0{turn.began.timestamp():.6f}".encode()).hexdigest()[:12]


# --- what is written ---------------------------------------------------------------------------------


def _files(
    manager: CheckpointManager, session: Session, turn: SessionTurn, id: str, layout: str
) -> Iterator[tuple[str, bytes]]:
    """The files of one checkpoint, by path in its folder."""
    said = _transcript(manager, session, turn)
    prompt = (turn.prompt or "").replace(PROMPTS_APART, "\n\n")
    touched = sorted({path for place in turn.places for path in _touched(manager, place)})
    about = {
        "cli_version": f"shadowsnap {__version__}", "checkpoint_id": id, "strategy": _STRATEGY,
        "branch": _branch(manager, turn), "checkpoints_count": 1, "files_touched": touched,
    }  # fmt: skip
    top = f"/{id[:2]}/{id[2:]}/0" if layout == "branch" else "/0"
    names = {"metadata": "metadata.json", "prompt": "prompt.txt"}
    if said is not None:
        names |= {"transcript": "full.jsonl", "content_hash": "content_hash.txt"}
        yield "0/content_hash.txt", f"sha256:{hashlib.sha256(said).hexdigest()}".encode()
        for number, chunk in enumerate(_chunks(said)):
            yield f"0/full.jsonl.{number:03d}" if number else "0/full.jsonl", chunk
    yield "0/prompt.txt", prompt.encode("utf-8", "surrogateescape")
    pointers = {name: f"{top}/{file}" for name, file in names.items()}
    yield "metadata.json", _json({**about, "sessions": [pointers]})
    own = {"session_id": session.id, "created_at": turn.began.isoformat(), "agent": session.agent or ""}
    yield "0/metadata.json", _json({**about, **own, "save_step_count": 1})


def _transcript(manager: CheckpointManager, session: Session, turn: SessionTurn) -> bytes | None:
    """What was said up to the end of the turn, as far as it was kept."""
    for place in turn.places:
        for checkpoint in filter(None, (place.after, place.before)):
            try:
                found = manager.restore(
                    place.workdir, checkpoint, dry_run=True, files=False, conversation=True, session_id=session.id
                )
            except (NoConversation, NoSuchCheckpoint, NoSuchProject):
                continue
            return _lines(found.conversation.data)
    return None


def _lines(data: Any) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    messages = data if isinstance(data, list) else [data]
    return b"".join(json.dumps(message, ensure_ascii=True).encode() + b"\n" for message in messages)


def _chunks(said: bytes) -> list[bytes]:
    """Parts that hold whole lines, without the end of the last one; joined by line ends they are the same."""
    parts, start = [], 0
    while len(said) - start > _CHUNK:
        cut = said.rfind(b"\n", start, start + _CHUNK)
        if cut <= start:
            break  # one line that is longer than a part
        parts.append(said[start:cut])
        start = cut + 1
    return [*parts, said[start:]]


def _touched(manager: CheckpointManager, place: TurnPlace) -> list[str]:
    if not place.before or not place.after:
        return []
    try:
        changes = manager.diff(place.workdir, place.before, place.after).changes
    except (NoSuchCheckpoint, NoSuchProject):
        return []
    return [change.path for change in changes if not change.path.endswith("/")]


def _branch(manager: CheckpointManager, turn: SessionTurn) -> str:
    for place in turn.places:
        try:
            found = manager.get(place.workdir, place.before or place.after or "").metadata.get("git_branch")
        except (NoSuchCheckpoint, NoSuchProject):
            continue
        if found:
            return str(found)
    return ""


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=True).encode() + b"\n"


# --- where it is written -----------------------------------------------------------------------------


class _Repository:
    """A bare repository. One that somebody works in is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._git = Git(usable_git(), path)
        if not path.exists() or not os.listdir(path):
            path.mkdir(parents=True, exist_ok=True)
            self._git.run("init", "-q", "--bare", "--template=")
        elif not (path / "HEAD").exists() or self._git.run("rev-parse", "--is-bare-repository") != b"true\n":
            raise BadArguments(what=f"{path} is not a bare repository")
        self._objects = LooseObjects(path / "objects", fsync=True)

    def write(self, layout: str, id: str, files: Mapping[str, bytes], session: Session, turn: SessionTurn) -> str:
        """The ref under which the checkpoint is now."""
        ref = f"refs/heads/{BRANCH}" if layout == "branch" else f"{REFS}{id[-2:]}/{id}"
        inside = f"{id[:2]}/{id[2:]}" if layout == "branch" else ""
        tip = self._git.run("rev-parse", "--verify", "-q", f"{ref}^{{commit}}", ok=(0, 1)).decode().strip()
        with ObjectReader(self._git) as reader:
            before = reader.read(tip, b"commit")[5:45].decode() if tip else EMPTY_TREE
            read = partial(reader.read, kind=b"tree")
            tree = self._tree(before if layout == "branch" else EMPTY_TREE, inside, files, read)
        if tip and tree == before:
            return ref
        commit = self._commit(tree, tip, id, session, turn)
        self._git.run("update-ref", ref, commit, tip or _NOTHING)  # somebody else's is not overwritten
        return ref

    def _tree(self, before: str, inside: str, files: Mapping[str, bytes], read: Any) -> str:
        if before == EMPTY_TREE:
            self._objects.write(b"tree", b"")
        changes: dict[bytes, Leaf | None] = {}
        for path, content in files.items():
            name = f"{inside}/{path}" if inside else path
            changes[name.encode()] = (REGULAR, self._objects.write(b"blob", content))
        return patch_tree(before, changes, read, lambda data: self._objects.write(b"tree", data))

    def _commit(self, tree: str, tip: str, id: str, session: Session, turn: SessionTurn) -> str:
        who = f"shadowsnap <shadowsnap@localhost> {int((turn.ended or turn.began).timestamp())} +0000"
        parent = f"parent {tip}\n" if tip else ""
        name = " ".join(session.id.split())
        message = f"Checkpoint: {id}\n\nEntire-Session: {name}\nEntire-Strategy: {_STRATEGY}\n"
        text = f"tree {tree}\n{parent}author {who}\ncommitter {who}\n\n{message}"
        commit = self._objects.write(b"commit", text.encode("utf-8", "surrogateescape"))
        self._objects.flush()
        return commit
