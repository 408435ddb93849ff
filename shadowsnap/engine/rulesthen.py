"""Which paths the ignore rules of a checkpoint match: deletions are decided under those, not under
the rules of now."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from shadowsnap.engine.person import ignored_paths
from shadowsnap.engine.state import State
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import parents
from shadowsnap.git.files import remove_tree
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.trees import EXECUTABLE, REGULAR, TreeReader
from shadowsnap.store.excludes import exclude_file


def ignored_then(
    space: Workspace,
    current: State,
    target: State,
    paths: list[bytes],
    lookup: TreeReader,
    reader: ObjectReader,
    folders: Collection[bytes],
) -> set[bytes]:
    """Which of the paths, some of them folders, the ignore rules of the checkpoint match. The rules
    are laid out in a directory of their own, and git is asked there."""
    if not paths or target.scope == "paths":
        return set()
    scratch = space.store.git_dir / f"scratch-rules-{space.project.id}-{os.getpid()}"
    remove_tree(scratch)
    try:
        scratch.mkdir()
        for folder in {b"", *(parent for path in paths for parent in parents(path))}:
            rules = _rules_then(space, current, target, lookup, reader, folder)
            if rules is not None:
                place = scratch / os.fsdecode(folder) / ".gitignore"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(rules)
        for folder in set(folders).intersection(paths):  # a pattern may match directories only: git must see one
            try:
                Path(scratch, os.fsdecode(folder)).mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                continue  # where a .gitignore was, there is a directory of that name now
        own = scratch / ".git" / "own-patterns"
        own.parent.mkdir()
        own.write_bytes(exclude_file(target.patterns))
        git = space.git.bound(work_tree=scratch, config=(f"core.excludesFile={own}",))
        return ignored_paths(git, paths)
    finally:
        remove_tree(scratch)


def _rules_then(
    space: Workspace, current: State, target: State, lookup: TreeReader, reader: ObjectReader, folder: bytes
) -> bytes | None:
    path = folder + b"/.gitignore" if folder else b".gitignore"
    leaf = lookup.find(path)
    if leaf is not None:  # git reads rules from regular files only
        return reader.read(leaf[1], b"blob") if leaf[0] in (REGULAR, EXECUTABLE) else None
    if path in target.rules:
        return target.rules[path]
    captured = TreeReader(current.tree, lambda name: reader.read(name, b"tree")).find(path) is not None
    # One that is itself ignored, and came or grew long since: the files it ignores now are left alone.
    on_disk = Path(space.project.workdir, os.fsdecode(path))
    if captured or on_disk.is_symlink() or not on_disk.is_file():
        return None
    return on_disk.read_bytes()
