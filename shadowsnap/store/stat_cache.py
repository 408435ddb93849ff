"""What is remembered between two captures of a project, so that only changes cost time.

The private index holds every captured file with its stat data; beside it lie the directories
(mode and a stamp) and a small JSON file. All of it can be made anew from the files and the
newest checkpoint; whatever does not fit together is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadowsnap.errors import MalformedObject
from shadowsnap.files import parse_json, read_json, write_bytes
from shadowsnap.git.index import Index
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.packs import last_repacked
from shadowsnap.git.repository import Git
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, is_at_any

_VERSION = 2
_SETS_OF_PATHS = (
    "bare", "ignored_directories", "named", "absent", "large_directories", "tracked", "unsettled", "skipped",
)  # fmt: skip
Directories = dict[bytes, tuple[int, int]]
"""Path -> permission bits and a stamp (0: look again); sorted when read from disk."""


@dataclass
class Modes:
    """Permission bits: the usual ones of this project, and every path that differs. (In a cache, files only:
    the bits of directories are beside the directories.)"""

    file: int = 0o644
    executable: int = 0o755
    directory: int = 0o755
    other: dict[bytes, int] = field(default_factory=dict)

    def usual(self, git_mode: int) -> int:
        return self.executable if git_mode & 0o100 else self.file

    def to_json(self) -> dict[str, Any]:
        other = {os.fsdecode(path): f"{bits:o}" for path, bits in sorted(self.other.items())}
        usual = {"file": f"{self.file:o}", "exec": f"{self.executable:o}", "dir": f"{self.directory:o}"}
        return {**usual, "other": other} if other else usual

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Modes:
        other = {os.fsencode(path): int(bits, 8) for path, bits in value.get("other", {}).items()}
        file, executable, directory = (int(value.get(name, "0"), 8) for name in ("file", "exec", "dir"))
        return cls(file or 0o644, executable or 0o755, directory or 0o755, other)


@dataclass
class ScanCache:
    """One mapping from path to entry, as the last capture found it: the index. The tree is derived from it, and
    everything else is what the index cannot say."""

    index: Index
    tree: str = EMPTY_TREE
    """The tree of just what the index holds."""
    modes: Modes = field(default_factory=Modes)
    directories: Directories = field(default_factory=dict)
    """Every directory that is not ignored."""
    bare: set[bytes] = field(default_factory=set)
    """Those of them in which nothing is captured."""
    ignored_directories: set[bytes] = field(default_factory=set)
    """The uppermost directories that are ignored: git need not be asked about them again."""
    named: set[bytes] = field(default_factory=set)
    """What tools named, as they named it: captured even if ignored."""
    absent: set[bytes] = field(default_factory=set)
    """Names among these of what did not exist at the last capture, and would have been ignored."""
    large_directories: set[bytes] = field(default_factory=set)
    """Directories among them that were too large to be captured."""
    tracked: set[bytes] = field(default_factory=set)
    """Files that the person's git tracks although the rules ignore them."""
    tracked_as_of: list[int] = field(default_factory=list)
    unsettled: set[bytes] = field(default_factory=set)
    """Files that changed so shortly before the last capture that their times prove little."""
    as_of_ns: int = 0
    """The time of the file system when the last capture began."""
    clock: int | None = None
    """How far that is behind the clock of the machine at least, where it can only be observed."""
    skipped: set[bytes] = field(default_factory=set)
    """Files that were left out. Git has nothing to report of them, so they are looked at each time."""
    rules: dict[bytes, int] = field(default_factory=dict)
    """The .gitignore files, and when each last changed."""
    found_under: list[Any] | None = None
    """The patterns and limits that all this was found under; None: it is not complete."""
    saved: bytes = field(default=b"", compare=False, repr=False)
    """The small JSON file as it was read."""
    newest: dict[str, str] = field(default_factory=dict)
    """Ref and fingerprint of the newest checkpoint."""
    boot: str = field(default="", compare=False)
    """During which run of the machine it was saved."""
    packs: list[str] = field(default_factory=list)
    """The packs of the store when something was last written (see `packs_of`): what is taken for stored may
    be in any of them."""
    kept: Kept | None = field(default=None, compare=False, repr=False)
    """What it was taken from, if it was not read."""


@dataclass(frozen=True)
class Kept:
    """A cache as it was saved, in the memory of a process that goes on: its large parts need not be read again
    as long as their files are the same."""

    saved: bytes
    index: Index
    directories: Directories
    name: str
    """Of the directories."""
    complete: bool
    files: list[tuple[int, ...]]


def load_cache(store: Store, project: Project, kept: Kept | None = None) -> ScanCache:
    """What the last capture remembered, or an empty cache if that is lost or damaged."""
    path = store.index_file(project.id)
    empty = ScanCache(Index(path))
    try:
        saved = _state_file(path).read_bytes()
        state = parse_json(saved)
        empty.named = _paths(state["named"])  # the one thing that the files themselves do not tell
        if state["version"] != _VERSION:
            return empty
        for name in ("large_directories", "absent"):  # caches of earlier versions lack them
            state.setdefault(name, [])
        if kept is not None and (kept.saved != saved or kept.files != _signatures(path)):
            kept = None
        directories = kept.directories if kept is not None else _read_directories(path, state["directories"])
        index = kept.index if kept is not None else Index.load(path)
        if directories is None or index.checksum != state["index"]:
            return empty
        return ScanCache(
            index=index,
            tree=state["tree"],
            modes=Modes.from_json(state["modes"]),
            directories=directories,
            tracked_as_of=list(state["tracked_as_of"]),
            as_of_ns=int(state["as_of_ns"]),
            clock=state["clock"] if state["boot"] == boot_id() else None,
            rules={os.fsencode(name): int(changed) for name, changed in state["rules"].items()},
            found_under=state["found_under"],
            newest=dict(state["newest"]),
            boot=state["boot"],
            packs=[str(name) for name in state["packs"]],
            saved=saved,
            kept=kept,
            **{name: _paths(state[name]) for name in _SETS_OF_PATHS},
        )
    except (MalformedObject, OSError, KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return empty


def save_cache(store: Store, project: Project, cache: ScanCache) -> None:
    path = store.index_file(project.id)
    cache.boot = boot_id()
    state = {
        "version": _VERSION,
        "index": cache.index.checksum,
        "directories": _save_directories(path, cache),
        "tree": cache.tree,
        "modes": cache.modes.to_json(),
        "tracked_as_of": cache.tracked_as_of,
        "as_of_ns": cache.as_of_ns,
        "clock": cache.clock,
        "rules": {os.fsdecode(path): changed for path, changed in sorted(cache.rules.items())},
        "found_under": cache.found_under,
        "newest": cache.newest,
        "boot": cache.boot,
        "packs": cache.packs,
        **{name: sorted_names(getattr(cache, name)) for name in _SETS_OF_PATHS},
    }
    saved = json.dumps(state, separators=(",", ":")).encode("ascii")
    if saved != cache.saved:
        write_bytes(_state_file(path), saved)
        cache.saved = saved


def keep_cache(store: Store, project: Project, cache: ScanCache) -> Kept:
    """A cache that was saved just now, for the next capture of this process."""
    path, before = store.index_file(project.id), cache.kept
    same = before is not None and before.directories == cache.directories
    directories = before.directories if before is not None and same else dict(sorted(cache.directories.items()))
    name = parse_json(cache.saved)["directories"]
    return Kept(cache.saved, cache.index, directories, name, cache.found_under is not None, _signatures(path))


def saved_state(store: Store, project: Project) -> bytes:
    """The same as long as no other cache was saved; empty if there is none."""
    try:
        return _state_file(store.index_file(project.id)).read_bytes()
    except OSError:
        return b""


def boot_id() -> str:
    """Changes when the machine is restarted; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def packs_of(store: Store) -> list[str]:
    """When packs last went in good order, and then the packs that are there, by name and size."""
    repacked = last_repacked(store.git_dir)
    try:
        with os.scandir(store.git_dir / "objects" / "pack") as entries:
            packs = [entry for entry in entries if entry.name.endswith(".pack")]
            return [repacked, *sorted(f"{entry.name[5:-5]} {entry.stat().st_size}" for entry in packs)]
    except OSError:
        return [repacked]  # one of them went just now, or all of them


def objects_taken_for_stored(cache: ScanCache, git: Git) -> set[str]:
    """What the next capture would not store again; raises if not even its tree can be read."""
    blobs = {known.id for known in cache.index.lookup(cache.index.paths()).values()}
    listed = git.run("ls-tree", "-r", "-t", "-z", cache.tree).split(b"\0")[:-1]
    return blobs.union(row.partition(b"\t")[0].split()[2].decode() for row in listed) - {EMPTY_TREE}


class CachedTrees:
    """The trees that the private indexes stand for. The next snapshot of a project stores only
    what differs from its tree, so everything in it has to stay."""

    def __init__(self, store: Store) -> None:
        self._folder = store.git_dir / "indexes"
        self._seen: dict[Path, tuple[tuple[int, ...], Any]] = {}

    def read(self) -> dict[str, str]:
        """Project id -> tree. Only what changed since the last call is read again."""
        before, self._seen = self._seen, {}
        for path in self._folder.glob("[!.]*.json"):
            signature = _signature(path)
            known = before.get(path)
            same = known is not None and known[0] == signature
            self._seen[path] = known if known and same else (signature, (read_json(path) or {}).get("tree"))
        trees = {path.stem: tree for path, (_, tree) in self._seen.items()}
        return {name: tree for name, tree in trees.items() if isinstance(tree, str) and len(tree) == 40}


def forget_cache(store: Store, project: Project) -> None:
    """Make the next capture look at every file again."""
    path = store.index_file(project.id)
    for each in (_state_file(path), _directories_file(path), path):
        each.unlink(missing_ok=True)


def forget_contents(store: Store, project: Project, purged: Iterable[bytes] = ()) -> None:
    """Forget what the last capture held, so that nothing of it has to stay in the store. Only what tools named
    is still known, apart from what was purged: the files themselves do not tell."""
    named, gone = load_cache(store, project).named, tuple(purged)
    forget_cache(store, project)
    left = {path for path in named if not is_at_any(path, gone)}
    if left:
        state = {"version": 0, "named": sorted_names(left)}
        write_bytes(_state_file(store.index_file(project.id)), json.dumps(state).encode("ascii"))


def _state_file(index: Path) -> Path:
    return index.with_name(f"{index.name}.json")


def _directories_file(index: Path) -> Path:
    return index.with_name(f"{index.name}.dirs")


def _signatures(index: Path) -> list[tuple[int, ...]]:
    """Changes whenever one of the large files does."""
    return [_signature(each) for each in (index, _directories_file(index))]


def _signature(file: Path) -> tuple[int, ...]:
    try:
        seen = os.stat(file)
    except FileNotFoundError:
        return ()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _save_directories(index: Path, cache: ScanCache) -> str:
    """Returns their name."""
    kept = cache.kept
    if kept is not None and kept.directories == cache.directories and kept.files[1:] == _signatures(index)[1:]:
        return kept.name
    rows = b"".join(
        b"%o %d %s\0" % (mode, ctime, name) for name, (mode, ctime) in sorted(cache.directories.items())
    )
    name, path = _name(rows), _directories_file(index)
    try:
        is_same = path.read_bytes() == name.encode() + rows
    except OSError:
        is_same = False
    if not is_same:
        write_bytes(path, name.encode() + rows)
    return name


def _read_directories(index: Path, name: str) -> Directories | None:
    data = _directories_file(index).read_bytes()
    if not data[:40] == name.encode() == _name(data[40:]).encode():
        return None
    rows = (row.split(b" ", 2) for row in data[40:].split(b"\0")[:-1])
    return {path: (int(mode, 8), int(ctime)) for mode, ctime, path in rows}


def _name(rows: bytes) -> str:
    return hashlib.sha1(rows, usedforsecurity=False).hexdigest()


def _paths(names: list[str]) -> set[bytes]:
    return {os.fsencode(name) for name in names}


def sorted_names(paths: Iterable[bytes]) -> list[str]:
    return sorted(os.fsdecode(path) for path in paths)
