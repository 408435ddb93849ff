"""A state written out as a directory of its own, and the check that such a directory is exact.

`verify`, `bisect` and `fork` need that, and upkeep, which now and then checks the newest checkpoint of each
project. The project itself is not touched: a copy goes into an empty directory.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    DamagedObject,
    DeadlineExceeded,
    GitFailed,
    LockTimeout,
    MalformedObject,
    NoSuchCheckpoint,
    StoreUnusable,
    UnsafeTree,
)
from shadowsnap.files import write_json
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, LINK, Leaf
from shadowsnap.model import Checkpoint
from shadowsnap.results import Verification
from shadowsnap.snapshot.content import holds
from shadowsnap.snapshot.states import State, open_tree
from shadowsnap.snapshot.worktree import Worktree, parents
from shadowsnap.store.checkpoints import newest_checkpoint
from shadowsnap.store.layout import Store
from shadowsnap.store.log import append_trouble
from shadowsnap.store.projects import Project, all_records, known_projects, locked_project, read_record

_PREFIX = "shadowsnap-"
_LEFT_BEHIND = 86400.0
"""A scratch directory that is older than this many seconds, and whose process is gone, is removed."""
_MOST_PROBLEMS = 20


def write_copy(
    git: Git,
    state: State,
    folder: Path,
    damaged: list[str] | None = None,
    changes: Mapping[bytes, Leaf | None] | None = None,
) -> list[bytes]:
    """Write the files of a state into an empty directory; their paths. `changes` are paths that differ from its
    tree. Files whose content is lost are added to `damaged`; without that list, the first one raises."""
    with ObjectReader(git) as reader, Worktree(folder) as top:
        leaves = _leaves(git, state, reader)
        for path, leaf in (changes or {}).items():
            leaves.pop(path, None)
            if leaf is not None:
                leaves[path] = leaf
        folders = _folders(state, leaves)
        for path in sorted(folders):
            top.mkdir(path, 0o700)
        for directory, names in _by_folder(leaves).items():
            with top.within(directory) as place:
                for name in names:
                    path = directory + b"/" + name if directory else name
                    mode, blob = leaves[path]
                    git.deadline.check("writing files")
                    try:
                        data = reader.read(blob, b"blob")
                    except DamagedObject:
                        if damaged is None:
                            raise
                        damaged.append(f"{os.fsdecode(path)}: its content is lost")
                        continue
                    place.create(name, data, link=mode == LINK)
                    if mode != LINK:
                        place.chmod(name, state.bits(path, mode))
        for path in sorted(folders, reverse=True):  # the innermost first: a closed one cannot be entered
            top.chmod(path, state.bits(path, DIRECTORY))
    return list(leaves)


def differences_of_copy(git: Git, state: State, folder: Path) -> list[str]:
    """What in a directory is not as the state says, in words; nothing if all of it is."""
    found = []
    with ObjectReader(git) as reader, Worktree(folder) as place:
        expected: dict[bytes, Leaf] = _leaves(git, state, reader)
        expected |= dict.fromkeys(_folders(state, expected), (DIRECTORY, ""))
        present = dict(_entries(folder))
        for path in sorted(present.keys() - expected.keys()):
            found.append(f"{os.fsdecode(path)}: it is not in the checkpoint")
        for path, (mode, blob) in sorted(expected.items()):
            git.deadline.check("comparing files")
            seen = present.get(path)
            if seen is None:
                found.append(f"{os.fsdecode(path)}: it is missing")
            elif not holds(place, path, seen, mode, blob):
                found.append(f"{os.fsdecode(path)}: it has another type or content")
            elif mode != LINK and stat.S_IMODE(seen.st_mode) != state.bits(path, mode):
                bits = f"{stat.S_IMODE(seen.st_mode):o} and not {state.bits(path, mode):o}"
                found.append(f"{os.fsdecode(path)}: its permission bits are {bits}")
    return found


def verify(store: Store, checkpoint: Checkpoint, deadline: Deadline) -> Verification:
    """Restore a checkpoint into a scratch directory and compare it byte for byte with what it says."""
    git, state, damaged, count = store.git(deadline), State.of_checkpoint(checkpoint), list[str](), 0
    with temporary_folder("verify") as folder:
        try:
            count = len(write_copy(git, state, folder, damaged))
            problems = damaged or differences_of_copy(git, state, folder)
        except (DamagedObject, MalformedObject, UnsafeTree, GitFailed) as problem:
            problems = [str(problem)]
    at = datetime.fromtimestamp(time.time(), UTC)
    shown = tuple(problems[:_MOST_PROBLEMS])
    return Verification(checkpoint.id, not problems, at, count, len(problems), shown)


def _leaves(git: Git, state: State, reader: ObjectReader) -> dict[bytes, Leaf]:
    """Every file of a state. Raises `UnsafeTree` for what no checkpoint may hold."""
    found: dict[bytes, Leaf] = {}
    tree = open_tree(reader, state.tree)
    for path in tree.files_below(b""):
        git.deadline.check("listing files")
        leaf = tree.find(path)
        assert leaf is not None
        found[path] = leaf
    return found


def _folders(state: State, leaves: dict[bytes, Leaf]) -> set[bytes]:
    folders = set(state.bare)
    for path in (*leaves, *state.bare):
        folders.update(parents(path))
    return folders - {b""}


def _by_folder(leaves: dict[bytes, Leaf]) -> dict[bytes, list[bytes]]:
    grouped: dict[bytes, list[bytes]] = {}
    for path in sorted(leaves):
        folder, _, name = path.rpartition(b"/")
        grouped.setdefault(folder, []).append(name)
    return grouped


def _entries(folder: Path) -> Iterator[tuple[bytes, os.stat_result]]:
    """Everything below a directory of ours, links not followed. What is closed to reading is opened, after its
    permission bits were read."""
    top, waiting = os.fsencode(folder), [b""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(os.path.join(top, inside)) as entries:
            for entry in entries:
                path = inside + b"/" + entry.name if inside else entry.name
                seen, is_folder = entry.stat(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
                yield path, seen
                needed = 0o500 if is_folder else 0o400
                if seen.st_mode & needed != needed:
                    os.chmod(entry.path, 0o700)
                if is_folder:
                    waiting.append(path)


# --- temporary directories ---------------------------------------------------------------------------


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A private directory outside every project, which is removed at the end."""
    _remove_left_behind()
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-{os.getpid()}-")))
    try:
        yield folder
    finally:
        remove_copy(folder)


def remove_copy(folder: Path) -> None:
    """Remove a directory of ours, also where its state has directories that are closed to writing."""
    for directory, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)  # before `os.walk` enters it
    shutil.rmtree(folder, ignore_errors=True)


def _remove_left_behind() -> None:
    """Remove what processes left that were killed."""
    try:
        names = os.listdir(tempfile.gettempdir())
    except OSError:
        return
    for name in names:
        parts = name.split("-")
        if not name.startswith(_PREFIX) or len(parts) < 4 or not parts[2].isdigit():
            continue
        folder = Path(tempfile.gettempdir(), name)
        try:
            seen = folder.lstat()
        except OSError:
            continue
        own = not hasattr(os, "getuid") or seen.st_uid == os.getuid()
        old = time.time() - seen.st_mtime > _LEFT_BEHIND
        if own and old and stat.S_ISDIR(seen.st_mode) and not _is_alive(int(parts[2])):
            remove_copy(folder)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # there, asking would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


# --- verifying the newest checkpoints --------------------------------------------------------------------
# When that was last true is kept in the project's record, for `status`.

_EVERY = 7 * 86400.0
"""Seconds between two verifications of the newest checkpoint of a project."""


def verify_newest(store: Store, deadline: Deadline) -> list[Verification]:
    """Verify the newest checkpoint of each project whose turn it is, those first that have waited longest. What is
    left when the time runs out waits for the next upkeep."""
    found, records = [], all_records(store)
    due = [each for each in known_projects(store) if time.time() - _tried(records, each) >= _EVERY]
    for project in sorted(due, key=lambda each: _tried(records, each)):
        try:
            newest = newest_checkpoint(store, project, deadline)
            if newest is None:
                continue
            result = verify(store, newest, deadline)
        except NoSuchCheckpoint:
            continue  # it was dropped just now
        except (DeadlineExceeded, OSError):
            break  # no time, or no room for a copy: that says nothing about the checkpoint
        note_verified(store, project, result, deadline)
        found.append(result)
    return found


def note_verified(store: Store, project: Project, result: Verification, deadline: Deadline) -> None:
    """Keep the outcome; a checkpoint that is not what it says is reported by `status`."""
    if not result.verified:
        what = f"checkpoint {result.checkpoint[:8]} cannot be restored exactly: {result.problems[0]}"
        advice = "run `shadowsnap doctor --repair`"
        with suppress(OSError):
            append_trouble(store.base, kind="upkeep", what=what, advice=advice, workdir=str(project.workdir))
    with suppress(LockTimeout, StoreUnusable, OSError), locked_project(store, project, "verify", deadline):
        record = read_record(store, project)
        if not record:
            return  # it was cleared just now
        facts = {**_facts(record), "tried_at": result.at.timestamp()}
        if result.verified:
            facts |= {"at": result.at.timestamp(), "checkpoint": result.checkpoint}
        write_json(store.project_file(project.id), {**record, "verified": facts})


def verified_at(record: Mapping[str, Any]) -> float | None:
    """When the newest checkpoint of a project was last found to be exact, by the project's record."""
    at = _facts(record).get("at")
    return at if isinstance(at, (int, float)) else None


def _tried(records: Mapping[str, Mapping[str, Any]], project: Project) -> float:
    at = _facts(records.get(project.id, {})).get("tried_at")
    return at if isinstance(at, (int, float)) else 0.0


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    facts = record.get("verified")
    return facts if isinstance(facts, dict) else {}
