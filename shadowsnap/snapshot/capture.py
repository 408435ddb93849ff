"""Capturing: from the files of a project to a tree in the store.

A capture is one mapping from path to entry: the index of the last capture, plus changes. The tree, the next index,
`skipped` and the fingerprint are all derived from that mapping, so they cannot disagree.

A restore must also save files that the rules leave out and that it is about to overwrite. These *extras* are part
of the tree of its checkpoint, but not of the mapping that the next capture starts from.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shadowsnap.deadline import Deadline, step
from shadowsnap.errors import DeadlineExceeded, GitFailed
from shadowsnap.git.index import Entry, Index, Known
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.reading import ObjectReader, missing_objects
from shadowsnap.git.trees import (
    DIRECTORY,
    EXECUTABLE,
    LINK,
    MANY_PATHS,
    REGULAR,
    Leaf,
    build_tree,
    check_size,
)
from shadowsnap.snapshot.content import (
    Content,
    NotCaptured,
    Stored,
    exists,
    read_again,
    read_file,
    store_files,
)
from shadowsnap.snapshot.ignore_rules import DEFAULT_DIRECTORY_NAMES, SHARE_OF_TIME
from shadowsnap.snapshot.ignore_rules import VERSION as EXCLUDES_VERSION
from shadowsnap.snapshot.readers import Readers
from shadowsnap.snapshot.scan import Comparison, Found, capture_settings, is_settled, scan
from shadowsnap.snapshot.secrets import why_left_out
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, folder_of, folders_above
from shadowsnap.store.checkpoints import newest_checkpoint, paths_in_fact
from shadowsnap.store.stat_cache import (
    Modes,
    ScanCache,
    boot_id,
    keep_cache,
    load_cache,
    objects_taken_for_stored,
    packs_of,
    save_cache,
    sorted_names,
)

# The time for saving the progress after the deadline has passed.
_GRACE_SECONDS = 5.0
# A .gitignore that is not captured goes into the checkpoint's metadata, unless it is longer.
_MAX_RULES_SIZE = 16_384
# Added where a file is on another file system than the project, with a clock of its own. A day covers every time
# zone.
_OTHER_CLOCK_NS = 25 * 3600 * 10**9
# A directory that a tool names is captured even if it is ignored, as long as there is not more in it.
_MAX_FOLDER_ENTRIES = 1000
_MAX_FOLDER_BYTES = 64 << 20
# Number of names of nothing that one capture looks up in the ignore rules.
_MOST_ABSENT = 1000
# The facts that two captures of the same state have in common.
_STATE_FACTS = ("scope", "modes", "empty_dirs", "skipped", "absent", "excludes", "rules")


class Capture:
    """A capture in progress. Its scope is `tree` (the complete directory) or `paths` (only what is included by
    name, without a scan)."""

    def __init__(self, space: Workspace, scope: str = "tree", comparison: Comparison | None = None) -> None:
        self.space = space
        self.scope = scope
        self.cache = ScanCache(Index(space.store.git_dir)) if comparison is None else _last_capture(space)
        self._comparison = comparison
        self.now_ns = self._file_system_time()
        """The file system's time when the capture began. Later changes may be missing."""
        self.skipped: dict[bytes, str] = {}
        self.absent: set[bytes] = set()
        """Included paths that did not exist; with a slash, missing directories above them."""
        self.late: set[bytes] = set()
        """Files that were left out before, because they are ignored. They existed before this capture."""
        self.older: set[bytes] = set()
        """Files that are captured for the first time, and are older than the turns under way."""
        self.rules_changed = False
        """Whether what is captured was decided otherwise at the last capture."""
        self.released: set[bytes] = set()
        """Files of the last capture that still exist and are left out now, because the rules changed."""
        self.undecided: set[bytes] = set()
        """What is missing because the ignore rules were not known in time; directories with a slash."""
        self._changes: dict[bytes, Entry | None] = {}
        """Changes to the index of the last capture; None: no longer captured."""
        self._extras: dict[bytes, Entry] = {}
        self._extra_directories: dict[bytes, int] = {}
        """The permission bits of ignored directories that are captured because of their content."""
        self._extra_bare: set[bytes] = set()
        self._linked: set[bytes] = set()
        """The files that were read and have several hard links."""
        self._trees: tuple[str, str] | None = None

    def _file_system_time(self) -> int:
        """The file system's time, or one that is certainly in the past."""
        comparison, clock = self._comparison, self.cache.clock
        if comparison is None:
            return 0
        if comparison.now_ns is not None:
            return comparison.now_ns
        return 0 if clock is None else clock + time.monotonic_ns()

    @property
    def is_first(self) -> bool:
        """Whether there is no earlier capture to start from, or it found nothing."""
        return len(self.cache.index) == 0

    # --- taking files in ---------------------------------------------------------------------

    def scan(self, named: Iterable[bytes] = (), usual: Modes | None = None) -> None:
        """Capture everything that differs from the last capture, and what tools named. On a first capture, `usual`
        are the permission bits that are not recorded file by file."""
        assert self._comparison is not None
        cache, space = self.cache, self.space
        given = {path for path in named if not space.is_store(path)}
        named, large = self._expand_named(given)
        if large != cache.large_directories:
            cache.large_directories = large
            cache.found_under = None  # the scan lists everything, and so finds the files that are left out now
        with Readers(space) as readers:
            found = scan(space, cache, self._comparison, named, self.now_ns, readers)
            step("capture:scanned")
            self._drop(found.gone)
            cache.directories, cache.ignored_directories = found.directories, found.ignored_directories
            self.rules_changed = cache.rules != found.rules or cache.found_under != capture_settings(space)
            cache.rules, self.undecided = found.rules, found.undecided
            wanted = named | cache.tracked
            known = self.known_among(wanted)
            missing = {path for path in wanted if path not in known or found.hides(path)}
            self._remember_names(given, {path for path in missing & named if space.worktree.look(path) is None})
            try:
                self._take(found.changed | missing if missing else found.changed, readers=readers)
                self._conclude(found, given, wanted, usual)
                if readers.given:
                    self.tree()  # is made while the readers complete their packs
                if lost := readers.lost():
                    self._take(lost)
                    self._conclude(found, given, wanted, usual)
            except DeadlineExceeded:
                for path in readers.lost():
                    self._changes.pop(path, None)
                self._trees = None  # it may have been made with what is lost
                self._choose_usual_modes(usual)
                self._save_progress()
                raise
        # Also those that a scan of everything found: they were left out before, because they are ignored.
        if cache.newest or not self.is_first:
            self.late = {path for path in named & missing if self._has(path)}
        step("capture:read")

    def _conclude(self, found: Found, given: set[bytes], wanted: set[bytes], usual: Modes | None) -> None:
        """Derive from the entries, and from what the scan found, what else is to be known of them."""
        cache, changes = self.cache, self._changes
        self._check_size()
        self.released = {path for path in found.gone if path not in self.skipped and self._is_file(path)}
        cache.named |= {path for path in given if self._exists(path)}
        self._note_large_directories(found)
        self._note_skipped(found)
        known = cache.index.lookup(path for path in wanted if path not in changes)
        self._note_ignored_directories({path for path in wanted if changes.get(path) or path in known})
        self._choose_usual_modes(usual)
        self._update_bare(found)
        unstorable = cache.bare - recordable(cache.bare)
        unstorable -= folders_above((*self.skipped, *unstorable))  # those are in `skipped` by what is in them
        self.skipped.update((folder + b"/", "unstorable") for folder in unstorable)
        cache.skipped = {path for path in self.skipped if not path.endswith(b"/")} - self.undecided
        cache.found_under = None if found.without_rules else capture_settings(self.space)
        self._update_unsettled(found)

    def _remember_names(self, given: set[bytes], absent: set[bytes]) -> None:
        """Remember what tools name and does not exist, if it is ignored: once it is made, no scan finds it. The
        checkpoint says that it did not exist, so that going back may delete it."""
        cache = self.cache
        gone = absent & (cache.index.lookup(absent).keys() | cache.skipped)
        asked = absent if self.rules_changed else absent & given | gone
        ignored = self._ignored_names(asked)
        cache.absent = (cache.absent & absent - asked) | ignored
        cache.named |= given & ignored
        self.absent |= cache.absent

    def _ignored_names(self, absent: set[bytes]) -> set[bytes]:
        """Which of these names are ignored, as a file or as a directory; none if git does not say in time."""
        rules, worktree = self.space.rules, self.space.worktree
        asked = sorted(path for path in absent if worktree.reaches(path, so_far=True))[:_MOST_ABSENT]
        if not asked or rules.is_too_slow:
            return set()
        try:
            with rules.within(self.space.deadline.part(SHARE_OF_TIME)):
                found = rules.ignored([*asked, *(path + b"/x" for path in asked)])
        except (DeadlineExceeded, GitFailed):
            return set()
        return {path for path in asked if path in found or path + b"/x" in found}

    def _check_size(self) -> None:
        """Refuse more paths than a checkpoint may contain: it could not be read."""
        index, changes = self.cache.index, self._changes
        if len(index) + len(changes) > MANY_PATHS:
            captured = {*index.paths()} - {path for path, entry in changes.items() if entry is None}
            captured |= self._present().keys()
            check_size(len(captured), sum(map(len, captured)) + len(captured))

    def include(self, paths: Iterable[bytes], *, unfiltered: bool = False) -> None:
        """Capture these paths too, in this checkpoint only, ignored or not. `unfiltered`: even if they are large
        or look like secrets. Those that do not exist are noted as absent."""
        wanted = files_named(self.space, (path for path in paths if not path.endswith(b"/")))
        self._take({path for path in wanted if not self._has(path)}, unfiltered=unfiltered, extra=True)
        absent = {path for path in wanted if not self._has(path) and path not in self.skipped}
        self.absent |= absent
        if self.scope == "paths":
            folders = folders_above(absent)
            self.absent |= {path + b"/" for path in folders if self.space.worktree.lstat(path) is None}
        self._note_ignored_directories(self.known_among(wanted))

    def include_directories(self, paths: Iterable[bytes]) -> None:
        """Capture empty directories too, ignored or not."""
        for path in paths:
            seen = self.space.worktree.lstat(path)
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                self._extra_directories[path] = stat.S_IMODE(seen.st_mode)
                self._extra_bare.add(path)
                self._note_ignored_directories(())

    # --- the result --------------------------------------------------------------------------

    def tree(self) -> str:
        """The tree of everything captured so far."""
        return self._both_trees()[1]

    @property
    def modes(self) -> Modes:
        """The permission bits of everything captured."""
        usual = self.cache.modes
        other = dict(usual.other)
        usual_bits = usual.directory
        folders = {path: row[0] for path, row in self.cache.directories.items() if row[0] != usual_bits}
        folders |= self._extra_directories
        unusual_folders = recordable(path for path, bits in folders.items() if path and bits != usual_bits)
        other.update((path, folders[path]) for path in unusual_folders)
        unusual = {path: self._unusual_bits(entry) for path, entry in self._extras.items()}
        other.update((path, bits) for path, bits in unusual.items() if bits is not None)
        return Modes(usual.file, usual.executable, usual.directory, other)

    @property
    def directories(self) -> set[bytes]:
        """Every captured directory, empty or not."""
        return self.cache.directories.keys() | self._extra_directories.keys()

    @property
    def bare(self) -> set[bytes]:
        """The captured directories without a captured file in them."""
        full = folders_above(self._extras)
        return recordable((self.cache.bare | self._extra_bare) - full)

    def facts(self) -> dict[str, Any]:
        """What a checkpoint records beside the tree."""
        return {
            "scope": self.scope,
            "modes": self.modes.to_json(),
            "empty_dirs": sorted_names(self.bare),
            "skipped": [[os.fsdecode(path), why] for path, why in sorted(self.skipped.items())],
            "absent": sorted_names(recordable(self.absent)),
            "excludes": {"defaults": EXCLUDES_VERSION, "own": self.space.patterns},
            "named": sorted_names(recordable(self.cache.named)),
            "rules": {os.fsdecode(path): os.fsdecode(text) for path, text in self.hidden_rules().items()},
        }

    def hidden_rules(self) -> dict[bytes, bytes]:
        """The `.gitignore` files that are not captured, such as one that ignores itself. A later restore needs
        them to find out what was ignored at this time."""
        hidden = self.cache.rules.keys() - self.known_among(self.cache.rules).keys()
        texts = {path: self.space.rules.text(folder_of(path)) for path in sorted(recordable(hidden))}
        return {path: text for path, text in texts.items() if text is not None and len(text) <= _MAX_RULES_SIZE}

    def fingerprint(self) -> str:
        return fingerprint(self.tree(), self.facts())

    def known(self, path: bytes) -> Known | None:
        """What was captured at this path."""
        return self.known_among([path]).get(path)

    def known_among(self, paths: Collection[bytes]) -> dict[bytes, Known]:
        """What was captured at each of these paths, without those where nothing was."""
        changes, extras = self._changes, self._extras
        known = self.cache.index.lookup(path for path in paths if path not in changes and path not in extras)
        for path in paths:
            entry = extras.get(path) or changes.get(path)
            if entry is not None:
                known[path] = Known.of(entry)
        return known

    def added(self) -> dict[bytes, Known]:
        """The files that the last capture does not hold."""
        present = self._present()
        held = self.cache.index.lookup(present)
        return {path: Known.of(entry) for path, entry in present.items() if path not in held}

    def _present(self) -> dict[bytes, Entry]:
        """The changes that are no removals."""
        return {path: entry for path, entry in self._changes.items() if entry is not None}

    def _both_trees(self) -> tuple[str, str]:
        """The tree of the mapping without the extras, and with them."""
        if self._trees is None:
            tree = self._built() if self.cache.tree == EMPTY_TREE else self._changed()
            self._trees = tree, self._patched(tree, {path: _leaf(entry) for path, entry in self._extras.items()})
        return self._trees

    def _built(self) -> str:
        """The tree of a first capture."""
        entries = self._present()
        return build_tree(zip(entries, Entry.leaves(entries.values()), strict=True), self._write_tree)

    def _changed(self) -> str:
        known = self.cache.index.lookup(self._changes)
        differing = {
            path: leaf for path, entry in self._changes.items() if (leaf := _leaf(entry)) != _leaf(known.get(path))
        }
        return self._patched(self.cache.tree, differing)

    def _patched(self, tree: str, changes: Mapping[bytes, Leaf | None]) -> str:
        if not changes:
            return tree
        with ObjectReader(self.space.git) as reader:
            return reader.changed_tree(tree, changes, self.space.objects)

    def _write_tree(self, data: bytes) -> str:
        return self.space.objects.write(b"tree", data)

    # --- saving the cache --------------------------------------------------------------------

    def remember(self) -> None:
        """Make the next capture start from this one, without its extras."""
        if self._comparison is None:
            return
        cache, space = self.cache, self.space
        tree = self._both_trees()[0]
        space.objects.flush()  # objects in the index count as stored, so they must be
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
        """Let the next attempt continue from here, after the deadline passed while files were read."""
        if self.space.lasting and self._comparison is not None:
            self.cache.found_under = None  # the next scan lists everything
            self.cache.newest = {}
            # Unsettled files that were not read yet stay so, and keep being compared with the older time.
            as_of = [self.now_ns, *([self.cache.as_of_ns] if self.cache.unsettled else [])]
            self.cache.unsettled |= self._present().keys()
            self.cache.as_of_ns = min(as_of)
            git = self.space.git.bound(deadline=Deadline(_GRACE_SECONDS), batch=None)
            self.space = replace(self.space, git=git)
            self.remember()

    # --- files -------------------------------------------------------------------------------

    def _expand_named(self, given: set[bytes]) -> tuple[set[bytes], set[bytes]]:
        """The files that tools name now or named earlier, and the directories among the earlier names that have
        become too large. These are left out, because every capture would have to walk them."""
        files: set[bytes] = files_named(self.space, given)
        large: set[bytes] = set()
        worktree = self.space.worktree
        for path in self.cache.named - given:
            below = small_directory(worktree, path) if worktree.is_directory(path) else {path}
            if below is None:
                large.add(path)
            else:
                files |= below
        return files, large

    def _take(
        self, paths: set[bytes], *, unfiltered: bool = False, extra: bool = False, readers: Readers | None = None
    ) -> None:
        """Read these files and update the mapping. If there are many, `readers` help."""
        space, worktree, objects = self.space, self.space.worktree, self.space.objects
        if readers is not None:
            paths = paths - readers.given
        if space.has_store_inside:
            paths = {path for path in paths if not space.is_store(path)}
        known = self.cache.index.lookup(paths)
        directories, tracked = self.cache.directories, self.cache.tracked
        doubtful = {path for path in paths if folder_of(path) not in directories}
        limit = None if unfiltered else space.settings.max_file_bytes
        stored = space.store.git_dir / "objects"

        def read(path: bytes) -> Content | NotCaptured:
            if path in doubtful and not worktree.reaches(path):
                return NotCaptured(None)
            problem = why_left_out(path, space.settings)
            # A file that the user's git tracks is no secret, whatever its name.
            if problem == "unstorable" or (problem is not None and not unfiltered and path not in tracked):
                return NotCaptured(problem if exists(worktree, path) else None)
            if path in known:
                return read_again(worktree, path, limit, objects, known[path], stored)
            return read_file(worktree, path, limit, objects.write_stream)

        results: Iterable[Stored] = ()
        if readers is not None:
            if not self.is_first:  # else the scan has given them what it listed
                readers.give(sorted(paths - doubtful - known.keys()))
            if readers.given:
                paths, results = paths - readers.given, readers.results()
        try:
            here = store_files(worktree, sorted(paths), read, objects, space.deadline)
            for each in _also_if_late(here, results):
                self._take_in(each, extra=extra)
        finally:
            worktree.leave()

    def _take_in(self, stored: Stored, *, extra: bool) -> None:
        self._trees = None
        if self.skipped:
            for path in stored.entries:
                self.skipped.pop(path, None)
        for path, why in stored.left_out.items():
            self.skipped.pop(path, None)
            if why is not None:
                self.skipped[path] = why
        if extra:
            self._extras.update(stored.entries)
            return
        self._drop(stored.left_out)
        self._changes.update(stored.entries)
        self._linked.update(stored.linked)
        if not self.is_first:  # else the usual permission bits are not known yet
            modes = self.cache.modes
            for path, entry in stored.entries.items():
                bits = self._unusual_bits(entry)
                if bits is None:
                    modes.other.pop(path, None)
                else:
                    modes.other[path] = bits

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

    def _exists(self, path: bytes) -> bool:
        """Whether a path is a captured or skipped file, or a directory."""
        return self._has(path) or path in self.skipped or self.space.worktree.is_directory(path)

    def _is_file(self, path: bytes) -> bool:
        seen = self.space.worktree.look(path) if self.space.worktree.reaches(path) else None
        return seen is not None and not stat.S_ISDIR(seen.st_mode)

    # --- what a tree cannot represent --------------------------------------------------------

    def _note_skipped(self, found: Found) -> None:
        """Note directories that could not be read, undecided paths, and odd files of the user's repository."""
        if found.unreadable:  # the directory is noted, so its files need not be
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

    def _note_large_directories(self, found: Found) -> None:
        """Note the ignored directories that are left out although a tool named them, or one above them."""
        for folder in self.cache.large_directories:
            left_out = {folder}
            if folder in found.directories:  # only what is ignored in it is left out
                below = (path for path in found.ignored_directories if path.startswith(folder + b"/"))
                left_out = {path for path in below if path.rpartition(b"/")[2] not in DEFAULT_DIRECTORY_NAMES}
            self.skipped.update((path + b"/", "large-directory") for path in left_out)

    def _note_ignored_directories(self, captured: Iterable[bytes]) -> None:
        """Note the permission bits of ignored directories above files that are captured nevertheless."""
        for parent in folders_above((*captured, *self._extra_bare)):
            if parent not in self.cache.directories and parent not in self._extra_directories:
                seen = self.space.worktree.lstat(parent)
                if seen is not None:
                    self._extra_directories[parent] = stat.S_IMODE(seen.st_mode)

    def _unusual_bits(self, entry: Entry) -> int | None:
        """The permission bits of a file, if they have to be recorded."""
        mode, bits = entry.kind
        return None if mode == LINK or bits == self.cache.modes.usual(mode) else bits

    def _choose_usual_modes(self, usual: Modes | None) -> None:
        """On a first capture, make the most frequent permission bits the usual ones."""
        if not self.is_first:
            return
        modes, directories = self.cache.modes, self.cache.directories
        entries = self._present()
        counted = Counter(Entry.kinds(entries.values()))
        if usual is not None:
            modes.file, modes.executable, modes.directory = usual.file, usual.executable, usual.directory
        else:
            modes.file = _most_frequent(counted, REGULAR) or modes.file
            modes.executable = _most_frequent(counted, EXECUTABLE) or modes.executable
            folders = Counter((DIRECTORY, row[0]) for path, row in directories.items() if path)
            modes.directory = _most_frequent(folders, DIRECTORY) or modes.directory
        unusual = {kind for kind in counted if kind[0] != LINK and kind[1] != modes.usual(kind[0])}
        modes.other = {}
        if unusual:
            modes.other = {path: each.kind[1] for path, each in entries.items() if each.kind in unusual}

    def _update_bare(self, found: Found) -> None:
        """Find the directories without captured files, among those that had none, new ones, and those that lost a
        file."""
        lost = {path for path, entry in self._changes.items() if entry is None}
        candidates = self.cache.bare | found.new_directories
        candidates |= folders_above((*lost, *self.skipped))
        candidates -= folders_above(self._present())
        # Where nothing came and not everything is listed anew, what was without files is so still.
        still = self.cache.bare - found.new_directories
        self.cache.bare = {
            path
            for path in candidates
            if path and path in found.directories and (path in still or self._is_bare(path))
        }

    def _is_bare(self, folder: bytes) -> bool:
        return all(self._changes.get(path, path) is None for path in self.cache.index.paths_below(folder))

    # --- times -------------------------------------------------------------------------------

    def _update_unsettled(self, found: Found) -> None:
        """Note the files that changed so shortly before this capture that a later change may leave the same
        time."""
        cache, device = self.cache, os.stat(self.space.project.workdir).st_dev
        not_read = {path for path in cache.unsettled if self._changes.get(path) is None}
        cache.unsettled = set()
        now_second = self.now_ns // 10**9
        present = self._present()
        # What changed three seconds ago on the same device is settled.
        for path, entry in Entry.recent(present, self.now_ns - 3 * 10**9, device).items():
            ctime = entry.ctime
            now_ns = self.now_ns - (0 if entry.is_on(device) else _OTHER_CLOCK_NS)
            if ctime[0] >= now_second or not is_settled(ctime[0] * 10**9 + ctime[1], now_ns):
                cache.unsettled.add(path)
        for path, known in cache.index.lookup(not_read).items():
            if known.ctime_ns // 10**9 >= now_second:
                cache.unsettled.add(path)
        cache.as_of_ns = self.now_ns if cache.unsettled else 0
        if self._comparison is not None and self._comparison.now_ns is None:
            newest = max((entry.ctime for entry in present.values()), default=(0, 0))
            cache.clock = self._observed_clock(newest[0] * 10**9 + newest[1], found)

    def _observed_clock(self, newest_ns: int, found: Found) -> int:
        """The least difference between the file system's time and the machine's clock: the file system's time
        cannot be earlier than the newest time seen on it."""
        newest_ns = max(newest_ns, *(stamp >> 32 for _, stamp in found.directories.values()), 0)
        observed, before = newest_ns - time.monotonic_ns(), self.cache.clock
        return observed if before is None else max(observed, before)


def recordable(paths: Iterable[bytes]) -> set[bytes]:
    """The paths without those in a directory like `.GIT`. Here it is one like any other, but no restore may make
    it: on some file systems it is the repository."""
    return {path for path in paths if b".git" not in path.lower().rstrip(b"/").split(b"/")}


def files_named(space: Workspace, paths: Iterable[bytes]) -> set[bytes]:
    """The paths, with the files below it in place of each directory."""
    files: set[bytes] = set()
    for path in paths:
        try:
            seen = space.worktree.lstat(path) if space.worktree.reaches(path) else None
        except OSError:  # no permission to enter a directory above
            seen = None
        if seen is None or not stat.S_ISDIR(seen.st_mode):
            files.add(path)
            continue
        for each, item in space.worktree.everything_below(path, DEFAULT_DIRECTORY_NAMES):
            space.deadline.check("looking for files")
            if item is not None and not item.is_directory:
                files.add(each)
    return files


def small_directory(worktree: Worktree, folder: bytes) -> set[bytes] | None:
    """The files below a directory that is named, without directories that are excluded by default; None if it is
    too large to be captured with every snapshot."""
    return worktree.files_below(folder, DEFAULT_DIRECTORY_NAMES, _MAX_FOLDER_ENTRIES, _MAX_FOLDER_BYTES)


def _last_capture(space: Workspace) -> ScanCache:
    """The cache of the last capture, or an empty one if objects that it relies on are missing."""
    cache = load_cache(space.store, space.project, space.watcher.kept if space.watcher is not None else None)
    packs = packs_of(space.store)
    if len(cache.index) and (cache.boot != boot_id() or not set(cache.packs[1:]) <= set(packs)):
        # A power failure may have emptied objects that were not flushed. Or packs were removed, and not by us.
        repacked = cache.boot == boot_id() and cache.packs[:1] != packs[:1]
        if not repacked and _lost_objects(space, cache):
            cache = ScanCache(Index(cache.index.path), named=cache.named)
        cache.packs = packs
    if not len(cache.index) and not cache.named:
        # The cache is lost, or this is the first capture: what tools named stands in the checkpoints, too.
        newest = newest_checkpoint(space.store, space.project, space.deadline)
        cache.named = set(paths_in_fact(newest, "named")) if newest is not None else set()
    return cache


def _lost_objects(space: Workspace, cache: ScanCache) -> bool:
    """Whether an object is missing that the next capture would not store again."""
    try:
        return bool(missing_objects(space.git, sorted(objects_taken_for_stored(cache, space.git))))
    except GitFailed:
        return True


def _also_if_late(first: Iterable[Stored], then: Iterable[Stored]) -> Iterator[Stored]:
    """One after the other. If the deadline passes during the first, the other returns what is under way, too."""
    try:
        yield from first
    except DeadlineExceeded:
        yield from then
        raise
    yield from then


def fingerprint(tree: str, facts: dict[str, Any]) -> str:
    """Equal for two captures of the same state."""
    state = {name: facts[name] for name in _STATE_FACTS if facts.get(name)}
    text = json.dumps([tree, state], sort_keys=True)
    return hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()


def _leaf(entry: Entry | Known | None) -> Leaf | None:
    return None if entry is None else (entry.mode, entry.id)


def _most_frequent(counted: Counter[tuple[int, int]], mode: int) -> int | None:
    """The most frequent permission bits among entries of this git mode."""
    bits = {kind[1]: number for kind, number in counted.items() if kind[0] == mode}
    return max(bits, key=lambda each: (bits[each], -each), default=None)
