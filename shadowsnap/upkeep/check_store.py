"""The store as git and we need it: folders, files, permissions, locks of dead processes."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.files import WRITABLE_BY_OTHERS, ownership_problem, remove_tree, write_bytes
from shadowsnap.git.repository import missing_fixes
from shadowsnap.model import Finding
from shadowsnap.store.layout import FOLDERS, FORMAT, LEAD_ELSEWHERE, Store, store_files
from shadowsnap.store.locks import alone
from shadowsnap.upkeep.quarantine import Quarantine, inside, set_aside

STALE_SECONDS = 1.0
"""A git process in the store holds its lock files for milliseconds, and we look when nobody is at work."""


def find_newer(store: Store) -> Iterator[Finding]:
    """A store of a later version is not ours to judge, let alone to change."""
    try:
        found = (store.git_dir / "format").read_text("ascii").strip()
    except (OSError, ValueError):
        return
    if found.isdigit() and int(found) > FORMAT:
        meaning = f"a newer shadowsnap wrote it (format {found}, this one knows {FORMAT}): update shadowsnap"
        yield Finding("store-newer", "error", "store/format", meaning)


def find_old_git(store: Store) -> Iterator[Finding]:
    """A git that lacks security fixes. The store is sound, and there is nothing to mend in it."""
    problem = missing_fixes(store.git())
    if problem:
        yield Finding("git-old", "warning", "git", problem)


# --- permissions -----------------------------------------------------------------------------


def find_closed(store: Store) -> Iterator[Finding]:
    """What we may not read or change although it is ours, and a base that is open to others."""
    if sys.platform == "win32":
        return
    bits = stat.S_IMODE(store.base.stat().st_mode)
    if bits & 0o077:
        meaning = f"other users of this machine may look at every checkpoint (mode {bits:04o})"
        yield Finding("base-open", "warning", ".", meaning, "set its mode to 0700")
    pending = [store.base]
    while pending:
        folder = pending.pop()
        problem = _access_problem(store, folder, stat.S_IRWXU)
        if problem is not None:
            yield problem
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    if _is_ours(store, path):
                        pending.append(path)
                elif entry.is_file(follow_symlinks=False):
                    writable = path.suffix in (".lock", ".gate")
                    problem = _access_problem(store, path, stat.S_IRUSR | (stat.S_IWUSR if writable else 0))
                    if problem is not None:
                        yield problem


def _is_ours(store: Store, folder: Path) -> bool:
    """Archives and what was set aside are left as they are."""
    return folder.parent != store.base or not folder.name.startswith(("corrupt-", "legacy-"))


def _access_problem(store: Store, path: Path, needed: int) -> Finding | None:
    seen = path.lstat()
    if seen.st_mode & needed == needed or not _is_mine(seen):
        return None if os.access(path, os.R_OK) else _foreign(store, path)
    meaning = f"its permissions ({stat.S_IMODE(seen.st_mode):04o}) keep shadowsnap itself out"
    return Finding("closed", "error", inside(store, path), meaning, "give its owner access again")


def _is_mine(seen: os.stat_result) -> bool:
    return sys.platform == "win32" or seen.st_uid == os.geteuid()


def _foreign(store: Store, path: Path) -> Finding:
    meaning = "it belongs to another user, and its permissions keep shadowsnap out"
    return Finding("foreign", "error", inside(store, path), meaning)


def open_again(store: Store, finding: Finding, _: Quarantine) -> None:
    path = store.base / finding.subject
    seen = path.lstat()
    needed = stat.S_IRWXU if stat.S_ISDIR(seen.st_mode) else stat.S_IRUSR
    if path.suffix in (".lock", ".gate"):
        needed |= stat.S_IWUSR
    os.chmod(path, stat.S_IMODE(seen.st_mode) | needed)


def close_base(store: Store, _: Finding, __: Quarantine) -> None:
    os.chmod(store.base, 0o700)


def find_leading(store: Store) -> Iterator[Finding]:
    """What makes git read files from elsewhere, a configuration for instance, and a store of another user: git
    is not run then."""
    for folder in (store.base, store.git_dir):
        why = ownership_problem(folder)
        if why not in ("", WRITABLE_BY_OTHERS):
            yield Finding("foreign", "error", inside(store, folder), why)
    for name in LEAD_ELSEWHERE:
        path = store.git_dir / name
        if os.path.lexists(path):
            meaning = "it makes git read files from elsewhere, which could make it run a program"
            yield Finding("leads-elsewhere", "error", inside(store, path), meaning, "set it aside")


# --- folders and files -----------------------------------------------------------------------


def find_layout(store: Store) -> Iterator[Finding]:
    """What `git init` and we put there on first use, and what is in its place now."""
    for name in _folders():
        path = store.git_dir / name
        if path.is_dir():
            continue
        if os.path.lexists(path):
            meaning = "something else is where a folder of the store belongs"
            yield Finding("folder-replaced", "error", f"store/{name}", meaning, "set it aside and make the folder")
        else:
            meaning = "git does not take the store for a repository without it"
            yield Finding("folder-missing", "error", f"store/{name}", meaning, "make it")
    for name, content in store_files().items():
        problem = _file_problem(store.git_dir / name, content)
        if problem is not None:
            repair = "write it anew; what is there now is set aside"
            yield Finding("file-damaged", "error", f"store/{name}", problem, repair)


def _folders() -> list[str]:
    """Every folder with those above it, from the top."""
    above = {parent.as_posix() for name in FOLDERS for parent in Path(name).parents if parent.name}
    return sorted({*FOLDERS, *above})


def _file_problem(path: Path, content: bytes) -> str | None:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return "it is missing"
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    return None if found == content else "it is not as shadowsnap writes it"


def make_folder(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    path = store.base / finding.subject
    if os.path.lexists(path) and not path.is_dir():
        quarantine.take(path)
    path.mkdir(parents=True, exist_ok=True)


def write_file(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    path = store.base / finding.subject
    if os.path.lexists(path):
        quarantine.take(path)
    write_bytes(path, store_files()[path.relative_to(store.git_dir).as_posix()], fsync=store.fsync)


# --- locks -----------------------------------------------------------------------------------


def find_locks(store: Store) -> Iterator[Finding]:
    """Lock files of git that nobody removes any more. (Our own locks go with their process.)"""
    for path in _lock_files(store):
        age = _age(path)
        if age is not None and age >= STALE_SECONDS:
            meaning = f"a git process that died {age:.0f} s ago left it: whatever it locks cannot be changed"
            yield Finding("lock-stale", "error", inside(store, path), meaning, "remove it")


def find_blocked_locks(store: Store) -> Iterator[Finding]:
    """What makes it impossible even to wait for a lock."""
    folder = store.git_dir / "locks"
    for path in (store.git_dir, folder):
        if os.path.lexists(path) and not path.is_dir():
            meaning = "something else is where a folder of the store belongs"
            repair = "set it aside and make the folder"
            yield Finding("folder-replaced", "error", inside(store, path), meaning, repair)
            return
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.is_file():
            meaning = "something else is where a lock file belongs"
            yield Finding("lock-replaced", "error", inside(store, path), meaning, "set it aside")


def remove_lock(store: Store, finding: Finding, _: Quarantine) -> None:
    path = store.base / finding.subject
    age = _age(path)
    if age is not None and age >= STALE_SECONDS:  # not one that somebody holds by now
        path.unlink(missing_ok=True)


def wait_for_locks(store: Store) -> None:
    """Give git processes that may still be at work the time to finish; a lock that stays is stale."""
    end = time.monotonic() + STALE_SECONDS
    while time.monotonic() < end and any(_is_fresh(path) for path in _lock_files(store)):
        time.sleep(0.05)


def _lock_files(store: Store) -> Iterator[Path]:
    git_dir = store.git_dir
    yield from sorted(git_dir.glob("*.lock"))
    yield from sorted((git_dir / "indexes").glob("*.lock"))
    yield from sorted((git_dir / "refs").rglob("*.lock"))
    yield from sorted((git_dir / "objects" / "info").rglob("*.lock"))
    yield from sorted((git_dir / "objects" / "pack").glob("*.lock"))


def _age(path: Path) -> float | None:
    """Seconds since it was written; None if it is gone. A time in the future (the clock was set back)
    says nothing, so it counts as old."""
    try:
        age = time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return None
    return age if age >= 0 else max(-age, STALE_SECONDS)


def _is_fresh(path: Path) -> bool:
    age = _age(path)
    return age is not None and age < STALE_SECONDS


_IN_PACKS = re.compile(r"tmp_|\.tmp-")
_IN_OBJECTS = re.compile(r"tmp_obj_")
_IN_RECORDS = re.compile(r"\..*\.tmp_|.*\.\d+\.tmp$|.*\.(lock|staging|seed)$")
_TRASH = "trash-"
_PATIENCE_SECONDS = 5.0
_OLD_SECONDS = 60.0


def clear_debris(store: Store, deadline: Deadline) -> int:
    """Remove what no live process owns; how many files and directories that were. The caller
    holds the upkeep lock. If somebody is at work for long, it is left to the next time."""
    found = list(find_debris(store))
    cleared = 0
    if found:
        left = deadline.remaining()
        patience = Deadline(_PATIENCE_SECONDS if left is None else max(0.001, min(left, _PATIENCE_SECONDS)))
        try:
            with alone(store.store_lock(), "clearing up", patience):
                cleared = sum(_clear(store, path) for path in found)
        except DeadlineExceeded:
            pass
    for folder in store.git_dir.glob(f"{_TRASH}*"):
        remove_tree(folder)
    return cleared


def find_debris(store: Store) -> Iterator[Path]:
    """What looks like it; much of it may belong to someone who is at work."""
    git_dir = store.git_dir
    yield from (git_dir / name for name in _names(git_dir) if name.startswith("scratch-"))
    yield from _matching(git_dir, re.compile(r"(packed-refs|HEAD|config|index)\.lock$"))
    for folder in ("indexes", "projects", "journal", "purged"):
        yield from _matching(git_dir / folder, _IN_RECORDS)
    yield from _matching(store.base / "sessions", _IN_RECORDS)
    for folder in _names(git_dir / "objects"):
        if folder == "pack":
            yield from _in_packs(git_dir / "objects" / "pack")
        elif len(folder) == 2:
            yield from _matching(git_dir / "objects" / folder, _IN_OBJECTS)
    for top, _, names in os.walk(git_dir / "refs"):
        yield from (Path(top, name) for name in names if name.endswith(".lock"))


def find_leftovers(store: Store) -> Iterator[Finding]:
    """For the doctor, who has more to say about locks and packs: debris that is too old to belong to
    someone at work."""
    for path in sorted(find_debris(store)):
        if path.suffix == ".lock" or path.name.startswith("pack-"):
            continue
        try:
            age = time.time() - path.lstat().st_mtime
        except FileNotFoundError:
            continue
        if not 0 <= age < _OLD_SECONDS:
            meaning = "a process that died left it; nothing needs it, but it takes space"
            yield Finding("leftover", "info", inside(store, path), meaning, "remove it")


def remove_leftover(store: Store, finding: Finding, _: Quarantine) -> None:
    """The doctor has the store, and the right to upkeep, to itself."""
    path = store.base / finding.subject
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def _in_packs(folder: Path) -> Iterator[Path]:
    names = set(_names(folder))
    for name in names:
        stem, dot, _ = name.partition(".")
        # An index without its pack is what a removal leaves that was interrupted.
        if _IN_PACKS.match(name) or (stem.startswith("pack-") and dot and f"{stem}.pack" not in names):
            yield folder / name


def _clear(store: Store, path: Path) -> bool:
    try:
        if path.is_dir():
            # Removing it takes time that nobody should wait for: put it out of the way.
            os.replace(path, store.git_dir / f"{_TRASH}{os.getpid()}-{path.name}")
        else:
            path.unlink()
    except OSError:
        return False  # gone meanwhile; or in use on Windows, then it is not debris
    return True


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    return (folder / name for name in _names(folder) if pattern.match(name))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


REPAIRS = {
    "base-open": close_base,
    "closed": open_again,
    "folder-missing": make_folder,
    "folder-replaced": make_folder,
    "file-damaged": write_file,
    "leads-elsewhere": set_aside,
    "lock-stale": remove_lock,
    "lock-replaced": set_aside,
    "leftover": remove_leftover,
}
