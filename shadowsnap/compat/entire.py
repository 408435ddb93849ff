"""The committed checkpoints of Entire CLI: reading them, keeping their conversations with the matching checkpoints
here, and writing a session of ours as Entire would. (Its temporary checkpoints, which are branches with files, are
imported: `shadowsnap import`.)

All layouts have the same tree for a checkpoint (`metadata.json`, and `0/`, `1/`, ... for each session):

refs      `refs/entire/checkpoints/<id[-2:]>/<id>`, where it is the root of the tree
branch    `entire/checkpoints/v1`, where it is at `<id[:2]>/<id[2:]>/`
v2        `refs/entire/checkpoints/v2/main`, like the branch; the transcripts are in `v2/full/current`, or in
          the generation `v2/full/<number>` that it became. It is only read.

Nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from shadowsnap import __version__
from shadowsnap.compat.commits import Folder, commit_files, commits_with_trailer, with_parents
from shadowsnap.compat.session_log import (
    AttachReport,
    ForeignConversation,
    TurnRecord,
    attach_conversations,
    split_at_lines,
    turn_records,
)
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import BadArguments, MalformedObject, ShadowsnapError
from shadowsnap.files import UnreadableFile, parse_json, read_bounded
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.refs import refs_below
from shadowsnap.git.repository import Git, usable_git
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Session
from shadowsnap.upkeep.importing import READ_ONLY, common_dir

BRANCH, REFS = "entire/checkpoints/v1", "refs/entire/checkpoints/"
DELETED_LIST = "entire-deleted-checkpoints.json"
AGENTS = {
    "claude": "Claude Code", "codex": "Codex", "copilot": "Copilot CLI", "cursor": "Cursor",
    "droid": "Factory AI Droid", "gemini": "Gemini CLI", "opencode": "OpenCode", "pi": "Pi",
}  # fmt: skip
"""Our names of agents, and Entire's."""
_OUR_NAMES = {title: name for name, title in AGENTS.items()}
# Some versions of Entire also kept the branch under a ref, and a shortened copy beside it.
_V1_ALIAS, _V1_SHORTENED = f"{REFS}v1/full", f"{REFS}v1/main"
_V2, _V2_MAIN, _V2_FULL = f"{REFS}v2/", f"{REFS}v2/main", f"{REFS}v2/full/"
_ID = re.compile(r"[0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRANSCRIPTS = ("full.jsonl", "full.log", "raw_transcript")
_HASHES = ("content_hash.txt", "raw_transcript_hash.txt")
_PART = re.compile(r"(?:full\.jsonl|full\.log|raw_transcript)\.(\d{3,4})")
_IMAGE = re.compile(rb"entire-asset:assets/(img-[0-9a-f]+\.[a-z0-9]+)")
_PROMPT_SEPARATOR = "\n\n---\n\n"
_CHUNK, _MOST_IMAGES, _MOST_DELETED = 50 << 20, 512 << 20, 16 << 20
_ERRORS = (ShadowsnapError, ValueError, OSError)


# --- reading -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EntireSession:
    """One session in a checkpoint."""

    id: str
    metadata: dict[str, Any]
    prompts: tuple[str, ...] = ()
    content_hash: str | None = None
    chunks: tuple[str, ...] = field(default=(), repr=False)
    """The objects of the transcript in order; an empty id for one that is missing."""
    images: dict[str, str] = field(default_factory=dict, repr=False)
    """The objects of the images that the transcript refers to, by name."""

    @property
    def created_at(self) -> datetime | None:
        try:
            return datetime.fromisoformat(str(self.metadata.get("created_at")))
        except ValueError:
            return None


@dataclass(frozen=True)
class EntireCheckpoint:
    id: str
    layout: str
    ref: str
    metadata: dict[str, Any]
    sessions: tuple[EntireSession, ...] = ()

    @property
    def linked_commits(self) -> tuple[str, ...]:
        """The commits that the checkpoint names, as after an amend or a rebase."""
        links = self.metadata.get("linked_commits")
        found = [link.get("sha") for link in links if isinstance(link, dict)] if isinstance(links, list) else []
        return tuple(sha for sha in found if isinstance(sha, str) and _COMMIT.fullmatch(sha))


@dataclass(frozen=True)
class EntireRecord:
    """The checkpoints that could be read, and why others could not."""

    checkpoints: tuple[EntireCheckpoint, ...] = ()
    problems: tuple[str, ...] = ()


def read_entire(repository: str | Path) -> EntireRecord:
    """All committed checkpoints of Entire in a repository, of every layout, oldest first."""
    return EntireRepository(repository).read()


class EntireRepository:
    """A repository in which Entire keeps checkpoints: its work tree, or the repository itself."""

    def __init__(self, path: str | Path) -> None:
        git_dir = common_dir(Path(path).expanduser())
        if git_dir is None:
            raise BadArguments(what=f"{path} is not a git repository")
        self.path = Path(path)
        self.git = Git(usable_git(), git_dir.resolve(), config=READ_ONLY, deadline=NO_DEADLINE)

    def read(self) -> EntireRecord:
        """The checkpoints of all layouts. Problems with a layout or a checkpoint are noted, and the others are
        read. If a checkpoint is in several layouts, the one under a ref of its own counts. What the person deleted
        is left out; if the list of deletions is damaged, nothing is read."""
        found: dict[str, EntireCheckpoint] = {}
        problems: list[str] = []
        with _noting_problems(problems), ObjectReader(self.git) as reader:
            deleted = self.deleted()
            for layout in ("v2", "branch", "refs"):  # a later layout takes precedence
                with _noting_problems(problems, layout):
                    generations = self._generations(reader, problems) if layout == "v2" else []
                    for ref, commit in self.tips(layout).items():
                        for id, tree in _checkpoint_trees(reader, layout, ref, commit, problems):
                            with _noting_problems(problems, f"checkpoint {id} in {ref}"):
                                found[id] = _checkpoint(Folder(reader, tree), id, layout, ref, generations)
            found = {id: each for id, each in found.items() if id not in deleted}
        return EntireRecord(tuple(sorted(found.values(), key=_sort_key)), tuple(problems))

    def tips(self, layout: str) -> dict[str, str]:
        """The refs of a layout and their commits. A later one takes precedence: the person's own branch comes
        last, before it that of origin."""
        if layout == "v2":
            return refs_below(self.git, _V2_MAIN)
        if layout == "branch":
            fetched = refs_below(self.git, "refs/remotes/").items()
            remote = [(ref, commit) for ref, commit in fetched if ref.endswith(f"/{BRANCH}")]
            remote.sort(key=lambda item: item[0] == f"refs/remotes/origin/{BRANCH}")
            return dict(remote) | refs_below(self.git, _V1_ALIAS) | refs_below(self.git, f"refs/heads/{BRANCH}")
        own = refs_below(self.git, REFS).items()
        others = (_V1_ALIAS, _V1_SHORTENED)
        return {ref: commit for ref, commit in own if not ref.startswith(_V2) and ref not in others}

    def _generations(self, reader: ObjectReader, problems: list[str]) -> list[Folder]:
        """The trees with the transcripts of the layout `v2`, the current generation first."""
        found = []
        for ref, commit in sorted(refs_below(self.git, _V2_FULL).items(), reverse=True):
            with _noting_problems(problems, ref):
                found.append(Folder.of_commit(reader, commit))
        return found

    def transcript(self, session: EntireSession) -> bytes | None:
        """The transcript of a session, checked against its hash, with its images put back; None if it has none.
        For an image that is missing, the placeholder stays."""
        if not session.chunks:
            return None
        if "" in session.chunks:
            raise MalformedObject(what="the transcript", why=f"part {session.chunks.index('')} of it is missing")
        with ObjectReader(self.git) as reader:
            # Entire splits at line ends, and leaves out the line end between two chunks.
            data = b"\n".join(reader.read(name, b"blob") for name in session.chunks)
            found = _hash(data)
            if session.content_hash not in (None, found):
                raise MalformedObject(what="the transcript", why=f"it is {found}, not {session.content_hash}")
            wanted = Counter(placeholder[1].decode() for placeholder in _IMAGE.finditer(data))
            known = {name: session.images[name] for name in wanted if name in session.images}
            blobs = {name: reader.read(id, b"blob") for name, id in known.items()}
        if sum(wanted[name] * len(blob) for name, blob in blobs.items()) > _MOST_IMAGES:
            raise MalformedObject(what="the transcript", why="its images are too large together")
        images = {name.encode(): base64.b64encode(blob) for name, blob in blobs.items()}
        return _IMAGE.sub(lambda placeholder: images.get(placeholder[1], placeholder[0]), data)

    def deleted(self) -> set[str]:
        """The ids that `entire checkpoint delete` noted in this clone. A damaged list is an error: what was
        deleted must not come back."""
        try:
            noted = parse_json(read_bounded(self.git.git_dir / DELETED_LIST, _MOST_DELETED) or b"{}")
            if not isinstance(noted, dict) or not isinstance(noted.get("checkpoint_ids", []), list):
                raise ValueError("it is not a list of checkpoints")
        except (UnreadableFile, ValueError) as problem:
            raise MalformedObject(what=DELETED_LIST, why=str(problem)) from None
        return {str(id) for id in noted.get("checkpoint_ids", [])}


@contextmanager
def _noting_problems(problems: list[str], what: str = "") -> Iterator[None]:
    """Note an error and go on after the block."""
    try:
        yield
    except _ERRORS as problem:
        problems.append(f"{what}: {problem}" if what else str(problem))


def _checkpoint_trees(
    reader: ObjectReader, layout: str, ref: str, commit: str, problems: list[str]
) -> Iterator[tuple[str, str | None]]:
    """The ids and trees of the checkpoints below a ref."""
    with _noting_problems(problems, ref):
        top = Folder.of_commit(reader, commit)
        if layout == "refs":
            shard, _, id = ref.removeprefix(REFS).partition("/")
            if not _ID.fullmatch(id) or shard != id[-2:]:
                raise ValueError("its name is not that of a checkpoint")
            yield id, top.tree
            return
        for first in top.folders:
            with _noting_problems(problems, ref):
                for rest, tree in top.below(first).folders.items() if len(first) == 2 else ():
                    if _ID.fullmatch(first + rest):
                        yield first + rest, tree


def _checkpoint(folder: Folder, id: str, layout: str, ref: str, generations: list[Folder]) -> EntireCheckpoint:
    metadata, sessions = _metadata(folder), []
    for number in sorted((name for name in folder.folders if name.isdigit()), key=int):
        own = folder.below(number)
        elsewhere = (generation.below(id[:2], id[2:], number) for generation in generations)
        transcript = next((each for each in elsewhere if _chunks(each)), own)
        sessions.append(_session(own, _metadata(own) if "metadata.json" in own.files else {}, transcript))
    if not sessions and _chunks(folder):  # the first versions had no folders for sessions
        sessions.append(_session(folder, metadata, folder))
    return EntireCheckpoint(id, layout, ref, metadata, tuple(sessions))


def _session(folder: Folder, metadata: dict[str, Any], transcript: Folder) -> EntireSession:
    prompts = folder.read("prompt.txt").decode("utf-8", "replace").split(_PROMPT_SEPARATOR)
    hashes = (transcript.read(name).decode("utf-8", "replace").strip() for name in _HASHES)
    return EntireSession(
        id=str(metadata.get("session_id", "")),
        metadata=metadata,
        prompts=tuple(prompt for prompt in prompts if prompt.strip()),
        content_hash=next(filter(None, hashes), None),
        chunks=_chunks(transcript),
        images=transcript.below("assets").files,
    )


def _metadata(folder: Folder) -> dict[str, Any]:
    value = parse_json(folder.read("metadata.json") or "null")
    if not isinstance(value, dict):
        raise MalformedObject(what="metadata.json", why="it is missing, or not a JSON object")
    return value


def _chunks(folder: Folder) -> tuple[str, ...]:
    """The objects of `full.jsonl`, `full.jsonl.001` and so on; an empty id for one that is missing."""
    base = next((name for name in _TRANSCRIPTS if name in folder.files), None)
    if base is None:
        return ()
    names = {base: 0, **{name: int(found[1]) for name in folder.files if (found := _PART.fullmatch(name))}}
    parts = {number: folder.files[name] for name, number in names.items()}
    return tuple(parts.get(number, "") for number in range(max(parts) + 1))


def _hash(transcript: bytes) -> str:
    return f"sha256:{hashlib.sha256(transcript).hexdigest()}"


def _sort_key(checkpoint: EntireCheckpoint) -> tuple[float, str]:
    times = [session.created_at for session in checkpoint.sessions]
    return (min((time.timestamp() for time in times if time), default=0.0), checkpoint.id)


# --- attaching ---------------------------------------------------------------------------------------


def attach_entire(
    repository: str | Path, working_dir: str | Path | None = None, *, manager: CheckpointManager | None = None
) -> AttachReport:
    """Attach each conversation that Entire recorded to our checkpoint of the same session, or else of a commit
    that names Entire's checkpoint in a trailer (`Entire-Checkpoint`) or that this names. The key of a conversation
    is `entire-<checkpoint>-<number>`."""
    source, manager = EntireRepository(repository), manager or CheckpointManager.from_settings()
    record, found = source.read(), list[ForeignConversation]()
    commits = commits_with_trailer(source.git, "Entire-Checkpoint")
    with ObjectReader(source.git) as reader:
        for each in record.checkpoints:
            linked = filter(None, (with_parents(reader, commit) for commit in each.linked_commits))
            about = (*commits.get(each.id, ()), *linked)
            for number, session in enumerate(each.sessions):
                key, read = f"entire-{each.id}-{number}", partial(source.transcript, session)
                prompt, agent = next(reversed(session.prompts), None), str(session.metadata.get("agent") or "")
                facts = (session.created_at, about, prompt, _OUR_NAMES.get(agent, agent) or None)
                found.append(ForeignConversation(key, session.id, read, *facts))
    return AttachReport(tuple(attach_conversations(manager, working_dir or repository, found)), record.problems)


# --- exporting ---------------------------------------------------------------------------------------

_STRATEGY = "import"
_LAYOUTS = ("refs", "branch")


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
    """Write a session as checkpoints of Entire, one for each turn, into a repository in which Entire was used, or
    into a bare one, which is made if it does not exist. They are marked as imported, so that Entire does not take
    them for work on a commit. `layout` is `refs` (one for each checkpoint) or `branch` (which goes on from its
    last commit). With `keep_going` both are written: what fails in one does not block the other, and is reported.
    Writing it again replaces what was written before, except what the person deleted there since."""
    if layout not in _LAYOUTS:
        raise BadArguments(what="layout is refs or branch")
    manager = manager or CheckpointManager.from_settings()
    known = session if isinstance(session, Session) else manager.session(session)
    target = _open_to_write(Path(directory).expanduser().absolute())
    turns = {_export_id(known, turn): turn for turn in turn_records(manager, known)}
    gone = target.deleted() & turns.keys()
    problems = [f"checkpoint {id}: it was deleted there, and is not written again" for id in sorted(gone)]
    ids: dict[str, None] = {}
    refs: dict[str, None] = {}
    for each in _LAYOUTS if keep_going else (layout,):
        for id, turn in turns.items():
            if id in gone:
                continue
            try:
                refs[_write(target, each, id, known, turn)] = None
                ids[id] = None
            except (ShadowsnapError, OSError) as problem:
                if not keep_going:
                    raise
                problems.append(f"checkpoint {id}, {each}: {problem}")
    return Exported(target.path, tuple(ids), tuple(refs), tuple(problems))


def _open_to_write(path: Path) -> EntireRepository:
    """A bare repository, or one in which Entire was used. A work tree of any other kind is refused."""
    if not path.exists() or not os.listdir(path):
        path.mkdir(parents=True, exist_ok=True)
        Git(usable_git(), path).run("init", "-q", "--bare", "--template=")
    try:
        found = EntireRepository(path)
    except BadArguments:
        raise BadArguments(what=f"{path} is not a repository, bare or in which Entire was used") from None
    is_bare = found.git.run("rev-parse", "--is-bare-repository") == b"true\n"
    if not is_bare and not refs_below(found.git, REFS) and not found.tips("branch"):
        raise BadArguments(what=f"{path} is not a bare repository, and Entire was not used in it")
    if found.git.run("rev-parse", "--show-object-format") != b"sha1\n":
        raise BadArguments(what=f"the objects of {path} are not named by SHA-1")
    return found


def _export_id(session: Session, turn: TurnRecord) -> str:
    """The id of a turn's checkpoint, the same at every export."""
    return hashlib.sha256(f"{session.id}\0{turn.began.timestamp():.6f}".encode()).hexdigest()[:12]


def _write(target: EntireRepository, layout: str, id: str, session: Session, turn: TurnRecord) -> str:
    """Write one checkpoint, and return its ref."""
    ref, inside, onto = f"{REFS}{id[-2:]}/{id}", "", ""
    if layout == "branch":
        ref, inside = f"refs/heads/{BRANCH}", f"{id[:2]}/{id[2:]}/"
        onto = next(reversed(target.tips(layout).values()), "")
        if f"branch {ref}\n".encode() in target.git.run("worktree", "list", "--porcelain"):
            raise BadArguments(what=f"{BRANCH} is checked out in {target.path}")
    name = (session.agent or "").lower().removesuffix("-cli").removesuffix("-code")
    agent = AGENTS.get(name, session.agent or "")  # one that Entire does not know keeps its name
    files = {f"{inside}{path}": content for path, content in _files(f"/{inside}", id, session.id, agent, turn)}
    trailers = {"Session": session.id, "Strategy": _STRATEGY, "Agent": agent}
    lines = "".join(f"Entire-{name}: {' '.join(value.split())}\n" for name, value in trailers.items() if value)
    seconds = int((turn.ended or turn.began).timestamp())
    commit_files(
        target.git, ref, files, f"Checkpoint: {id}\n\n{lines}", seconds, onto=onto, keep=layout == "branch"
    )
    return ref


def _files(top: str, id: str, session_id: str, agent: str, turn: TurnRecord) -> Iterator[tuple[str, bytes]]:
    """The files of one checkpoint, by path in its folder."""
    about = {
        "cli_version": f"shadowsnap {__version__}", "checkpoint_id": id, "strategy": _STRATEGY,
        "checkpoints_count": 1, "files_touched": list(turn.files),
        **({"branch": turn.branch} if turn.branch else {}), **({"commit_sha": turn.commit} if turn.commit else {}),
    }  # fmt: skip
    names = {"metadata": "metadata.json", "prompt": "prompt.txt"}
    if turn.transcript is not None:
        names |= {"transcript": "full.jsonl", "content_hash": "content_hash.txt"}
        yield "0/content_hash.txt", _hash(turn.transcript).encode()
        for number, chunk in enumerate(split_at_lines(turn.transcript, _CHUNK)):
            yield f"0/full.jsonl.{number:03d}" if number else "0/full.jsonl", chunk
    yield "0/prompt.txt", turn.prompt.replace(_PROMPT_SEPARATOR, "\n\n").encode("utf-8", "surrogateescape")
    pointers = {name: f"{top}0/{file}" for name, file in names.items()}
    yield "metadata.json", _json({**about, "sessions": [pointers], "imported": True})
    own = {"session_id": session_id, "created_at": turn.began.isoformat(), "agent": agent}
    yield "0/metadata.json", _json({**about, **own, "kind": "imported", "model": turn.model, "save_step_count": 1})


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=True).encode() + b"\n"
