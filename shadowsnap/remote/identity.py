"""The identity of a project that is the same on every machine: never its path."""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import GitFailed
from shadowsnap.files import UnreadableFile, read_bounded, reading_problem
from shadowsnap.git.objects import is_object_id
from shadowsnap.snapshot.ignore_rules import UserRepository, find_repository
from shadowsnap.store.lanes import Identity, readable
from shadowsnap.store.layout import Store

_MOST_CONFIG = 1 << 20
# Nothing may be fetched to complete what is read, and nothing that a repository configures may run.
_READ_ONLY = ("protocol.allow=never", "core.fsmonitor=false", "core.commitGraph=false", "maintenance.auto=false")
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[^/@]*@)?(?P<host>[^/:]*)(?::\d+)?/(?P<path>.*)", re.I)
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/:]{2,}):(?!//)(?P<path>.+)")


def identity_of(store: Store, workdir: Path, deadline: Deadline) -> Identity | None:
    """What a repository says about itself; None for a directory without one, or without anything to go by."""
    repository = find_repository(workdir)
    if repository is None:
        return None
    root = _root(store, repository, deadline)
    origin = _origin(store, repository, deadline)
    if not root and not origin:
        return None
    # A directory inside a repository is a project of its own.
    inside = workdir.relative_to(repository.top).as_posix() if workdir != repository.top else ""
    digest = hashlib.sha256("\n".join(("shadowsnap lane", root, origin, inside)).encode()).hexdigest()
    name = origin.rpartition("/")[2] or repository.top.name
    return Identity(digest[:20], readable(f"{name}/{inside}" if inside else name), root, origin)


def new_identity(workdir: Path) -> Identity:
    """A random one."""
    return Identity(secrets.token_hex(10), readable(workdir.name))


def normal_origin(url: str) -> str:
    """`host/path` of a clone address, the same for every way to write it; empty for a local path. No user name and
    no password stays in it."""
    url = url.strip()
    found = _URL.fullmatch(url) or _SCP.fullmatch(url)
    if found is None or (found.groupdict().get("scheme") or "").lower() == "file":
        return ""
    host, path = found["host"].lower().rstrip("."), found["path"].strip("/").removesuffix(".git").rstrip("/")
    path = re.sub(r"/+", "/", path.partition("?")[0].partition("#")[0])
    return f"{host}/{path}" if host and path else ""


def _root(store: Store, repository: UserRepository, deadline: Deadline) -> str:
    """The first commit; nothing in a shallow clone, which does not have it."""
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
