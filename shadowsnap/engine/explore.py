"""Directories that nothing is known of yet: listing what is in them."""

from __future__ import annotations

import os
import stat

from shadowsnap.engine.directories import look, note_too_deep, stamp_of
from shadowsnap.engine.findings import Findings
from shadowsnap.engine.person import ignored_paths
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import above, parents
from shadowsnap.git.index import Entry, Index
from shadowsnap.git.objects import EMPTY_BLOB
from shadowsnap.git.runner import Running, side_by_side
from shadowsnap.git.trees import REGULAR
from shadowsnap.store.excludes import default_directory_names

_LISTING = ("ls-files", "-z", "-o", "--exclude-standard")
UNTRACKED = (*_LISTING, "--directory")
"""What the index does not know; of a directory that holds nothing else, only the name."""
_MOST_ARGUMENTS = 200


def explore(space: Workspace, tops: list[bytes], found: Findings, settled_ns: int) -> list[bytes]:
    """List all files below unknown directories, in nested repositories as in any other
    directory (git alone would stop there), and note the directories."""
    new: list[bytes] = []
    nested: list[bytes] = []
    pruned: list[bytes] = []
    files = False
    everything = _listing(space) if tops == [b""] else None
    with side_by_side(*filter(None, [everything])):
        for top in tops:
            files = _walk(space, top, found, new, nested, pruned, settled_ns) or files
        if everything is not None and not nested:  # git has listed it meanwhile
            listed = _files(everything.output())
        else:
            listed = _untracked_below(space, tops, nested) if files else []
    full = above(listed)
    empty = [path for path in new if path not in full and path]
    # Git named the tops because they are not ignored; what lies deeper may be. (With a slash behind
    # them, git would hold a "*" in the .gitignore of the directory against the directory itself.)
    ignored = ignored_paths(space.git, [path for path in (*empty, *pruned) if path not in tops])
    for path in ignored:
        found.directories.pop(path, None)
        found.unreadable.discard(path)
        found.forget_specials_below(path)
    found.bare.update(set(empty) - ignored)
    # A .gitignore may take a default exclude back: then these are directories like any other.
    opened = [path for path in pruned if path not in ignored]
    return [*listed, *explore(space, opened, found, settled_ns)] if opened else listed


def _walk(
    space: Workspace, top: bytes, found: Findings, new: list[bytes], nested: list[bytes], pruned: list[bytes],
    settled_ns: int,
) -> bool:  # fmt: skip
    """Walk one unknown directory, noting directories, nested repositories and special files, and
    what is hardly worth walking; says whether there is any file to ask git about."""
    dull = pruned_names()
    worktree, files, stack = space.worktree, False, [top]
    while stack:
        path = stack.pop()
        space.deadline.check("looking for new files")
        seen = None if space.is_store(path) else look(worktree, path, found)
        if seen is None or not stat.S_ISDIR(seen.st_mode):
            continue
        prefix = path + b"/" if path else b""
        new.append(path)
        try:
            if not worktree.is_searchable(path, seen):
                raise PermissionError(path)
            for item in worktree.items(path):
                if item.is_directory:
                    if item.name not in dull:
                        stack.append(prefix + item.name)
                    elif item.name != b".git":
                        pruned.append(prefix + item.name)
                elif item.is_special:
                    found.specials.add(prefix + item.name)
                else:
                    files = True
                if item.name == b".git" and path:
                    nested.append(path)
        except OSError:
            found.unreadable.add(path)
        too_deep = note_too_deep(worktree, path, found)
        settled = seen.st_ctime_ns < settled_ns and path not in found.unreadable and not too_deep
        found.directories[path] = (stat.S_IMODE(seen.st_mode), stamp_of(seen) if settled else 0)
    return files


def pruned_names() -> frozenset[bytes]:
    """Names of directories that a walk of ours does not enter."""
    return frozenset(os.fsencode(name) for name in default_directory_names())


def _untracked_below(space: Workspace, tops: list[bytes], nested: list[bytes]) -> list[bytes]:
    """Files below these directories that are not ignored. Git walks into a nested repository
    if its index holds a path in it, so it is given an index that does."""
    path = space.store.index_file(f"{space.project.id}.scratch")
    placeholder = Entry(REGULAR, EMPTY_BLOB, os.stat(space.project.workdir))
    try:
        # One in every top, too: it may itself lie in a nested repository.
        inside = {folder + b"/.shadowsnap-placeholder" for folder in (*nested, *tops) if folder}
        Index(path).write(dict.fromkeys(inside, placeholder), 0)
        everywhere = tops == [b""] or len(tops) > _MOST_ARGUMENTS
        limits = [] if everywhere else [b"--", *(top + b"/" for top in tops)]
        listed = _files(space.git.bound(index_file=path).run(*_LISTING, *limits))
    finally:
        path.unlink(missing_ok=True)
    if len(tops) > _MOST_ARGUMENTS:
        wanted = set(tops)
        listed = [file for file in listed if any(parent in wanted for parent in parents(file))]
    return listed


def _listing(space: Workspace) -> Running:
    """Git listing every file that is not ignored. There is no index of this name, so it knows none."""
    return space.git.bound(index_file=space.store.index_file(f"{space.project.id}.none")).start(*_LISTING)


def _files(listed: bytes) -> list[bytes]:
    return [file for file in listed.split(b"\0")[:-1] if not file.endswith(b"/")]
