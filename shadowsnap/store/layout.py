"""Where everything lies below the base directory, and making it on first use."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from pathlib import Path

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import StoreNotOurs, StoreTooNew, StoreUnusable
from shadowsnap.files import (
    WRITABLE_BY_OTHERS,
    UnreadableFile,
    check_resources,
    make_private_folder,
    ownership_problem,
    read_bounded,
    reading_problem,
    spread_subdirectories,
    sync_directory,
    write_bytes,
    write_several,
)
from shadowsnap.git.objects import LooseObjects
from shadowsnap.git.repository import Git, usable_git
from shadowsnap.settings import Settings
from shadowsnap.store.locks import locked

FORMAT = 2
"""1: sessions, undo and turns were recorded in files of their own; a project gets its log on first use."""
LOGS = "log"
LEAD_ELSEWHERE = ("commondir", "config.worktree", "objects/info/alternates", "objects/info/http-alternates")
_LONGEST_CONFIG = 1 << 16
OWN_OBJECTS = "own-objects"
"""A note that no object file of the store is a link to one elsewhere. (Earlier versions made such links.)"""
REFS_LOST = "refs-lost"
"""A note that refs vanished and their checkpoints are to be looked for."""

FOLDERS = (
    "objects/info", "objects/pack", "refs/heads", "refs/shadowsnap", "info", "indexes", "projects", "journal",
    "locks",
)  # fmt: skip

# Beats every .gitattributes in a tree: bytes go in and come out as they are.
_ATTRIBUTES = b"* -text -filter -ident -working-tree-encoding -eol !diff !merge\n"

# Git lets this file win over the one that a project's excludes are in.
_NO_EXCLUDES = b"""\
# The default excludes (node_modules/ and more) are in indexes/<project>.exclude,
# where a project may take one back.
"""

_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = {posix}
\tsymlinks = {posix}
\tignorecase = false
\tprecomposeunicode = false
\tlongpaths = true
\tprotectHFS = {mac}
\tprotectNTFS = {windows}
\tautocrlf = false
\tsafecrlf = false
\tfsmonitor = false
\tuntrackedCache = false
\tsplitIndex = false
\tpreloadIndex = true
\tlogAllRefUpdates = false
\thooksPath = {null}
\tattributesFile = {null}
\tcompression = 1
[index]
\tversion = 2
\tthreads = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[commit]
\tgpgSign = false
"""


@dataclass(frozen=True)
class Store:
    """An opened store."""

    base: Path
    fsync: bool = True

    @cached_property
    def git_dir(self) -> Path:
        return self.base / "store"

    @cached_property
    def objects(self) -> LooseObjects:
        return LooseObjects(self.git_dir / "objects", fsync=self.fsync)

    def git(self, deadline: Deadline = NO_DEADLINE) -> Git:
        return Git(usable_git(self.git_dir / "git-version.json"), self.git_dir, deadline=deadline)

    def index_file(self, project: str) -> Path:
        return self.git_dir / "indexes" / project

    def staging_index(self, project: str, number: int) -> Path:
        """What a restore of one project has git write: an index for each directory that git writes into."""
        return self.git_dir / "indexes" / f"{project}.{number}.staging"

    def staging_indexes(self, project: str) -> list[Path]:
        """Those of a restore that is under way or died."""
        return [*(self.git_dir / "indexes").glob(f"{project}.*.staging")]

    def exclude_file(self, project: str) -> Path:
        """The exclude patterns of one project: the defaults, and its own."""
        return self.git_dir / "indexes" / f"{project}.exclude"

    def statistics_file(self, project: str) -> Path:
        """What the checkpoints of one project changed, as far as it was counted."""
        return self.git_dir / "indexes" / f"{project}.statistics"

    def writes_file(self, project: str) -> Path:
        """What an agent left in the files of one project."""
        return self.git_dir / "indexes" / f"{project}.writes"

    def project_file(self, project: str) -> Path:
        return self.git_dir / "projects" / f"{project}.json"

    def journal_file(self, project: str) -> Path:
        return self.git_dir / "journal" / f"{project}.json"

    def log_file(self, project: str) -> Path:
        """The operation log of one project."""
        return self.base / LOGS / f"{project}.jsonl"

    def project_lock(self, project: str) -> Path:
        return self.git_dir / "locks" / f"{project}.lock"

    def store_lock(self) -> Path:
        return self.git_dir / "locks" / "store.lock"


def open_store(settings: Settings, on_creation: Callable[[Store], None] = lambda _: None) -> Store:
    """The store below the base directory, made if it is not there. What git cannot do without is
    made again if it vanished: a damaged store must not stop snapshots."""
    store, new = Store(settings.resolved_base(), settings.fsync), False
    try:
        check_ours(store)
        found = _format_of(store)
        ours = found > 0
        if not ours:
            # First use of this base: there may be repositories of older tools in it.
            archive_older_layouts(store.base, import_later=settings.import_legacy)
            new = not os.path.exists(store.git_dir)
        if not (ours and _is_whole(store)):
            create_store(store)
        elif found < FORMAT:
            _raise_format(store)
        excludes = store.git_dir / "info" / "exclude"
        if not _is_current(excludes, _NO_EXCLUDES):
            write_bytes(excludes, _NO_EXCLUDES)
    except OSError as problem:
        check_resources(problem)
        raise StoreUnusable(path=store.base, why=problem) from problem
    if new:
        (store.git_dir / OWN_OBJECTS).touch()
        on_creation(store)
    return store


def check_ours(store: Store) -> None:
    """Check that the store belongs to this person alone, before git is run in it: git does what a `config`
    says, and another user could have written that."""
    if sys.platform == "win32":
        return
    if not os.path.lexists(store.base):
        return
    if not store.base.is_dir():
        raise StoreUnusable(path=store.base, why="it is not a directory")
    why, is_closed = ownership_problem(store.base), not os.lstat(store.base).st_mode & 0o077
    if why:
        raise StoreNotOurs(path=store.base, why=why)
    why = ownership_problem(store.git_dir)
    if why == WRITABLE_BY_OTHERS and is_closed:
        # No other user can get there. Earlier versions left the mode to the umask.
        os.chmod(store.git_dir, 0o700)
    elif why:
        raise StoreNotOurs(path=store.git_dir, why=why)
    if not is_closed:
        os.chmod(store.base, 0o700)
    for name in LEAD_ELSEWHERE:
        if os.path.lexists(store.git_dir / name):
            raise StoreNotOurs(path=store.git_dir / name, why="it makes git read files from elsewhere")
    if os.path.lexists(store.git_dir / "format"):
        _put_config_right(store)


def _put_config_right(store: Store) -> None:
    """Git does what a `config` says, so it must be exactly what we write. Any other is moved aside."""
    path, ours = store.git_dir / "config", store_files()["config"]
    try:
        if read_bounded(path, _LONGEST_CONFIG) in (ours, None):
            return
    except UnreadableFile:
        pass
    os.replace(path, store.git_dir / "config.not-ours")
    write_bytes(path, ours, fsync=store.fsync)


def _format_of(store: Store) -> int:
    """The format of the store; 0 if there is none of ours."""
    path = store.git_dir / "format"
    try:
        text = path.read_bytes().decode("ascii").strip()
    except (FileNotFoundError, ValueError):
        return 0
    found = int(text) if text.isdigit() and len(text) < 10 else 0
    if found > FORMAT:
        raise StoreTooNew(path=store.base, found=found, known=FORMAT)
    return found


def _raise_format(store: Store) -> None:
    """From now on older programs refuse the store. Each project gets its log when it is next written to."""
    with suppress(OSError):  # a store that can only be read is read as it is
        write_bytes(store.git_dir / "format", store_files()["format"], fsync=store.fsync)


def _is_whole(store: Store) -> bool:
    """Whether git takes the store for a repository, and converts nothing in it."""
    names = ("refs/shadowsnap", "objects", "HEAD", "config", "info/attributes")
    return all(os.path.exists(store.git_dir / name) for name in names)


def create_store(store: Store) -> None:
    """Everything `git init --bare` would make, without starting git. Safe to run twice, and by
    two processes at once."""
    make_private_folder(store.base)
    os.chmod(store.base, 0o700)
    if not os.path.exists(store.git_dir):
        spread_subdirectories(store.base)
    store.git_dir.mkdir(0o700, exist_ok=True)
    if lost_refs(store):
        (store.git_dir / REFS_LOST).touch()
    for folder in FOLDERS:
        (store.git_dir / folder).mkdir(parents=True, exist_ok=True)
    files = {store.git_dir / name: content for name, content in store_files().items()}
    write_several({path: files[path] for path in files if not _is_current(path, files[path])}, fsync=store.fsync)
    if store.fsync:
        for made in (store.git_dir / "refs", store.git_dir, store.base, store.base.parent):
            sync_directory(made)


def lost_refs(store: Store) -> bool:
    """Whether all refs of checkpoints vanished: git never removes their directory."""
    if (store.git_dir / REFS_LOST).exists():
        return True
    if (store.git_dir / "refs" / "shadowsnap").is_dir() or not any((store.git_dir / "projects").glob("*.json")):
        return False
    try:
        return b" refs/shadowsnap/" not in (store.git_dir / "packed-refs").read_bytes()
    except OSError:
        return True


def store_files() -> dict[str, bytes]:
    """The files that make a directory a store of ours; `format` comes last."""
    windows, mac = sys.platform == "win32", sys.platform == "darwin"
    word, null = {True: "true", False: "false"}, os.devnull.replace("\\", "/")
    config = _CONFIG.format(posix=word[not windows], windows=word[windows], mac=word[mac], null=null)
    return {
        "config": config.encode(),
        "info/attributes": _ATTRIBUTES,
        "HEAD": b"ref: refs/heads/none\n",
        "format": f"{FORMAT}\n".encode(),
    }


def _is_current(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def last_prune(base: Path, host: str | None = None) -> datetime | None:
    """When the store was last pruned, or a host last pruned what is its own. None if it never was, and also if the
    marker is damaged or of the future."""
    try:
        seconds = float(_prune_marker(base, host).read_text("utf-8-sig"))
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OSError, ValueError, OverflowError):
        return None
    return moment if seconds <= time.time() else None


def is_prune_due(base: Path, hours: float, host: str | None = None) -> bool:
    """Whether the last prune was at least so many hours ago."""
    last = last_prune(base, host)
    return last is None or datetime.now(UTC) - last >= timedelta(hours=hours)


def mark_pruned(base: Path, host: str | None = None) -> None:
    write_bytes(_prune_marker(base, host), f"{int(time.time())}\n".encode())


def _prune_marker(base: Path, host: str | None) -> Path:
    return base / (f".last_prune-{host}" if host else ".last_prune")


ARCHIVE = "legacy-"
WORKDIR_MARKER = "HERMES_WORKDIR"
_DUE = "to-import"
_SHADOW_NAME = re.compile(r"[0-9a-f]{16}")
_LOCK_SECONDS = 30.0
MOST_REFS = 64 << 20


def archive_older_layouts(base: Path, *, import_later: bool) -> Path | None:
    """Move what other tools left in the base out of our way; where to, if there was anything."""
    if not any(_older(base)):
        return None
    with locked(base / ".older.lock", "archiving older layouts", Deadline(_LOCK_SECONDS)):
        found = list(_older(base))  # another process may have done it while we waited
        if not found:
            return None
        archive = stamped_folder(base, ARCHIVE)
        if import_later:
            (archive / _DUE).touch()
        for path in found:
            os.replace(path, archive / path.name)
    return archive


def has_store(base: Path) -> bool:
    """Whether there is a store, or what another tool left and becomes part of one. (Opening it would make one.)"""
    return os.path.lexists(base / "store") or any(_older(base))


def archives(base: Path) -> list[Path]:
    """The archives of older layouts, oldest first."""
    try:
        with os.scandir(base) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(ARCHIVE) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [base / name for name in sorted(names)]


def is_due(archive: Path) -> bool:
    """Whether the checkpoints in an archive are still to be imported."""
    return (archive / _DUE).exists()


def settle(archive: Path) -> None:
    """Note that an archive was imported."""
    (archive / _DUE).unlink(missing_ok=True)


def stamped_folder(base: Path, prefix: str) -> Path:
    """A new directory `<prefix><time>` in the base."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for number in count():
        folder = base / (f"{prefix}{stamp}-{number}" if number else f"{prefix}{stamp}")
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")


def is_repository(folder: Path) -> bool:
    """Whether git could read there, and would not wait for ever for what is in the place of a file."""
    if not ((folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()):
        return False
    return all(reading_problem(folder / name, MOST_REFS) is None for name in ("config", "packed-refs"))


def is_hermes_store(folder: Path) -> bool:
    """The one store of Hermes. Ours has the same name, but says its format, and has folders of its own. Objects
    are enough, with a ref or with notes about projects: a `git gc` that packs the refs may leave no `refs/`, and
    the rest may be damaged, too."""
    is_ours = any((folder / name).exists() for name in ("format", "journal", "locks"))
    if is_ours or not (folder / "objects").is_dir():
        return False
    has_refs = (folder / "refs" / "hermes").is_dir() or _packs_hermes_refs(folder)
    return has_refs or any((folder / "projects").glob("*.json"))


def is_shadow_repository(folder: Path) -> bool:
    """One directory's repository, from the time before Hermes had one store. It may be damaged."""
    named = bool(_SHADOW_NAME.fullmatch(folder.name))
    return (folder / "HEAD").is_file() and (named or (folder / WORKDIR_MARKER).exists())


def _older(base: Path) -> Iterator[Path]:
    try:
        with os.scandir(base) as entries:
            folders = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in folders:
        ours = folder.name.startswith((ARCHIVE, "corrupt-"))
        if not ours and (is_hermes_store(folder) if folder.name == "store" else is_shadow_repository(folder)):
            yield folder


def _packs_hermes_refs(folder: Path) -> bool:
    try:
        return b" refs/hermes/" in (read_bounded(folder / "packed-refs", MOST_REFS) or b"")
    except UnreadableFile:
        return False
