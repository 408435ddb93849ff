"""Reading the committed checkpoints of Entire: metadata, prompts and transcripts, no files.

All layouts have the same tree for a checkpoint (`metadata.json`, and `0/`, `1/`, ... for each session):

refs      `refs/entire/checkpoints/<id[-2:]>/<id>`, where it is the root of the tree
branch    `entire/checkpoints/v1`, where it is at `<id[:2]>/<id[2:]>/`
v2        `refs/entire/checkpoints/v2/main`, like the branch; the transcripts are in `v2/full/current`, or in
          the generation `v2/full/<number>` that it became

Nothing is written there, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import BadArguments, MalformedObject, ShadowsnapError
from shadowsnap.files import UnreadableFile, parse_json, read_bounded
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.refs import refs_below
from shadowsnap.git.repository import Git, usable_git
from shadowsnap.git.trees import DIRECTORY, Leaf, parse_tree
from shadowsnap.upkeep.importing import READ_ONLY, common_dir

BRANCH = "entire/checkpoints/v1"
REFS = "refs/entire/checkpoints/"
PROMPTS_APART = "\n\n---\n\n"
DELETED_LIST = "entire-deleted-checkpoints.json"

_V2_MAIN, _V2_FULL, _V2_CURRENT = (f"{REFS}v2/{name}" for name in ("main", "full/", "full/current"))
# For a while the branch was also kept under a ref, and a shortened copy of it beside.
_V1_ALIAS, _V1_SHORTENED = f"{REFS}v1/full", f"{REFS}v1/main"
_ID = re.compile(r"[0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRANSCRIPTS = (b"full.jsonl", b"full.log", b"raw_transcript")
_PART = re.compile(rb"(?:full\.jsonl|full\.log|raw_transcript)\.(\d{3,4})")
_HASHES = (b"content_hash.txt", b"raw_transcript_hash.txt")
_IMAGE = re.compile(rb"entire-asset:assets/(img-[0-9a-f]+\.[a-z0-9]+)")
_MOST_IMAGES, _MOST_DELETED = 512 << 20, 16 << 20
_ERRORS = (ShadowsnapError, ValueError, OSError)

Folder = dict[bytes, Leaf]
Raw = Callable[[str, bytes], Folder]
"""Where the transcript of a session lies, by checkpoint and number; empty if it lies with its metadata."""


@dataclass(frozen=True)
class EntireSession:
    """What a checkpoint holds of one session."""

    id: str
    metadata: dict[str, Any]
    prompts: tuple[str, ...] = ()
    content_hash: str | None = None
    chunks: tuple[str, ...] = field(default=(), repr=False)
    """The objects that the transcript is in."""
    images: dict[bytes, str] = field(default_factory=dict, repr=False)
    """The objects of the images that were taken out of it, by name."""

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
        """The commits that the checkpoint itself says it belongs to, as after an amend or a rebase."""
        links = self.metadata.get("linked_commits")
        found = [link.get("sha") for link in links if isinstance(link, dict)] if isinstance(links, list) else []
        return tuple(sha for sha in found if isinstance(sha, str) and _COMMIT.fullmatch(sha))


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
        """All layouts. What is wrong with one, or with one checkpoint, does not keep the others from being read.
        Of a checkpoint that is in several, the one under a ref of its own counts. What the person deleted is left
        out; if the list of it is damaged, nothing is read."""
        try:
            deleted = self.deleted()
        except MalformedObject as problem:
            return EntireRecord(problems=(str(problem),))
        found: dict[str, EntireCheckpoint] = {}
        problems: list[str] = []
        for layout in (self._in_v2, self._in_branches, self._under_refs):  # the later ones replace the earlier
            try:
                with ObjectReader(self.git) as reader:
                    for each in layout(reader):
                        if isinstance(each, EntireCheckpoint):
                            found[each.id] = each
                        else:
                            problems.append(each)
            except _ERRORS as problem:
                problems.append(f"{layout.__name__.strip('_').replace('_', ' ')}: {problem}")
        kept = [each for each in found.values() if each.id not in deleted]
        return EntireRecord(tuple(sorted(kept, key=_age)), tuple(problems))

    def transcript(self, session: EntireSession) -> bytes | None:
        """The transcript of a session, put together, compared with its hash, and with its images in place again;
        None if it has none. An image that is missing stays the placeholder that it is."""
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

            wanted = Counter(placeholder[1] for placeholder in _IMAGE.finditer(data))
            blobs = {name: reader.read(session.images[name], b"blob") for name in wanted if name in session.images}
        if sum(wanted[name] * len(blob) for name, blob in blobs.items()) > _MOST_IMAGES:
            raise MalformedObject(what="the transcript", why="its images are too large together")
        images = {name: base64.b64encode(blob) for name, blob in blobs.items()}
        return _IMAGE.sub(lambda placeholder: images.get(placeholder[1], placeholder[0]), data)

    def refs(self, prefix: str) -> dict[str, str]:
        """What each ref below a prefix leads to."""
        return refs_below(self.git, prefix)

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

    def _in_v2(self, reader: ObjectReader) -> Iterator[EntireCheckpoint | str]:
        refs = self.refs(f"{REFS}v2/")
        older = sorted((ref for ref in refs if ref.startswith(_V2_FULL) and ref != _V2_CURRENT), reverse=True)
        generations: list[Folder] = []
        for ref in (_V2_CURRENT, *older):
            try:
                generations += [_folder(reader, _tree_of(reader, refs[ref]))] if ref in refs else []
            except _ERRORS as problem:
                yield f"{ref}: {problem}"

        def raw(id: str, number: bytes) -> Folder:
            found = (_below(reader, top, id[:2].encode(), id[2:].encode(), number) for top in generations)
            return next((folder for folder in found if _chunks(folder)), {})

        if _V2_MAIN in refs:
            yield from _shards(reader, "v2", _V2_MAIN, refs[_V2_MAIN], raw)

    def _in_branches(self, reader: ObjectReader) -> Iterator[EntireCheckpoint | str]:
        """The person's own branch last: it counts before those of remotes."""
        remote = {ref: commit for ref, commit in self.refs("refs/remotes/").items() if ref.endswith(f"/{BRANCH}")}
        branches = remote | self.refs(_V1_ALIAS) | self.refs(f"refs/heads/{BRANCH}")
        for ref, commit in branches.items():
            yield from _shards(reader, "branch", ref, commit)

    def _under_refs(self, reader: ObjectReader) -> Iterator[EntireCheckpoint | str]:
        for ref, commit in self.refs(REFS).items():
            shard, _, id = ref.removeprefix(REFS).partition("/")
            if shard == "v2" or ref in (_V1_ALIAS, _V1_SHORTENED):
                continue
            if not _ID.fullmatch(id) or shard != id[-2:]:
                yield f"{ref}: its name is not that of a checkpoint"
                continue
            try:
                tree = _tree_of(reader, commit)
            except _ERRORS as problem:
                yield f"{ref}: {problem}"
                continue
            yield _checkpoint(reader, id, "refs", ref, tree)


def _with_metadata(id: str, number: bytes) -> Folder:
    return {}


def _shards(
    reader: ObjectReader, layout: str, ref: str, commit: str, raw: Raw = _with_metadata
) -> Iterator[EntireCheckpoint | str]:
    """The checkpoints of a tree that has them at `<id[:2]>/<id[2:]>/`."""
    try:
        top = _folder(reader, _tree_of(reader, commit))
        shards = {first: leaf[1] for first, leaf in top.items() if leaf[0] == DIRECTORY and len(first) == 2}
    except _ERRORS as problem:
        yield f"{ref}: {problem}"
        return
    for first, shard in shards.items():
        try:
            folders = _folder(reader, shard)
        except _ERRORS as problem:
            yield f"{ref}: {problem}"
            continue
        for rest, folder in folders.items():
            id = (first + rest).decode("ascii", "replace")
            if folder[0] == DIRECTORY and _ID.fullmatch(id):
                yield _checkpoint(reader, id, layout, ref, folder[1], raw)


def _checkpoint(
    reader: ObjectReader, id: str, layout: str, ref: str, tree: str, raw: Raw = _with_metadata
) -> EntireCheckpoint | str:
    try:
        folder = _folder(reader, tree)
        metadata = _json(reader, folder, b"metadata.json")
        folders = [name for name, leaf in folder.items() if leaf[0] == DIRECTORY]
        numbers = sorted((name for name in folders if name.isdigit()), key=int)
        sessions = [_session(reader, _folder(reader, folder[name][1]), {}, raw(id, name)) for name in numbers]
        if not numbers and any(name in folder for name in _TRANSCRIPTS):  # as the first versions had it
            sessions = [_session(reader, folder, metadata, {})]
        return EntireCheckpoint(id, layout, ref, metadata, tuple(sessions))
    except _ERRORS as problem:
        return f"checkpoint {id} in {ref}: {problem}"


def _session(reader: ObjectReader, folder: Folder, otherwise: dict[str, Any], raw: Folder) -> EntireSession:
    metadata = _json(reader, folder, b"metadata.json") if b"metadata.json" in folder else otherwise
    prompts = _text(reader, folder, b"prompt.txt").split(PROMPTS_APART)
    transcript = raw or folder
    hashed = next((_text(reader, transcript, name).strip() for name in _HASHES if name in transcript), "")
    images = _below(reader, transcript, b"assets")
    return EntireSession(
        id=str(metadata.get("session_id", "")),
        metadata=metadata,
        prompts=tuple(prompt for prompt in prompts if prompt.strip()),
        content_hash=hashed or None,
        chunks=_chunks(transcript),
        images={name: leaf[1] for name, leaf in images.items() if leaf[0] != DIRECTORY},
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


def _below(reader: ObjectReader, folder: Folder, *path: bytes) -> Folder:
    """A folder further down; empty if it is not there."""
    for name in path:
        leaf = folder.get(name)
        folder = _folder(reader, leaf[1]) if leaf is not None and leaf[0] == DIRECTORY else {}
    return folder


def _json(reader: ObjectReader, folder: Folder, name: bytes) -> dict[str, Any]:
    value = parse_json(_text(reader, folder, name) or "null")
    if not isinstance(value, dict):
        raise MalformedObject(what=name.decode(), why="it is missing, or not a JSON object")
    return value


def _text(reader: ObjectReader, folder: Folder, name: bytes) -> str:
    return reader.read(folder[name][1], b"blob").decode("utf-8", "replace") if name in folder else ""


def _age(checkpoint: EntireCheckpoint) -> tuple[float, str]:
    times = [session.created_at for session in checkpoint.sessions]
    return (min((time.timestamp() for time in times if time), default=0.0), checkpoint.id)
