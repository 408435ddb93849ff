"""Manifests: the numbered statements that a lane consists of, and the names of everything at the remote.

    shadowsnap-lanes/v1/lanes/<project>/<machine>/m-<number>    a manifest, encrypted unless the lane is plain
    shadowsnap-lanes/v1/lanes/<project>/<machine>/p-<digest>    a pack of what was new then
    shadowsnap-lanes/v1/heads/<project>/<machine>/<facts>       for listing: number, newest state, turns, size

A manifest names its pack, the one before it by digest, and the first of its generation, which needs nothing
older. Heads only speed `lanes` up; a pull relies on manifests alone.

Encryption is that of age (https://age-encryption.org), through the package `pyrage`. Recipients are public keys:
`age1...`, or a public SSH key. A machine that has only those can write to a lane and read nothing, not even its
own. Private keys come from a file that the person names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from shadowsnap.errors import BadKey, ExtraMissing, KeyNeeded, LaneRefused
from shadowsnap.files import UnreadableFile, parse_json, read_bounded
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
"""Object stores take names of at most 1,024 bytes, file servers at most 255 between two slashes."""
_MAGIC = b"age-encryption.org/v1\n"
_LONGEST_KEY_FILE = 1 << 20
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
    """The tree that describes the lane (see `carrier`)."""
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
    """Parse the manifest that is stored under this number. Raises `LaneRefused` if it is malformed or of another
    lane."""

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
    if set(record) != set(Manifest.__match_args__) or not _is_valid(record):
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


def _is_valid(record: dict[str, Any]) -> bool:
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


def head_with_content(head: str, data: bytes, longest: int = _LONGEST_HEAD) -> str:
    """The name of a head with its content encoded in it, so that listing is enough to read it; without the content
    if that would be too long."""
    text = base64.urlsafe_b64encode(data).decode("ascii")
    parts = [text[at : at + _PART] for at in range(0, len(text), _PART)]
    name = "/".join((head, *(f"x{part}" for part in parts)))
    return name if len(name) <= longest else head


class Head(NamedTuple):
    """The facts in the name of a head."""

    lane: str
    number: int
    newest: int
    turns: int
    size: int
    content: bytes | None


def parse_head(name: str) -> Head | None:
    """Parse the name of a head; None if it is not one."""
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


# --- encryption --------------------------------------------------------------------------------------


class Sealer:
    """Encrypts for recipients; without recipients, data stays plain."""

    def __init__(self, recipients: Sequence[str]) -> None:
        self._recipients = [_recipient(each) for each in recipients]

    def seal(self, data: bytes) -> bytes:
        if not self._recipients:
            return data
        sealed: bytes = _pyrage("an encrypted lane").encrypt(data, self._recipients)
        return sealed

    def seal_file(self, source: Path, target: Path) -> None:
        if self._recipients:
            _pyrage("an encrypted lane").encrypt_file(str(source), str(target), self._recipients)
        else:
            shutil.copyfile(source, target)


class Opener:
    """Decrypts with the keys of one file; data that is not encrypted is returned as it is."""

    def __init__(self, key_file: Path | None = None) -> None:
        self._keys = _private_keys(key_file) if key_file is not None else []

    def open(self, data: bytes, lane: str) -> bytes:
        if not is_encrypted(data):
            return data
        self._need_key(lane)
        pyrage = _pyrage("an encrypted lane")
        try:
            opened: bytes = pyrage.decrypt(data, self._keys)
        except pyrage.DecryptError as problem:
            raise self._decryption_error(lane, problem) from None
        return opened

    def open_file(self, source: Path, target: Path, lane: str) -> None:
        with source.open("rb") as file:
            sealed = is_encrypted(file.read(len(_MAGIC)))
        if not sealed:
            os.replace(source, target)
            return
        self._need_key(lane)
        pyrage = _pyrage("an encrypted lane")
        try:
            pyrage.decrypt_file(str(source), str(target), self._keys)
        except pyrage.DecryptError as problem:
            raise self._decryption_error(lane, problem) from None

    def _need_key(self, lane: str) -> None:
        if not self._keys:
            raise KeyNeeded(what=f"lane {lane}", why="no key was named")

    def _decryption_error(self, lane: str, problem: Exception) -> Exception:
        if "no matching keys" in str(problem).lower():
            return KeyNeeded(what=f"lane {lane}", why="it is not meant for the key that was named")
        return LaneRefused(lane=lane, why=f"what is encrypted there was damaged or cut short ({problem})")


def is_encrypted(data: bytes) -> bool:
    return data.startswith(_MAGIC)


def generate_key(path: Path) -> str:
    """Write a new private key to a file that must not exist yet; returns the public key."""
    made = _pyrage("keygen").x25519.Identity.generate()
    public = str(made.to_public())
    text = f"# a private key in the format of age; keep it to yourself\n# public key: {public}\n{made}\n"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadKey(what=str(path), why="it exists already: name another file, or use the key in it") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    return public


def check_recipients(recipients: Sequence[str]) -> None:
    for each in recipients:
        _recipient(each)


def _recipient(text: str) -> Any:
    pyrage = _pyrage("an encrypted lane")
    text = text.strip()
    if text.upper().startswith("AGE-SECRET-KEY-"):
        raise BadKey(what="--to", why="that is a private key; name the public one, which begins with age1")
    kind = pyrage.ssh.Recipient if text.startswith("ssh-") else pyrage.x25519.Recipient
    try:
        return kind.from_str(text)
    except pyrage.RecipientError as problem:
        raise BadKey(what=text[:80], why=str(problem)) from None


def _private_keys(path: Path) -> list[Any]:
    pyrage = _pyrage("an encrypted lane")
    try:
        data = read_bounded(path, _LONGEST_KEY_FILE)
    except UnreadableFile as odd:
        raise BadKey(what=str(path), why=f"it cannot be read ({odd.why})") from None
    if data is None:
        raise BadKey(what=str(path), why="there is no such file")
    if sys.platform != "win32" and os.stat(path).st_mode & 0o077:
        raise BadKey(what=str(path), why="others can read it (chmod 600 it)")
    try:
        if b"-----BEGIN " in data:
            return [pyrage.ssh.Identity.from_buffer(data)]
        lines = [line.strip() for line in data.decode("ascii").splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        found = [pyrage.x25519.Identity.from_str(key) for key in keys]
    except (pyrage.IdentityError, ValueError) as problem:
        raise BadKey(what=str(path), why=str(problem)) from None
    if not found:
        raise BadKey(what=str(path), why="there is no private key in it")
    return found


def _pyrage(what: str) -> ModuleType:
    try:
        import pyrage  # an extra: only encrypted lanes need it
    except ImportError:
        raise ExtraMissing(what=what, extra="remote") from None
    found: ModuleType = pyrage
    return found
