"""Encryption of lanes with age (https://age-encryption.org), through the package `pyrage`.

Recipients are public keys: `age1...`, or a public SSH key. A machine that has only those can write to a lane and
read nothing, not even its own. Private keys come from a file that the person names.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from shadowsnap.errors import BadKey, ExtraMissing, KeyNeeded, LaneRefused
from shadowsnap.files import UnreadableFile, read_bounded

_MAGIC = b"age-encryption.org/v1\n"
_LONGEST_KEY_FILE = 1 << 20


class Sealer:
    """Encrypts for some recipients; without any, everything stays as it is."""

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
    """Decrypts with the keys of one file; what is not encrypted is returned as it is."""

    def __init__(self, key_file: Path | None = None) -> None:
        self._keys = _identities(key_file) if key_file is not None else []

    @property
    def has_key(self) -> bool:
        return bool(self._keys)

    def open(self, data: bytes, lane: str) -> bytes:
        if not is_sealed(data):
            return data
        self._need_key(lane)
        pyrage = _pyrage("an encrypted lane")
        try:
            opened: bytes = pyrage.decrypt(data, self._keys)
        except pyrage.DecryptError as problem:
            raise self._unopened(lane, problem) from None
        return opened

    def open_file(self, source: Path, target: Path, lane: str) -> None:
        with source.open("rb") as file:
            sealed = is_sealed(file.read(len(_MAGIC)))
        if not sealed:
            os.replace(source, target)
            return
        self._need_key(lane)
        pyrage = _pyrage("an encrypted lane")
        try:
            pyrage.decrypt_file(str(source), str(target), self._keys)
        except pyrage.DecryptError as problem:
            raise self._unopened(lane, problem) from None

    def _need_key(self, lane: str) -> None:
        if not self._keys:
            raise KeyNeeded(what=f"lane {lane}", why="no key was named")

    def _unopened(self, lane: str, problem: Exception) -> Exception:
        if "no matching keys" in str(problem).lower():
            return KeyNeeded(what=f"lane {lane}", why="it is not meant for the key that was named")
        return LaneRefused(lane=lane, why=f"what is encrypted there was damaged or cut short ({problem})")


def is_sealed(data: bytes) -> bool:
    return data.startswith(_MAGIC)


def generate_key(path: Path) -> str:
    """Write a new private key to a file that must not exist yet; the public key."""
    made = _pyrage("keygen").x25519.Identity.generate()
    public = str(made.to_public())
    text = f"# a private key in the format of age; keep it to yourself\n# public key: {public}\n{made}\n"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadKey(what=str(path), why="there is a file of that name, which is not overwritten") from None
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


def _identities(path: Path) -> list[Any]:
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
