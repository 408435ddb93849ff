"""Capturing: from the files of a project to a tree in the store.

A capture is one mapping from path to entry: the index of the last capture, with changes on top. The tree, the
next index, `skipped` and the fingerprint are all derived from that mapping, so they cannot disagree.

What a restore has to save beyond that (files that the rules leave out, and that it is about to overwrite) is
held by its checkpoint alone: extras are part of the tree, but the next capture does not start from them.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import count

from shadowsnap import lightjson as json
from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded, GitFailed
from shadowsnap.git.index import Entry, Index, Known
from shadowsnap.git.reading import ObjectReader, missing_objects
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, REGULAR, Leaf, patch_tree
from shadowsnap.records import Any, replace
from shadowsnap.snapshot.content import Content, Left, read_file, write_contents
from shadowsnap.snapshot.ignore_rules import VERSION as EXCLUDES_VERSION
from shadowsnap.snapshot.ignore_rules import default_directory_names
from shadowsnap.snapshot.scan import Comparison, Found, found_under, is_settled, scan
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import parents
from shadowsnap.steps import step
from shadowsnap.store.stat_cache import (
    Modes,
    ScanCache,
    boot_id,
    keep_cache,
    load_cache,
    objects_taken_for_stored,
    packs_of,
    save_cache,
)

# What saving the progress may take after the deadline ran out.
_GRACE_SECONDS = 5.0

# A longer .gitignore that is not captured does not go into the checkpoint either.
_LONGEST_RULES = 16_384

# Times on another file system than the project's own are compared with ours. A day covers every wrong time zone.
_ANOTHER_CLOCK_NS = 25 * 3600 * 10**9

_STATE_FACTS = ("scope", "modes", "empty_dirs", "skipped", "absent", "excludes", "rules")


class Capture:
    """One capture in the making. Scope `tree` is the whole directory, `paths` only what is included by name."""

    def __init__(self, space: Workspace, scope: str = "tree", comparison: Comparison | None = None) -> None:
        self.space = space
        self.scope = scope
        self.cache = ScanCache(Index(space.store.git_dir)) if comparison is None else _last_capture(space)
        self._comparison = comparison
        self.now_ns = self._time_of_files()
        """The time of the file system when the capture began: what happened later may not have been seen."""
        self.skipped: dict[bytes, str] = {}
        self.absent: set[bytes] = set()
        """Included paths that did not exist; with a slash, directories on the way to them."""
        self.late: set[bytes] = set()
        """Ignored files that are held from now on because they were named: they were there before."""
        self.released: set[bytes] = set()
        """Files that the last capture held and this one leaves out though they are there: the rules changed."""
        self.undecided: set[bytes] = set()
        """What is not held because the ignore rules could not be had in time; directories with a slash."""
        self._changes: dict[bytes, Entry | None] = {}
        """Against the index of the last capture; None: not captured any more."""
        self._extras: dict[bytes, Entry] = {}
        self._extra_directories: dict[bytes, int] = {}
        """Directories that are ignored, and held for the sake of what is in them: their permission bits."""
        self._extra_bare: set[bytes] = set()
        self._linked: set[bytes] = set()
        """Files that have several names, of those that were read."""
        self._trees: tuple[str, str] | None = None

    @property
    def is_first(self) -> bool:
        """Whether nothing is known of permission bits yet."""
        return len(self.cache.index) == 0

    # --- taking in ---------------------------------------------------------------------------

    def scan(self, named: Iterable[bytes] = (), usual: Modes | None = None) -> None:
        """Take in everything that differs from the last capture, and what tools named. Without a last
        capture, permission bits are told against the `usual` ones."""
        assert self._comparison is not None
        cache, space = self.cache, self.space
        given = {path for path in named if not space.is_store(path)}
        named = self._files_named(given | cache.named)
        found = scan(space, cache, self._comparison, named, self.now_ns)
        step("capture:scanned")
        self._drop(found.gone)
        cache.directories, cache.ignored_directories = found.directories, found.ignored_directories
        cache.rules, self.undecided = found.rules, found.undecided
        wanted = named | cache.tracked
        known = self.known_among(wanted)
        missing = {path for path in wanted if path not in known or found.hides(path)}
        try:
            self._take(found.changed | missing)
        except DeadlineExceeded:
            self._choose_usual_modes(usual)
            self._save_progress()
            raise
        self.late = {path for path in named & missing - found.changed if self._has(path)}
        self.released = {path for path in found.gone if path not in self.skipped and self._is_file(path)}
        cache.named |= {path for path in given if self._is_there(path)}
        self._note_uncaptured(found)
        self._note_ignored_directories(wanted)
        self._choose_usual_modes(usual)
        self._settle_bare(found)
        cache.skipped = {path for path in self.skipped if not path.endswith(b"/")} - self.undecided
        cache.found_under = None if self.undecided else found_under(space)
        self._settle(found)
        step("capture:read")

    def include(self, paths: Iterable[bytes], *, unfiltered: bool = False) -> None:
        """Hold these paths too, in this checkpoint alone, whether ignored or not; `unfiltered`: even if they
        are large or look like secrets. Those that do not exist are noted as absent."""
        wanted = self._files_named(path for path in paths if not path.endswith(b"/"))
        self._take({path for path in wanted if not self._has(path)}, unfiltered=unfiltered, extra=True)
        absent = {path for path in wanted if not self._has(path) and path not in self.skipped}
        self.absent |= absent
        if self.scope == "paths":
            folders = {parent for path in absent for parent in parents(path)}
            self.absent |= {path + b"/" for path in folders if self.space.worktree.lstat(path) is None}
        self._note_ignored_directories(wanted)

    def include_directories(self, paths: Iterable[bytes]) -> None:
        """Hold directories without files too, ignored or not."""
        for path in paths:
            seen = self.space.worktree.lstat(path)
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                self._note_directory(path, seen)
                self._extra_bare.add(path)
                self._note_ignored_directories([path])

    # --- the result --------------------------------------------------------------------------

    def tree(self) -> str:
        """The tree of everything taken in so far."""
        return self._both_trees()[1]

    @property
    def modes(self) -> Modes:
        """The permission bits of everything that is held."""
        usual = self.cache.modes
        other = dict(usual.other)
        folders = {path: row[0] for path, row in self.cache.directories.items()} | self._extra_directories
        other.update((path, bits) for path, bits in folders.items() if path and bits != usual.directory)
        unusual = {path: self._unusual(entry) for path, entry in self._extras.items()}
        other.update((path, bits) for path, bits in unusual.items() if bits is not None)
        return Modes(usual.file, usual.executable, usual.directory, other)

    @property
    def directories(self) -> set[bytes]:
        """Every directory that is held, by itself or by what is in it."""
        return self.cache.directories.keys() | self._extra_directories.keys()

    @property
    def bare(self) -> set[bytes]:
        """The directories in which nothing is held."""
        full = {parent for path in self._extras for parent in parents(path)}
        return (self.cache.bare | self._extra_bare) - full

    def facts(self) -> dict[str, Any]:
        """What belongs into the checkpoint beside the tree."""
        return {
            "scope": self.scope,
            "modes": self.modes.to_json(),
            "empty_dirs": _names(self.bare),
            "skipped": [[os.fsdecode(path), why] for path, why in sorted(self.skipped.items())],
            "absent": _names(self.absent),
            "excludes": {"defaults": EXCLUDES_VERSION, "own": self.space.patterns},
            "rules": {os.fsdecode(path): os.fsdecode(text) for path, text in self.hidden_rules().items()},
        }

    def hidden_rules(self) -> dict[bytes, bytes]:
        """The .gitignore files that are not captured, such as one that ignores itself. Without them, it could
        not be told later what was ignored at this time."""
        hidden = self.cache.rules.keys() - self.known_among(self.cache.rules).keys()
        texts = {path: self.space.rules.text(path.rpartition(b"/")[0]) for path in sorted(hidden)}
        return {path: text for path, text in texts.items() if text is not None and len(text) <= _LONGEST_RULES}

    def fingerprint(self) -> str:
        return fingerprint(self.tree(), self.facts())

    def known(self, path: bytes) -> Known | None:
        """What was captured at this path."""
        return self.known_among([path]).get(path)

    def known_among(self, paths: Collection[bytes]) -> dict[bytes, Known]:
        """What was captured at those of the paths where something was: the mapping itself."""
        changes, extras = self._changes, self._extras
        known = self.cache.index.lookup(path for path in paths if path not in changes and path not in extras)
        for path in paths:
            entry = extras.get(path) or changes.get(path)
            if entry is not None:
                known[path] = Known.of(entry)
        return known

    def remember(self) -> None:
        """Make the next capture start from this one, without its extras."""
        if self._comparison is None:
            return
        cache, space = self.cache, self.space
        tree = self._both_trees()[0]
        space.objects.flush()  # the index says that what it names is stored
        if self._changes:
            cache.index = cache.index.write(self._changes)
            cache.packs = packs_of(space.store)
            self._changes = {}
        cache.tree, self._trees = tree, None
        step("capture:index-written")
        save_cache(space.store, space.project, cache)
        if space.watcher is not None:
            kept = keep_cache(space.store, space.project, cache)
            space.watcher.remembered(kept, cache.directories, self._linked, self._comparison.began)

    def _save_progress(self) -> None:
        """Time ran out while reading: let the next attempt go on from here."""
        if self.space.lasting and self._comparison is not None:
            self.cache.found_under = None  # so that everything is listed anew
            self.cache.newest = {}
            # What was doubtful and is not read yet stays so, and is held against the older time.
            as_of = [self.now_ns, *([self.cache.as_of_ns] if self.cache.unsettled else [])]
            self.cache.unsettled |= {path for path, entry in self._changes.items() if entry is not None}
            self.cache.as_of_ns = min(as_of)
            git = self.space.git.bound(deadline=Deadline(_GRACE_SECONDS), batch=None)
            self.space = replace(self.space, git=git)
            self.remember()

    def _both_trees(self) -> tuple[str, str]:
        """The tree of the mapping without its extras, and with them."""
        if self._trees is None:
            known = self.cache.index.lookup(self._changes)
            leaves = {path: _leaf(entry) for path, entry in self._changes.items()}
            differing = {path: leaf for path, leaf in leaves.items() if leaf != _known_leaf(known.get(path))}
            tree = self._patched(self.cache.tree, differing)
            self._trees = tree, self._patched(tree, {path: _leaf(entry) for path, entry in self._extras.items()})
        return self._trees

    def _patched(self, tree: str, changes: Mapping[bytes, Leaf | None]) -> str:
        if not changes:
            return tree
        with ObjectReader(self.space.git) as reader:
            return patch_tree(
                tree,
                changes,
                lambda name: reader.read(name, b"tree"),
                lambda data: self.space.objects.write(b"tree", data),
            )

    # --- files -------------------------------------------------------------------------------

    def _files_named(self, paths: Iterable[bytes]) -> set[bytes]:
        """The paths, and for a directory among them the files in it."""
        files: set[bytes] = set()
        worktree, closed = self.space.worktree, {os.fsencode(name) for name in default_directory_names()}
        for path in paths:
            try:
                seen = worktree.lstat(path) if worktree.reaches(path) else None
            except OSError:  # a directory on the way that may not be entered
                seen = None
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                below = worktree.everything_below(path, closed)
                files.update(each for each, item in below if item is not None and not item.is_directory)
            else:
                files.add(path)
        return files

    def _is_there(self, path: bytes) -> bool:
        """Whether a name stands for anything: a file that is captured or skipped, or a directory."""
        return self._has(path) or path in self.skipped or self.space.worktree.is_directory(path)

    def _is_file(self, path: bytes) -> bool:
        seen = self.space.worktree.look(path) if self.space.worktree.reaches(path) else None
        return seen is not None and not stat.S_ISDIR(seen.st_mode)

    def _take(self, paths: set[bytes], *, unfiltered: bool = False, extra: bool = False) -> None:
        """Read these files and note what they hold now."""
        paths = {path for path in paths if not self.space.is_store(path)}
        known = self.cache.index.lookup(paths)
        directories, done = self.cache.directories, count()

        def read(path: bytes) -> Content | Left:
            self.space.deadline.check("reading files", next(done), len(paths))
            if path.rpartition(b"/")[0] not in directories and not self.space.worktree.reaches(path):
                return Left(None)
            try:
                return read_file(self.space, path, unfiltered=unfiltered, tracked=path in self.cache.tracked)
            except Left as left:
                return left

        for path, content in write_contents(self.space, sorted(paths), read, known):
            self.skipped.pop(path, None)
            if isinstance(content, Content):
                self._hold(path, Entry(content.mode, content.id, content.stat), extra=extra)
                continue
            if content.why is not None:
                self.skipped[path] = content.why
            if not extra:
                self._drop([path])

    def _hold(self, path: bytes, entry: Entry, *, extra: bool) -> None:
        self._trees = None
        if extra:
            self._extras[path] = entry
            return
        self._changes[path] = entry
        if entry.stat.st_nlink > 1:
            self._linked.add(path)
        bits = self._unusual(entry)
        if bits is None:
            self.cache.modes.other.pop(path, None)
        else:
            self.cache.modes.other[path] = bits

    def _drop(self, paths: Iterable[bytes]) -> None:
        paths = list(paths)
        known = self.cache.index.lookup(paths)
        for path in paths:
            self.cache.modes.other.pop(path, None)
            if path in known:
                self._changes[path], self._trees = None, None
            elif self._changes.pop(path, None) is not None:
                self._trees = None

    def _has(self, path: bytes) -> bool:
        return self.known(path) is not None

    def _unusual(self, entry: Entry) -> int | None:
        """The permission bits of a file if they are not the usual ones."""
        bits = stat.S_IMODE(entry.stat.st_mode)
        return None if entry.mode == LINK or bits == self.cache.modes.usual(entry.mode) else bits

    # --- times -------------------------------------------------------------------------------

    def _time_of_files(self) -> int:
        """The time of the file system now, or one that is certainly past."""
        comparison, clock = self._comparison, self.cache.clock
        if comparison is None:
            return 0
        if comparison.now_ns is not None:
            return comparison.now_ns
        return 0 if clock is None else clock + time.monotonic_ns()

    def _settle(self, found: Found) -> None:
        """Note which files changed so shortly before this capture that a later change could go unnoticed."""
        cache, device = self.cache, os.stat(self.space.project.workdir).st_dev
        read = {path: entry.stat for path, entry in self._changes.items() if entry is not None}
        looked_at = cache.unsettled - read.keys()
        cache.unsettled = set()
        now_second = self.now_ns // 10**9
        for path, seen in read.items():
            now_ns = self.now_ns - (_ANOTHER_CLOCK_NS if seen.st_dev != device else 0)
            if seen.st_ctime_ns // 10**9 >= now_second or not is_settled(seen.st_ctime_ns, now_ns):
                cache.unsettled.add(path)
        for path, known in cache.index.lookup(looked_at).items():
            if known.ctime_ns // 10**9 >= now_second:
                cache.unsettled.add(path)
        cache.as_of_ns = self.now_ns if cache.unsettled else 0
        if self._comparison is not None and self._comparison.now_ns is None:
            cache.clock = self._observed_clock(max((seen.st_ctime_ns for seen in read.values()), default=0), found)

    def _observed_clock(self, newest_ns: int, found: Found) -> int | None:
        """How far the time of the file system is ahead of the machine's clock (behind it, if negative), at
        least: it cannot be earlier than the newest time that was seen."""
        newest_ns = max(newest_ns, *(stamp >> 32 for _, stamp in found.directories.values()), 0)
        observed, before = newest_ns - time.monotonic_ns(), self.cache.clock
        return observed if before is None else max(observed, before)

    # --- what a tree cannot say --------------------------------------------------------------

    def _note_uncaptured(self, found: Found) -> None:
        if found.unreadable:  # a word about the directory says enough about its files
            self.skipped = {path: why for path, why in self.skipped.items() if not found.hides(path)}
        for folder in found.unreadable:
            self.skipped[folder + b"/"] = "unreadable"
            self._drop(self.cache.index.paths_below(folder))
        for path in found.undecided:
            self.skipped[path] = "undecided"
        repository, workdir = self.space.repository, self.space.project.workdir
        odd = repository.odd_files() if repository is not None else {}
        if repository is not None and found.tracked_unknown:
            odd.setdefault(str(repository.git_dir / "index"), "unreadable")
        for name, why in odd.items():
            if name.startswith(f"{workdir}{os.sep}"):
                self.skipped[os.fsencode(os.path.relpath(name, workdir))] = why

    def _note_ignored_directories(self, paths: Iterable[bytes]) -> None:
        """Directories that are ignored themselves, on the way to a file that is held all the same."""
        held = self.known_among([*paths]).keys() | self._extra_bare
        for parent in {parent for path in held for parent in parents(path)}:
            if parent not in self.cache.directories and parent not in self._extra_directories:
                seen = self.space.worktree.lstat(parent)
                if seen is not None:
                    self._note_directory(parent, seen)

    def _note_directory(self, path: bytes, seen: os.stat_result) -> None:
        self._extra_directories[path] = stat.S_IMODE(seen.st_mode)

    def _choose_usual_modes(self, usual: Modes | None) -> None:
        """On the first capture, let the bits that most files have be the usual ones."""
        if not self.is_first:
            return
        modes, directories = self.cache.modes, self.cache.directories
        files = {
            path: (entry.mode, stat.S_IMODE(entry.stat.st_mode))
            for path, entry in self._changes.items()
            if entry is not None
        }
        counted = Counter(files.values())
        if usual is not None:
            modes.file, modes.executable, modes.directory = usual.file, usual.executable, usual.directory
        else:
            modes.file = _most(counted, REGULAR) or modes.file
            modes.executable = _most(counted, EXECUTABLE) or modes.executable
            folders = Counter((DIRECTORY, row[0]) for path, row in directories.items() if path)
            modes.directory = _most(folders, DIRECTORY) or modes.directory
        unusual = {kind for kind in counted if kind[0] != LINK and kind[1] != modes.usual(kind[0])}
        modes.other = {path: kind[1] for path, kind in files.items() if kind in unusual} if unusual else {}

    def _settle_bare(self, found: Found) -> None:
        """Directories without captured files: those that were so, new ones, and those that lost their last."""
        lost = {path for path, entry in self._changes.items() if entry is None}
        candidates = self.cache.bare | found.new_directories
        candidates |= {parent for path in (*lost, *self.skipped) for parent in parents(path)}
        candidates -= {parent for path, entry in self._changes.items() if entry for parent in parents(path)}
        self.cache.bare = {
            path for path in candidates if path and path in found.directories and self._nothing_below(path)
        }

    def _nothing_below(self, folder: bytes) -> bool:
        return all(self._changes.get(path, path) is None for path in self.cache.index.paths_below(folder))


def _last_capture(space: Workspace) -> ScanCache:
    """What the last capture remembered, if what it takes for stored is there."""
    cache = load_cache(space.store, space.project, space.watcher.kept if space.watcher is not None else None)
    packs = packs_of(space.store)
    if len(cache.index) and (cache.boot != boot_id() or not set(cache.packs[1:]) <= set(packs)):
        # A power cut may have emptied objects that were not flushed; or packs were removed by something else
        # than our upkeep.
        repacked = cache.boot == boot_id() and cache.packs[:1] != packs[:1]
        if not repacked and _lost_something(space, cache):
            cache = ScanCache(Index(cache.index.path), named=cache.named)
        cache.packs = packs
    return cache


def _lost_something(space: Workspace, cache: ScanCache) -> bool:
    """Whether anything that the next capture would not store again is missing."""
    try:
        return bool(missing_objects(space.git, sorted(objects_taken_for_stored(cache, space.git))))
    except GitFailed:
        return True


def fingerprint(tree: str, facts: dict[str, Any]) -> str:
    """Equal for two captures of the same state."""
    told = {name: facts[name] for name in _STATE_FACTS if facts.get(name)}
    return hashlib.sha256(json.dumps([tree, told], sort_keys=True).encode()).hexdigest()


def _leaf(entry: Entry | None) -> Leaf | None:
    return None if entry is None else (entry.mode, entry.id)


def _known_leaf(known: Known | None) -> Leaf | None:
    return None if known is None else (known.mode, known.id)


def _most(counted: Counter[tuple[int, int]], mode: int) -> int | None:
    """The permission bits that most of what has this git mode have."""
    bits = {kind[1]: number for kind, number in counted.items() if kind[0] == mode}
    return max(bits, key=lambda each: (bits[each], -each), default=None)


def _names(paths: Iterable[bytes]) -> list[str]:
    return sorted(os.fsdecode(path) for path in paths)
