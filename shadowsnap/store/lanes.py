"""What is kept on this machine about remotes and lanes, below `<base>/remote/`.

    <project>.json           the remote of a project, as the person chose it
    <project>.lane.json      the project's own lane: who it is, and what the remote is known to hold
    <project>.key            the secret that shows that manifests come from the same machine
    <project>.anew           a person removed something: the next push must not build on what was sent before
    queue/<project>          since when work waits to be pushed, and when the next attempt is due

A lane that was pulled is one ref, `refs/shadowsnap-lanes/<project>/<machine>`: a commit whose parents are the
checkpoints of the lane, whose tree is what the lane says about them, and whose message says where it came from.
One ref, so a pull happens as a whole or not at all. Nothing but the remote commands reads these refs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject
from shadowsnap.files import parse_json, read_json, remove_tree, write_bytes, write_json
from shadowsnap.git.objects import is_object_id
from shadowsnap.git.reading import ObjectReader, read_many
from shadowsnap.git.refs import delete_refs, list_refs, read_ref, read_refs, ref_folders, set_ref
from shadowsnap.git.trees import REGULAR, Leaf, parse_tree
from shadowsnap.model import Checkpoint
from shadowsnap.results import RemoteStatus
from shadowsnap.store.checkpoints import decode_checkpoint
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import if_free, is_free
from shadowsnap.store.log import Line
from shadowsnap.store.projects import Project, as_moment

LANES = "refs/shadowsnap-lanes"
FOLDER = "remote"
LANE_NAME = re.compile(r"([0-9a-f]{20})/([0-9a-f]{12})")
_LONGEST_NAME = 100
_PASSWORD = re.compile(r"(?<=://)([^/@:]*:)[^/@]*@")


@dataclass(frozen=True)
class Machine:
    id: str
    name: str


@dataclass(frozen=True)
class Remote:
    """Where a project's lane goes."""

    name: str
    url: str
    recipients: tuple[str, ...] = ()
    plain: bool = False
    conversations: bool = False
    conditions: bool = True
    """Whether the storage refuses to overwrite what must be new; found out when the remote was added."""


@dataclass(frozen=True)
class Identity:
    """What makes a project the same on every machine: its first commit and where it is cloned from. A project
    without either has a random id."""

    id: str
    name: str = ""
    root: str = ""
    origin: str = ""

    def is_same(self, other: Identity) -> bool:
        if self.id == other.id:
            return True
        if self.root and other.root:
            return self.root == other.root
        return bool(self.origin) and self.origin == other.origin  # one of them is a shallow clone

    def to_dict(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name, "root": self.root, "origin": self.origin}


@dataclass(frozen=True)
class OwnLane:
    """The lane of a project on this machine, and what its remote acknowledged."""

    identity: Identity
    machine: str
    """A random id: two checkouts on one machine are two lanes."""
    parent: str | None = None
    """The lane that this one was resumed from, or that a copy of this machine goes on with."""
    number: int = 0
    """Of the last manifest that is known to be there; 0: none."""
    first: int = 0
    """Of the manifest that its generation begins with."""
    digest: str = ""
    carrier: str = ""
    checkpoints: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    """Objects of the last carrier that need not be sent again."""
    packs: tuple[str, ...] = ()
    """Packs of this generation."""
    bytes: int = 0
    """Size of these packs."""
    stale: bool = False
    """Whether the remote may still have packs of an earlier generation."""
    dropped: int = 0
    """Checkpoints that went since the generation began."""
    turns: int = 0
    newest: int = 0
    """When the newest acknowledged checkpoint was taken, in milliseconds."""
    pushed_at: float = 0.0
    readable_named: bool = False
    """Whether the person was informed what can be read in a lane that is not encrypted."""
    pending: dict[str, Any] = field(default_factory=dict)
    """What the next state is if the manifest that was being written did arrive."""

    @property
    def lane(self) -> str:
        return f"{self.identity.id}/{self.machine}"


@dataclass(frozen=True)
class PulledLane:
    """A lane of another machine, as it was when it was last pulled."""

    lane: str
    commit: str
    carrier: str
    checkpoints: tuple[str, ...]
    identity: Identity
    machine: Machine
    number: int
    digest: str
    key_digest: str
    url: str
    parent: str | None = None

    @property
    def ref(self) -> str:
        return f"{LANES}/{self.lane}"

    @property
    def project(self) -> Project:
        """A stand-in for folding its log. It is never a project of this machine."""
        return Project(self.lane.replace("/", "-"), Path(self.identity.name or self.identity.id))


def folder(store: Store) -> Path:
    return store.base / FOLDER


def mirror_of(store: Store, url: str) -> Path:
    """A repository that has what came from a git server, before it is checked."""
    return folder(store) / f"{hashlib.sha256(shown_url(url).encode()).hexdigest()[:16]}.git"


def shown_url(url: str) -> str:
    """An address without the password that may be in it."""
    return _PASSWORD.sub(r"\1***@", url)


def machine_name() -> str:
    """What this machine calls itself. A lane has a random id besides: such names repeat."""
    import platform  # here: every command loads this module, and few have a remote

    return readable(platform.node()) or "unnamed"


def new_lane(identity: Identity, parent: str | None = None) -> OwnLane:
    return OwnLane(identity, secrets.token_hex(6), parent)


def readable(text: Any, longest: int = _LONGEST_NAME) -> str:
    """A name from outside, on one line and not too long."""
    words = "".join(each if each.isprintable() else " " for each in text) if isinstance(text, str) else ""
    return " ".join(words.split())[:longest]


# --- the remote and the own lane of a project --------------------------------------------------------


def read_remote(store: Store, project: str) -> Remote | None:
    record = read_json(folder(store) / f"{project}.json")
    if record is None or not isinstance(record.get("url"), str):
        return None
    recipients = record.get("recipients")
    return Remote(
        name=str(record.get("name") or "remote"),
        url=record["url"],
        recipients=tuple(map(str, recipients)) if isinstance(recipients, list) else (),
        plain=record.get("plain") is True,
        conversations=record.get("conversations") is True,
        conditions=record.get("conditions") is not False,
    )


def write_remote(store: Store, project: str, remote: Remote) -> None:
    record: dict[str, Any] = {"name": remote.name, "url": remote.url, "recipients": list(remote.recipients)}
    record |= {"plain": remote.plain, "conversations": remote.conversations, "conditions": remote.conditions}
    _write(folder(store) / f"{project}.json", record)


def read_own_lane(store: Store, project: str) -> OwnLane | None:
    record = read_json(folder(store) / f"{project}.lane.json")
    if record is None:
        return None
    about = record.get("identity")
    identity = identity_from(about if isinstance(about, dict) else {})
    if identity is None or not re.fullmatch(r"[0-9a-f]{12}", str(record.get("machine"))):
        return None
    try:
        return OwnLane(
            identity=identity,
            machine=str(record["machine"]),
            parent=record.get("parent") or None,
            number=int(record.get("number", 0)),
            first=int(record.get("first", 0)),
            digest=str(record.get("digest", "")),
            carrier=str(record.get("carrier", "")),
            checkpoints=tuple(filter(is_object_id, map(str, record.get("checkpoints", ())))),
            blobs=tuple(filter(is_object_id, map(str, record.get("blobs", ())))),
            packs=tuple(map(str, record.get("packs", ()))),
            bytes=int(record.get("bytes", 0)),
            stale=record.get("stale") is True,
            dropped=int(record.get("dropped", 0)),
            turns=int(record.get("turns", 0)),
            newest=int(record.get("newest", 0)),
            pushed_at=float(record.get("pushed_at", 0)),
            readable_named=record.get("readable_named") is True,
            pending=dict(record.get("pending") or {}),
        )
    except (TypeError, ValueError):
        return OwnLane(identity, str(record["machine"]))  # damaged: everything is pushed again


def write_own_lane(store: Store, project: str, lane: OwnLane) -> None:
    record: dict[str, Any] = {str(name): getattr(lane, name) for name in OwnLane.__match_args__}
    _write(folder(store) / f"{project}.lane.json", {**record, "identity": lane.identity.to_dict()})


def own_key(store: Store, project: str) -> str:
    """The secret of the project's own lane, made on first use."""
    path = folder(store) / f"{project}.key"
    try:
        known = path.read_text("ascii").strip()
    except (OSError, ValueError):
        known = ""
    if not re.fullmatch(r"[0-9a-f]{64}", known):
        known = secrets.token_hex(32)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes(path, f"{known}\n".encode(), fsync=store.fsync)
    return known


def forget_remote(store: Store, project: str, *, lane: bool) -> None:
    """Forget the remote of a project; with `lane` also which project it is. The lane ends with the remote: its
    packs and its secret are for those who could read them there, so the next remote gets a lane of its own."""
    own = read_own_lane(store, project)
    if own is not None and not lane:
        write_own_lane(store, project, new_lane(own.identity, own.lane if own.number else own.parent))
    for ending in ("sending", "chain"):
        remove_tree(folder(store) / f"{project}.{ending}")
    gone = [f"{project}.json", f"{project}.key", f"{project}.anew", f"queue/{project}"]
    if lane:
        gone += [f"{project}.lane.json", f"{project}.lock"]
    for name in gone:
        (folder(store) / name).unlink(missing_ok=True)


def note_removal(store: Store, project: str) -> None:
    """Have the next push send everything anew. What a person wants to be rid of may be in any pack of the lane,
    also in one of a checkpoint that was dropped long ago."""
    if (folder(store) / f"{project}.lane.json").exists():
        write_bytes(folder(store) / f"{project}.anew", secrets.token_hex(8).encode(), fsync=store.fsync)


def read_removal(store: Store, project: str) -> str:
    """Which removal is to be pushed; empty if there is none."""
    try:
        return (folder(store) / f"{project}.anew").read_text("ascii")
    except FileNotFoundError:
        return ""


def forget_removal(store: Store, project: str, pushed: str) -> None:
    """Forget a removal that was pushed, unless there was another one meanwhile."""
    if pushed and read_removal(store, project) == pushed:
        (folder(store) / f"{project}.anew").unlink()


def lane_lock(store: Store, project: str) -> Path:
    return folder(store) / f"{project}.lock"


def identity_from(record: dict[str, Any]) -> Identity | None:
    """The identity in the record of a file or a lane; None if there is none."""
    identity, root = record.get("id"), record.get("root") or ""
    if not isinstance(identity, str) or not re.fullmatch(r"[0-9a-f]{20}", identity):
        return None
    root = root if isinstance(root, str) and is_object_id(root) else ""
    return Identity(identity, readable(record.get("name")), root, readable(record.get("origin"), 500))


def _write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(path, record, fsync=True)


# --- the queue ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waiting:
    """A project with work that is not pushed yet."""

    project: str
    since: float
    attempts: int = 0
    due: float = 0.0
    """When the next attempt may be made."""
    error: str = ""
    marks: int = 1
    """How often it was put into the queue since it was empty: more may have come while it was being pushed."""


def note_unpushed(store: Store, project: str) -> Waiting:
    """Put a project into the queue. One that waits already keeps its place."""
    known = read_waiting(store, project)
    waiting = Waiting(project, time.time()) if known is None else replace(known, marks=known.marks + 1)
    write_waiting(store, waiting)
    return waiting


def read_waiting(store: Store, project: str) -> Waiting | None:
    record = read_json(folder(store) / "queue" / project)
    if record is None:
        return None
    numbers = [record.get(name) for name in ("since", "attempts", "due", "marks")]
    since, attempts, due, marks = (each if isinstance(each, (int, float)) else 0 for each in numbers)
    return Waiting(project, float(since), int(attempts), float(due), str(record.get("error", "")), int(marks))


def write_waiting(store: Store, waiting: Waiting) -> None:
    path = folder(store) / "queue" / waiting.project
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = {"since": waiting.since, "attempts": waiting.attempts, "due": waiting.due}
    write_json(path, {**record, "error": waiting.error, "marks": waiting.marks})


def remove_waiting(store: Store, waiting: Waiting) -> None:
    """Take a project that was pushed out of the queue, unless it was put there again meanwhile."""
    known = read_waiting(store, waiting.project)
    if known is not None and known.marks == waiting.marks:
        (folder(store) / "queue" / waiting.project).unlink(missing_ok=True)
    elif known is not None:
        write_waiting(store, Waiting(waiting.project, time.time()))


def read_queue(store: Store) -> list[Waiting]:
    """Everything that waits; what is due first comes first."""
    try:
        names = os.listdir(folder(store) / "queue")
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (read_waiting(store, name) for name in names if re.fullmatch(r"[0-9a-f]{16}", name))
    return sorted((each for each in found if each is not None), key=lambda each: (each.due, each.since))


def queue_lock(store: Store) -> Path:
    folder(store).mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder(store) / "queue.lock"


def pull_lock(store: Store) -> Path:
    folder(store).mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder(store) / "pull.lock"


def is_worked_off(store: Store) -> bool:
    """Whether a process is at work on the queue: it finds what is put there."""
    return not is_free(queue_lock(store))


def remotes_at_a_glance(store: Store, project: str | None = None) -> list[RemoteStatus]:
    """The remotes of all projects, or of one: what they hold is compared with the checkpoints that are here. No
    process and no network."""
    names = [path.stem for path in folder(store).glob("[0-9a-f]*.json") if path.suffixes == [".json"]]
    found = [_glance(store, name) for name in sorted(names) if project in (None, name)]
    return [each for each in found if each is not None]


def _glance(store: Store, project: str) -> RemoteStatus | None:
    remote = read_remote(store, project)
    if remote is None:
        return None
    lane, waiting = read_own_lane(store, project), read_waiting(store, project)
    record = read_json(store.project_file(project)) or {}
    pushed = {*lane.checkpoints} if lane is not None else set()
    here = read_refs(store.git_dir, f"refs/shadowsnap/{project}")
    unpushed = sorted(name for name, commit in here.items() if commit not in pushed)
    return RemoteStatus(
        workdir=str(record.get("workdir", "")),
        name=remote.name,
        url=shown_url(remote.url),
        plain=remote.plain,
        recipients=remote.recipients,
        conversations=remote.conversations,
        conditions=remote.conditions,
        lane=lane.lane if lane is not None else None,
        parent=lane.parent if lane is not None else None,
        pushed_at=as_moment(lane.pushed_at) if lane is not None and lane.pushed_at else None,
        unpushed=len(unpushed),
        unpushed_since=as_moment(int(unpushed[0][:13]) / 1000) if unpushed else None,
        attempts=waiting.attempts if waiting is not None else 0,
        error=waiting.error if waiting is not None else "",
    )


# --- pulled lanes ------------------------------------------------------------------------------------


def pulled_lanes(store: Store, deadline: Deadline) -> list[PulledLane]:
    """Every lane that was pulled to this machine."""
    if not ref_folders(store.git_dir, LANES):
        return []
    rows = list_refs(store.git(deadline), ("refname", "objectname", "tree", "parent", "contents"), LANES)
    found = (_pulled(*(cell.decode("utf-8", "replace") for cell in row)) for row in rows)
    return [each for each in found if each is not None]


def pulled_lane(store: Store, lane: str, deadline: Deadline) -> PulledLane | None:
    commit = read_ref(store.git_dir, f"{LANES}/{lane}")
    if commit is None:
        return None
    with ObjectReader(store.git(deadline)) as reader:
        try:
            header, _, message = reader.read(commit, b"commit").decode("utf-8", "replace").partition("\n\n")
        except DamagedObject:
            return None  # as if it had never been pulled
    rows = [line.partition(" ") for line in header.splitlines()]
    tree = next((value for word, _, value in rows if word == "tree"), "")
    parents = " ".join(value for word, _, value in rows if word == "parent")
    return _pulled(f"{LANES}/{lane}", commit, tree, parents, message)


def _pulled(ref: str, commit: str, tree: str, parents: str, message: str) -> PulledLane | None:
    try:
        record = parse_json(message.partition("\n\n")[2])
        identity = identity_from(record["identity"])
        if identity is None:
            return None
        return PulledLane(
            lane=ref.removeprefix(f"{LANES}/"),
            commit=commit,
            carrier=tree,
            checkpoints=tuple(parents.split()),
            identity=identity,
            machine=Machine(str(record["machine"]["id"]), readable(record["machine"]["name"])),
            number=int(record["number"]),
            digest=str(record["digest"]),
            key_digest=str(record["key_digest"]),
            url=str(record["url"]),
            parent=record.get("parent"),
        )
    except (ValueError, KeyError, TypeError):
        return None


def keep_pulled(store: Store, lane: PulledLane, deadline: Deadline) -> PulledLane:
    """Make a pulled lane known, in one step. Its objects are in the store by now."""
    at = int(time.time())
    record = {
        "identity": lane.identity.to_dict(),
        "machine": {"id": lane.machine.id, "name": lane.machine.name},
        "number": lane.number,
        "digest": lane.digest,
        "key_digest": lane.key_digest,
        "url": lane.url,
        "parent": lane.parent,
        "pulled_at": at,
    }
    who = f"shadowsnap <shadowsnap@localhost> {at} +0000"
    parents = "".join(f"parent {each}\n" for each in lane.checkpoints)
    message = f"lane {lane.lane}\n\n{json.dumps(record, sort_keys=True)}\n"
    text = f"tree {lane.carrier}\n{parents}author {who}\ncommitter {who}\n\n{message}"
    commit = store.objects.write(b"commit", text.encode())
    store.objects.flush()
    set_ref(store.git(deadline), lane.ref, commit)
    return replace(lane, commit=commit)


def forget_pulled(store: Store, lanes: Iterable[PulledLane], deadline: Deadline) -> None:
    delete_refs(store.git(deadline), [lane.ref for lane in lanes])
    for lane in lanes:
        store.statistics_file(lane.project.id).unlink(missing_ok=True)
    forget_mirrors(store, deadline)


def forget_mirrors(store: Store, deadline: Deadline) -> None:
    """Remove what came from git servers of which nothing is kept and to which nothing is pushed."""
    with if_free(pull_lock(store), "cleaning up") as lock:
        if lock is None:
            return  # what a pull fetches is not known as kept yet
        used = {each.url for each in pulled_lanes(store, deadline)}
        used |= {each.url for each in remotes_at_a_glance(store)}
        kept = {mirror_of(store, url) for url in used}
        for mirror in folder(store).glob("*.git"):
            if mirror not in kept:
                remove_tree(mirror)


def checkpoints_of(store: Store, lane: PulledLane, deadline: Deadline) -> list[Checkpoint]:
    """The checkpoints of a pulled lane, newest first. They have no refs of their own."""
    marks = {mark.id: mark for mark in marks_in(store, lane, deadline)}
    found = []
    for name, kind, data in read_many(store.git(deadline), lane.checkpoints):
        mark = marks.get(name)
        if kind == b"commit" and mark is not None:
            ref = f"{lane.ref}/{mark.moment:013d}-{name[:12]}"
            checkpoint = decode_checkpoint(lane.project, ref, name, data)
            found.append(replace(checkpoint, pinned=mark.pinned, label=mark.label))
    return sorted(found, key=lambda each: each.ref, reverse=True)


def lines_in(store: Store, lane: PulledLane, deadline: Deadline) -> list[Line]:
    """The log of a pulled lane. It was checked when it came."""
    with ObjectReader(store.git(deadline)) as reader:
        return list(read_rows(reader, parse_tree(reader.read(lane.carrier, b"tree")), b"log-"))


@dataclass(frozen=True)
class Mark:
    """What a lane says of one checkpoint beside its commit."""

    id: str
    moment: int
    pinned: bool = False
    label: str | None = None
    attachment: str | None = None
    """The tree of the conversations that are kept with it."""


def marks_in(store: Store, lane: PulledLane, deadline: Deadline) -> list[Mark]:
    with ObjectReader(store.git(deadline)) as reader:
        top = parse_tree(reader.read(lane.carrier, b"tree"))
        kept = {}
        if b"meta" in top:
            trees = parse_tree(reader.read(top[b"meta"][1], b"tree"))
            kept = {name.decode(): leaf[1] for name, leaf in trees.items()}
        return [mark_from(row, kept) for row in read_rows(reader, top, b"checkpoints-")]


def mark_from(row: Line, attachments: dict[str, str]) -> Mark:
    label, moment = row.get("label"), int(row["ms"])
    name = f"{moment:013d}-{row['id'][:12]}"
    label = label if isinstance(label, str) else None
    return Mark(row["id"], moment, row.get("pinned") is True, label, attachments.get(name))


def read_rows(reader: ObjectReader, carrier: dict[bytes, Leaf], kind: bytes) -> Iterator[Line]:
    """The JSON lines in the pieces of one kind, in order."""
    for name, (mode, piece) in sorted(carrier.items()):
        if name.startswith(kind) and mode == REGULAR:
            for row in reader.read(piece, b"blob").splitlines():
                yield parse_json(row)
