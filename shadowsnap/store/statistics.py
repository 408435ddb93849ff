"""What each checkpoint changed against the one before it: counted by git once, then remembered.

Counting the lines of 500 checkpoints takes twenty times as long as listing them. The numbers
follow from the two trees alone, so they stay right; the file they are kept in can be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shadowsnap.errors import GitFailed
from shadowsnap.files import read_json, write_json
from shadowsnap.git.reading import comparable
from shadowsnap.git.repository import Git
from shadowsnap.model import Checkpoint
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

_MOST = 5_000
"""So many are remembered; beyond that, those of the last list."""

_ATTEMPTS = 40
"""So often git is asked, at most, where a lost object keeps it from counting."""

Pair = tuple[str, str]
Numbers = tuple[int, int, int, int, int]
"""Files that differ, lines inserted and deleted, files added and deleted."""
NO_CHANGE: Numbers = (0, 0, 0, 0, 0)


def with_statistics(
    store: Store, project: Project, git: Git, newest_first: list[Checkpoint], path: bytes | None = None
) -> list[Checkpoint]:
    """Compare every checkpoint with the whole-directory one before it."""
    pairs = _pairs(newest_first)
    numbers = count_pairs(store, project, git, (pair for pair in pairs if pair is not None), path)
    return _with_numbers(newest_first, pairs, numbers)


def compared_at(git: Git, projects: Iterable[list[Checkpoint]], path: bytes) -> list[Checkpoint]:
    """The same for one path in several projects, each given newest first, with one process for all."""
    pairs = [(listed, _pairs(listed)) for listed in projects]
    wanted = {pair for _, some in pairs for pair in some if pair is not None}
    numbers: dict[Pair, Numbers] = {pair: NO_CHANGE for pair in wanted if pair[0] == pair[1]}
    numbers |= count_at(git, wanted - numbers.keys(), path)
    return [each for listed, some in pairs for each in _with_numbers(listed, some, numbers)]


def _with_numbers(
    listed: list[Checkpoint], pairs: list[Pair | None], numbers: dict[Pair, Numbers]
) -> list[Checkpoint]:
    result = []
    for checkpoint, pair in zip(listed, pairs, strict=True):
        if pair in numbers:
            files, insertions, deletions, _, _ = numbers[pair]
            checkpoint = replace(checkpoint, files_changed=files, insertions=insertions, deletions=deletions)
        result.append(checkpoint)
    return result


def count_pairs(
    store: Store, project: Project, git: Git, pairs: Iterable[Pair], path: bytes | None = None
) -> dict[Pair, Numbers]:
    """What differs between pairs of trees: files, insertions and deletions. Pairs whose trees are lost are left
    out."""
    wanted = set(pairs)
    numbers: dict[Pair, Numbers] = {pair: NO_CHANGE for pair in wanted if pair[0] == pair[1]}
    wanted -= numbers.keys()
    if path is None:
        return numbers | _remembered_or_counted(store, project, git, wanted)
    return numbers | count_at(git, wanted, path)


def count_at(git: Git, pairs: set[Pair], path: bytes) -> dict[Pair, Numbers]:
    """What differs at one path, or below it."""
    return _count(git, pairs, path)


def _pairs(newest_first: list[Checkpoint]) -> list[Pair | None]:
    """The trees that are compared for each checkpoint, if any are."""
    before: str | None = None
    pairs: list[Pair | None] = []
    for checkpoint in reversed(newest_first):
        comparable = checkpoint.scope == "tree"
        pairs.append((before, checkpoint.tree) if comparable and before else None)
        before = checkpoint.tree if comparable else before
    return pairs[::-1]


def _remembered_or_counted(store: Store, project: Project, git: Git, pairs: set[Pair]) -> dict[Pair, Numbers]:
    remembered = _remembered(store, project)
    counted = _count(git, pairs - remembered.keys())
    if counted:
        everything = remembered | counted
        _remember(store, project, everything, everything if len(everything) <= _MOST else pairs)
    return {pair: numbers for pair, numbers in (remembered | counted).items() if pair in pairs}


def _remembered(store: Store, project: Project) -> dict[Pair, Numbers]:
    found: dict[Pair, Numbers] = {}
    for name, row in (read_json(store.statistics_file(project.id)) or {}).items():
        old, _, new = name.partition(" ")
        try:
            files, insertions, deletions, added, deleted = map(int, row)
            found[old, new] = (files, insertions, deletions, added, deleted)
        except (TypeError, ValueError, OverflowError):
            continue  # damaged: it is counted again
    return found


def _remember(store: Store, project: Project, numbers: dict[Pair, Numbers], chosen: Iterable[Pair]) -> None:
    record = {f"{old} {new}": numbers[old, new] for old, new in chosen if (old, new) in numbers}
    try:
        write_json(store.statistics_file(project.id), record)
    except OSError:
        pass  # a store that cannot be written to can still be listed


def _count(git: Git, pairs: set[Pair], path: bytes | None = None) -> dict[Pair, Numbers]:
    """Let git count; pairs whose trees or files are lost are left out, and those that a checkpoint must not
    hold."""
    numbers: dict[Pair, Numbers] = {}
    pending, attempts = [comparable(git, sorted(pairs))], 0
    while pending and attempts < _ATTEMPTS:
        some = pending.pop(0)
        if not some:
            continue
        attempts += 1
        try:
            numbers |= _count_whole(git, some, path)
        except GitFailed:  # it stops at the first that it cannot read: the others can still be had
            half = len(some) // 2
            pending += [some[:half], some[half:]] if half else []
    return numbers


def _count_whole(git: Git, pairs: list[Pair], path: bytes | None) -> dict[Pair, Numbers]:
    asked = "".join(f"{old} {new}\n" for old, new in pairs).encode()
    limit: list[bytes] = [b"--", path] if path else []
    words = ("diff-tree", "--stdin", "-r", "--raw", "--numstat", "-z", "--no-renames", "--abbrev=4")
    answer = git.run(*words, *limit, stdin=asked)
    numbers: dict[Pair, Numbers] = {}
    current, at = ("", ""), 0
    while at < len(answer):
        if (
            answer[at + 40 : at + 41] == b" "
            and answer[at + 81 : at + 82] == b"\n"
            and b"\t" not in answer[at : at + 81]
        ):
            current = (answer[at : at + 40].decode(), answer[at + 41 : at + 81].decode())
            numbers[current] = NO_CHANGE
            at += 82
            continue
        end = answer.index(b"\0", at)
        files, insertions, deletions, added, deleted = numbers[current]
        if answer[at : at + 1] == b":":  # the raw form says whether a file came or went; its path follows
            status = answer[end - 1 : end]
            numbers[current] = (files, insertions, deletions, added + (status == b"A"), deleted + (status == b"D"))
            at = answer.index(b"\0", end + 1) + 1
            continue
        more, less, _ = answer[at:end].split(b"\t", 2)
        numbers[current] = (files + 1, insertions + _lines(more), deletions + _lines(less), added, deleted)
        at = end + 1
    return numbers


def _lines(number: bytes) -> int:
    return 0 if number == b"-" else int(number)  # "-": binary
