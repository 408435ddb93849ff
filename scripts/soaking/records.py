"""What each agent writes down, so that somebody else can judge afterwards: one JSON object per line,
written in one call, so that a kill leaves whole lines only."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STAGING = ".shadowsnap-restore-"


class Record:
    """The record of one agent."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, **facts: Any) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, json.dumps(facts).encode() + b"\n")
        finally:
            os.close(descriptor)

    def read(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self._path.read_bytes().splitlines()]
        except FileNotFoundError:
            return []


def fingerprint(project: Path) -> str:
    """Names everything below a directory: paths, types, permission bits, contents, link targets."""
    digest = hashlib.sha256()
    for path in _everything(project):
        seen = path.lstat()
        kind = stat.S_IFMT(seen.st_mode)
        content = os.readlink(path).encode() if stat.S_ISLNK(seen.st_mode) else b""
        if stat.S_ISREG(seen.st_mode):
            content = path.read_bytes()
        bits = 0 if stat.S_ISLNK(seen.st_mode) else stat.S_IMODE(seen.st_mode)
        digest.update(f"{path.relative_to(project)}\0{kind} {bits} {len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def leftovers(project: Path) -> list[Path]:
    return [path for path in project.rglob("*") if path.name.startswith(STAGING)]


def _everything(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(STAGING):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _everything(path)
