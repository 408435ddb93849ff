"""Which lanes are at a remote, from the names of their heads: one listing, whatever the number of lanes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from shadowsnap import lightjson as json
from shadowsnap.errors import AmbiguousLane, KeyNeeded, LaneRefused, NoSuchLane
from shadowsnap.model import _Record
from shadowsnap.remote.manifest import HEADS, MOST_BYTES, Head, lane_folder, parse_head
from shadowsnap.remote.sealing import Opener, is_sealed
from shadowsnap.remote.storage import Item, Storage, TooLarge
from shadowsnap.store.lanes import LANE_NAME, readable

_AT_ONCE = 32
_MOST_LANES = 1_000_000


@dataclass(frozen=True)
class Lane(_Record):
    """One lane at a remote, as the remote says. Names are those of the lane's machine if its head can be read,
    and ids otherwise."""

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


def list_lanes(storage: Storage, opener: Opener, project: str | None = None) -> list[Lane]:
    """Every lane at the remote (or of one project), the one with the newest state first."""
    prefix = f"{HEADS}{project}/" if project is not None else HEADS
    newest: dict[str, tuple[Head, Item]] = {}
    for item in storage.items(prefix):
        head = parse_head(item.name)
        if head is None or (head.lane in newest and newest[head.lane][0].number >= head.number):
            continue  # a push that died left an older head
        if len(newest) >= _MOST_LANES:
            break
        newest[head.lane] = head, item
    heads = list(newest.values())
    contents = [head.content for head, _ in heads]
    if unread := [item.name for (head, item) in heads if head.content is None]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            read = iter(pool.map(lambda name: _content(storage, name), unread))
            contents = [next(read) if content is None else content for content in contents]
    found = [_lane(*each, opener, content) for each, content in zip(heads, contents, strict=True)]
    return sorted(found, key=lambda each: each.newest_at or datetime.fromtimestamp(0, UTC), reverse=True)


def _content(storage: Storage, name: str) -> bytes:
    try:
        return storage.get(name, MOST_BYTES) or b""
    except TooLarge:
        return b""


def _lane(head: Head, item: Item, opener: Opener, stored: bytes | None) -> Lane:
    """With the names that its head holds, if they can be read."""
    identity_id, _, machine = head.lane.partition("/")
    when, pushed = _moment(head.newest / 1000), _moment(item.modified)
    lane = Lane(head.lane, identity_id, machine, head.turns, when, pushed, head.size, head.number)
    stored = stored or b""
    lane = replace(lane, encrypted=is_sealed(stored))
    try:
        about = json.loads(opener.open(stored, lane.lane))
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
    """The lane that a person means: its id, a part of it, or the name of its project or machine."""
    if LANE_NAME.fullmatch(word):
        if any(True for _ in storage.items(lane_folder(word))):
            return word
        raise NoSuchLane(lane=word, url=storage.url)
    lanes = list_lanes(storage, opener)
    fitting = [each for each in lanes if word in (each.machine, each.project, f"{each.project}/{each.machine}")]
    fitting = fitting or [each for each in lanes if len(word) >= 4 and _has_part(each.lane, word)]
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


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
