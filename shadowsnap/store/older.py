"""Older layouts in the place of ours: repositories of other tools right in the base directory.

On first use they move into one `legacy-<stamp>/`, as they are. Importing them takes time, so it
is done later, by whoever looks for checkpoints first: a note in the archive says that it is due.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from shadowsnap.git.deadline import Deadline
from shadowsnap.store.locks import locked

ARCHIVE = "legacy-"
WORKDIR_MARKER = "HERMES_WORKDIR"
_DUE = "to-import"
_SHADOW_NAME = re.compile(r"[0-9a-f]{16}")
_LOCK_SECONDS = 30.0


def archive_older_layouts(base: Path, *, import_later: bool) -> Path | None:
    """Move what other tools left in the base out of our way; where to, if there was anything."""
    if not any(_older(base)):
        return None
    with locked(base / ".older.lock", "archiving older layouts", Deadline(_LOCK_SECONDS)):
        found = list(_older(base))  # another process may have done it while we waited
        if not found:
            return None
        archive = stamped_folder(base, ARCHIVE)
        if import_later:
            (archive / _DUE).touch()
        for path in found:
            os.replace(path, archive / path.name)
    return archive


def archives(base: Path) -> list[Path]:
    """The archives of older layouts, oldest first."""
    try:
        with os.scandir(base) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(ARCHIVE) and entry.is_dir()]
    except FileNotFoundError:
        return []
    return [base / name for name in sorted(names)]


def is_due(archive: Path) -> bool:
    """Whether the checkpoints in an archive are still to be imported."""
    return (archive / _DUE).exists()


def settle(archive: Path) -> None:
    """Note that an archive was imported."""
    (archive / _DUE).unlink(missing_ok=True)


def stamped_folder(base: Path, prefix: str) -> Path:
    """A new directory `<prefix><time>` in the base."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for number in count():
        folder = base / (f"{prefix}{stamp}-{number}" if number else f"{prefix}{stamp}")
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")


def is_repository(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def is_hermes_store(folder: Path) -> bool:
    """The one store of Hermes. Ours has the same name, but says its format."""
    if not is_repository(folder) or (folder / "format").exists():
        return False
    return (folder / "refs" / "hermes").is_dir() or _packs_hermes_refs(folder)


def is_shadow_repository(folder: Path) -> bool:
    """One directory's repository, from the time before Hermes had one store."""
    named = bool(_SHADOW_NAME.fullmatch(folder.name))
    return is_repository(folder) and (named or (folder / WORKDIR_MARKER).exists())


def _older(base: Path) -> Iterator[Path]:
    try:
        with os.scandir(base) as entries:
            folders = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return
    for folder in folders:
        ours = folder.name.startswith((ARCHIVE, "corrupt-"))
        if not ours and (is_hermes_store(folder) if folder.name == "store" else is_shadow_repository(folder)):
            yield folder


def _packs_hermes_refs(folder: Path) -> bool:
    try:
        return b" refs/hermes/" in (folder / "packed-refs").read_bytes()
    except OSError:
        return False
