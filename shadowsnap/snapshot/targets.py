"""The directories to protect before a tool runs, and the paths in them that the tool names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shadowsnap.errors import PathRefused
from shadowsnap.snapshot.capture import small_directory
from shadowsnap.snapshot.tools import (
    absolute_path,
    command_projects,
    existing_folder,
    named_files,
    named_folders,
    path_inside,
    project_root,
    refusal,
)
from shadowsnap.snapshot.worktree import Worktree


class Target:
    """A directory to protect before a tool runs, and the paths in it that the tool names."""

    def __init__(self, workdir: Path, base: Path, *, whole: bool = True) -> None:
        self.workdir = workdir
        self.whole = whole
        """False for a directory that is no project (~/Downloads): only the named files are captured."""
        self.files: list[str] = []
        self._root = Path(os.path.realpath(workdir))
        self.is_refused = refusal(self._root, base) is not None

    def holds(self, path: str) -> bool:
        try:
            path_inside(self._root, path)
        except PathRefused:
            return False
        return True

    def is_small(self, folder: str) -> bool:
        """Whether a directory below it can be captured quickly."""
        inside = path_inside(self._root, folder)
        with Worktree(self._root) as worktree:
            return inside != b"" and small_directory(worktree, inside) is not None


def find_targets(tool_input: Any, cwd: str, roots: Iterable[str], base: Path) -> list[Target]:
    """The directories that a tool may write to. The project around `cwd` comes first, then further roots of the
    workspace, directories that a command runs in or names, and the projects of named files."""
    named = [absolute_path(folder, cwd) for folder in named_folders(tool_input)]
    projects = {existing_folder(folder): project_root(folder, base) for folder in (cwd, *roots, *named)}
    # A directory that is no project belongs to the one around it in which the agent works: it may have used `cd`.
    tops = dict.fromkeys(project or _outermost(folder, projects, base) for folder, project in projects.items())
    targets = [Target(top, base) for top in tops]
    for project in command_projects(tool_input, cwd, base):
        if _find_target(targets, str(project)) is None:
            targets.append(Target(project, base))
    for file in named_files(tool_input):
        path = absolute_path(file, cwd)
        _add_path(targets, path, base)
        if os.path.islink(path):  # most tools write through a link
            _add_path(targets, os.path.realpath(path), base)
    return targets


def _outermost(folder: Path, folders: Iterable[Path], base: Path) -> Path:
    """The largest of these directories that holds one of them and may be captured; else that one itself."""
    around = (each for each in folders if folder.is_relative_to(each))
    allowed = [each for each in around if refusal(Path(os.path.realpath(each)), base) is None]
    return min(allowed, key=lambda each: len(each.parts), default=folder)


def _find_target(targets: Iterable[Target], path: str) -> Target | None:
    """The first target that holds a path and may be captured."""
    return next((target for target in targets if not target.is_refused and target.holds(path)), None)


def _add_path(targets: list[Target], path: str, base: Path) -> None:
    """Add a named path to the target that holds it, or to a new one."""
    if ".git" in Path(path).parts or Path(path).is_relative_to(base):
        return  # never captured
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    target = _find_target(targets, path)
    if target is None:
        # An agent that was started in the home directory works in the projects below it.
        project = project_root(path, base)
        target = next((each for each in targets if each.holds(path)), None) if project is None else None
        if target is None:
            if is_folder and project is None:
                return
            target = Target(project or existing_folder(os.path.dirname(path)), base, whole=project is not None)
            targets.append(target)
    if not is_folder or (target.whole and not target.is_refused and target.is_small(path)):
        target.files.append(path)


def first_name(targets: Sequence[Target]) -> str:
    """The name of the first named file, for the reason of a checkpoint."""
    return next((os.path.basename(file) for target in targets for file in target.files), "")
