"""From what a tool names to the directories that a snapshot is taken of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from shadowsnap.engine.places import path_inside, refusal
from shadowsnap.engine.tools import named_files, named_folders
from shadowsnap.errors import PathRefused
from shadowsnap.records import Any

_MARKERS = (
    ".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile",
)  # fmt: skip


class Place:
    """A directory to protect before a tool runs, and the files in it that the tool names."""

    def __init__(self, workdir: Path, *, whole: bool = True) -> None:
        self.workdir = workdir
        self.whole = whole
        """False: a directory that just happens to hold a named file. It may be anything
        (~/Downloads), so only the file is captured."""
        self.files: list[str] = []

    def holds(self, path: str) -> bool:
        try:
            path_inside(Path(os.path.realpath(self.workdir)), path)
        except PathRefused:
            return False
        return True

    def is_refused(self, base: Path) -> bool:
        return refusal(Path(os.path.realpath(self.workdir)), base) is not None


def places_to_protect(tool_input: Any, cwd: str, roots: Iterable[str], base: Path) -> list[Place]:
    """The project an agent works in comes first, then every other one that it may write to:
    further roots, directories that a command is to run in, projects of named files."""
    folders = [cwd, *roots, *(_absolute(folder, cwd) for folder in filter(_can_be, named_folders(tool_input)))]
    projects = dict.fromkeys(project_root(folder, base) or existing_folder(folder) for folder in folders)
    places = [Place(project) for project in projects]
    for file in filter(_can_be, named_files(tool_input)):
        path = _absolute(file, cwd)
        _protect(places, path, base)
        if os.path.islink(path):  # written through, most likely
            _protect(places, os.path.realpath(path), base)
    return places


def _protect(places: list[Place], path: str, base: Path) -> None:
    if ".git" in Path(path).parts or Path(path).is_relative_to(base):
        return  # neither is ever captured
    # Of a directory that a tool names, everything may be ignored, and there may be a lot of it
    # (node_modules): it is covered as part of its project or not at all.
    folder = os.path.isdir(path) and not os.path.islink(path)
    holding = [place for place in places if place.holds(path)]
    place = next((place for place in holding if not place.is_refused(base)), None)
    # An agent that was started in the home directory works in the projects below it.
    project = project_root(path, base) if place is None else None
    if place is None and project is None and holding:
        place = holding[0]
    if place is None:
        if folder and project is None:
            return
        place = Place(project or existing_folder(os.path.dirname(path)), whole=project is not None)
        places.append(place)
    if not folder:
        place.files.append(path)


def project_root(path: str, base: Path) -> Path | None:
    """The nearest directory at or above a path that looks like the root of a project; never at
    or above the home directory."""
    start = existing_folder(path)
    for folder in (start, *start.parents):
        if refusal(Path(os.path.realpath(folder)), base) is not None:
            return None
        if any((folder / marker).exists() for marker in _MARKERS):
            return folder
    return None


def existing_folder(path: str) -> Path:
    """The nearest directory at or above a path that is there."""
    folder = Path(path)
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def first_name(places: Sequence[Place]) -> str:
    """What the first named file is called, for a reason that says something."""
    return next((os.path.basename(file) for place in places for file in place.files), "")


def _can_be(path: str) -> bool:
    """Whether the system could have a file of this name: half a surrogate pair is in none."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _absolute(path: str, cwd: str) -> str:
    return os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))
