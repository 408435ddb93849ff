"""What the doctor examines, and its checks of files: permissions, folders, lock files, leftovers, object files,
and the records of projects.

A `find_*` function changes nothing. A repair moves what is damaged to the quarantine, and deletes only locks and
temporary files of dead processes.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject, UnsafeTree
from shadowsnap.files import (
    WRITABLE_BY_OTHERS,
    ownership_problem,
    read_json,
    remove_tree,
    write_bytes,
    write_json,
)
from shadowsnap.git.maintenance import (
    TRAILING_DATA,
    all_packs,
    index_pack,
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
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects
from shadowsnap.git.packs import PackWriter
from shadowsnap.git.reading import ObjectReader, check_comparable, missing_objects
from shadowsnap.git.refs import read_ref
from shadowsnap.git.repository import Git, missing_fixes
from shadowsnap.results import Finding
from shadowsnap.snapshot.ignore_rules import STAGING_PREFIX
from shadowsnap.store.checkpoints import moment_of, read_message
from shadowsnap.store.history import rebuild_log
from shadowsnap.store.layout import (
    FOLDERS,
    FORMAT,
    LEAD_ELSEWHERE,
    LOGS,
    OWN_OBJECTS,
    REFS_LOST,
    Store,
    lost_refs,
    stamped_folder,
    store_files,
)
from shadowsnap.store.log import next_number, read_lines, read_log
from shadowsnap.store.projects import (
    Project,
    journal_from,
    known_projects,
    read_journal,
)
from shadowsnap.store.stat_cache import ScanCache, load_cache, objects_taken_for_stored
from shadowsnap.upkeep.reclaim import find_debris

QUARANTINE = "corrupt-"
# A git process in the store holds its lock files for milliseconds.
STALE_LOCK_SECONDS = 1.0
_OLD_LEFTOVER_SECONDS = 60.0
# Above this number of objects, those that are written again go into one pack.
_MANY_OBJECTS = 100
CHECKPOINT_REF = re.compile(r"refs/shadowsnap/[0-9a-f]{16}/\d{13}-[0-9a-f]{12}")
OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_PROJECT_ID = re.compile(r"[0-9a-f]{16}")
_PACKED_REF = re.compile(rb"[0-9a-f]{40} refs/[\x21-\x7e]+")
_AUTHOR = re.compile(rb"\nauthor shadowsnap <[^>]*> (\d+) \+0000\n")
_STAGING_PATTERN = f"{STAGING_PREFIX}*"
_CLOCK_SLACK = 120.0


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
    """The objects that can be read. The check of object files sets it; a quick repair does not."""
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
        """Keep the facts about something that has no file of its own."""
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
    """A store of a later version, which is neither examined nor changed."""
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
        yield Finding("base-open", "warning", ".", meaning)
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
        return Finding("closed", "error", examination.name(path), meaning)
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
    """Whether the store belongs to another user."""
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
            yield Finding("leads-elsewhere", "error", examination.name(path), meaning)


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
            yield Finding("lock-replaced", "error", examination.name(path), meaning)


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
            yield Finding("folder-missing", "error", f"store/{name}", meaning)
    for name, content in store_files().items():
        problem = _file_problem(git_dir / name, content)
        if problem is not None:
            yield Finding("file-damaged", "error", f"store/{name}", problem)


def _replaced_folder(examination: Examination, path: Path) -> Finding:
    meaning = "a folder of the store is expected here, but it is something else"
    return Finding("folder-replaced", "error", examination.name(path), meaning)


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


# --- leftovers of dead processes ------------------------------------------------------------------


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
            yield Finding("lock-stale", "error", examination.name(path), meaning)


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
    if _age(path) >= STALE_LOCK_SECONDS:  # another process may have locked it since
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
            yield Finding("leftover", "info", examination.name(path), meaning)


def remove_leftover(examination: Examination, finding: Finding) -> None:
    path = examination.path(finding)
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


# --- object files ------------------------------------------------------------------------------


def find_damaged_objects(examination: Examination) -> list[Finding]:
    """Packs and loose objects that are damaged, or whose file has a hard link outside the store.

    Every object is read, and `examination.sound` is set. A quick repair reads only the packs, and the one object
    that an operation could not read. A damaged object must not stay: git prefers it to a sound copy, and does not
    write it again."""
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
            subject, meaning = examination.name(path), f"object {name[:12]}: {problem}"
            found.append(Finding("object-damaged", "error", subject, meaning, facts={"id": name}))
    if not examination.quick:
        for pack, problem in problems.items():
            if problem is None:
                sound.update(pack_ids(pack.with_suffix(".idx")))
        examination.sound = sound
        found += _find_shared(examination)
    return found


def _damaged_pack(examination: Examination, pack: Path, problem: str) -> Finding:
    repair = "make its index again" if problem == "it has no index" else ""
    meaning = f"{problem}: checkpoints may lack what is in it"
    return Finding("pack-damaged", "error", examination.name(pack), meaning, repair)


def _find_shared(examination: Examination) -> Iterator[Finding]:
    for path in shared_files(examination.store.git_dir / "objects"):
        meaning = "it is linked to a file outside the store: a change of that file changes the store"
        yield Finding("object-shared", "warning", examination.name(path), meaning)


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
    """Move a damaged object to the quarantine. The checks of refs and checkpoints look for its content."""
    path, name = examination.path(finding), finding.facts["id"]
    problem = loose_problem(path, name) if path.exists() else None
    if problem is not None:
        moved = examination.quarantine.move(path)
        if problem == TRAILING_DATA:
            write_objects(examination.store, [(name, *loose_content(moved))])


def repair_pack(examination: Examination, finding: Finding) -> None:
    """Move a damaged pack to the quarantine, and write its readable objects again."""
    store, git, pack = examination.store, examination.git, examination.path(finding)
    if not pack.with_suffix(".idx").exists() and index_pack(git, pack):
        return
    moved = [examination.quarantine.move(path) for path in pack_files(pack)]
    # The quarantine has the layout of an object directory, so git can read from it.
    objects = examination.quarantine.folder / pack.parent.parent.relative_to(store.base)
    for path in moved:
        if path.suffix == ".pack":
            _recover_pack(store, git.bound(scratch_objects=objects), path)


def _recover_pack(store: Store, git: Git, pack: Path) -> None:
    """Write the readable objects of a pack again: by a new index if one can be made, else by the old one."""
    index = pack.with_suffix(".idx")
    announced: list[str] = []
    old: Path | None = None
    try:
        announced = pack_ids(index)
        old = index.rename(index.with_name(f"{index.name}.old"))
    except (MalformedObject, OSError):
        index.unlink(missing_ok=True)
    if index_pack(git, pack):
        announced = pack_ids(index)
    elif old is not None:
        old.rename(index)
    else:
        try:
            store.git().run("unpack-objects", "-r", "-q", stdin=pack.read_bytes())
        except GitFailed:
            pass  # git unpacks as much as it can, and fails if that is not all
        return
    write_objects(store, read_intact(git, announced))


def write_objects(store: Store, objects: Iterable[tuple[str, bytes, bytes]]) -> None:
    """Write objects (id, kind, content) into the store, even if they exist."""
    loose = LooseObjects(store.git_dir / "objects", fsync=store.fsync)
    pack = PackWriter(store.git_dir / "objects", fsync=store.fsync)
    try:
        for number, (_, kind, data) in enumerate(objects):
            if number < _MANY_OBJECTS:
                loose.write(kind, data)
            else:
                pack.add(kind, data)
        pack.finish()
    finally:
        pack.abandon()
    loose.flush()


# --- reading refs and commits without git's help -----------------------------------------------


class Ref(NamedTuple):
    name: str
    value: str
    """Empty if it cannot be read."""

    @property
    def project(self) -> str:
        return self.name.split("/")[2]


def every_ref(store: Store) -> list[Ref]:
    """All refs, readable or not. A loose ref takes precedence over a packed one."""
    found = packed_refs(store)[0]
    for folder, _, names in os.walk(store.git_dir / "refs"):
        for name in names:
            if not name.endswith(".lock"):
                path = Path(folder, name)
                try:
                    value = path.read_text("ascii").strip()
                except (OSError, ValueError):
                    value = ""
                found[path.relative_to(store.git_dir).as_posix()] = value
    return [Ref(name, found[name]) for name in sorted(found)]


def checkpoint_refs(store: Store) -> list[Ref]:
    """The refs of all checkpoints, oldest first within a project."""
    return [ref for ref in every_ref(store) if CHECKPOINT_REF.fullmatch(ref.name)]


def packed_refs(store: Store) -> tuple[dict[str, str], bool]:
    """The packed refs that can be read, and whether there are lines that cannot."""
    try:
        data = (store.git_dir / "packed-refs").read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return {}, False
    found: dict[str, str] = {}
    *lines, rest = data.split(b"\n")
    has_unreadable = bool(rest)
    for line in lines:
        if _PACKED_REF.fullmatch(line):
            found[line[41:].decode("ascii")] = line[:40].decode("ascii")
        elif not line.startswith((b"#", b"^")):
            has_unreadable = True
    return found, has_unreadable


def write_packed_refs(store: Store, refs: dict[str, str]) -> None:
    lines = [b"# pack-refs with: sorted \n"]
    lines += [f"{value} {name}\n".encode("ascii") for name, value in sorted(refs.items())]
    write_bytes(store.git_dir / "packed-refs", b"".join(lines), fsync=store.fsync)


class Commit(NamedTuple):
    tree: str
    reason: str
    body: dict[str, Any]
    seconds: int


def read_commit(reader: ObjectReader, name: str) -> Commit | None:
    """The commit of a checkpoint; None unless it and its tree can be read."""
    if not OBJECT_ID.fullmatch(name):
        return None
    try:
        data = reader.read(name, b"commit")
        tree = data[5:45].decode("ascii", "replace")
        if tree != EMPTY_TREE:
            reader.tree(tree)
    except DamagedObject:
        return None
    header, _, message = data.partition(b"\n\n")
    subject, body = read_message(message)
    written = _AUTHOR.search(header + b"\n")
    return Commit(tree, body.pop("reason", subject), body, int(written[1]) if written else 0)


# --- records of projects -----------------------------------------------------------------------


def find_records(examination: Examination) -> Iterator[Finding]:
    """Records of projects that cannot be used, and projects with checkpoints but without a record."""
    folder = examination.store.git_dir / "projects"
    recorded = {path.stem for path in folder.glob("*.json")}
    with_checkpoints = {ref.project for ref in checkpoint_refs(examination.store)}
    for project in sorted(recorded | with_checkpoints):
        if examination.project not in (None, project):
            continue
        problem = _record_problem(folder / f"{project}.json")
        if problem is not None:
            meaning = f"{problem}: limits do not know the directory of the project, nor when it was used"
            yield Finding("record-damaged", "warning", f"store/projects/{project}.json", meaning)


def _record_problem(path: Path) -> str | None:
    if not os.path.lexists(path):
        return "it is missing"
    record = read_json(path)
    if record is None:
        return "it cannot be read as a JSON object"
    if isinstance(record.get("format"), int) and record["format"] > FORMAT:
        return None  # a newer version wrote it
    is_usable = isinstance(record.get("workdir"), str) and isinstance(record.get("last_touch"), (int, float))
    return None if is_usable and _PROJECT_ID.fullmatch(path.stem) else "it is incomplete"


def rewrite_record(examination: Examination, finding: Finding) -> None:
    path = examination.path(finding)
    present = read_json(path) or {}
    if os.path.lexists(path):
        examination.quarantine.move(path)
    record = _record_from_checkpoints(examination.store, path.stem)
    if record is None:
        return
    number, newest = present.get("next_number"), present.get("newest")
    if isinstance(number, int):
        record["next_number"] = max(record["next_number"], number)
    if isinstance(newest, str):
        record["newest"] = newest
    write_json(path, record, fsync=examination.store.fsync)


def _record_from_checkpoints(store: Store, project: str) -> dict[str, Any] | None:
    """A project's record made from its checkpoints and its log; None without checkpoints."""
    refs = [ref for ref in checkpoint_refs(store) if ref.project == project]
    workdir, number = None, next_number(read_lines(store, project))
    with ObjectReader(store.git()) as reader:
        for ref in refs:
            commit = read_commit(reader, ref.value)
            if commit is not None:
                workdir = commit.body.get("workdir", workdir)
                number = max(number, next_number([commit.body]))
    if not isinstance(workdir, str):
        return None
    first, last = (moment_of(ref.name) / 1000 for ref in (refs[0], refs[-1]))
    return {"format": FORMAT, "workdir": workdir, "created_at": first, "last_touch": last, "next_number": number}


def find_clock(examination: Examination) -> Iterator[Finding]:
    """Projects with times in the future: the clock was set back, or was wrong before."""
    now = time.time() + _CLOCK_SLACK
    newest = {ref.project: moment_of(ref.name) / 1000 for ref in checkpoint_refs(examination.store)}
    for project in known_projects(examination.store):
        touched = (read_json(examination.store.project_file(project.id)) or {}).get("last_touch")
        if newest.get(project.id, 0.0) > now or (isinstance(touched, (int, float)) and touched > now):
            meaning = (
                "its newest checkpoint or last use lies in the future, so the clock was set back; new checkpoints "
                "are dated right after it until the clock has caught up, and keep their order"
            )
            yield Finding("clock-back", "info", str(project.workdir), meaning)


def find_logs(examination: Examination) -> Iterator[Finding]:
    """Operation logs that are lost, or that have lines which cannot be read. A line that names a checkpoint which
    does not exist is in order: checkpoints are dropped before their lines."""
    store, folder = examination.store, examination.store.base / LOGS
    if os.path.lexists(folder) and not folder.is_dir():
        meaning = "it is in the place of the folder of the operation logs"
        yield Finding("log-damaged", "error", LOGS, meaning, "move it to the quarantine and write the logs again")
        return
    with_checkpoints = {ref.project for ref in checkpoint_refs(store)}
    for project in known_projects(store):
        if examination.project in (None, project.id):
            problem = _log_problem(store, project, has_checkpoints=project.id in with_checkpoints)
            if problem is not None:
                code, meaning = problem
                yield Finding(code, "warning", examination.name(store.log_file(project.id)), meaning)


def _log_problem(store: Store, project: Project, *, has_checkpoints: bool) -> tuple[str, str] | None:
    path = store.log_file(project.id)
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        return "log-damaged", f"it is not a file, so what happens in {project.workdir} cannot be logged"
    damaged = read_log(store, project.id)[1]
    if damaged:
        return "log-damaged", f"{damaged} of its lines cannot be read: the timeline of {project.workdir} has gaps"
    # Without a number the project is of format 1, or only imported: then there was no log yet.
    was_logged = "next_number" in (read_json(store.project_file(project.id)) or {})
    if has_checkpoints and was_logged and not read_lines(store, project.id):
        meaning = f"what happened in {project.workdir} is lost, except for what its checkpoints know"
        return "log-lost", meaning
    return None


def rebuild_operation_log(examination: Examination, finding: Finding) -> None:
    store, path = examination.store, examination.path(finding)
    if path.is_symlink() or (os.path.lexists(path) and not path.is_file()) or finding.subject == LOGS:
        examination.quarantine.move(path)
    elif path.exists():
        examination.quarantine.copy(path)  # it is replaced at once, so that a crash loses nothing
    for project in known_projects(store):
        if project.id == path.stem:
            rebuild_log(store, project, examination.deadline)


def find_journals(examination: Examination) -> Iterator[Finding]:
    folder = examination.store.git_dir / "journal"
    for path in sorted(folder.glob("*.json")):
        if not _is_journal(path):
            meaning = "the record of restores and stages under way cannot be read; checkpoints are not affected"
            yield Finding("journal-damaged", "warning", examination.name(path), meaning)
    for path in sorted(folder.glob("*.damaged")):
        meaning = "a record of restores and stages under way that could not be read was renamed to this"
        yield Finding("journal-left", "info", examination.name(path), meaning)


def _is_journal(path: Path) -> bool:
    """Whether a file is a valid journal. (`read_journal` would rename a damaged one.)"""
    record = read_json(path)
    return record is not None and journal_from(record) is not None


def find_staging(examination: Examination) -> Iterator[Finding]:
    """Staging directories of a restore that the project's journal does not know."""
    store = examination.store
    for project in known_projects(store):
        begun = read_journal(store, project).open if _is_journal(store.journal_file(project.id)) else None
        known = begun.staging if begun is not None else ()
        for path in sorted(project.workdir.glob(_STAGING_PATTERN)) if project.workdir.is_dir() else ():
            if path.name not in known and path.is_dir():
                meaning = (
                    "files that a restore had moved when it died; its record was lost, but every version is in "
                    "the checkpoint taken before it"
                )
                yield Finding("staging-left", "warning", str(path), meaning)


# --- stat caches -------------------------------------------------------------------------------


def find_caches(examination: Examination) -> Iterator[Finding]:
    """Stat caches that cannot be read, or that count objects as stored that are not."""
    for path in sorted((examination.store.git_dir / "indexes").glob("*.json")):
        if not _PROJECT_ID.fullmatch(path.stem) or examination.project not in (None, path.stem):
            continue
        cache = load_cache(examination.store, Project(path.stem, Path()))
        problem = _cache_problem(cache, examination.git, examination.sound)
        if problem is not None:
            meaning = f"{problem}: the next snapshot could rely on it"
            yield Finding("cache-damaged", "error", examination.name(path), meaning)


def _cache_problem(cache: ScanCache, git: Git, sound: set[str] | None) -> str | None:
    if not cache.index.path.exists():
        return None  # it was forgotten; only the paths that tools named are left
    if not len(cache.index) and cache.tree == EMPTY_TREE and not cache.newest:
        return "the cache of the last capture cannot be read"
    try:
        names = objects_taken_for_stored(cache, git)
        lost = names - sound if sound is not None else set(missing_objects(git, sorted(names)))
        if lost:
            return f"{len(lost)} of the objects that it counts as stored are missing or damaged"
        held = {path: (known.mode, known.id) for path, known in cache.index.items()}
        if held != _files_of(git, cache.tree):
            return "its index and its tree do not hold the same files"
        newest = read_ref(git.git_dir, cache.newest.get("ref", ""))
        if newest is not None and not held.items() <= _files_of(git, newest).items():
            return "the newest checkpoint does not hold what it counts as captured"
    except (GitFailed, DamagedObject, MalformedObject, UnsafeTree):
        return "the tree of the last capture is incomplete"
    return None


def _files_of(git: Git, tree: str) -> dict[bytes, tuple[int, str]]:
    check_comparable(git, [(EMPTY_TREE, git.run("rev-parse", f"{tree}^{{tree}}").decode().strip())])
    rows = (row.partition(b"\t") for row in git.run("ls-tree", "-r", "-z", tree).split(b"\0")[:-1])
    return {path: (int(about[:6], 8), about.split()[2].decode()) for about, _, path in rows}


def forget_index(examination: Examination, finding: Finding) -> None:
    """Remove the index. The paths that tools named stay, because only the cache has them."""
    index = examination.store.index_file(Path(finding.subject).stem)
    if index.is_dir():
        examination.quarantine.move(index)
    else:
        index.unlink(missing_ok=True)
