"""Which lines differ between versions of files: git's diff, as numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from itertools import count
from typing import NamedTuple

from shadowsnap.files import remove_tree
from shadowsnap.git.reading import check_comparable
from shadowsnap.git.repository import Git

_MOST_PATHS = 500
"""With more paths than this, git compares whole trees."""
# Whatever attributes the files have: what is compared are bytes.
_PATCH = (
    "diff-tree", "-r", "-p", "-U0", "--full-index", "--text", "--minimal", "--no-color", "--no-ext-diff",
    "--no-textconv",
)  # fmt: skip
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(rb"index ([0-9a-f]{40})\.\.([0-9a-f]{40})")
_MOST_RENAMES = 1000


class Hunk(NamedTuple):
    """Lines that are replaced by others: where they begin, counted from 0, and how many there are."""

    old: int
    old_count: int
    new: int
    new_count: int


Pair = tuple[str, str]
"""Two objects: trees, or versions of a file."""


def hunks_of_pairs(git: Git, trees: Collection[Pair], paths: Sequence[bytes]) -> dict[Pair, list[Hunk]]:
    """What differs between the versions of these files in pairs of trees, by the ids of the versions. One process
    answers for all of them."""
    asked = "".join(f"{old} {new}\n" for old, new in sorted(set(trees))).encode()
    if not asked:
        return {}
    check_comparable(git, trees)
    limit = [b"--", *paths] if len(paths) <= _MOST_PATHS else []
    return parse_hunks(git.run(*_PATCH, "--no-renames", "--stdin", *limit, stdin=asked))


def renamed_from(git: Git, trees: Pair, path: bytes) -> tuple[bytes, Pair, list[Hunk]] | None:
    """If a file came about by renaming another one: that one, both versions, and what differs between them."""
    check_comparable(git, [trees])
    limit = f"-l{_MOST_RENAMES}"
    words = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "-M", limit, "--diff-filter=R", *trees)
    parts = git.run(*words).split(b"\0")
    for facts, old, new in zip(parts[0::3], parts[1::3], parts[2::3], strict=False):
        if new != path:
            continue
        _, _, old_id, new_id, _ = facts.split(b" ")
        versions = (old_id.decode(), new_id.decode())
        if versions[0] == versions[1]:
            return old, versions, []
        patch = git.run(*_PATCH, "-M", limit, *trees, "--", old, new)
        return old, versions, parse_hunks(patch).get(versions, [])
    return None


def parse_hunks(patch: bytes) -> dict[Pair, list[Hunk]]:
    """Without context, every line of a hunk begins with a sign: no content is taken for a header."""
    found: dict[Pair, list[Hunk]] = {}
    current: list[Hunk] = []
    for line in patch.split(b"\n"):
        if line.startswith(b"@@ ") and (numbers := _HUNK.match(line)):
            old, old_count, new, new_count = (1 if part is None else int(part) for part in numbers.groups())
            # Of an empty side, git names the line before it.
            current.append(Hunk(old - (old_count > 0), old_count, new - (new_count > 0), new_count))
        elif line.startswith(b"index ") and (ids := _INDEX.match(line)):
            current = found[ids[1].decode(), ids[2].decode()] = []
    return found


_numbers = count()


def hunks_of_texts(git: Git, old: bytes, new: bytes) -> list[Hunk]:
    """What differs between two texts that are not both in the store."""
    scratch = git.git_dir / f"scratch-diff-{os.getpid()}-{next(_numbers)}"
    remove_tree(scratch)
    try:
        scratch.mkdir()
        (scratch / "old").write_bytes(old)
        (scratch / "new").write_bytes(new)
        words = ("diff", "--no-index", *_PATCH[3:], str(scratch / "old"), str(scratch / "new"))
        patch = git.run(*words, ok=(0, 1))
    finally:
        remove_tree(scratch)
    return next(iter(parse_hunks(patch).values()), [])
