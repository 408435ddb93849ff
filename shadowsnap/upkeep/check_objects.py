"""Object files: each is read whole. A damaged one is set aside, because git would prefer it to
a sound copy or take it for "already there"; what it held is looked for elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import GitFailed, MalformedObject
from shadowsnap.git.maintenance import (
    TRAILING_DATA,
    all_packs,
    loose_content,
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
from shadowsnap.git.repository import Git
from shadowsnap.model import Finding
from shadowsnap.store.layout import OWN_OBJECTS, Store
from shadowsnap.upkeep.quarantine import Quarantine, inside

_MANY = 100
"""From so many objects on, what is written again goes into one pack."""


def inspect_objects(store: Store, deadline: Deadline = NO_DEADLINE) -> tuple[list[Finding], set[str]]:
    """Read every object file once: what is damaged, and which objects the store really holds."""
    objects = store.git_dir / "objects"
    findings, sound = [], set()
    whole = {pack: _pack_finding(store, pack, deadline) for pack in all_packs(objects)}
    lying = mismatched_packs(store.git(deadline), [pack for pack, finding in whole.items() if finding is None])
    for pack, finding in whole.items():
        if pack in lying:
            finding = _damaged_pack(store, pack, "it does not hold what its index says")
        if finding is None:
            sound.update(pack_ids(pack.with_suffix(".idx")))
        else:
            findings.append(finding)
    for name, path in loose_objects(objects):
        deadline.check("reading objects")
        finding = _loose_finding(store, name, path)
        if finding is None:
            sound.add(name)
        else:
            findings.append(finding)
    return findings, sound


def find_packs(store: Store, deadline: Deadline = NO_DEADLINE) -> Iterator[Finding]:
    """The packs alone: one read tells."""
    for pack in all_packs(store.git_dir / "objects"):
        finding = _pack_finding(store, pack, deadline)
        if finding is not None:
            yield finding


def find_one_loose(store: Store, name: str) -> Iterator[Finding]:
    """The same for one object that an operation stumbled over."""
    path = store.git_dir / "objects" / name[:2] / name[2:]
    finding = _loose_finding(store, name, path) if len(name) == 40 and path.is_file() else None
    if finding is not None:
        yield finding


def _pack_finding(store: Store, pack: Path, deadline: Deadline) -> Finding | None:
    problem = pack_problem(pack, deadline)
    return None if problem is None else _damaged_pack(store, pack, problem)


def _damaged_pack(store: Store, pack: Path, problem: str) -> Finding:
    repair = "set it aside, and take over every object in it that can still be read"
    if problem == "it has no index":
        repair = "make its index anew"
    meaning = f"{problem}: what is in it may be missing from checkpoints"
    return Finding("pack-damaged", "error", inside(store, pack), meaning, repair)


def _loose_finding(store: Store, name: str, path: Path) -> Finding | None:
    problem = loose_problem(path, name)
    if problem is None:
        return None
    meaning = f"object {name[:12]}: {problem}"
    repair = "set it aside, and look for its content in the project's files and elsewhere"
    return Finding("object-damaged", "error", inside(store, path), meaning, repair, {"id": name})


def find_shared(store: Store) -> Iterator[Finding]:
    """Object files that have another name somewhere, where they can be changed."""
    for path in shared_files(store.git_dir / "objects"):
        meaning = "it is linked to a file outside the store: what is written there, the store would give back"
        repair = "replace it by a copy that was checked"
        yield Finding("object-shared", "warning", inside(store, path), meaning, repair)


def own_all_objects(store: Store, most_bytes: int | None = None) -> bool:
    """Replace every object file that is shared by a checked copy. False if there are more bytes than that. The
    caller holds the lock of upkeep."""
    findings = list(find_shared(store))
    size = sum((store.base / finding.subject).stat().st_size for finding in findings)
    if most_bytes is not None and size > most_bytes:
        return False
    quarantine = Quarantine(store.base)
    for finding in findings:
        own_object(store, finding, quarantine)
    (store.git_dir / OWN_OBJECTS).touch()
    return True


# --- mending ---------------------------------------------------------------------------------


def own_object(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    path = store.base / finding.subject
    if replace_by_copy(store.git(), path):
        return
    if path.suffix == ".pack":
        mend_pack(store, finding, quarantine)
    else:
        quarantine.take(path)


def set_object_aside(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    path = store.base / finding.subject
    problem = loose_problem(path, finding.facts["id"]) if path.exists() else None
    if problem is not None:
        aside = quarantine.take(path)
        if problem == TRAILING_DATA:
            write_objects(store, [(finding.facts["id"], *loose_content(aside))])


def mend_pack(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    """Take a damaged pack out of git's sight and write again what can be read of it."""
    pack = store.base / finding.subject
    git = store.git()
    if not pack.with_suffix(".idx").exists() and _index_anew(git, pack):
        return
    aside = [quarantine.take(path) for path in pack_files(pack)]
    # What lies there now is an object directory of its own: git reads from it as from any other.
    objects = quarantine.folder / pack.parent.parent.relative_to(store.base)
    for path in aside:
        if path.suffix == ".pack":
            _take_over(store, git.bound(scratch_objects=objects), path)


def _index_anew(git: Git, pack: Path) -> bool:
    """Only a sound pack can be given an index."""
    try:
        git.run("index-pack", str(pack))
    except GitFailed:
        pack.with_suffix(".idx").unlink(missing_ok=True)
        return False
    return True


def _take_over(store: Store, git: Git, pack: Path) -> None:
    """An index that is made anew names what is there; one that came with the pack may not."""
    index = pack.with_suffix(".idx")
    announced: list[str] = []
    try:
        announced = pack_ids(index)
        old = index.rename(index.with_name(f"{index.name}.old"))
    except (MalformedObject, OSError):
        old = None
        index.unlink(missing_ok=True)
    if _index_anew(git, pack):
        announced = pack_ids(index)
    elif old is not None:
        old.rename(index)
    else:
        _unpack(store, pack)
        return
    write_objects(store, read_intact(git, announced))


def _unpack(store: Store, pack: Path) -> None:
    """Neither pack nor index can be trusted: git reads as far as it gets."""
    try:
        store.git().run("unpack-objects", "-r", "-q", stdin=pack.read_bytes())
    except GitFailed:
        pass  # it says so when it did not get to the end


def write_objects(store: Store, objects: Iterable[tuple[str, bytes, bytes]]) -> int:
    """Write these objects into the store, whether they are there or not; returns how many."""
    written = 0
    loose = LooseObjects(store.git_dir / "objects", fsync=store.fsync)
    pack = PackWriter(store.git_dir / "objects", fsync=store.fsync)
    try:
        for _, kind, data in objects:
            written += 1
            if written <= _MANY:
                loose.write(kind, data)
            else:
                pack.add(deflate(kind, data))
        pack.finish()
    finally:
        pack.abandon()
    loose.flush()
    return written


REPAIRS = {"pack-damaged": mend_pack, "object-damaged": set_object_aside, "object-shared": own_object}
