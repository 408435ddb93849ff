"""One run of upkeep: only one at a time in a store, with a deadline and a place for its scraps."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DiskTooFull, LockTimeout
from shadowsnap.files import read_json, remove_tree, write_json
from shadowsnap.git.repository import Git
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import if_free, locked

_SPARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Session:
    store: Store
    deadline: Deadline
    lock: int
    """The upkeep lock. Git inherits it: should we be killed, the next run waits for git to end."""

    @property
    def git(self) -> Git:
        return self.store.git(self.deadline).bound(inherited=(self.lock,))

    @contextmanager
    def writing_packs(self, needed_bytes: int, doing: str) -> Iterator[Git]:
        """Git that writes new packs aside, if the disk has room for them."""
        check_room(self.store, needed_bytes, doing)
        scratch = self.store.git_dir / f"scratch-upkeep-{os.getpid()}"
        remove_tree(scratch)
        scratch.mkdir()
        try:
            yield self.git.bound(scratch_objects=scratch)
        finally:
            remove_tree(scratch)


def upkeep_lock(store: Store) -> Path:
    return store.git_dir / "locks" / "upkeep.lock"


@contextmanager
def upkeep_session(
    store: Store, deadline: Deadline, on_wait: Callable[[], None] | None = None
) -> Iterator[Session | None]:
    """The right to do upkeep; None if another process is at it. With `on_wait`, which is called once, that
    process is waited for until the deadline."""
    with if_free(upkeep_lock(store), "upkeep") as lock:
        if lock is not None or on_wait is None:
            yield None if lock is None else Session(store, deadline, lock)
            return
    on_wait()
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(upkeep_lock(store), "upkeep", deadline))
        except LockTimeout:
            lock = None
        yield None if lock is None else Session(store, deadline, lock)


def check_room(store: Store, needed_bytes: int, doing: str) -> None:
    import shutil

    free = shutil.disk_usage(store.git_dir).free
    if free < needed_bytes + _SPARE_BYTES:
        needed = (needed_bytes + _SPARE_BYTES) >> 20
        raise DiskTooFull(doing=doing, needed=needed, free=free >> 20)


@dataclass(frozen=True)
class Look:
    """What the last full accounting found, under which refs and sizes."""

    refs: str = ""
    """Names the state of all refs (see `fingerprint`)."""
    on_disk: int = 0
    """What the object files take of the disk, in its blocks."""
    total: int = 0
    """Bytes of the object files."""
    live: int = 0
    """Bytes of the objects that somebody holds."""
    attachments: int = 0
    alone: dict[str, int] = field(default_factory=dict)

    @property
    def unreachable(self) -> int:
        return max(0, self.total - self.live)


@dataclass(frozen=True)
class Memory:
    gone_since: dict[str, float] = field(default_factory=dict)
    """When a project's directory was first found missing."""
    devices: dict[str, int] = field(default_factory=dict)
    """The file system that holds the directory a project is in."""
    look: Look | None = None
    told_unmet: str = ""
    """The state of refs and limit for which it was said that the size limit cannot be kept."""
    compact_pack: str = ""
    """The pack that the last full repack left."""
    archives: dict[str, int] = field(default_factory=dict)
    """Bytes of archived directories that were walked."""
    too_slow: bool = False
    """The last full repack did not finish in time: the next one does without new deltas."""


_SIZES = ("on_disk", "total", "live", "attachments")


def fingerprint(refs: Mapping[str, str], *more: object) -> str:
    digest = hashlib.sha256(repr(more).encode())
    for ref in sorted(refs):
        digest.update(f"{ref} {refs[ref]}\n".encode())
    return digest.hexdigest()


def memory_file(store: Store) -> Path:
    return store.git_dir / "upkeep.json"


def read_memory(store: Store) -> Memory:
    """What is remembered; nothing, if that is absent or damaged."""
    record = read_json(memory_file(store)) or {}
    look = record.get("look")
    return Memory(
        gone_since=_numbers(record.get("gone_since"), float),
        devices=_numbers(record.get("devices"), int),
        look=_look(look) if isinstance(look, dict) else None,
        told_unmet=str(record.get("told_unmet", "")),
        compact_pack=str(record.get("compact_pack", "")),
        archives=_numbers(record.get("archives"), int),
        too_slow=record.get("too_slow") is True,
    )


def write_memory(store: Store, memory: Memory) -> None:
    with suppress(OSError):  # on a full disk it is found out again the next time
        write_json(memory_file(store), asdict(memory))


def _look(record: dict[str, Any]) -> Look | None:
    try:
        on_disk, total, live, attachments = (int(record[name]) for name in _SIZES)
        return Look(str(record["refs"]), on_disk, total, live, attachments, _numbers(record["alone"], int))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _numbers(value: Any, kind: type) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    known = ((key, number) for key, number in value.items() if isinstance(number, (int, float)))
    return {str(key): kind(number) for key, number in known if math.isfinite(number)}
