"""Manifests: the numbered statements that a lane consists of, and the names of everything at the remote.

    shadowsnap-lanes/v1/lanes/<project>/<machine>/m-<number>    a manifest, encrypted unless the lane is plain
    shadowsnap-lanes/v1/lanes/<project>/<machine>/p-<digest>    a pack of what was new then
    shadowsnap-lanes/v1/heads/<project>/<machine>/<facts>       for listing: number, newest state, turns, size

A manifest names its pack, the one before it by digest, and the first of its generation, which needs nothing
older. Heads are only a short cut for `lanes`: nothing is believed because a head says so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from shadowsnap.errors import LaneRefused
from shadowsnap.files import parse_json
from shadowsnap.git.objects import is_object_id
from shadowsnap.remote.storage import TOP
from shadowsnap.store.lanes import LANE_NAME

FORMAT = 1
MOST_BYTES = 1 << 16
MOST_PACK_BYTES = 16 << 30
LONGEST_CHAIN = 1000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEAD = re.compile(r"(\d{10})-(\d{13})-(\d{1,9})-(\d{1,15})")
_PART, _LONGEST_HEAD = 200, 950
"""Object stores take names of 1,024 bytes, servers of files 255 between two slashes."""
_MANIFEST = re.compile(r"m-(\d{10})")


@dataclass(frozen=True)
class Manifest:
    lane: str
    number: int
    first: int
    previous: str
    """The digest of the manifest before it; empty for the very first."""
    at: float
    carrier: str
    """The tree that says everything about the lane (see `carrier`)."""
    pack: str
    """The digest of the pack, as it is stored."""
    pack_bytes: int
    turns: int
    checkpoints: int
    newest: int
    """When the newest checkpoint was taken, in milliseconds."""
    key: str = ""
    """A secret of the lane's machine. Only encrypted manifests have it, so only their readers know it."""

    def encoded(self) -> bytes:
        facts = {name: getattr(self, name) for name in Manifest.__match_args__}
        return json.dumps({"format": FORMAT, **facts}, sort_keys=True, separators=(",", ":")).encode("ascii")


def parse_manifest(data: bytes, lane: str, number: int) -> Manifest:
    """A manifest that was found in this place. Raises `LaneRefused` for what is none, or is another's."""

    def refused(why: str) -> LaneRefused:
        return LaneRefused(lane=lane, why=f"manifest {number} {why}")

    try:
        record = parse_json(data)
    except (ValueError, RecursionError):
        raise refused("is damaged or cut short") from None
    if not isinstance(record, dict):
        raise refused("is damaged")
    version = record.pop("format", None)
    if version != FORMAT:
        raise refused(f"has format {version!r}, and this version knows {FORMAT}")
    if set(record) != set(Manifest.__match_args__) or not _is_sound(record):
        raise refused("does not have the form of a manifest")
    found = Manifest(**record)
    if found.lane != lane:
        raise refused(f"belongs to lane {found.lane}")
    if found.number != number:
        raise refused(f"is number {found.number}, stored under another number")
    if not 1 <= found.first <= number or number - found.first >= LONGEST_CHAIN:
        raise refused("claims a beginning that cannot be")
    if bool(found.previous) != (number > 1):
        raise refused("does not say what came before it")
    return found


def _is_sound(record: dict[str, Any]) -> bool:
    numbers = ("number", "first", "pack_bytes", "turns", "checkpoints", "newest")
    whole = all(type(record[name]) is int and 0 <= record[name] < 10**15 for name in numbers)
    texts = all(isinstance(record[name], str) for name in ("lane", "previous", "carrier", "pack", "key"))
    if not whole or not texts or type(record["at"]) not in (int, float) or not math.isfinite(record["at"]):
        return False
    return (
        LANE_NAME.fullmatch(record["lane"]) is not None
        and is_object_id(record["carrier"])
        and _DIGEST.fullmatch(record["pack"]) is not None
        and (not record["previous"] or _DIGEST.fullmatch(record["previous"]) is not None)
        and (not record["key"] or _DIGEST.fullmatch(record["key"]) is not None)
        and record["pack_bytes"] <= MOST_PACK_BYTES
        and record["newest"] < 10**13
    )


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- names at the remote -----------------------------------------------------------------------------


def lane_folder(lane: str) -> str:
    return f"{TOP}/lanes/{lane}/"


def manifest_name(lane: str, number: int) -> str:
    return f"{lane_folder(lane)}m-{number:010d}"


def manifest_number(name: str) -> int | None:
    found = _MANIFEST.fullmatch(name.rpartition("/")[2])
    return int(found[1]) if found else None


def pack_name(lane: str, digest: str) -> str:
    return f"{lane_folder(lane)}p-{digest}"


HEADS = f"{TOP}/heads/"


def head_folder(lane: str) -> str:
    return f"{HEADS}{lane}/"


def head_name(lane: str, number: int, newest: int, turns: int, size: int) -> str:
    return f"{head_folder(lane)}{number:010d}-{newest:013d}-{turns}-{size}"


def with_content(head: str, data: bytes, longest: int = _LONGEST_HEAD) -> str:
    """A head that says in its name what it holds, so that listing is enough to read it; without, if that would be
    too long a name."""
    text = base64.urlsafe_b64encode(data).decode("ascii")
    parts = [text[at : at + _PART] for at in range(0, len(text), _PART)]
    name = "/".join((head, *(f"x{part}" for part in parts)))
    return name if len(name) <= longest else head


class Head(NamedTuple):
    """What the name of a head says."""

    lane: str
    number: int
    newest: int
    turns: int
    size: int
    content: bytes | None


def parse_head(name: str) -> Head | None:
    """None for what is no head."""
    project, machine, facts, *parts = (*name.removeprefix(HEADS).split("/"), "", "", "")
    lane, found, text = f"{project}/{machine}", _HEAD.fullmatch(facts), "".join(part[1:] for part in parts)
    if not name.startswith(HEADS) or not LANE_NAME.fullmatch(lane) or found is None:
        return None
    number, newest, turns, size = map(int, found.groups())
    try:
        content = base64.b64decode(text, b"-_", validate=True) if text else None
    except ValueError:
        content = b""
    return Head(lane, number, newest, turns, size, content)
