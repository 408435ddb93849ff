"""Where damaged things go: `<base>/corrupt-<stamp>/`, in the order they lay in the base. Nothing is deleted
from there, except what a person clears or purges."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from shadowsnap.errors import MalformedObject
from shadowsnap.files import write_json
from shadowsnap.git.maintenance import PackIndex
from shadowsnap.git.objects import object_id
from shadowsnap.model import Finding
from shadowsnap.store.layout import Store, stamped_folder

PREFIX = "corrupt-"


class Quarantine:
    """One directory for everything that is set aside in one go; made when the first thing comes."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._folder: Path | None = None

    @property
    def used(self) -> Path | None:
        """The directory, if anything was set aside."""
        return self._folder

    @property
    def folder(self) -> Path:
        if self._folder is None:
            self._folder = stamped_folder(self._base, PREFIX)
        return self._folder

    def take(self, path: Path) -> Path:
        """Move a file or directory of the base here; returns where it is now."""
        inside = path.relative_to(self._base) if path.is_relative_to(self._base) else Path(path.name)
        target = _free(self.folder / inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(path, target)
        except OSError:
            if path.is_relative_to(self._base):
                raise
            _move(path, target)  # from another file system
        return target

    def note(self, name: str, facts: dict[str, Any]) -> None:
        """Write down what is known of something that has no file of its own."""
        target = _free(self.folder / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_json(target, facts)


def inside(store: Store, path: Path) -> str:
    """A file of the base, as findings name it."""
    return path.relative_to(store.base).as_posix()


def set_aside(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    path = store.base / finding.subject
    if os.path.lexists(path):
        quarantine.take(path)


# --- what a person clears or purges ----------------------------------------------------------


_LOOSE = re.compile(r"([0-9a-f]{2})/([0-9a-f]{38})(?:\.~\d+)?$")


def is_used(base: Path) -> bool:
    return any(base.glob(f"{PREFIX}*"))


def remove_from_quarantine(
    base: Path, objects: Collection[str], is_of: Callable[[Path], bool] = lambda _: False
) -> list[str]:
    """Remove what was set aside and holds one of these objects, and every file that `is_of` says yes to. Returns
    the packs that cannot be read: they may hold one too."""
    doubtful: list[str] = []
    for path in [each for folder in sorted(base.glob(f"{PREFIX}*")) for each in _files_below(folder)]:
        if ".pack" in path.suffixes or path.name.startswith("tmp_pack_"):
            holds = _pack_holds(path, objects)
            if holds is None:
                doubtful.append(path.relative_to(base).as_posix())
            elif holds:
                for each in path.parent.glob(f"{path.stem}.*"):
                    each.unlink(missing_ok=True)
        elif is_of(path) or _object_in(path) in objects:
            path.unlink(missing_ok=True)
    for folder in base.glob(f"{PREFIX}*"):
        _remove_empty(folder)
    return doubtful


def _files_below(folder: Path) -> Iterator[Path]:
    for top, _, names in os.walk(folder):
        yield from (Path(top, name) for name in sorted(names))


def _pack_holds(pack: Path, objects: Collection[str]) -> bool | None:
    """Whether a pack holds one of the objects; None if its index was lost, or is damaged."""
    try:
        index = PackIndex(pack.parents[2], pack.stem)
    except (OSError, ValueError, IndexError, MalformedObject):
        return None
    try:
        return any(name in objects for name in index)
    finally:
        index.close()


def _object_in(path: Path) -> str:
    """The object that a file is, by its name; of any other file, the object that its content would be."""
    named = _LOOSE.search(path.as_posix())
    if named:
        return named[1] + named[2]
    try:
        data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
    except OSError:
        return ""
    return object_id(b"blob", data)


def _remove_empty(folder: Path) -> None:
    for top, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(top)
        except OSError:
            continue  # something is left in it


def _free(path: Path) -> Path:
    for number in count(1):
        if not os.path.lexists(path):
            break
        path = path.with_name(f"{path.name.partition('.~')[0]}.~{number}")
    return path


def _move(path: Path, target: Path) -> None:
    import shutil

    shutil.move(path, target)
