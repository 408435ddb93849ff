"""Refs: creating and finding them by file, listing and deleting them through git."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from shadowsnap.files import make_folder, sync_directory
from shadowsnap.git.repository import Git

_ORPHAN_SECONDS = 60.0
_HEX = frozenset("0123456789abcdef")
_NAMED_AFTER_COMMITS = ("refs/shadowsnap/", "refs/shadowsnap-pins/")


class RefExists(Exception):
    """A ref that was to be created is there already."""


def create_ref(git_dir: Path, ref: str, object_id: str, *, fsync: bool) -> None:
    """Create a ref that must not exist yet, the way git does it: through `<ref>.lock`."""
    path = git_dir / ref
    lock = Path(f"{path}.lock")
    first = fsync and not path.parent.exists()
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
        for folder in path.parents[: len(Path(ref).parts) - 2 if first else 1]:  # up to refs/shadowsnap
            sync_directory(folder)


def _open_lock(lock: Path, attempts: int = 100) -> int:
    try:
        return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
    except FileNotFoundError:
        if not attempts:
            raise
    # The directory was never made, or `pack-refs` emptied and removed it: it may do so again
    # before we are in.
    make_folder(lock.parent)
    return _open_lock(lock, attempts - 1)


def ref_exists(git_dir: Path, ref: str) -> bool:
    return os.path.exists(git_dir / ref) or b" %s\n" % os.fsencode(ref) in _packed(git_dir)


def newest_ref(git_dir: Path, prefix: str) -> str | None:
    """The last ref below a prefix in name order, which is time order."""
    names = [f"{prefix}/{name}" for name in _loose_names(git_dir / prefix)]
    packed = _packed(git_dir)
    if (at := packed.rfind(b" %s/" % os.fsencode(prefix))) >= 0:  # packed refs are sorted
        names.append(os.fsdecode(packed[at + 1 :].partition(b"\n")[0]))
    return max(names, default=None)


def read_ref(git_dir: Path, ref: str) -> str | None:
    """The object id of one ref; None if there is no such ref. (Reading all refs of a project costs
    an unchanged snapshot more time than everything else we do without git.)"""
    loose = _loose(git_dir / ref)
    if loose is not None and may_be_of(ref, loose):
        return loose
    packed = _packed(git_dir)
    at = packed.find(b" %s\n" % os.fsencode(ref))
    value = packed[at - 40 : at].decode("ascii", "replace") if at >= 40 else ""
    return value if may_be_of(ref, value) else None


def may_be_of(ref: str, value: str) -> bool:
    """Whether a value is an object id, and the one that the ref is named after, if it is: a checkpoint's ref
    ends in the first digits of its commit."""
    is_id = len(value) == 40 and _HEX.issuperset(value) and value.strip("0")
    return bool(is_id) and value.startswith(_digits_in_name(ref))


def _mend(git_dir: Path, ref: str, value: str) -> None:
    """Replace the file of a ref that a power cut spoiled by the value that was packed."""
    if is_spoiled(git_dir, ref):
        try:
            temporary = Path(f"{git_dir / ref}.{os.getpid()}.lock")
            temporary.write_bytes(value.encode() + b"\n")
            os.replace(temporary, git_dir / ref)
        except OSError:
            pass  # a store that cannot be written to: the value is known all the same


def is_spoiled(git_dir: Path, ref: str) -> bool:
    """Whether a ref has a file of its own that git cannot read."""
    loose = _loose(git_dir / ref)
    return os.path.exists(git_dir / ref) and (loose is None or not may_be_of(ref, loose))


def value_by_name(git: Git, ref: str) -> str | None:
    """The commit that a checkpoint's ref is named after, if just one is in the store."""
    named = _digits_in_name(ref)
    if not named:
        return None
    found = git.run("rev-parse", "--verify", "-q", f"{named}^{{commit}}", ok=(0, 1, 128)).decode().strip()
    return found if may_be_of(ref, found) else None


def _digits_in_name(ref: str) -> str:
    digits = ref.rpartition("-")[2]
    is_named_so = ref.startswith(_NAMED_AFTER_COMMITS) and len(digits) == 12 and _HEX.issuperset(digits)
    return digits if is_named_so else ""


def ref_names(git_dir: Path, prefix: str) -> list[str]:
    """The names below the prefix, for refs of one level, in the order of names."""
    names = set(_loose_names(git_dir / prefix))  # first, as in `read_refs`
    names.update(name for name, _ in _packed_below(git_dir, prefix))
    return sorted(names)


def ref_folders(git_dir: Path, prefix: str) -> list[str]:
    """The directories right below the prefix that hold refs."""
    names = set(_loose_names(git_dir / prefix))
    names.update(name.partition("/")[0] for name, _ in _packed_below(git_dir, prefix))
    return sorted(names)


def read_refs(git_dir: Path, prefix: str) -> dict[str, str]:
    """Name below the prefix -> object id, for refs of one level."""
    found: dict[str, str] = {}
    files = {*_loose_names(git_dir / prefix)}
    # Loose ones first: a ref that is being packed is in the packed file before it ceases to be
    # loose, so in this order it cannot escape.
    for name in files:
        loose = _loose(git_dir / prefix / name)
        if loose is not None and may_be_of(f"{prefix}/{name}", loose):
            found[name] = loose
    for name, value in _packed_below(git_dir, prefix):
        if name not in found and may_be_of(f"{prefix}/{name}", value):
            found[name] = value
            if name in files:
                _mend(git_dir, f"{prefix}/{name}", value)
    return found


def count_refs(git_dir: Path, prefix: str) -> int:
    """About how many refs there are below a prefix (one that is loose and packed counts twice)."""
    return len(_loose_names(git_dir / prefix)) + _packed(git_dir).count(b" %s/" % os.fsencode(prefix))


def count_loose_refs(git_dir: Path, enough: int) -> int:
    """How many refs have a file of their own; counting ends when there are enough."""
    count = 0
    for _, _, names in os.walk(git_dir / "refs"):
        count += len(names)
        if count >= enough:
            break
    return count


def _loose(path: Path) -> str | None:
    """What a ref file says; None if it was deleted or packed meanwhile, or is damaged."""
    try:
        text = path.read_bytes().decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return text if len(text) == 40 else None


def _packed_below(git_dir: Path, prefix: str) -> Iterator[tuple[str, str]]:
    """Name below the prefix and value of each packed ref. A damaged file may say anything."""
    wanted = b"%s/" % os.fsencode(prefix)
    for line in _packed(git_dir).split(b"\n"):
        if line[41:].startswith(wanted):
            yield os.fsdecode(line[41 + len(wanted) :]), line[:40].decode("ascii", "replace")


def _packed(git_dir: Path) -> bytes:
    try:
        return (git_dir / "packed-refs").read_bytes()
    except OSError:
        return b""


def _loose_names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.endswith(".lock")]
    except OSError:
        return []


def list_refs(git: Git, fields: Iterable[str], *prefixes: str, newest: int | None = None) -> list[list[bytes]]:
    """The wanted fields of every ref below the prefixes, newest name first."""
    names = list(fields)
    # NUL after every field: messages may hold anything else.
    layout = "".join(f"%({name})%00" for name in names)
    options = [] if newest is None else [f"--count={newest}"]
    answer = git.run("for-each-ref", "--sort=-refname", f"--format={layout}", *options, *prefixes)
    parts = answer.split(b"\0")[:-1]
    rows = [parts[at : at + len(names)] for at in range(0, len(parts), len(names))]
    return [[row[0].lstrip(b"\n"), *row[1:]] for row in rows]


def delete_refs(git: Git, refs: Iterable[str]) -> None:
    refs = list(refs)
    if refs:
        _remove_orphaned_locks(git.git_dir, refs)
        commands = b"".join(b"delete %s\0\0" % os.fsencode(ref) for ref in refs)
        git.run("update-ref", "--stdin", "-z", stdin=commands)


def pack_refs(git: Git) -> None:
    """Put all refs into one file, so that listing them stays fast."""
    git.run("pack-refs", "--all", "--prune")


def set_ref(git: Git, ref: str, object_id: str) -> None:
    _remove_orphaned_locks(git.git_dir, [ref])
    git.run("update-ref", ref, object_id)


def _remove_orphaned_locks(git_dir: Path, refs: Iterable[str]) -> None:
    """A git that was killed leaves its lock files, and every later one would stop at them. A
    living git holds them for milliseconds."""
    for path in (git_dir / "packed-refs.lock", *(git_dir / f"{ref}.lock" for ref in refs)):
        try:
            if time.time() - path.stat().st_mtime > _ORPHAN_SECONDS:
                path.unlink()
        except OSError:
            pass  # there is none, as usual, or somebody else removed it
