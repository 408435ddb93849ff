"""What checkpoints cost, and what upkeep remembers of that between runs.

Measuring takes a handful of git processes for any number of projects: the types of the tips, one process per level
of directories to read trees, and the size on disk of every object. (`rev-list --disk-usage` gives one number per
process: the share of each of 200 projects would take 200 walks of the store.) An object that many checkpoints
share is visited once per project. Objects that no checkpoint needs are not visited.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.errors import DamagedObject
from shadowsnap.files import read_json, write_json
from shadowsnap.git.objects import stored_bytes
from shadowsnap.git.reading import Graph, kinds_of, reachable
from shadowsnap.git.repository import Git
from shadowsnap.store.checkpoints import ATTACHMENTS
from shadowsnap.store.layout import Store


class Holder(NamedTuple):
    """Something that keeps objects in the store, such as a checkpoint."""

    name: str
    tip: str
    """The object from which all of them can be reached."""


@dataclass(frozen=True)
class Usage:
    total: int = 0
    """Bytes of all object files, needed or not."""
    live: int = 0
    """Bytes of the objects that have a holder."""
    shares: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Bytes by holders. Of each group that has the objects, the holder that is dropped last is named."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    damaged: frozenset[str] = frozenset()
    """Holders whose objects are not all in the store."""
    objects: int = 0
    """How many objects have a holder."""

    def alone(self, group: str) -> int:
        """Bytes that would be freed if only this group were dropped."""
        return self.all_alone().get(group, 0)

    def all_alone(self) -> dict[str, int]:
        found = dict.fromkeys(self.group_of.values(), 0)
        for names, size in self.shares.items():
            if len(names) == 1:
                found[self.group_of[names[0]]] += size
        return found


def measure(git: Git, groups: Mapping[str, Sequence[Holder]]) -> Usage:
    """Measure the store. In each group the holder that is dropped last comes first: an object is charged to the
    first holder that has it."""
    charged: dict[str, tuple[str, ...]] = {}
    damaged: set[str] = set()
    kinds = kinds_of(git, (holder.tip for group in groups.values() for holder in group))
    with Graph(git) as graph:
        graph.prefetch(kinds)
        for group in groups.values():
            seen: set[str] = set()
            for holder in group:
                found: list[str] = []
                try:
                    for name in _reachable(graph, holder, kinds, seen):
                        found.append(name)
                except DamagedObject:
                    damaged.add(holder.name)
                for name in found:
                    charged[name] = (*charged.get(name, ()), holder.name)
                seen.update(found)
    shares: dict[tuple[str, ...], int] = {}
    objects = 0
    for name, size in disk_sizes(git, charged):
        shares[charged[name]] = shares.get(charged[name], 0) + size
        objects += size > 0  # git knows the empty tree even if it is not stored
    group_of = {holder.name: group for group, members in groups.items() for holder in members}
    live = sum(shares.values())
    return Usage(stored_bytes(git.git_dir), live, shares, group_of, frozenset(damaged), objects)


def _reachable(graph: Graph, holder: Holder, kinds: Mapping[str, bytes], seen: set[str]) -> Iterator[str]:
    if holder.tip not in kinds:
        raise DamagedObject(id=holder.tip)
    return reachable(graph, holder.tip, kinds[holder.tip], seen)


def disk_sizes(git: Git, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The bytes that each of these objects takes in the store; missing ones are left out."""
    asked = "".join(f"{name}\n" for name in names).encode()
    if asked:
        rows = git.run("cat-file", "--batch-check=%(objectname) %(objectsize:disk)", stdin=asked).splitlines()
        yield from ((row[:40].decode(), int(row[41:])) for row in rows if not row.endswith(b" missing"))


# --- memory between runs -----------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """What the last measurement found."""

    refs: str = ""
    """The state of all refs at that time (see `fingerprint`)."""
    on_disk: int = 0
    """Disk blocks of the object files, in bytes."""
    total: int = 0
    """Bytes of the object files."""
    live: int = 0
    """Bytes of the objects that have a holder."""
    attachments: int = 0
    alone: dict[str, int] = field(default_factory=dict)
    """Bytes that would be freed with each project."""

    @property
    def unreachable(self) -> int:
        return max(0, self.total - self.live)


def summarize(usage: Usage, live: int, refs: Mapping[str, str], on_disk: int) -> Measurement:
    alone = usage.all_alone()
    attachments = alone.pop(ATTACHMENTS, 0)
    return Measurement(fingerprint(refs), on_disk, usage.total, live, attachments, alone)


def fingerprint(refs: Mapping[str, str], *more: object) -> str:
    digest = hashlib.sha256(repr(more).encode())
    for ref in sorted(refs):
        digest.update(f"{ref} {refs[ref]}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Memory:
    gone_since: dict[str, float] = field(default_factory=dict)
    """When a project's directory was first found missing."""
    measured: Measurement | None = None
    unmet: str = ""
    """The state of refs and limit for which the log already has that the size limit cannot be kept."""
    compact_pack: str = ""
    """The pack that the last full repack wrote."""
    archives: dict[str, int] = field(default_factory=dict)
    """Bytes of archived directories, which do not change."""
    too_slow: bool = False
    """The last full repack did not finish in time: the next one looks for no new deltas."""


def memory_file(store: Store) -> Path:
    return store.git_dir / "upkeep.json"


def read_memory(store: Store) -> Memory:
    """What is remembered; nothing, if the file is absent or damaged."""
    record = read_json(memory_file(store)) or {}
    return Memory(
        gone_since=_numbers(record.get("gone_since"), float),
        measured=_measurement(record.get("measured")),
        unmet=str(record.get("unmet", "")),
        compact_pack=str(record.get("compact_pack", "")),
        archives=_numbers(record.get("archives"), int),
        too_slow=record.get("too_slow") is True,
    )


def _measurement(record: Any) -> Measurement | None:
    try:
        sizes = {name: int(record[name]) for name in ("on_disk", "total", "live", "attachments")}
        return Measurement(refs=str(record["refs"]), alone=_numbers(record["alone"], int), **sizes)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _numbers(value: Any, kind: type) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    known = ((key, number) for key, number in value.items() if isinstance(number, (int, float)))
    return {str(key): kind(number) for key, number in known if math.isfinite(number)}


def write_memory(store: Store, memory: Memory) -> None:
    with suppress(OSError):  # on a full disk it is measured again the next time
        write_json(memory_file(store), asdict(memory))
