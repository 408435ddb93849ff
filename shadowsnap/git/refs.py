"""Refs: created and read as files, listed with details and deleted through git.

A ref is a file below `refs/` (loose), or a line of `packed-refs`, or both: then the file counts. A
power cut can leave an empty file, which git does not read. The packed value is used then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from shadowsnap.files import make_folder, sync_directory
from shadowsnap.git.objects import HEX_DIGITS, is_object_id
from shadowsnap.git.repository import Git

_ORPHAN_SECONDS = 60.0
_LOCK_ATTEMPTS = 100
_NAMED_AFTER_COMMITS = ("refs/shadowsnap/", "refs/shadowsnap-pins/")


class RefExists(Exception):
    """A ref that was to be created exists already."""


def create_ref(git_dir: Path, ref: str, object_id: str, *, fsync: bool) -> None:
    """Create a ref that must not exist yet, as git does it: through `<ref>.lock`."""
    path = git_dir / ref
    lock = Path(f"{path}.lock")
    is_first = fsync and not path.parent.exists()
    descriptor = _open_lock(lock)
    try:
        try:
            os.write(descriptor, object_id.encode() + b"\n")
            if fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if ref_exists(git_dir, ref):
            raise RefExists(ref)
        os.replace(lock, path)
    finally:
        lock.unlink(missing_ok=True)
    if fsync:
        for folder in path.parents[: len(Path(ref).parts) - 2 if is_first else 1]:  # up to refs/shadowsnap
            sync_directory(folder)


def _open_lock(lock: Path) -> int:
    attempts = _LOCK_ATTEMPTS
    while True:
        try:
            return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
        except FileNotFoundError:
            # The directory is new, or `pack-refs` emptied and removed it, which it may do again before
            # the file is there.
            if not attempts:
                raise
        attempts -= 1
        make_folder(lock.parent)


def set_ref(git: Git, ref: str, object_id: str) -> None:
    """Create a ref, or change an existing one."""
    _remove_orphaned_locks(git.git_dir, [ref])
    git.run("update-ref", ref, object_id)


def delete_refs(git: Git, refs: Iterable[str]) -> None:
    refs = list(refs)
    if refs:
        _remove_orphaned_locks(git.git_dir, refs)
        commands = b"".join(b"delete %s\0\0" % os.fsencode(ref) for ref in refs)
        git.run("update-ref", "--stdin", "-z", stdin=commands)


def _remove_orphaned_locks(git_dir: Path, refs: Iterable[str]) -> None:
    """Remove lock files of killed git processes, which would block every later one. A living git holds
    them for milliseconds."""
    for path in (git_dir / "packed-refs.lock", *(git_dir / f"{ref}.lock" for ref in refs)):
        try:
            if time.time() - path.stat().st_mtime > _ORPHAN_SECONDS:
                path.unlink()
        except OSError:
            pass  # usually there is none; or another process removed it


def pack_refs(git: Git) -> None:
    """Put all refs into one file, so that listing them stays fast."""
    git.run("pack-refs", "--all", "--prune")


def ref_exists(git_dir: Path, ref: str) -> bool:
    return os.path.exists(git_dir / ref) or b" %s\n" % os.fsencode(ref) in _packed_refs(git_dir)


def read_ref(git_dir: Path, ref: str) -> str | None:
    """The object id of one ref; None if there is no such ref. (Reading all refs of a project takes longer
    than the rest of an unchanged snapshot.)"""
    loose = _read_loose(git_dir, ref)
    if loose is not None:
        return loose
    packed = _packed_refs(git_dir)
    at = packed.find(b" %s\n" % os.fsencode(ref))
    value = packed[at - 40 : at].decode("ascii", "replace") if at >= 40 else ""
    return value if may_point_to(ref, value) else None


def read_refs(git_dir: Path, prefix: str) -> dict[str, str]:
    """Name below the prefix -> object id, for refs of one level. Files that a power cut damaged are
    repaired from `packed-refs`."""
    found: dict[str, str] = {}
    # Loose refs first: a ref that is being packed is in `packed-refs` before its file is removed, so
    # that in this order none is missed.
    files = set(_loose_names(git_dir / prefix))
    for name in files:
        loose = _read_loose(git_dir, f"{prefix}/{name}")
        if loose is not None:
            found[name] = loose
    for name, value in _packed_below(git_dir, prefix):
        if name not in found and may_point_to(f"{prefix}/{name}", value):
            found[name] = value
            if name in files:
                _repair(git_dir, f"{prefix}/{name}", value)
    return found


def _repair(git_dir: Path, ref: str, value: str) -> None:
    """Replace the file of a ref that a power cut damaged by the packed value."""
    if is_damaged_ref(git_dir, ref):
        try:
            temporary = Path(f"{git_dir / ref}.{os.getpid()}.lock")
            temporary.write_bytes(value.encode() + b"\n")
            os.replace(temporary, git_dir / ref)
        except OSError:
            pass  # the store is read-only; the value is known all the same


def is_damaged_ref(git_dir: Path, ref: str) -> bool:
    """Whether a ref has a file without a usable value."""
    return _read_loose(git_dir, ref) is None and os.path.exists(git_dir / ref)


def may_point_to(ref: str, value: str) -> bool:
    """Whether a value is an object id that the ref can have: the ref of a checkpoint ends in the first
    digits of its commit."""
    return is_object_id(value) and value.strip("0") != "" and value.startswith(_digits_in_name(ref))


def commit_in_name(git: Git, ref: str) -> str | None:
    """The commit that the ref of a checkpoint is named after, if exactly one in the store fits."""
    digits = _digits_in_name(ref)
    if not digits:
        return None
    found = git.run("rev-parse", "--verify", "-q", f"{digits}^{{commit}}", ok=(0, 1, 128)).decode().strip()
    return found if may_point_to(ref, found) else None


def _digits_in_name(ref: str) -> str:
    digits = ref.rpartition("-")[2]
    is_named_so = ref.startswith(_NAMED_AFTER_COMMITS) and len(digits) == 12 and HEX_DIGITS.issuperset(digits)
    return digits if is_named_so else ""


def newest_ref(git_dir: Path, prefix: str) -> str | None:
    """The last ref below a prefix in the order of names, which is the order of time."""
    names = [f"{prefix}/{name}" for name in _loose_names(git_dir / prefix)]
    packed = _packed_refs(git_dir)
    if (at := packed.rfind(b" %s/" % os.fsencode(prefix))) >= 0:  # packed refs are sorted
        names.append(os.fsdecode(packed[at + 1 :].partition(b"\n")[0]))
    return max(names, default=None)


def ref_names(git_dir: Path, prefix: str) -> list[str]:
    """The sorted names below the prefix, for refs of one level."""
    names = set(_loose_names(git_dir / prefix))  # first, as in `read_refs`
    return sorted(names.union(name for name, _ in _packed_below(git_dir, prefix)))


def ref_folders(git_dir: Path, prefix: str) -> list[str]:
    """The directories right below the prefix that hold refs."""
    names = set(_loose_names(git_dir / prefix))
    return sorted(names.union(name.partition("/")[0] for name, _ in _packed_below(git_dir, prefix)))


def count_refs(git_dir: Path, prefix: str) -> int:
    """Approximate number of refs below a prefix: one that is both loose and packed counts twice."""
    return len(_loose_names(git_dir / prefix)) + _packed_refs(git_dir).count(b" %s/" % os.fsencode(prefix))


def count_loose_refs(git_dir: Path, enough: int) -> int:
    """Number of loose refs. Counting stops when there are `enough`."""
    count = 0
    for _, _, names in os.walk(git_dir / "refs"):
        count += len(names)
        if count >= enough:
            break
    return count


def list_refs(git: Git, fields: Iterable[str], *prefixes: str, newest: int | None = None) -> list[list[bytes]]:
    """These fields of every ref below the prefixes, newest name first."""
    names = list(fields)
    # NUL after every field: messages may contain anything else.
    layout = "".join(f"%({name})%00" for name in names)
    options = [] if newest is None else [f"--count={newest}"]
    answer = git.run("for-each-ref", "--sort=-refname", f"--format={layout}", *options, *prefixes)
    parts = answer.split(b"\0")[:-1]
    rows = [parts[at : at + len(names)] for at in range(0, len(parts), len(names))]
    return [[row[0].lstrip(b"\n"), *row[1:]] for row in rows]


def refs_below(git: Git, prefix: str) -> dict[str, str]:
    """What each ref below a prefix leads to, in any repository."""
    rows = list_refs(git, ("refname", "objectname"), prefix)
    return {os.fsdecode(ref): name.decode("ascii") for ref, name in reversed(rows)}


def _read_loose(git_dir: Path, ref: str) -> str | None:
    """The value in the file of a ref; None if there is no file, or no value that the ref can have."""
    try:
        value = (git_dir / ref).read_bytes().decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return value if may_point_to(ref, value) else None


def _loose_names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.endswith(".lock")]
    except OSError:
        return []


def _packed_below(git_dir: Path, prefix: str) -> Iterator[tuple[str, str]]:
    """Name below the prefix and value of the packed refs. In a damaged file, the value can be anything."""
    start = b"%s/" % os.fsencode(prefix)
    for line in _packed_refs(git_dir).split(b"\n"):
        if line[41:].startswith(start):
            yield os.fsdecode(line[41 + len(start) :]), line[:40].decode("ascii", "replace")


def _packed_refs(git_dir: Path) -> bytes:
    try:
        return (git_dir / "packed-refs").read_bytes()
    except OSError:
        return b""
