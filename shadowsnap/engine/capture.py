"""Capturing: from the files of a project to a tree in the store.

A `Capture` starts from what the last one remembered, takes in what a scan found (and what
the caller names), and yields the tree with everything a tree cannot say: permission bits,
directories without files, and what was left out and why.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import count

from shadowsnap import lightjson as json
from shadowsnap.digests import sha256
from shadowsnap.engine.explore import pruned_names
from shadowsnap.engine.files import Content, Left, read_file
from shadowsnap.engine.finding import Finder
from shadowsnap.engine.findings import Findings
from shadowsnap.engine.person import Answers, ignored_paths
from shadowsnap.engine.scan import Comparison, rule_files
from shadowsnap.engine.steps import step
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import parents
from shadowsnap.engine.writing import write_contents
from shadowsnap.errors import DeadlineExceeded, GitFailed
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.index import Entry, Index, Known
from shadowsnap.git.reading import ObjectReader, missing_objects
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, REGULAR, Leaf, patch_tree
from shadowsnap.records import Any, replace
from shadowsnap.store.excludes import VERSION as EXCLUDES_VERSION
from shadowsnap.store.scancache import (
    NEVER_ASKED,
    Directories,
    Modes,
    ScanCache,
    boot_id,
    keep_cache,
    load_cache,
    objects_taken_for_stored,
    packs_of,
    save_cache,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowsnap.engine.seed import Seeded

# What saving the progress may take after the deadline ran out.
_GRACE_SECONDS = 5.0

# A longer .gitignore that is not captured does not go into the checkpoint either.
_LONGEST_RULES = 16_384

_STATE_FACTS = ("scope", "modes", "empty_dirs", "skipped", "absent", "excludes", "rules")


class Capture:
    """One capture in the making. Scope `tree` is the whole directory, `paths` only what is
    included by name."""

    def __init__(self, space: Workspace, scope: str = "tree", began_ns: int = 0) -> None:
        self.space = space
        self.scope = scope
        whole = scope == "tree"
        self.began_ns = began_ns
        """Whatever happened at or after this time may not have been seen."""
        self._seeded: Seeded | None = None
        """The start from the person's index, until it is taken in."""
        self._seeded_recent: set[bytes] = set()
        self.cache = self._starting_point() if whole else ScanCache(Index(space.store.git_dir))
        self.skipped: dict[bytes, str] = {}
        self.absent: set[bytes] = set()
        """Included paths that did not exist; with a slash, directories on the way to them."""
        self.late: set[bytes] = set()
        """Ignored files that are held from now on because they were named: they were there before."""
        self.answers = Answers()
        """What git said about ignored paths, for a plan that is made twice."""
        self._entries: dict[bytes, Entry | None] = {}
        self._tree_changes: dict[bytes, Leaf | None] = {}
        self._linked: set[bytes] = set()
        """Files that have several names, of those that were read."""

    @property
    def is_first(self) -> bool:
        """Whether nothing is known of permission bits yet."""
        return len(self.cache.index) == 0 or self._seeded is not None

    # --- taking in ---------------------------------------------------------------------------

    def scan(self, comparison: Comparison, named: Iterable[bytes] = (), usual: Modes | None = None) -> None:
        """Take in everything that differs from the last capture, and the named paths. Without
        a last capture, permission bits are told against the `usual` ones."""
        cache = self.cache
        exempt = None if cache.tracked_as_of == NEVER_ASKED else cache.named | cache.tracked
        found = Finder(self.space, cache, comparison, self._seeded).find()
        step("capture:scanned")
        named = self._files_named(named)
        self._remove(found.gone)
        before, cache.directories = cache.directories, found.directories
        wanted = cache.named | cache.tracked | named
        known = {path for path in cache.index.lookup(wanted) if not found.hides(path)}
        try:
            self._take(found.changed | wanted - known)
        except DeadlineExceeded:
            self._choose_usual_modes(usual)
            self._save_progress()
            raise
        cache.named |= {path for path in named if self._has(path) or path in self.skipped}
        self.late = {path for path in named - known - found.changed if self._has(path)}
        self._note_uncaptured(found, wanted)
        self._note_directories(known)
        self._choose_usual_modes(usual)
        self._settle_bare(found, exempt)
        self._forget_directories(before)
        self._note_rules(before)
        cache.skipped = {path for path in self.skipped if not path.endswith(b"/")} - cache.specials
        cache.patterns, self._seeded = self.space.patterns, None
        step("capture:read")

    def include(self, paths: Iterable[bytes], *, unfiltered: bool = False) -> None:
        """Take in these paths whether ignored or not; `unfiltered`: even if they are large or
        look like secrets. Those that do not exist are noted as absent."""
        paths = self._files_named(path for path in paths if not path.endswith(b"/"))
        self._take(paths, unfiltered=unfiltered)
        absent = {path for path in paths if not self._has(path) and path not in self.skipped}
        self.absent |= absent
        if self.scope == "paths":
            folders = {parent for path in absent for parent in parents(path)}
            self.absent |= {path + b"/" for path in folders if self.space.worktree.lstat(path) is None}
        self.cache.named |= {path for path in paths if self._has(path)}
        self._note_directories()
        self.cache.bare -= {parent for path in paths if self._has(path) for parent in parents(path)}

    def include_directories(self, paths: Iterable[bytes]) -> None:
        """Note directories without files, ignored or not."""
        for path in paths:
            seen = self.space.worktree.lstat(path)
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                self.cache.directories[path] = (stat.S_IMODE(seen.st_mode), 0)
                self.cache.bare.add(path)
        self._note_directories()

    # --- the result --------------------------------------------------------------------------

    def tree(self) -> str:
        """The tree of everything taken in so far."""
        if self._tree_changes:
            with ObjectReader(self.space.git) as reader:
                self.cache.tree = patch_tree(
                    self.cache.tree,
                    self._tree_changes,
                    lambda name: reader.read(name, b"tree"),
                    lambda data: self.space.objects.write(b"tree", data),
                )
            self._tree_changes.clear()
        return self.cache.tree

    def facts(self) -> dict[str, Any]:
        """What belongs into the checkpoint beside the tree."""
        return {
            "scope": self.scope,
            "modes": self.cache.modes.to_json(),
            "empty_dirs": _names(self.cache.bare),
            "skipped": [[os.fsdecode(path), why] for path, why in sorted(self.skipped.items())],
            "absent": _names(self.absent),
            "excludes": {"defaults": EXCLUDES_VERSION, "own": self.space.patterns},
            "rules": {os.fsdecode(path): os.fsdecode(text) for path, text in self.hidden_rules().items()},
        }

    def hidden_rules(self) -> dict[bytes, bytes]:
        """The .gitignore files that are not captured, such as one that ignores itself. Without
        them, nobody could tell later what was ignored at this time."""
        read = self.space.worktree.beginning
        texts = {path: read(path, _LONGEST_RULES + 1) for path in sorted(self.cache.rules)}
        return {path: text for path, text in texts.items() if text is not None and len(text) <= _LONGEST_RULES}

    def fingerprint(self) -> str:
        return fingerprint(self.tree(), self.facts())

    def known(self, path: bytes) -> Known | None:
        """What was captured at this path."""
        if path not in self._entries:
            return self.cache.index.lookup([path]).get(path)
        entry = self._entries[path]
        return None if entry is None else Known.of(entry)

    def known_among(self, paths: Collection[bytes]) -> dict[bytes, Known]:
        """What was captured at those of the paths where something was."""
        known = self.cache.index.lookup(paths)
        for path in paths:
            if path in self._entries:
                entry = self._entries[path]
                if entry is None:
                    known.pop(path, None)
                else:
                    known[path] = Known.of(entry)
        return known

    def _save_progress(self) -> None:
        """Time ran out while reading: let the next attempt go on from here."""
        if self.space.lasting and self.scope == "tree":
            self.cache.patterns = None  # so that everything is listed anew
            self.cache.newest = {}
            git = self.space.git.bound(deadline=Deadline(_GRACE_SECONDS), batch=None)
            self.space = replace(self.space, git=git)
            self.tree()
            self.space.objects.settle()
            self.remember()

    def remember(self) -> None:
        """Make the next capture start from this one."""
        if self.scope != "tree":
            return
        self.space.objects.settle()  # the index says that what it names is stored
        if self._entries:
            recent = {path for path, entry in self._entries.items() if entry and self._is_recent(entry.stat)}
            self.cache.unsettled = recent | self._seeded_recent
            self.cache.index = self.cache.index.write(self._entries, self.began_ns)
            self.cache.packs = packs_of(self.space.store)
            self._entries = {}
        else:
            self.cache.unsettled |= self._seeded_recent
            self.cache.index.touch(self.began_ns)
        step("capture:index-written")
        save_cache(self.space.store, self.space.project, self.cache)
        if self.space.watcher is not None:
            kept = keep_cache(self.space.store, self.space.project, self.cache)
            self.space.watcher.remembered(kept, self.cache.directories, self._linked, began_ns=self.began_ns)

    def _starting_point(self) -> ScanCache:
        """What the last capture remembered; else what the person's git knows; else nothing."""
        space = self.space
        cache = load_cache(space.store, space.project, space.watcher.kept if space.watcher is not None else None)
        packs = packs_of(space.store)
        if len(cache.index) and (cache.boot != boot_id() or not set(cache.packs[1:]) <= set(packs)):
            # A power cut may have emptied objects that were not flushed; and who removed packs, if not upkeep?
            joined = cache.boot == boot_id() and cache.packs[:1] != packs[:1]
            if not joined and _lost_something(space, cache):
                cache = ScanCache(Index(cache.index.path), named=cache.named)
            cache.packs = packs
        if len(cache.index) or not space.lasting or not space.settings.start_from_checkout:
            return cache
        from shadowsnap.engine.seed import seeded_cache  # a hook needs it once in the life of a project

        self._seeded = seeded_cache(space, self.began_ns)
        if self._seeded is None:
            return cache
        self._seeded_recent = self._seeded.files.recent
        return self._seeded.cache

    # --- files -------------------------------------------------------------------------------

    def _files_named(self, paths: Iterable[bytes]) -> set[bytes]:
        """The paths, and for a directory among them the files in it."""
        files: set[bytes] = set()
        for path in paths:
            try:
                seen = self.space.worktree.lstat(path) if self.space.worktree.reaches(path) else None
            except PermissionError:  # a directory on the way that may not be entered
                self.skipped[path] = "unreadable"
                continue
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                below = self.space.worktree.everything_below(path, pruned_names())
                files.update(each for each, item in below if item is not None and not item.is_special)
            else:
                files.add(path)
        return files

    def _take(self, paths: set[bytes], *, unfiltered: bool = False) -> None:
        """Read these files and note what they hold now."""
        paths = {path for path in paths if not self.space.is_store(path)}
        known = self.cache.index.lookup(paths)
        directories, done = self.cache.directories, count()

        def read(path: bytes) -> Content | Left:
            self.space.deadline.check("reading files", next(done), len(paths))
            if path.rpartition(b"/")[0] not in directories and not self.space.worktree.reaches(path):
                return Left(None)
            try:
                return read_file(self.space, path, unfiltered=unfiltered)
            except Left as left:
                return left

        for path, content in write_contents(self.space, sorted(paths), read, known):
            self.skipped.pop(path, None)
            if isinstance(content, Content):
                self._keep(path, content, known.get(path))
                continue
            if content.why is not None:
                self.skipped[path] = content.why
            self._remove([path])

    def _keep(self, path: bytes, content: Content, known: Known | None) -> None:
        self._entries[path] = Entry(content.mode, content.id, content.stat)
        if content.stat.st_nlink > 1:
            self._linked.add(path)
        if known is None or (known.mode, known.id) != (content.mode, content.id):
            self._tree_changes[path] = (content.mode, content.id)
        bits = stat.S_IMODE(content.stat.st_mode)
        if content.mode == LINK or bits == self.cache.modes.usual(content.mode):
            self.cache.modes.other.pop(path, None)
        else:
            self.cache.modes.other[path] = bits

    def _remove(self, paths: Iterable[bytes]) -> None:
        paths = list(paths)
        known = self.cache.index.lookup(paths)
        for path in paths:
            if path in known or path in self._entries:
                self._entries[path] = None
                self._tree_changes[path] = None
            if path not in self.cache.directories:
                self.cache.modes.other.pop(path, None)

    def _has(self, path: bytes) -> bool:
        return self.known(path) is not None

    def _is_recent(self, seen: os.stat_result) -> bool:
        return seen.st_ctime_ns // 10**9 >= self.began_ns // 10**9

    # --- what a tree cannot say --------------------------------------------------------------

    def _note_uncaptured(self, found: Findings, wanted: set[bytes]) -> None:
        self.cache.specials = found.specials
        for path in self.cache.specials:
            self.skipped[path] = "special"
        if found.unreadable:  # a word about the directory says enough about its files
            self.skipped = {path: why for path, why in self.skipped.items() if not found.hides(path)}
        for folder in found.unreadable:
            self.skipped[folder + b"/"] = "unreadable"
            self._remove(path for path in self.cache.index.paths_below(folder) if path not in wanted)

    def _note_directories(self, known: Iterable[bytes] = ()) -> None:
        """Permission bits of every directory, also of those that only a captured file shows: one
        just taken in, or one known before in a directory that is ignored."""
        directories, modes = self.cache.directories, self.cache.modes
        for path in (*self._entries, *known):
            for parent in parents(path) if self._entries.get(path, path) is not None else ():
                if parent in directories:
                    break
                seen = self.space.worktree.lstat(parent)
                if seen is not None:
                    directories[parent] = (stat.S_IMODE(seen.st_mode), 0)
        for path, (bits, _) in directories.items():
            if bits == modes.directory or not path:
                modes.other.pop(path, None)
            else:
                modes.other[path] = bits

    def _forget_directories(self, before: Directories) -> None:
        """Directories that are gone; files were dealt with when they went."""
        for path in before.keys() - self.cache.directories.keys():
            if not self._has(path):
                self.cache.modes.other.pop(path, None)

    def _note_rules(self, before: Directories) -> None:
        """Remember the .gitignore files that are not captured themselves, or not any more."""
        cache = self.cache
        looked = {path for path, row in cache.directories.items() if not row[1] or before.get(path) != row}
        dropped = (path.rpartition(b"/") for path, entry in self._entries.items() if entry is None)
        looked |= {folder for folder, _, name in dropped if name == b".gitignore"} & cache.directories.keys()
        rules = {
            path: changed
            for path, changed in cache.rules.items()
            if (folder := path.rpartition(b"/")[0]) in cache.directories and folder not in looked
        }
        for path, changed in rule_files(self.space.worktree, looked).items():
            rules[path] = changed if changed < self.began_ns else 0
        captured = self.known_among(rules.keys())
        cache.rules = {path: changed for path, changed in rules.items() if path not in captured}

    def _choose_usual_modes(self, usual: Modes | None) -> None:
        """On the first capture, let the bits that most files have be the usual ones."""
        if not self.is_first:
            return
        modes, directories = self.cache.modes, self.cache.directories
        files = self._seeded.files.kinds if self._seeded is not None else {}
        for path, entry in self._entries.items():
            files.pop(path, None)
            if entry is not None:
                files[path] = (entry.mode, stat.S_IMODE(entry.stat.st_mode))
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
        modes.other.update(
            (path, row[0]) for path, row in directories.items() if path and row[0] != modes.directory
        )

    def _settle_bare(self, found: Findings, exempt: set[bytes] | None) -> None:
        """Directories without captured files: those the scan found, and those that lost their
        last one. `exempt` are the files that were captured though ignored, if that is known."""
        lost = {path for path in (*found.gone, *self._entries) if not self._has(path)}
        emptied = {parent for path in lost for parent in parents(path)}
        emptied |= {parent for path in self.skipped for parent in parents(path)}
        full = {parent for path, entry in self._entries.items() if entry is not None for parent in parents(path)}
        candidates = (found.bare | emptied) - full
        self.cache.bare = {
            path for path in candidates if path in self.cache.directories and self._nothing_below(path)
        }
        # What was captured although ignored may have been in directories that are ignored too.
        ignored = lost if exempt is None else lost & exempt
        doubtful = self.cache.bare & {parent for path in ignored for parent in parents(path)}
        for path in ignored_paths(self.space.git, sorted(doubtful)):
            self.cache.bare.discard(path)
            del self.cache.directories[path]

    def _nothing_below(self, folder: bytes) -> bool:
        return all(
            path in self._entries and self._entries[path] is None for path in self.cache.index.paths_below(folder)
        )


def _lost_something(space: Workspace, cache: ScanCache) -> bool:
    """Whether anything that the next capture would not store again is missing."""
    try:
        return bool(missing_objects(space.git, sorted(objects_taken_for_stored(cache, space.git))))
    except GitFailed:
        return True


def fingerprint(tree: str, facts: dict[str, Any]) -> str:
    """Equal for two captures of the same state."""
    told = {name: facts[name] for name in _STATE_FACTS if facts.get(name)}
    return sha256(json.dumps([tree, told], sort_keys=True).encode()).hexdigest()


def _most(counted: Counter[tuple[int, int]], mode: int) -> int | None:
    """The permission bits that most of what has this git mode have."""
    bits = {kind[1]: number for kind, number in counted.items() if kind[0] == mode}
    return max(bits, key=lambda each: (bits[each], -each), default=None)


def _names(paths: Iterable[bytes]) -> list[str]:
    return sorted(os.fsdecode(path) for path in paths)
