"""What the store costs, measured when something changed and remembered otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.totals import count_objects
from shadowsnap.store.layout import Store
from shadowsnap.store.tips import ATTACHMENTS, CHECKPOINTS, CachedTrees
from shadowsnap.upkeep.accounting import Holder, Usage, measure
from shadowsnap.upkeep.memory import Look, fingerprint, read_memory, write_memory
from shadowsnap.upkeep.session import upkeep_session

_ARCHIVES = ("legacy-", "corrupt-")


def look_at(store: Store, refs: Mapping[str, str], deadline: Deadline) -> Look | None:
    """What everything costs under these refs; None if that cannot be found out in time."""
    known = read_memory(store).look
    if known is not None and known.refs == fingerprint(refs):
        return known
    try:
        look = _measure(store, refs, deadline)
    except DeadlineExceeded:
        return None
    with upkeep_session(store, deadline) as session:
        if session is not None:  # otherwise whoever is at it knows better
            write_memory(store, replace(read_memory(store), look=look))
    return look


def as_look(usage: Usage, live: int, refs: Mapping[str, str], on_disk: int) -> Look:
    """What is to be remembered of a measurement."""
    alone = usage.all_alone()
    attachments = alone.pop(ATTACHMENTS, 0)
    return Look(fingerprint(refs), on_disk, usage.total, live, attachments, alone)


def archived_bytes(store: Store) -> int:
    """Bytes in archives of older layouts and of damaged things. They are walked once: nobody
    changes them."""
    paths = [path for path in store.base.iterdir() if path.name.startswith(_ARCHIVES)]
    known = read_memory(store).archives
    if all(_version(path) in known for path in paths):
        return sum(known[_version(path)] for path in paths)
    found = {_version(path): _size_of(path) for path in paths}
    with upkeep_session(store, Deadline(1)) as session:
        if session is not None:
            write_memory(store, replace(read_memory(store), archives=found))
    return sum(found.values())


def _measure(store: Store, refs: Mapping[str, str], deadline: Deadline) -> Look:
    groups: dict[str, list[Holder]] = {ATTACHMENTS: []}
    for project, tree in CachedTrees(store).read().items():
        groups.setdefault(project, []).append(Holder(f"cache of {project}", tree))
    for ref, name in refs.items():
        top, _, project = ref.rpartition("/")[0].rpartition("/")
        if top == CHECKPOINTS:
            groups.setdefault(project, []).append(Holder(ref, name))
        elif top == ATTACHMENTS:
            groups[ATTACHMENTS].append(Holder(ref, name))
    git = store.git(deadline)
    usage = measure(git, groups)
    return as_look(usage, usage.live, refs, count_objects(git).bytes)


def _version(path: Path) -> str:
    return f"{path.name} {path.lstat().st_mtime_ns}"


def _size_of(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(
        os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names
    )
