"""Where everything that the store must keep begins: refs, what scan caches build on, and the
checkpoints of restores that are under way."""

from __future__ import annotations

import os
from pathlib import Path

from shadowsnap.git.refs import list_refs
from shadowsnap.git.runner import Git
from shadowsnap.store.atomic import read_json
from shadowsnap.store.layout import Store

CHECKPOINTS = "refs/shadowsnap"
PINS = "refs/shadowsnap-pins"
LABELS = "refs/shadowsnap-labels"
ATTACHMENTS = "refs/shadowsnap-meta"


def attachment_of(checkpoint_ref: str) -> str:
    """The ref under which the attachments of a checkpoint are, if it has any."""
    return ATTACHMENTS + checkpoint_ref.removeprefix(CHECKPOINTS)


def checkpoint_of(attachment: str) -> str:
    """The ref of the checkpoint that an attachment belongs to."""
    return CHECKPOINTS + attachment.removeprefix(ATTACHMENTS)


def all_refs(git: Git) -> dict[str, str]:
    """Every ref of the store, whatever it is for, and what it points to."""
    return {ref.decode(): name.decode() for ref, name in list_refs(git, ("refname", "objectname"), "refs/")}


class CachedTrees:
    """The trees that the private indexes stand for. The next snapshot of a project stores only
    what differs from its tree, so everything in it has to stay."""

    def __init__(self, store: Store) -> None:
        self._folder = store.git_dir / "indexes"
        self._seen: dict[str, tuple[tuple[int, int, int], str | None]] = {}

    def read(self) -> dict[str, str]:
        """Project id -> tree. Only what changed since the last call is read again."""
        now: dict[str, tuple[tuple[int, int, int], str | None]] = {}
        for entry in _json_files(self._folder):
            try:
                seen = entry.stat()
            except FileNotFoundError:
                continue
            signature = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
            known = self._seen.get(entry.name)
            same = known is not None and known[0] == signature
            now[entry.name] = known if same and known else (signature, _tree(Path(entry.path)))
        self._seen = now
        return {name.removesuffix(".json"): tree for name, (_, tree) in now.items() if tree is not None}


def begun_in_journals(store: Store) -> set[str]:
    """Checkpoints that restores under way and open stages of all projects go to. (Undo and redo go only to
    checkpoints that have their refs.)"""
    entries = _json_files(store.git_dir / "journal")
    return {name for entry in entries for name in _needed(Path(entry.path), ("stages",))}


def needed_by_journal(path: Path) -> frozenset[str]:
    """Checkpoints that a restore under way, open stages, the next undo and the next redo of a
    project go to. The journal is only looked at: whoever holds the project's lock mends it, if
    need be."""
    return frozenset(_needed(path, ("stages", "undo", "redo")))


def _needed(path: Path, stacks: tuple[str, ...]) -> list[str]:
    record = read_json(path) or {}
    begun = record.get("open")
    found = [begun.get("before"), begun.get("target")] if isinstance(begun, dict) else []
    for name in stacks:
        rows = record.get(name)
        if isinstance(rows, list):
            wanted = rows if name == "stages" else rows[-1:]
            found += [row[0] for row in wanted if isinstance(row, list) and row]
    return [name for name in found if isinstance(name, str)]


def _json_files(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.endswith(".json") and entry.name[0] != "."]
    except FileNotFoundError:
        return []


def _tree(path: Path) -> str | None:
    tree = (read_json(path) or {}).get("tree")
    return tree if isinstance(tree, str) and len(tree) == 40 else None
