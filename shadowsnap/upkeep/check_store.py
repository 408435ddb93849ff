"""Checks of the store's files: permissions, folders, lock files, leftovers and object files.

Everything here is below the level of checkpoints: what git needs to open the store and to read an object.
A `find_*` function changes nothing. A repair moves what is damaged to the quarantine and deletes nothing else
than locks and temporary files of dead processes.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import GitFailed, MalformedObject
from shadowsnap.files import WRITABLE_BY_OTHERS, ownership_problem, remove_tree, write_bytes, write_json
from shadowsnap.git.maintenance import (
    TRAILING_DATA,
    all_packs,
    loose_content,
    loose_file,
    loose_objects,
    loose_problem,
    mismatched_packs,
    pack_files,
    pack_ids,
    pack_problem,
    read_intact,
    replace_by_copy,
    shared_files,
)
from shadowsnap.git.objects import LooseObjects
from shadowsnap.git.packs import PackWriter, deflate
from shadowsnap.git.repository import Git, missing_fixes
from shadowsnap.results import Finding
from shadowsnap.store.layout import (
    FOLDERS,
    FORMAT,
    LEAD_ELSEWHERE,
    OWN_OBJECTS,
    REFS_LOST,
    Store,
    lost_refs,
    stamped_folder,
    store_files,
)
from shadowsnap.upkeep.reclaim import find_debris

QUARANTINE = "corrupt-"
# A git process in the store holds its lock files for milliseconds.
STALE_LOCK_SECONDS = 1.0
_OLD_LEFTOVER_SECONDS = 60.0
# Above this number of objects, those that are written again go into one pack.
_MANY_OBJECTS = 100


@dataclass
class Examination:
    """What one examination or repair works on: a store, or for a quick repair one project of it."""

    store: Store
    deadline: Deadline = NO_DEADLINE
    project: str | None = None
    """A quick repair looks at this project only."""
    object: str = ""
    """The object that a failed operation could not read, if that is known."""
    sound: set[str] | None = None
    """The objects that the store really holds. The check of object files sets it; a quick repair does not."""
    quarantine: Quarantine = field(init=False)

    def __post_init__(self) -> None:
        self.quarantine = Quarantine(self.store.base)

    @property
    def quick(self) -> bool:
        return self.project is not None

    @property
    def git(self) -> Git:
        return self.store.git()

    def name(self, path: Path) -> str:
        """A file of the base as findings name it."""
        return path.relative_to(self.store.base).as_posix()

    def path(self, finding: Finding) -> Path:
        return self.store.base / finding.subject


class Quarantine:
    """`<base>/corrupt-<time>/`, where one repair moves what is damaged. Paths in it are as they were in the base.

    The directory is made when it is needed. Only `clear` and `purge` delete anything from it."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.used: Path | None = None
        """The directory, once something is in it."""

    @property
    def folder(self) -> Path:
        if self.used is None:
            self.used = stamped_folder(self._base, QUARANTINE)
        return self.used

    def move(self, path: Path) -> Path:
        """Move a file or directory here and return its new path."""
        is_in_base = path.is_relative_to(self._base)
        target = self._free_path(path.relative_to(self._base) if is_in_base else Path(path.name))
        try:
            os.replace(path, target)
        except OSError:
            if is_in_base:
                raise
            shutil.move(path, target)  # from another file system
        return target

    def copy(self, path: Path) -> None:
        """Copy a file here that stays in use."""
        shutil.copyfile(path, self._free_path(path.relative_to(self._base)))

    def note(self, name: str, facts: dict[str, Any]) -> None:
        """Write down what is known of something that has no file of its own."""
        write_json(self._free_path(Path(name)), facts)

    def _free_path(self, name: Path) -> Path:
        path = self.folder / name
        for number in count(1):
            if not os.path.lexists(path):
                break
            path = path.with_name(f"{name.name}.~{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def quarantine_file(examination: Examination, finding: Finding) -> None:
    path = examination.path(finding)
    if os.path.lexists(path):
        examination.quarantine.move(path)


# --- format and permissions --------------------------------------------------------------------


def find_newer_format(store: Store) -> Finding | None:
    """A store of a later version is not examined, let alone changed."""
    try:
        found = (store.git_dir / "format").read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    if not found.isdigit() or int(found) <= FORMAT:
        return None
    meaning = f"a newer shadowsnap wrote it (format {found}, this one knows {FORMAT}): update shadowsnap"
    return Finding("store-newer", "error", "store/format", meaning)


def find_old_git(examination: Examination) -> Iterator[Finding]:
    """A git that lacks security fixes. The store is sound, so there is nothing to repair in it."""
    problem = missing_fixes(examination.git)
    if problem:
        yield Finding("git-old", "warning", "git", problem)


def find_permissions(examination: Examination) -> Iterator[Finding]:
    """Files and folders that we own but cannot use, and a base that other users can read.

    A closed folder hides what is wrong below it, so the check is repeated after a repair."""
    if sys.platform == "win32":
        return
    base = examination.store.base
    bits = stat.S_IMODE(base.stat().st_mode)
    if bits & 0o077:
        meaning = f"other users of this machine can read every checkpoint (mode {bits:04o})"
        yield Finding("base-open", "warning", ".", meaning, "set its mode to 0700")
    pending = [base]
    while pending:
        folder = pending.pop()
        problem = _access_problem(examination, folder)
        if problem is not None:
            yield problem
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    is_archive = folder == base and entry.name.startswith((QUARANTINE, "legacy-"))
                    if not is_archive:
                        pending.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    problem = _access_problem(examination, Path(entry.path))
                    if problem is not None:
                        yield problem


def _access_problem(examination: Examination, path: Path) -> Finding | None:
    seen = path.lstat()
    needed = _needed_bits(path, seen.st_mode)
    is_ours = sys.platform == "win32" or seen.st_uid == os.geteuid()
    if is_ours and seen.st_mode & needed != needed:
        meaning = f"its permissions ({stat.S_IMODE(seen.st_mode):04o}) deny access to its owner"
        return Finding("closed", "error", examination.name(path), meaning, "give its owner access again")
    if os.access(path, os.R_OK):
        return None
    meaning = "it belongs to another user, and its permissions deny access"
    return Finding("foreign", "error", examination.name(path), meaning)


def _needed_bits(path: Path, mode: int) -> int:
    if stat.S_ISDIR(mode):
        return stat.S_IRWXU
    return stat.S_IRUSR | stat.S_IWUSR if path.suffix in (".lock", ".gate") else stat.S_IRUSR


def open_to_owner(examination: Examination, finding: Finding) -> None:
    path = examination.path(finding)
    mode = path.lstat().st_mode
    os.chmod(path, stat.S_IMODE(mode) | _needed_bits(path, mode))


def close_to_others(examination: Examination, _: Finding) -> None:
    os.chmod(examination.store.base, 0o700)


# --- folders and files -------------------------------------------------------------------------


def is_foreign(store: Store) -> bool:
    """Whether it belongs to another user."""
    return any(_owners(store))


def _owners(store: Store) -> Iterator[tuple[Path, str]]:
    """Folders that belong to another user, and the message about them."""
    for folder in (store.base, store.git_dir):
        try:
            why = ownership_problem(folder)
        except PermissionError:
            continue  # the base is closed, which is another finding
        if why not in ("", WRITABLE_BY_OTHERS):
            yield folder, why


def find_leads_elsewhere(examination: Examination) -> Iterator[Finding]:
    """A store of another user, and files that make git read elsewhere, a configuration for example. Git does not
    run in such a store."""
    store = examination.store
    for folder, why in _owners(store):
        yield Finding("foreign", "error", examination.name(folder), why)
    for name in LEAD_ELSEWHERE:
        path = store.git_dir / name
        if os.path.lexists(path):
            meaning = "it makes git read files from elsewhere, which could make it run a program"
            repair = "move it to the quarantine"
            yield Finding("leads-elsewhere", "error", examination.name(path), meaning, repair)


def find_blocked_locks(examination: Examination) -> Iterator[Finding]:
    """Anything that makes it impossible to take a lock of the store."""
    git_dir = examination.store.git_dir
    locks = git_dir / "locks"
    for path in (git_dir, locks):
        if os.path.lexists(path) and not path.is_dir():
            yield _replaced_folder(examination, path)
            return
    for path in sorted(locks.iterdir()) if locks.is_dir() else ():
        if not path.is_file():
            meaning = "it is in the place of a lock file"
            yield Finding("lock-replaced", "error", examination.name(path), meaning, "move it to the quarantine")


def find_layout(examination: Examination) -> Iterator[Finding]:
    """Folders and files that every store has, as far as they are missing or different."""
    git_dir = examination.store.git_dir
    parents = {parent.as_posix() for name in FOLDERS for parent in Path(name).parents if parent.name}
    for name in sorted({*FOLDERS, *parents}):  # a parent before its children
        path = git_dir / name
        if path.is_dir():
            continue
        if os.path.lexists(path):
            yield _replaced_folder(examination, path)
        else:
            meaning = "git does not recognize the store as a repository without it"
            yield Finding("folder-missing", "error", f"store/{name}", meaning, "make it")
    for name, content in store_files().items():
        problem = _file_problem(git_dir / name, content)
        if problem is not None:
            repair = "write it again; the present file goes to the quarantine"
            yield Finding("file-damaged", "error", f"store/{name}", problem, repair)


def _replaced_folder(examination: Examination, path: Path) -> Finding:
    meaning = "a folder of the store is expected here, but it is something else"
    repair = "move it to the quarantine and make the folder"
    return Finding("folder-replaced", "error", examination.name(path), meaning, repair)


def _file_problem(path: Path, content: bytes) -> str | None:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return "it is missing"
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    return None if found == content else "it differs from what shadowsnap writes"


def make_folder(examination: Examination, finding: Finding) -> None:
    store, path = examination.store, examination.path(finding)
    if lost_refs(store):
        # The new folder would hide it, as refs are known to be lost by their missing folder.
        (store.git_dir / REFS_LOST).touch()
    if os.path.lexists(path) and not path.is_dir():
        examination.quarantine.move(path)
    path.mkdir(parents=True, exist_ok=True)


def write_file(examination: Examination, finding: Finding) -> None:
    quarantine_file(examination, finding)
    store, path = examination.store, examination.path(finding)
    write_bytes(path, store_files()[path.relative_to(store.git_dir).as_posix()], fsync=store.fsync)


# --- what dead processes left ------------------------------------------------------------------


def find_stale_locks(examination: Examination) -> Iterator[Finding]:
    """Lock files that a dead git process left. (Our own locks end with their process.)

    A quick repair first gives git processes the time to finish; a lock that is there after that is stale."""
    paths = _lock_files(examination.store)
    if examination.quick:
        end = time.monotonic() + STALE_LOCK_SECONDS
        while time.monotonic() < end and any(0 <= _age(path) < STALE_LOCK_SECONDS for path in paths):
            time.sleep(0.05)
            paths = _lock_files(examination.store)
    for path in paths:
        age = _age(path)
        if age >= STALE_LOCK_SECONDS:
            meaning = f"a git process that died {age:.0f} s ago left it: what it locks cannot be changed"
            yield Finding("lock-stale", "error", examination.name(path), meaning, "remove it")


def _lock_files(store: Store) -> list[Path]:
    return sorted(path for path in find_debris(store) if path.suffix == ".lock")


def _age(path: Path) -> float:
    """Seconds since a file was written; -1 if it is gone. A time in the future (the clock was set back) means
    nothing, so it counts as old."""
    try:
        age = time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return -1
    return age if age >= 0 else max(-age, STALE_LOCK_SECONDS)


def remove_lock(examination: Examination, finding: Finding) -> None:
    path = examination.path(finding)
    if _age(path) >= STALE_LOCK_SECONDS:  # it may be another one by now
        path.unlink(missing_ok=True)


def find_leftovers(examination: Examination) -> Iterator[Finding]:
    """Temporary files that are too old to belong to a running process. Locks and packs have checks of their
    own."""
    for path in sorted(find_debris(examination.store)):
        if path.suffix == ".lock" or path.name.startswith("pack-"):
            continue
        try:
            age = time.time() - path.lstat().st_mtime
        except FileNotFoundError:
            continue
        if not 0 <= age < _OLD_LEFTOVER_SECONDS:
            meaning = "a process that died left it; nothing needs it, but it takes space"
            yield Finding("leftover", "info", examination.name(path), meaning, "remove it")


def remove_leftover(examination: Examination, finding: Finding) -> None:
    path = examination.path(finding)
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


# --- object files ------------------------------------------------------------------------------


def find_damaged_objects(examination: Examination) -> list[Finding]:
    """Packs and loose objects that are damaged, or whose file has another name outside the store.

    Every object is read, and `examination.sound` is set. A quick repair reads the packs once, and the one object
    that an operation could not read. Git prefers a damaged object to a sound copy and takes it for "already
    there", so it must not stay."""
    store, objects = examination.store, examination.store.git_dir / "objects"
    problems = {pack: pack_problem(pack, examination.deadline) for pack in all_packs(objects)}
    loose: Iterable[tuple[str, Path]]
    if examination.quick:
        path = loose_file(store.git_dir, examination.object)
        loose = [(examination.object, path)] if len(examination.object) == 40 and path.is_file() else []
    else:
        intact = [pack for pack, problem in problems.items() if problem is None]
        mismatched = mismatched_packs(examination.git, intact)
        problems |= dict.fromkeys(mismatched, "it does not hold what its index says")
        loose = loose_objects(objects)
    found = [_damaged_pack(examination, pack, problem) for pack, problem in problems.items() if problem]
    sound: set[str] = set()
    for name, path in loose:
        problem = loose_problem(path, name)
        if problem is None:
            sound.add(name)
        else:
            repair = "move it to the quarantine, and look for its content in the project's files and elsewhere"
            facts = {"id": name}
            subject, meaning = examination.name(path), f"object {name[:12]}: {problem}"
            found.append(Finding("object-damaged", "error", subject, meaning, repair, facts))
    if not examination.quick:
        for pack, problem in problems.items():
            if problem is None:
                sound.update(pack_ids(pack.with_suffix(".idx")))
        examination.sound = sound
        found += _find_shared(examination)
    return found


def _damaged_pack(examination: Examination, pack: Path, problem: str) -> Finding:
    repair = "move it to the quarantine, and write every object in it again that can still be read"
    if problem == "it has no index":
        repair = "make its index again"
    meaning = f"{problem}: checkpoints may lack what is in it"
    return Finding("pack-damaged", "error", examination.name(pack), meaning, repair)


def _find_shared(examination: Examination) -> Iterator[Finding]:
    for path in shared_files(examination.store.git_dir / "objects"):
        meaning = "it is linked to a file outside the store: a change of that file changes the store"
        repair = "replace it by a copy that was checked"
        yield Finding("object-shared", "warning", examination.name(path), meaning, repair)


def own_all_objects(store: Store, most_bytes: int | None = None) -> bool:
    """Replace every shared object file by a checked copy; False if these are more than `most_bytes`.

    The caller holds the upkeep lock."""
    examination = Examination(store)
    findings = list(_find_shared(examination))
    if most_bytes is not None and sum(examination.path(each).stat().st_size for each in findings) > most_bytes:
        return False
    for finding in findings:
        own_object(examination, finding)
    (store.git_dir / OWN_OBJECTS).touch()
    return True


def own_object(examination: Examination, finding: Finding) -> None:
    path = examination.path(finding)
    if not path.exists() or replace_by_copy(examination.git, path):
        return
    if path.suffix == ".pack":
        repair_pack(examination, finding)
    else:
        examination.quarantine.move(path)


def repair_object(examination: Examination, finding: Finding) -> None:
    """Move a damaged object to the quarantine. Its content is looked for by the checks of refs and checkpoints."""
    path, name = examination.path(finding), finding.facts["id"]
    problem = loose_problem(path, name) if path.exists() else None
    if problem is not None:
        moved = examination.quarantine.move(path)
        if problem == TRAILING_DATA:
            write_objects(examination.store, [(name, *loose_content(moved))])


def repair_pack(examination: Examination, finding: Finding) -> None:
    """Move a damaged pack to the quarantine and write again what can be read of it."""
    store, git, pack = examination.store, examination.git, examination.path(finding)
    if not pack.with_suffix(".idx").exists() and _index_pack(git, pack):
        return
    moved = [examination.quarantine.move(path) for path in pack_files(pack)]
    # The quarantine has the layout of an object directory, so git can read from it.
    objects = examination.quarantine.folder / pack.parent.parent.relative_to(store.base)
    for path in moved:
        if path.suffix == ".pack":
            _salvage(store, git.bound(scratch_objects=objects), path)


def _index_pack(git: Git, pack: Path) -> bool:
    """Make the index of a pack; False if the pack is not sound."""
    try:
        git.run("index-pack", str(pack))
    except GitFailed:
        pack.with_suffix(".idx").unlink(missing_ok=True)
        return False
    return True


def _salvage(store: Store, git: Git, pack: Path) -> None:
    """Write again what can be read of a pack: by a new index if one can be made, else by the old one."""
    index = pack.with_suffix(".idx")
    announced: list[str] = []
    old: Path | None = None
    try:
        announced = pack_ids(index)
        old = index.rename(index.with_name(f"{index.name}.old"))
    except (MalformedObject, OSError):
        index.unlink(missing_ok=True)
    if _index_pack(git, pack):
        announced = pack_ids(index)
    elif old is not None:
        old.rename(index)
    else:
        try:
            store.git().run("unpack-objects", "-r", "-q", stdin=pack.read_bytes())
        except GitFailed:
            pass  # git reads as far as it can, and fails if that is not to the end
        return
    write_objects(store, read_intact(git, announced))


def write_objects(store: Store, objects: Iterable[tuple[str, bytes, bytes]]) -> None:
    """Write objects (id, kind, content) into the store, whether they are there or not."""
    loose = LooseObjects(store.git_dir / "objects", fsync=store.fsync)
    pack = PackWriter(store.git_dir / "objects", fsync=store.fsync)
    try:
        for number, (_, kind, data) in enumerate(objects):
            if number < _MANY_OBJECTS:
                loose.write(kind, data)
            else:
                pack.add(deflate(kind, data))
        pack.finish()
    finally:
        pack.abandon()
    loose.flush()
