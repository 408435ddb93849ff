"""What versions of Hermes Agent before its one store left in the base: a repository per directory,
and archives of such repositories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.git.files import remove_tree
from shadowsnap.store.older import ARCHIVE, WORKDIR_MARKER, archives, is_due

_NAME = re.compile(r"[0-9a-f]{16}")


def remove_old_archives(base: Path, cutoff: float) -> tuple[int, int]:
    """Except those whose checkpoints are still to be imported; how many went, and how many could not."""
    old = [path for path in archives(base) if not is_due(path) and path.stat().st_mtime < cutoff]
    for archive in old:
        remove_tree(archive)
    failed = sum(archive.exists() for archive in old)
    return len(old) - failed, failed


def shadow_repositories(base: Path) -> Iterator[tuple[Path, str | None]]:
    """Repositories of single directories right in the base, and whose they are."""
    if not base.is_dir():
        return
    for folder in sorted(base.iterdir()):
        marked = _NAME.fullmatch(folder.name) or (folder / WORKDIR_MARKER).exists()
        if folder.name.startswith(("store", ARCHIVE, "corrupt-")) or not marked or not (folder / "HEAD").is_file():
            continue
        try:
            yield folder, (folder / WORKDIR_MARKER).read_text("utf-8").strip()
        except FileNotFoundError:
            yield folder, None
        except (OSError, ValueError):
            yield folder, str(folder)  # somebody's, but nobody can tell whose


def why_shadow_goes(folder: Path, workdir: str | None, cutoff: float, may_be_orphan: bool) -> str:
    """`orphan` if its directory is gone, `stale` if nobody used it since; empty if it stays."""
    gone = workdir is None or not Path(workdir).exists() and is_inhabited(Path(workdir).parent)
    if may_be_orphan and gone:
        return "orphan"
    touched = max((path.lstat().st_mtime for path in folder.rglob("*")), default=0.0)
    return "stale" if 0 < touched < cutoff else ""


def is_inhabited(parent: Path) -> bool:
    """Whether the absence of a directory in it says anything: the empty directory that a volume was
    mounted on looks just like one whose only project was deleted."""
    try:
        with os.scandir(parent) as entries:
            return any(entries) or os.path.ismount(parent)
    except OSError:
        return False
