"""The remote of a project, the lanes at it, and the identity of a project on every machine.

Lanes are read from the names of their heads: one listing, whatever the number of lanes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    AmbiguousLane,
    BadRemote,
    GitFailed,
    KeyNeeded,
    LaneRefused,
    NoRemote,
    NoSuchLane,
    RemoteExists,
    RemoteFailed,
)
from shadowsnap.files import UnreadableFile, parse_json, read_bounded, reading_problem
from shadowsnap.git.objects import is_object_id
from shadowsnap.model import Record
from shadowsnap.remote.manifest import (
    HEADS,
    MOST_BYTES,
    Head,
    Opener,
    check_recipients,
    is_encrypted,
    lane_folder,
    parse_head,
)
from shadowsnap.remote.storage import Item, Storage, TooLarge, local_path, normal_url, open_storage, probe
from shadowsnap.snapshot.ignore_rules import UserRepository, find_repository
from shadowsnap.store.lanes import (
    LANE_NAME,
    Identity,
    Remote,
    forget_mirrors,
    forget_pulled,
    forget_remote,
    lane_lock,
    pulled_lanes,
    read_own_lane,
    read_remote,
    readable,
    shown_url,
    write_remote,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project, as_moment

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
_READERS = 32
_MOST_LANES = 1_000_000
_MOST_CONFIG = 1 << 20
# Nothing may be fetched to complete what is read, and nothing that a repository configures may run.
_READ_ONLY = ("protocol.allow=never", "core.fsmonitor=false", "core.commitGraph=false", "maintenance.auto=false")
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[^/@]*@)?(?P<host>[^/:]*)(?::\d+)?/(?P<path>.*)", re.I)
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/:]{2,}):(?!//)(?P<path>.+)")


def add_remote(
    store: Store,
    project: Project,
    name: str,
    url: str,
    recipients: Sequence[str],
    *,
    plain: bool,
    conversations: bool,
    deadline: Deadline,
) -> Remote:
    known = read_remote(store, project.id)
    if known is not None:
        raise RemoteExists(workdir=project.workdir, name=known.name, url=shown_url(known.url))
    if not _NAME.fullmatch(name):
        raise BadRemote(url=name, why="its name must be letters, digits, dots and dashes")
    if plain == bool(recipients):
        why = "say either --plain or who can read it (--to RECIPIENT)"
        raise BadRemote(url=url, why=why if plain else f"a lane is encrypted unless you say otherwise: {why}")
    check_recipients(recipients)
    url = normal_url(url, str(project.workdir))
    _check_place(store, project, url)
    try:
        conditions = probe(open_storage(url, store), secrets.token_hex(8))
    except RemoteFailed:
        forget_mirrors(store, deadline)
        raise
    remote = Remote(name, url, tuple(recipients), plain, conversations, conditions)
    write_remote(store, project.id, remote)
    return remote


def _check_place(store: Store, project: Project, url: str) -> None:
    """Refuse a directory that is captured itself: it would grow with every push."""
    path = local_path(url)
    if path is None:
        return
    place = Path(os.path.realpath(path))
    for taken, what in ((project.workdir, "the project"), (store.base, "the store")):
        if place == taken or place.is_relative_to(taken):
            raise BadRemote(url=url, why=f"it lies inside {what}")


def remove_remote(store: Store, project: Project, deadline: Deadline) -> Remote:
    remote = remote_of(store, project)
    own = read_own_lane(store, project.id)
    pulled = [
        lane
        for lane in pulled_lanes(store, deadline)
        if own is not None and lane.url == shown_url(remote.url) and lane.identity.is_same(own.identity)
    ]
    forget_pulled(store, pulled, deadline)
    with locked(lane_lock(store, project.id), "remote", deadline):  # a push would write its lane again
        forget_remote(store, project.id, lane=False)
    forget_mirrors(store, deadline)
    return remote


def remote_of(store: Store, project: Project) -> Remote:
    remote = read_remote(store, project.id)
    if remote is None:
        raise NoRemote(workdir=project.workdir)
    return remote


def storage_of(store: Store, project: Project) -> Storage:
    url = remote_of(store, project).url
    try:
        return open_storage(url, store)
    except BadRemote as problem:  # it was usable once: a disk may be unmounted now, or a variable unset
        raise RemoteFailed(url=shown_url(url), why=problem.facts["why"]) from None


# --- the lanes at a remote ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lane(Record):
    """One lane at a remote, as its head describes it. If the head cannot be read, ids stand for the names of
    project and machine."""

    json_names = {"pushes": "manifest_number", "parent": "parent_lane"}

    lane: str
    project: str
    machine: str
    turns: int
    newest_at: datetime | None
    """When its last safe state was captured."""
    pushed_at: datetime | None
    bytes: int
    pushes: int
    encrypted: bool = False
    readable: bool = False
    parent: str | None = None
    origin: str = ""


def lanes_of(storage: Storage, opener: Opener, identity: Identity) -> list[Lane]:
    """The lanes of one project. The lane of a shallow clone, which has another id without the first commit, is
    found by its origin."""

    def is_of_project(lane: Lane) -> bool:
        return lane.lane.startswith(f"{identity.id}/") or (bool(lane.origin) and lane.origin == identity.origin)

    return [each for each in list_lanes(storage, opener) if is_of_project(each)]


def list_lanes(storage: Storage, opener: Opener) -> list[Lane]:
    """Every lane at the remote, the one with the newest state first."""
    with ThreadPoolExecutor(_READERS) as pool:  # heads are read while the storage lists the rest
        return _list_lanes(storage, opener, pool)


def _list_lanes(storage: Storage, opener: Opener, pool: ThreadPoolExecutor) -> list[Lane]:
    newest: dict[str, tuple[Head, Future[Lane]]] = {}
    for item in storage.items(HEADS):
        head = parse_head(item.name)
        if head is None or (head.lane in newest and newest[head.lane][0].number >= head.number):
            continue  # an older head, which an interrupted push left
        if len(newest) >= _MOST_LANES:
            break
        newest[head.lane] = head, pool.submit(_read_lane, storage, head, item, opener)
    found = [lane.result() for _, lane in newest.values()]
    return sorted(found, key=lambda each: each.newest_at or datetime.fromtimestamp(0, UTC), reverse=True)


def _head_content(storage: Storage, name: str) -> bytes:
    try:
        return storage.get(name, MOST_BYTES) or b""
    except TooLarge:
        return b""


def _read_lane(storage: Storage, head: Head, item: Item, opener: Opener) -> Lane:
    """A lane, with the names in its head if they can be read."""
    identity_id, _, machine = head.lane.partition("/")
    when, pushed = as_moment(head.newest / 1000), as_moment(item.modified)
    lane = Lane(head.lane, identity_id, machine, head.turns, when, pushed, head.size, head.number)
    stored = _head_content(storage, item.name) if head.content is None else head.content
    lane = replace(lane, encrypted=is_encrypted(stored))
    try:
        about = parse_json(opener.open(stored, lane.lane))
    except (KeyNeeded, LaneRefused, ValueError, RecursionError):
        return lane
    if not isinstance(about, dict):
        return lane
    return replace(
        lane,
        project=readable(about.get("name")) or identity_id,
        machine=readable(about.get("machine")) or lane.machine,
        readable=True,
        parent=_lane_name(about.get("parent")),
        origin=readable(about.get("origin"), 500),
    )


def find_lane(storage: Storage, opener: Opener, word: str) -> str:
    """The lane with this id, part of an id, or name of its project or machine."""
    if LANE_NAME.fullmatch(word):
        if any(True for _ in storage.items(lane_folder(word))):
            return word
        raise NoSuchLane(lane=word, url=storage.url)
    lanes = list_lanes(storage, opener)
    fitting = [each for each in lanes if word in (each.machine, each.project, f"{each.project}/{each.machine}")]
    fitting = fitting or [each for each in lanes if len(word) >= 4 and _has_part(each.lane, word)]
    if not fitting and (hidden := sum(not each.readable for each in lanes)):
        whose = f"the name of {hidden} lanes" if hidden > 1 else "the name of a lane"
        raise KeyNeeded(what=f"{whose} at {storage.url}", why=f"{word!r} is not the id of one")
    if not fitting:
        raise NoSuchLane(lane=word, url=storage.url)
    if len(fitting) > 1:
        shown = ", ".join(each.lane for each in fitting[:5])
        raise AmbiguousLane(lane=word, count=len(fitting), candidates=shown)
    return fitting[0].lane


def _has_part(lane: str, word: str) -> bool:
    return lane.startswith(word) or lane.partition("/")[2].startswith(word)


def _lane_name(value: Any) -> str | None:
    return value if isinstance(value, str) and LANE_NAME.fullmatch(value) else None


# --- the identity of a project ------------------------------------------------------------------------------


def identity_of(store: Store, workdir: Path, deadline: Deadline) -> Identity | None:
    """The identity of a project by its repository; None without a repository, or one without commits and
    origin."""
    repository = find_repository(workdir)
    if repository is None:
        return None
    root = _first_commit(store, repository, deadline)
    origin = _origin(store, repository, deadline)
    if not root and not origin:
        return None
    # A directory inside a repository is a project of its own.
    inside = workdir.relative_to(repository.top).as_posix() if workdir != repository.top else ""
    digest = hashlib.sha256("\n".join(("shadowsnap lane", root, origin, inside)).encode()).hexdigest()
    name = origin.rpartition("/")[2] or repository.top.name
    return Identity(digest[:20], readable(f"{name}/{inside}" if inside else name), root, origin)


def new_identity(workdir: Path) -> Identity:
    """A random identity, for a directory that has none."""
    return Identity(secrets.token_hex(10), readable(workdir.name))


def normal_origin(url: str) -> str:
    """`host/path` of a clone address, the same for every spelling, without user name and password; empty for a
    local path."""
    url = url.strip()
    found = _URL.fullmatch(url) or _SCP.fullmatch(url)
    if found is None or (found.groupdict().get("scheme") or "").lower() == "file":
        return ""
    host, path = found["host"].lower().rstrip("."), found["path"].strip("/").removesuffix(".git").rstrip("/")
    path = re.sub(r"/+", "/", path.partition("?")[0].partition("#")[0])
    return f"{host}/{path}" if host and path else ""


def _first_commit(store: Store, repository: UserRepository, deadline: Deadline) -> str:
    """The first commit of a repository; empty in a shallow clone, which lacks it."""
    head = repository.head()[0] or ""
    if not is_object_id(head) or (repository.common_dir / "shallow").exists() or repository.odd_files():
        return ""
    git = store.git(deadline).bound(git_dir=repository.common_dir, config=_READ_ONLY)
    try:
        found = git.run("rev-list", "--first-parent", "--max-parents=0", head).decode("ascii", "replace").split()
    except GitFailed:
        return ""  # damaged, or of another format
    return found[-1] if found and is_object_id(found[-1]) else ""


def _origin(store: Store, repository: UserRepository, deadline: Deadline) -> str:
    config = repository.common_dir / "config"
    if reading_problem(config, _MOST_CONFIG) is not None:
        return ""
    try:
        text = read_bounded(config, _MOST_CONFIG)
    except UnreadableFile:
        return ""
    if not text or b"origin" not in text:
        return ""
    words = ("config", "--file", str(config), "--no-includes", "--get", "remote.origin.url")
    try:
        found = store.git(deadline).run(*words, ok=(0, 1))
    except GitFailed:
        return ""
    return normal_origin(found.decode("utf-8", "replace"))
