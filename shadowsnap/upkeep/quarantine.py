"""Where damaged things go: `<base>/corrupt-<stamp>/`, in the order they lay in the base. Nothing
is ever deleted from there by us."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

from shadowsnap.model import Finding
from shadowsnap.store.atomic import write_json
from shadowsnap.store.layout import Store
from shadowsnap.store.older import stamped_folder

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


def _free(path: Path) -> Path:
    for number in count(1):
        if not os.path.lexists(path):
            break
        path = path.with_name(f"{path.name.partition('.~')[0]}.~{number}")
    return path


def _move(path: Path, target: Path) -> None:
    import shutil

    shutil.move(path, target)
