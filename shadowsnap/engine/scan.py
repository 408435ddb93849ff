"""Scanning: what may differ from the last capture. Two git processes side by side, and a look
at every known directory meanwhile; no walk of the tree."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable

from shadowsnap.engine.person import ignored_paths
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import Worktree, above, parents
from shadowsnap.git.index import Entry, Index
from shadowsnap.git.objects import EMPTY_BLOB
from shadowsnap.git.runner import side_by_side
from shadowsnap.git.trees import REGULAR
from shadowsnap.records import dataclass, field
from shadowsnap.store.excludes import default_directory_names
from shadowsnap.store.scancache import Directories, ScanCache

_MOST_ARGUMENTS = 200
# No system refuses a path that is shorter, whatever the next name.
_DEEP = 700
_STANDARD = ("ls-files", "-z", "-o", "--exclude-standard")
_DIFFERENCES = ("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all")
_REPOSITORY = b" 160000 "


@dataclass
class Findings:
    """What a scan found, as far as it differs or may differ from the cache."""

    changed: set[bytes] = field(default_factory=set)
    """Known files whose stat data differ, and files not known yet."""
    gone: set[bytes] = field(default_factory=set)
    directories: Directories = field(default_factory=dict)
    bare: set[bytes] = field(default_factory=set)
    """Directories that may hold nothing that is captured."""
    specials: set[bytes] = field(default_factory=set)
    unreadable: set[bytes] = field(default_factory=set)
    """Directories that could not be read."""
    rules_changed: bool = False
    """The ignore rules are not those of the cache: everything has to be listed anew."""

    def hides(self, path: bytes) -> bool:
        """Whether a path is in a directory that could not be read."""
        return bool(self.unreadable) and not self.unreadable.isdisjoint(parents(path))


def scan_changes(
    space: Workspace, cache: ScanCache, settled_ns: int, meanwhile: Callable[[], None] = lambda: None
) -> Findings:
    """Compare the files with the cache. What happened at or after `settled_ns` may still be
    under way, so it is looked at again next time. Git does most of it; `meanwhile` is done
    while it runs."""
    found = Findings(specials=set(cache.specials))
    files = space.git.start(*_DIFFERENCES)
    others = space.git.start(*_STANDARD, "--directory")
    with side_by_side(files, others):
        unchanged = _look_at_directories(space.worktree, cache, found, settled_ns)
        meanwhile()
        _read_differences(files.output(), found)
        untracked = others.output().split(b"\0")[:-1]
    found.changed.update(path for path in untracked if not path.endswith(b"/"))
    found.rules_changed = (
        cache.patterns != space.patterns
        or _touches_rules(found, cache)
        or _hidden_rules_changed(space.worktree, cache, unchanged)
    )
    if not found.rules_changed:
        collapsed = {path[:-1] for path in untracked if path.endswith(b"/")} | _turned_directories(space, found)
        stirred = {up for path in cache.directories.keys() - unchanged for up in (path, *parents(path))}
        quiet = (collapsed & cache.bare & unchanged) - stirred
        found.bare = {bare for bare in cache.bare if bare in quiet or any(up in quiet for up in parents(bare))}
        found.changed.update(path for path in cache.skipped if any(up in quiet for up in parents(path)))
        found.changed.update(_explore(space, sorted(collapsed - quiet), found, settled_ns))
        found.specials -= ignored_paths(space.git, sorted(found.specials - cache.specials))
    return found


def scan_everything(
    space: Workspace, cache: ScanCache, settled_ns: int, differences: Findings | None = None
) -> Findings:
    """List every file and directory: there is no cache, or the ignore rules changed."""
    if differences is None:
        differences = _compare_by_git(space) if len(cache.index) else Findings()
    found = Findings()
    listed = set(_explore(space, [b""], found, settled_ns))
    found.specials -= ignored_paths(space.git, sorted(found.specials))
    known = set(cache.index.paths())
    wanted = listed | cache.named | cache.tracked
    found.changed = (listed - known) | (differences.changed & wanted)
    lost = {path for path in cache.named | cache.tracked if not space.worktree.reaches(path)}
    found.gone = differences.gone | (known - wanted) | (known & lost)
    return found


def _compare_by_git(space: Workspace) -> Findings:
    found = Findings()
    _read_differences(space.git.run(*_DIFFERENCES), found)
    return found


def _turned_directories(space: Workspace, found: Findings) -> set[bytes]:
    """Directories where the last capture knew a file. Git names neither them nor what they hold:
    it takes their name for that of the file."""
    turned = [path for path in found.gone if space.worktree.is_directory(path)]
    return set(turned) - ignored_paths(space.git, turned)


def rule_files(worktree: Worktree, folders: Iterable[bytes]) -> dict[bytes, int]:
    """The .gitignore files in these directories, and when each last changed."""
    paths = [folder + b"/.gitignore" if folder else b".gitignore" for folder in folders]
    return {path: changed for path in paths if (changed := _rules_as_of(worktree, path)) is not None}


def _rules_as_of(worktree: Worktree, path: bytes) -> int | None:
    seen = worktree.look(path)
    return seen.st_ctime_ns if seen is not None and stat.S_ISREG(seen.st_mode) else None


def _touches_rules(found: Findings, cache: ScanCache) -> bool:
    touched = (*found.changed, *found.gone)
    return any(path.rpartition(b"/")[2] == b".gitignore" and path not in cache.rules for path in touched)


def _hidden_rules_changed(worktree: Worktree, cache: ScanCache, unchanged: set[bytes]) -> bool:
    """Whether a .gitignore that is not captured came, went or changed: git reports none of that."""
    if any(_rules_as_of(worktree, path) != changed for path, changed in cache.rules.items()):
        return True
    new = rule_files(worktree, cache.directories.keys() - unchanged).keys() - cache.rules.keys()
    return len(cache.index.lookup(new)) < len(new)


def _read_differences(raw: bytes, found: Findings) -> None:
    parts = raw.split(b"\0")
    for meta, path in zip(parts[0:-1:2], parts[1::2], strict=True):
        # A nested repository where a file was is to git a change of type, to us a lost file.
        gone = meta.endswith(b" D") or _REPOSITORY in meta
        (found.gone if gone else found.changed).add(path)


def _look_at_directories(worktree: Worktree, cache: ScanCache, found: Findings, settled_ns: int) -> set[bytes]:
    """Look at every known directory; into those that changed. Returns the unchanged ones."""
    unchanged, vanished = set(), set()
    for path, (_, ctime) in cache.directories.items():  # sorted: what lies above comes first
        folder = path.rpartition(b"/")[0]
        seen = None if folder in vanished or folder in found.unreadable else _look(worktree, path, found)
        if seen is None or not stat.S_ISDIR(seen.st_mode):
            if seen is not None:  # of files behind a link that leads to itself, git says nothing at all
                found.gone.update(cache.index.paths_below(path))
            vanished.add(path)
            _forget_below(found.specials, path)
        elif seen.st_ctime_ns == ctime:
            found.directories[path] = (stat.S_IMODE(seen.st_mode), ctime)
            unchanged.add(path)
        else:
            _look_into(worktree, path, found, seen, settled_ns)
    return unchanged


def _look(worktree: Worktree, path: bytes, found: Findings) -> os.stat_result | None:
    try:
        return worktree.lstat(path)
    except OSError:
        found.unreadable.add(path)
        return None


def _look_into(worktree: Worktree, path: bytes, found: Findings, seen: os.stat_result, settled_ns: int) -> None:
    """Read one directory for what git does not report: sockets and the like, unreadability."""
    prefix = path + b"/" if path else b""
    found.specials -= {special for special in found.specials if special.rpartition(b"/")[0] == path}
    try:
        found.specials.update(prefix + name for name in worktree.specials(path))
    except OSError:
        found.unreadable.add(path)
    if not worktree.is_searchable(path, seen):
        found.unreadable.add(path)
    too_deep = _note_too_deep(worktree, path, found)
    settled = seen.st_ctime_ns < settled_ns and path not in found.unreadable and not too_deep
    found.directories[path] = (stat.S_IMODE(seen.st_mode), seen.st_ctime_ns if settled else 0)


def _note_too_deep(worktree: Worktree, path: bytes, found: Findings) -> bool:
    """Note the directories in this one that are too far down to be read; says whether there is any."""
    if len(path) < _DEEP or path in found.unreadable or not worktree.is_too_long(path + b"/" + b"x" * 255):
        return False
    deeper = {path + b"/" + item.name for item in worktree.items(path) if item.is_directory}
    too_deep = {each for each in deeper if worktree.is_too_long(each)}
    found.unreadable |= too_deep
    return bool(too_deep)


def _forget_below(paths: set[bytes], folder: bytes) -> None:
    paths -= {path for path in paths if path.startswith(folder + b"/")}


# --- directories that are not known yet ------------------------------------------------------


def _explore(space: Workspace, tops: list[bytes], found: Findings, settled_ns: int) -> list[bytes]:
    """List all files below unknown directories, in nested repositories as in any other
    directory (git alone would stop there), and note the directories."""
    new: list[bytes] = []
    nested: list[bytes] = []
    pruned: list[bytes] = []
    files = False
    for top in tops:
        files = _walk(space, top, found, new, nested, pruned, settled_ns) or files
    listed = _untracked_below(space, tops, nested) if files else []
    full = above(listed)
    empty = [path for path in new if path not in full and path]
    # Git named the tops because they are not ignored; what lies deeper may be. (With a slash behind
    # them, git would hold a "*" in the .gitignore of the directory against the directory itself.)
    ignored = ignored_paths(space.git, [path for path in (*empty, *pruned) if path not in tops])
    for path in ignored:
        found.directories.pop(path, None)
        found.unreadable.discard(path)
        _forget_below(found.specials, path)
    found.bare.update(set(empty) - ignored)
    # A .gitignore may take a default exclude back: then these are directories like any other.
    opened = [path for path in pruned if path not in ignored]
    return [*listed, *_explore(space, opened, found, settled_ns)] if opened else listed


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
        seen = None if space.is_store(path) else _look(worktree, path, found)
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
        too_deep = _note_too_deep(worktree, path, found)
        settled = seen.st_ctime_ns < settled_ns and path not in found.unreadable and not too_deep
        found.directories[path] = (stat.S_IMODE(seen.st_mode), seen.st_ctime_ns if settled else 0)
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
        listed = space.git.bound(index_file=path).run(*_STANDARD, *limits).split(b"\0")[:-1]
    finally:
        path.unlink(missing_ok=True)
    if len(tops) > _MOST_ARGUMENTS:
        wanted = set(tops)
        listed = [file for file in listed if any(parent in wanted for parent in parents(file))]
    return [file for file in listed if not file.endswith(b"/")]
