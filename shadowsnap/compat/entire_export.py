"""Writing a session as Entire keeps its committed checkpoints: one for each turn, with its prompt and transcript.

They are marked as imported: Entire shows them, and takes none of them for its own work on a commit.
"""

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
from shadowsnap.compat.entire_reading import BRANCH, PROMPTS_APART, REFS, EntireRepository
from shadowsnap.errors import BadArguments, NoConversation, NoSuchCheckpoint, NoSuchProject, ShadowsnapError
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git, usable_git
from shadowsnap.git.trees import REGULAR, Leaf, patch_tree
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Session, SessionTurn, TurnPlace

AGENTS = {
    "claude": "Claude Code", "codex": "Codex", "copilot": "Copilot CLI", "cursor": "Cursor",
    "droid": "Factory AI Droid", "gemini": "Gemini CLI", "opencode": "OpenCode", "pi": "Pi",
}  # fmt: skip
"""How Entire spells the agents that it knows."""
LAYOUTS = ("refs", "branch")

_NOTHING = "0" * 40
_CHUNK = 50 << 20
_STRATEGY = "import"
_GONE = (NoSuchCheckpoint, NoSuchProject)


@dataclass(frozen=True)
class Exported:
    """The checkpoints of Entire that a session became, oldest first, and the refs that lead to them. `problems`:
    what could not be written, and why."""

    repository: Path
    ids: tuple[str, ...]
    refs: tuple[str, ...]
    problems: tuple[str, ...] = ()


def export_entire(
    directory: str | Path,
    session: str | Session,
    *,
    layout: str = "refs",
    keep_going: bool = False,
    manager: CheckpointManager | None = None,
) -> Exported:
    """Write a session into a repository in which Entire was used, or else into a bare one, which is made if there
    is nothing yet. `layout` is `refs` (one for each checkpoint) or `branch` (which goes on from its last commit).
    With `keep_going` both are written: what fails in one does not block the other, and is reported. Writing it
    again replaces what was written before, except what the person deleted there since."""
    if layout not in LAYOUTS:
        raise BadArguments(what="layout is refs or branch")
    manager = manager or CheckpointManager.from_settings()
    known = session if isinstance(session, Session) else manager.session(session)
    repository = _Repository(Path(directory).expanduser().absolute())
    turns = {_id_of(known, turn): turn for turn in known.turns}
    gone = repository.deleted & turns.keys()
    problems = [f"checkpoint {id}: it was deleted there, and is not written again" for id in sorted(gone)]
    ids: dict[str, None] = {}
    refs: dict[str, None] = {}
    for each in LAYOUTS if keep_going else (layout,):
        for id, turn in turns.items():
            if id in gone:
                continue
            try:
                refs[repository.write(each, id, dict(_files(manager, known, turn, id, each)), known, turn)] = None
                ids[id] = None
            except (ShadowsnapError, OSError) as problem:
                if not keep_going:
                    raise
                problems.append(f"checkpoint {id}, {each}: {problem}")
    return Exported(repository.path, tuple(ids), tuple(refs), tuple(problems))


def _id_of(session: Session, turn: SessionTurn) -> str:
    """The same at every export."""
    return hashlib.sha256(f"{session.id}\0{turn.began.timestamp():.6f}".encode()).hexdigest()[:12]


def entire_agent(session: Session) -> str:
    """The agent as Entire spells it. One that it does not know keeps its name."""
    name = session.agent or ""
    return AGENTS.get(name.lower().removesuffix("-cli").removesuffix("-code"), name)


# --- what is written ---------------------------------------------------------------------------------


def _files(
    manager: CheckpointManager, session: Session, turn: SessionTurn, id: str, layout: str
) -> Iterator[tuple[str, bytes]]:
    """The files of one checkpoint, by path in its folder."""
    transcript = _transcript(manager, session, turn)
    prompt = (turn.prompt or "").replace(PROMPTS_APART, "\n\n")
    touched = sorted({path for place in turn.places for path in _touched(manager, place)})
    about = {
        "cli_version": f"shadowsnap {__version__}", "checkpoint_id": id, "strategy": _STRATEGY,
        "checkpoints_count": 1, "files_touched": touched, **_commit_facts(manager, turn),
    }  # fmt: skip
    top = f"/{id[:2]}/{id[2:]}/0" if layout == "branch" else "/0"
    names = {"metadata": "metadata.json", "prompt": "prompt.txt"}
    if transcript is not None:
        names |= {"transcript": "full.jsonl", "content_hash": "content_hash.txt"}
        yield "0/content_hash.txt", f"sha256:{hashlib.sha256(transcript).hexdigest()}".encode()
        for number, chunk in enumerate(_chunks(transcript)):
            yield f"0/full.jsonl.{number:03d}" if number else "0/full.jsonl", chunk
    yield "0/prompt.txt", prompt.encode("utf-8", "surrogateescape")
    pointers = {name: f"{top}/{file}" for name, file in names.items()}
    yield "metadata.json", _json({**about, "sessions": [pointers], "imported": True})
    own = {"session_id": session.id, "created_at": turn.began.isoformat(), "agent": entire_agent(session)}
    facts = {"kind": "imported", "model": _model(transcript or b""), "save_step_count": 1}
    yield "0/metadata.json", _json({**about, **own, **facts})


def _transcript(manager: CheckpointManager, session: Session, turn: SessionTurn) -> bytes | None:
    """The conversation up to the end of the turn, as far as it was kept."""
    for place in turn.places:
        for checkpoint in filter(None, (place.after, place.before)):
            try:
                found = manager.restore(
                    place.workdir, checkpoint, dry_run=True, files=False, conversation=True, session_id=session.id
                )
            except (NoConversation, *_GONE):
                continue
            return _lines(found.conversation.data)
    return None


def _lines(data: Any) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    messages = data if isinstance(data, list) else [data]
    return b"".join(json.dumps(message, ensure_ascii=True).encode() + b"\n" for message in messages)


def _model(transcript: bytes) -> str:
    """The model that the last message names, in it or around it; empty if none does."""
    for line in reversed(transcript.splitlines()):
        try:
            message = json.loads(line) if b'"model"' in line else None
        except ValueError:
            continue
        for part in (message, message.get("message")) if isinstance(message, dict) else ():
            if isinstance(part, dict) and isinstance(part.get("model"), str):
                return str(part["model"])
    return ""


def _chunks(transcript: bytes) -> list[bytes]:
    """Parts that end with a line, without the end of that line; joined by line ends they are the same."""
    parts, start = [], 0
    while len(transcript) - start > _CHUNK:
        cut = transcript.rfind(b"\n", start, start + _CHUNK)
        if cut <= start:
            break  # one line that is longer than a part
        parts.append(transcript[start:cut])
        start = cut + 1
    return [*parts, transcript[start:]]


def _touched(manager: CheckpointManager, place: TurnPlace) -> list[str]:
    if not place.before or not place.after:
        return []
    try:
        changes = manager.diff(place.workdir, place.before, place.after).changes
    except _GONE:
        return []
    return [change.path for change in changes if not change.path.endswith("/")]


def _commit_facts(manager: CheckpointManager, turn: SessionTurn) -> dict[str, str]:
    """The branch and the commit that the turn began on, as far as they are known."""
    for place in turn.places:
        try:
            facts = manager.get(place.workdir, place.before or place.after or "").metadata
        except _GONE:
            continue
        named = {"branch": facts.get("git_branch"), "commit_sha": facts.get("git_head")}
        return {name: str(value) for name, value in named.items() if value}
    return {}


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=True).encode() + b"\n"


# --- where it is written -----------------------------------------------------------------------------


class _Repository:
    """A bare repository, or one in which Entire was used. A work tree of any other kind is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists() or not os.listdir(path):
            path.mkdir(parents=True, exist_ok=True)
            Git(usable_git(), path).run("init", "-q", "--bare", "--template=")
        try:
            self._entire = EntireRepository(path)
        except BadArguments:
            raise BadArguments(what=f"{path} is not a repository, bare or in which Entire was used") from None
        self._git = self._entire.git
        self.deleted = self._entire.deleted()
        is_bare = self._git.run("rev-parse", "--is-bare-repository") == b"true\n"
        if not is_bare and not self._entire.refs(REFS) and not self._branches():
            raise BadArguments(what=f"{path} is not a bare repository, and Entire was not used in it")
        if self._git.run("rev-parse", "--show-object-format") != b"sha1\n":
            raise BadArguments(what=f"the objects of {path} are not named by SHA-1")
        self._objects = LooseObjects(self._git.git_dir / "objects", fsync=True)

    def write(self, layout: str, id: str, files: Mapping[str, bytes], session: Session, turn: SessionTurn) -> str:
        """The ref under which the checkpoint is now."""
        ref = f"refs/heads/{BRANCH}" if layout == "branch" else f"{REFS}{id[-2:]}/{id}"
        inside = f"{id[:2]}/{id[2:]}/" if layout == "branch" else ""
        if layout == "branch" and f"branch {ref}\n".encode() in self._git.run("worktree", "list", "--porcelain"):
            raise BadArguments(what=f"{BRANCH} is checked out in {self.path}")
        own = self._git.run("rev-parse", "--verify", "-q", f"{ref}^{{commit}}", ok=(0, 1)).decode().strip()
        tip = own or (next(iter(self._branches()), "") if layout == "branch" else "")
        with ObjectReader(self._git) as reader:
            before = reader.read(tip, b"commit")[5:45].decode() if tip else EMPTY_TREE
            read = partial(reader.read, kind=b"tree")
            tree = self._tree(before if layout == "branch" else EMPTY_TREE, inside, files, read)
        if own and tree == before:
            return ref
        commit = self._commit(tree, tip, id, session, turn)
        self._git.run("update-ref", ref, commit, own or _NOTHING)  # what another process wrote is not overwritten
        return ref

    def _branches(self) -> list[str]:
        """Where the branch of checkpoints is, here or as it was fetched."""
        found = self._entire.refs(f"refs/heads/{BRANCH}") | self._entire.refs("refs/remotes/")
        return [commit for ref, commit in found.items() if ref.endswith(f"/{BRANCH}")]

    def _tree(self, before: str, inside: str, files: Mapping[str, bytes], read: Any) -> str:
        if before == EMPTY_TREE:
            self._objects.write(b"tree", b"")
        changes: dict[bytes, Leaf | None] = {
            f"{inside}{path}".encode(): (REGULAR, self._objects.write(b"blob", content))
            for path, content in files.items()
        }
        return patch_tree(before, changes, read, lambda data: self._objects.write(b"tree", data))

    def _commit(self, tree: str, tip: str, id: str, session: Session, turn: SessionTurn) -> str:
        who = f"shadowsnap <shadowsnap@localhost> {int((turn.ended or turn.began).timestamp())} +0000"
        parent = f"parent {tip}\n" if tip else ""
        trailers = {"Session": session.id, "Strategy": _STRATEGY, "Agent": entire_agent(session)}
        lines = "".join(f"Entire-{name}: {' '.join(value.split())}\n" for name, value in trailers.items() if value)
        text = f"tree {tree}\n{parent}author {who}\ncommitter {who}\n\nCheckpoint: {id}\n\n{lines}"
        commit = self._objects.write(b"commit", text.encode("utf-8", "surrogateescape"))
        self._objects.flush()
        return commit
