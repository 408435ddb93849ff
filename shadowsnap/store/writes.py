"""What an agent wrote last into which file, to tell it from what people wrote since."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shadowsnap.files import read_json, write_json
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

# The newest are enough: what was written long ago is not what is restored.
_MOST = 2000


def note_write(store: Store, project: Project, path: bytes, content: str) -> None:
    """Note what an agent left in a file. The caller holds the project's lock."""
    note_writes(store, project, {os.fsdecode(path): (content, time.time())})


def note_writes(store: Store, project: Project, writes: Mapping[str, tuple[str, float]]) -> None:
    """Note what an agent left in each file, and when, unless something later is known of it. The caller holds the
    project's lock."""
    noted = _read(store, project)
    for path, (content, moment) in writes.items():
        if path not in noted or noted[path][1] <= moment:
            noted[path] = [content, moment]
    newest = sorted(noted.items(), key=lambda item: item[1][1], reverse=True)[:_MOST]
    write_json(store.writes_file(project.id), dict(newest))


def forget_writes(store: Store, project: Project, purged: tuple[bytes, ...]) -> None:
    """Forget what was noted of these paths, and of all below them. The caller holds the project's lock."""
    noted = _read(store, project)
    left = {
        path: entry
        for path, entry in noted.items()
        if not any(os.fsencode(path) == each or os.fsencode(path).startswith(each + b"/") for each in purged)
    }
    if left != noted:
        write_json(store.writes_file(project.id), left)


def last_writes(store: Store, project: Project) -> dict[str, str]:
    """The content that an agent last left in each file, by path within the project."""
    return {path: content for path, (content, _) in _read(store, project).items()}


def content_of(path: Path) -> str | None:
    """A name for what a file or a link holds now; None if there is neither."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return f"link:{os.readlink(path)}"
        if not stat.S_ISREG(mode):
            return None
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _read(store: Store, project: Project) -> dict[str, list[Any]]:
    """A damaged entry is none: its file is taken for the person's."""
    noted = read_json(store.writes_file(project.id)) or {}
    return {path: entry for path, entry in noted.items() if _is_sound(entry)}


def _is_sound(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    return isinstance(entry[0], str) and isinstance(entry[1], (int, float))
