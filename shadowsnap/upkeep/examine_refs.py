"""Refs: each must lead to a commit that can be read, or it hides all the others from git."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.errors import DamagedObject
from shadowsnap.git.objects import EMPTY_TREE, object_id
from shadowsnap.git.reading import ObjectReader, missing_objects
from shadowsnap.git.refs import RefExists, create_ref, may_be_of, value_by_name
from shadowsnap.git.runner import Git
from shadowsnap.model import Finding
from shadowsnap.store.atomic import write_bytes
from shadowsnap.store.layout import REFS_LOST, Store, lost_refs
from shadowsnap.store.projects import Project, all_records, note_emptied, project_id, was_emptied
from shadowsnap.upkeep.quarantine import Quarantine

CHECKPOINTS = "refs/shadowsnap"
_NAME = re.compile(r"refs/shadowsnap/[0-9a-f]{16}/\d{13}-[0-9a-f]{12}")
_ID = re.compile(r"[0-9a-f]{40}")
_PACKED = re.compile(rb"[0-9a-f]{40} refs/[\x21-\x7e]+")
_AUTHOR = re.compile(rb"\nauthor shadowsnap <[^>]*> (\d+) \+0000\n")


class Ref(NamedTuple):
    name: str
    value: str
    """Empty if it cannot be read."""
    loose: bool


def every_ref(store: Store) -> list[Ref]:
    """All refs as they lie there, readable or not; a loose one stands before a packed one."""
    found = {name: Ref(name, value, False) for name, value in _packed(store)[0].items()}
    top = store.git_dir / "refs"
    for folder, _, files in os.walk(top):
        for name in files:
            if not name.endswith(".lock"):
                path = Path(folder, name)
                ref = path.relative_to(store.git_dir).as_posix()
                found[ref] = Ref(ref, _loose_value(path), True)
    return [found[name] for name in sorted(found)]


def checkpoint_refs(store: Store) -> list[Ref]:
    return [ref for ref in every_ref(store) if _NAME.fullmatch(ref.name)]


# --- looking ---------------------------------------------------------------------------------


def find_refs(store: Store, git: Git, project: str | None = None) -> Iterator[Finding]:
    """Refs of every project, or of one, that lead nowhere; the fact `lost` names the objects that
    would have to come back."""
    if _packed(store)[1]:
        meaning = "git reads no ref at all because of lines in it that it does not understand"
        repair = "keep the lines that can be read; the file as it is now is set aside"
        yield Finding("packed-refs-damaged", "error", "store/packed-refs", meaning, repair)
    refs = [ref for ref in every_ref(store) if project is None or project in ref.name.split("/")]
    gone = set(missing_objects(git, sorted({ref.value for ref in refs if _ID.fullmatch(ref.value)})))
    with ObjectReader(git) as reader:
        for ref in refs:
            problem = _problem(ref, gone, reader)
            if problem is not None:
                yield _finding(ref, *problem)


def _problem(ref: Ref, gone: set[str], reader: ObjectReader) -> tuple[str, str, list[str]] | None:
    inside = ref.name.startswith(f"{CHECKPOINTS}/")
    if inside and not _NAME.fullmatch(ref.name):
        return "ref-strange", "it is not named as a checkpoint is", []
    if not may_be_of(ref.name, ref.value):
        return "ref-damaged", "it does not say which object it is of", []
    if ref.value in gone:
        return "ref-dangling", f"object {ref.value[:12]} is not in the store", [ref.value]
    if inside and read_commit(reader, ref.value) is None:
        why = f"commit {ref.value[:12]} or its tree cannot be read"
        return "ref-dangling", why, _unreadable(reader, ref.value)
    return None


def _unreadable(reader: ObjectReader, name: str) -> list[str]:
    """The commit, or if that is sound its tree."""
    try:
        data = reader.read(name, b"commit")
    except DamagedObject:
        return [name]
    return [data[5:45].decode("ascii", "replace")] if object_id(b"commit", data) == name else [name]


def _finding(ref: Ref, code: str, why: str, lost: list[str]) -> Finding:
    meaning = f"{why}: as long as it is there, git may refuse to list the others"
    repair = "write it again, if its commit is in the store; else set it aside"
    return Finding(code, "error", ref.name, meaning, repair, {"value": ref.value, "lost": lost})


class Commit(NamedTuple):
    tree: str
    reason: str
    body: dict[str, Any]
    seconds: int


def read_commit(reader: ObjectReader, name: str) -> Commit | None:
    """A checkpoint's commit, if it and its tree can be read and are what they are called."""
    if not _ID.fullmatch(name):
        return None
    try:
        data = reader.read(name, b"commit")
        tree = data[5:45].decode("ascii", "replace")
        if object_id(b"commit", data) != name:
            return None
        if tree != EMPTY_TREE and object_id(b"tree", reader.read(tree, b"tree")) != tree:
            return None
    except DamagedObject:
        return None
    header, _, message = data.partition(b"\n\n")
    subject, _, rest = message.decode("utf-8", "replace").partition("\n\n")
    try:
        body = json.loads(rest)
    except ValueError:
        body = {}
    written = _AUTHOR.search(header + b"\n")
    body = body if isinstance(body, dict) else {}
    return Commit(tree, body.pop("reason", subject), body, int(written[1]) if written else 0)


# --- mending ---------------------------------------------------------------------------------


def mend_ref(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    """Give a ref the value that it had: `packed-refs` may have it, and a checkpoint's ref is named after its
    commit. If neither is to be had, it is set aside."""
    ref = finding.subject
    git = store.git()
    with ObjectReader(git) as reader:
        candidates = (_packed(store)[0].get(ref, ""), value_by_name(git, ref) or "")
        value = next((each for each in candidates if may_be_of(ref, each) and read_commit(reader, each)), None)
    if value is None:
        set_ref_aside(store, finding, quarantine)
        return
    if os.path.lexists(store.git_dir / ref):
        quarantine.take(store.git_dir / ref)
    write_bytes(store.git_dir / ref, f"{value}\n".encode("ascii"), fsync=store.fsync)


def set_ref_aside(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    """Take a ref away and write down what it was."""
    remove_refs(store, [finding.subject], quarantine)
    project = finding.subject.split("/")[2]
    if not any(f"/{project}/" in ref.name for ref in checkpoint_refs(store)):
        workdir = all_records(store).get(project, {}).get("workdir")
        if isinstance(workdir, str):  # so that nobody looks for the others
            note_emptied(store, Project(project, Path(workdir)))


def remove_refs(store: Store, names: Iterable[str], quarantine: Quarantine) -> None:
    """By hand: git deletes no ref that it cannot read."""
    packed, strange = _packed(store)
    kept = dict(packed)
    for name in names:
        path = store.git_dir / name
        if os.path.lexists(path) and not path.is_dir():
            quarantine.take(path)  # a packed one of the same name counts again
        elif kept.pop(name, None):
            quarantine.note(f"{name}.json", {"ref": name, "value": packed[name]})
    if kept != packed and not strange:
        _write_packed(store, kept)


def keep_readable_lines(store: Store, _: Finding, quarantine: Quarantine) -> None:
    packed, strange = _packed(store)
    if strange:
        quarantine.take(store.git_dir / "packed-refs")
        _write_packed(store, packed)


def find_lost_refs(store: Store) -> Iterator[Finding]:
    """Projects that had checkpoints, and have none although nobody dropped them."""
    repair = "look for them among the objects of the store and list them again"
    if lost_refs(store):
        meaning = "the refs of all checkpoints are gone; the checkpoints themselves may still be there"
        yield Finding("refs-lost", "error", f"store/{CHECKPOINTS}", meaning, repair)
        return
    held = {ref.name.split("/")[2] for ref in checkpoint_refs(store)}
    for project, record in all_records(store).items():
        if project not in held and record.get("workdir") and not was_emptied(record):
            meaning = "its checkpoints are not listed any more, although nobody dropped them"
            yield Finding("refs-lost", "error", str(record["workdir"]), meaning, repair, {"project": project})


def recover_refs(store: Store, finding: Finding, _: Quarantine) -> None:
    """Give every checkpoint commit in the store its ref again, of all projects or of one."""
    only = finding.facts.get("project")
    git = store.git()
    listed = git.run("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname)")
    names = [line[7:].decode() for line in listed.splitlines() if line.startswith(b"commit ")]
    with ObjectReader(git) as reader:
        for name in names:
            commit = read_commit(reader, name)
            project = _project_of(commit)
            if commit is not None and project is not None and only in (None, project):
                _list_again(store, project, name, commit.seconds * 1000 + _milliseconds(commit))
    (store.git_dir / REFS_LOST).unlink(missing_ok=True)
    for lost in find_lost_refs(store):  # nothing is left of these: that is known now
        if only in (None, lost.facts["project"]):
            note_emptied(store, Project(lost.facts["project"], Path(lost.subject)))


def _list_again(store: Store, project: str, name: str, moment: int) -> None:
    try:
        create_ref(store.git_dir, f"{CHECKPOINTS}/{project}/{moment:013d}-{name[:12]}", name, fsync=store.fsync)
    except RefExists:
        pass


def _project_of(commit: Commit | None) -> str | None:
    """The project that a checkpoint's commit tells; None for commits of another kind."""
    if commit is None or not commit.seconds or "scope" not in commit.body:
        return None
    workdir = commit.body.get("workdir")
    return project_id(workdir) if isinstance(workdir, str) else None


def _milliseconds(commit: Commit) -> int:
    found = commit.body.get("ms")
    return found if isinstance(found, int) and 0 <= found < 1000 else 0


# --- files -----------------------------------------------------------------------------------


def _packed(store: Store) -> tuple[dict[str, str], bool]:
    """The packed refs that can be read, and whether there are lines that cannot."""
    try:
        data = (store.git_dir / "packed-refs").read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return {}, False
    found: dict[str, str] = {}
    *lines, cut = data.split(b"\n")
    strange = bool(cut)
    for line in lines:
        if _PACKED.fullmatch(line):
            found[line[41:].decode("ascii")] = line[:40].decode("ascii")
        elif not line.startswith((b"#", b"^")):
            strange = True
    return found, strange


def _write_packed(store: Store, refs: dict[str, str]) -> None:
    lines = [b"# pack-refs with: sorted \n"]
    lines += [f"{value} {name}\n".encode("ascii") for name, value in sorted(refs.items())]
    write_bytes(store.git_dir / "packed-refs", b"".join(lines), fsync=store.fsync)


def _loose_value(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


MENDS = {
    "packed-refs-damaged": keep_readable_lines,
    "ref-strange": set_ref_aside,
    "ref-damaged": mend_ref,
    "ref-dangling": mend_ref,
    "refs-lost": recover_refs,
}
