"""Checks of what objects and files mean: refs, checkpoints, conversations, and the records of projects.

A ref that leads nowhere may hide all the others from git, so each must lead to a commit that can be read.
Content that is lost is looked for elsewhere first: in the files it was captured from, in the stat caches, and
in the repository of the project.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject, UnsafeTree
from shadowsnap.files import parse_json, read_json, write_bytes, write_json
from shadowsnap.git.index import Known
from shadowsnap.git.maintenance import read_intact
from shadowsnap.git.objects import EMPTY_TREE, object_id
from shadowsnap.git.reading import ObjectReader, check_comparable, kinds_of, missing_objects, problem_of_link
from shadowsnap.git.refs import (
    RefExists,
    commit_in_name,
    create_ref,
    delete_refs,
    may_point_to,
    read_ref,
    read_refs,
    set_ref,
)
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, GITLINK, LINK, Leaf, TreeMatch, TreeSearch, entry_problem, patch_tree
from shadowsnap.results import Finding
from shadowsnap.store.checkpoints import ATTACHMENTS, CHECKPOINTS, attachment_of, moment_of, record_checkpoint
from shadowsnap.store.history import rebuild_log
from shadowsnap.store.layout import FORMAT, REFS_LOST, Store, lost_refs
from shadowsnap.store.log import FOLDER as LOGS
from shadowsnap.store.log import log_file, next_number, read_lines, read_log, rename_ids
from shadowsnap.store.projects import (
    Project,
    all_records,
    journal_from,
    may_lack_checkpoints,
    note_emptied,
    project_id,
    read_journal,
    write_journal,
)
from shadowsnap.store.stat_cache import ScanCache, load_cache, objects_taken_for_stored
from shadowsnap.upkeep.check_store import Examination, write_objects

_CHECKPOINT_REF = re.compile(r"refs/shadowsnap/[0-9a-f]{16}/\d{13}-[0-9a-f]{12}")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_PROJECT_ID = re.compile(r"[0-9a-f]{16}")
_PACKED_REF = re.compile(rb"[0-9a-f]{40} refs/[\x21-\x7e]+")
_AUTHOR = re.compile(rb"\nauthor shadowsnap <[^>]*> (\d+) \+0000\n")
_STAGING = ".shadowsnap-restore-*"
_CLOCK_SLACK = 120.0
_SHOWN = 5

Objects = Iterator[tuple[str, bytes, bytes]]
"""Id, kind and content of objects."""


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
    found = _packed_refs(store)[0]
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
    return [ref for ref in every_ref(store) if _CHECKPOINT_REF.fullmatch(ref.name)]


def _packed_refs(store: Store) -> tuple[dict[str, str], bool]:
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


def _write_packed_refs(store: Store, refs: dict[str, str]) -> None:
    lines = [b"# pack-refs with: sorted \n"]
    lines += [f"{value} {name}\n".encode("ascii") for name, value in sorted(refs.items())]
    write_bytes(store.git_dir / "packed-refs", b"".join(lines), fsync=store.fsync)


class Commit(NamedTuple):
    tree: str
    reason: str
    body: dict[str, Any]
    seconds: int


def read_commit(reader: ObjectReader, name: str) -> Commit | None:
    """The commit of a checkpoint; None unless it and its tree can be read and have the right content."""
    if not _OBJECT_ID.fullmatch(name):
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
        body = parse_json(rest)
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    written = _AUTHOR.search(header + b"\n")
    return Commit(tree, body.pop("reason", subject), body, int(written[1]) if written else 0)


# --- refs --------------------------------------------------------------------------------------


def find_refs(examination: Examination) -> Iterator[Finding]:
    """Refs that lead nowhere. The fact `lost` names the objects that would have to come back."""
    store, project = examination.store, examination.project
    if _packed_refs(store)[1]:
        meaning = "it has lines that git does not understand, so git reads no ref at all"
        repair = "keep the lines that can be read; the present file goes to the quarantine"
        yield Finding("packed-refs-damaged", "error", "store/packed-refs", meaning, repair)
    refs = [ref for ref in every_ref(store) if project is None or project in ref.name.split("/")]
    values = sorted({ref.value for ref in refs if _OBJECT_ID.fullmatch(ref.value)})
    missing = set(missing_objects(examination.git, values))
    with ObjectReader(examination.git) as reader:
        for ref in refs:
            problem = _ref_problem(ref, missing, reader)
            if problem is not None:
                code, why, lost = problem
                meaning = f"{why}: as long as it is there, git may refuse to list the others"
                repair = "write it again if its commit is in the store; else move it to the quarantine"
                yield Finding(code, "error", ref.name, meaning, repair, {"value": ref.value, "lost": lost})


def _ref_problem(ref: Ref, missing: set[str], reader: ObjectReader) -> tuple[str, str, list[str]] | None:
    """The code of the finding, what is wrong, and the objects that are lost."""
    is_checkpoint = ref.name.startswith(f"{CHECKPOINTS}/")
    if is_checkpoint and not _CHECKPOINT_REF.fullmatch(ref.name):
        return "ref-strange", "it does not have the name of a checkpoint", []
    if not may_point_to(ref.name, ref.value):
        return "ref-damaged", "it does not name an object", []
    if ref.value in missing:
        return "ref-dangling", f"object {ref.value[:12]} is not in the store", [ref.value]
    if not is_checkpoint or read_commit(reader, ref.value) is not None:
        return None
    why = f"commit {ref.value[:12]} or its tree cannot be read"
    try:
        data = reader.read(ref.value, b"commit")
    except DamagedObject:
        return "ref-dangling", why, [ref.value]
    is_sound = object_id(b"commit", data) == ref.value
    return "ref-dangling", why, [data[5:45].decode("ascii", "replace") if is_sound else ref.value]


def repair_packed_refs(examination: Examination, _: Finding) -> None:
    store = examination.store
    packed, has_unreadable = _packed_refs(store)
    if has_unreadable:
        examination.quarantine.move(store.git_dir / "packed-refs")
        _write_packed_refs(store, packed)


def repair_ref(examination: Examination, finding: Finding) -> None:
    """Give a ref its value back: `packed-refs` may have it, and the ref of a checkpoint is named after its commit.
    Without a value the ref goes to the quarantine."""
    store, ref = examination.store, finding.subject
    candidates = (_packed_refs(store)[0].get(ref, ""), commit_in_name(examination.git, ref) or "")
    with ObjectReader(examination.git) as reader:
        value = next((each for each in candidates if may_point_to(ref, each) and read_commit(reader, each)), None)
    if value is None:
        quarantine_checkpoint_ref(examination, finding)
        return
    if os.path.lexists(store.git_dir / ref):
        examination.quarantine.move(store.git_dir / ref)
    write_bytes(store.git_dir / ref, f"{value}\n".encode("ascii"), fsync=store.fsync)


def quarantine_checkpoint_ref(examination: Examination, finding: Finding) -> None:
    quarantine_ref(examination, finding)
    store, project = examination.store, finding.subject.split("/")[2]
    if not any(ref.project == project for ref in checkpoint_refs(store)):
        workdir = all_records(store).get(project, {}).get("workdir")
        if isinstance(workdir, str):  # otherwise its checkpoints would count as lost
            note_emptied(store, Project(project, Path(workdir)), str(examination.quarantine.used or ""))


def quarantine_ref(examination: Examination, finding: Finding) -> None:
    """Remove a ref and note its value. By hand: git deletes no ref that it cannot read."""
    store, name = examination.store, finding.subject
    path = store.git_dir / name
    packed, has_unreadable = _packed_refs(store)
    if os.path.lexists(path) and not path.is_dir():
        examination.quarantine.move(path)  # a packed ref of the same name counts again
    elif name in packed:
        examination.quarantine.note(f"{name}.json", {"ref": name, "value": packed.pop(name)})
        if not has_unreadable:
            _write_packed_refs(store, packed)


# --- lost refs ---------------------------------------------------------------------------------


def find_lost_refs(examination: Examination) -> Iterator[Finding]:
    """Projects that have no checkpoint any more although none was dropped on purpose."""
    store = examination.store
    repair = "search the objects of the store for checkpoints and list them again"
    if lost_refs(store):
        meaning = "the refs of all checkpoints are gone; the checkpoints themselves may still be there"
        yield Finding("refs-lost", "error", f"store/{CHECKPOINTS}", meaning, repair)
        return
    listed = {ref.project for ref in checkpoint_refs(store)}
    for project, record in all_records(store).items():
        is_named = project not in listed and record.get("workdir")
        if is_named and not may_lack_checkpoints(store, project, record):
            meaning = "its checkpoints are not listed any more, although they were not dropped"
            yield Finding("refs-lost", "error", str(record["workdir"]), meaning, repair, {"project": project})


def recover_refs(examination: Examination, finding: Finding) -> None:
    """Give every checkpoint commit in the store its ref again: of one project, or of all."""
    store, git, only = examination.store, examination.git, finding.facts.get("project")
    listed = git.run("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname)")
    names = [line[7:].decode() for line in listed.splitlines() if line.startswith(b"commit ")]
    with ObjectReader(git) as reader:
        for name in names:
            commit = read_commit(reader, name)
            project = _project_of(commit) if commit is not None else None
            if commit is not None and project is not None and only in (None, project):
                ref = f"{CHECKPOINTS}/{project}/{_milliseconds(commit):013d}-{name[:12]}"
                _create_ref(store, ref, name)
    (store.git_dir / REFS_LOST).unlink(missing_ok=True)
    for lost in find_lost_refs(examination):  # nothing is left of these
        if only in (None, lost.facts["project"]):
            note_emptied(store, Project(lost.facts["project"], Path(lost.subject)))


def _project_of(commit: Commit) -> str | None:
    """The project of a checkpoint's commit; None for other commits."""
    workdir = commit.body.get("workdir")
    is_checkpoint = commit.seconds and "scope" in commit.body and isinstance(workdir, str)
    return project_id(str(workdir)) if is_checkpoint else None


def _milliseconds(commit: Commit) -> int:
    found = commit.body.get("ms")
    return commit.seconds * 1000 + (found if isinstance(found, int) and 0 <= found < 1000 else 0)


def _create_ref(store: Store, ref: str, value: str) -> None:
    try:
        create_ref(store.git_dir, ref, value, fsync=store.fsync)
    except RefExists:
        pass


# --- checkpoints and conversations -------------------------------------------------------------


def find_incomplete(examination: Examination) -> Iterator[Finding]:
    """Checkpoints that lost files. (One without a readable commit or root tree is a dangling ref.)"""
    sound = examination.sound or set()
    kinds = _kinds_but_blobs(examination)

    def is_lost(_: bytes, mode: int, name: str) -> bool:
        if mode == DIRECTORY:
            return kinds.get(name) != b"tree"
        return mode != GITLINK and name not in sound

    with ObjectReader(examination.git) as reader:
        search = TreeSearch(lambda name: reader.read(name, b"tree"), is_lost)
        for ref, commit in _sound_commits(examination, reader):
            try:
                missing = [each for each in search.find(commit.tree) if each.id not in sound]
            except (DamagedObject, MalformedObject, UnsafeTree):
                continue  # `find_unsafe` finds it
            if missing:
                yield _incomplete(ref, commit.body.get("workdir", ""), missing)


def _kinds_but_blobs(examination: Examination) -> dict[str, bytes]:
    """The kinds of all sound objects that are no blobs."""
    kinds = kinds_of(examination.git, examination.sound or ())
    return {name: kind for name, kind in kinds.items() if kind != b"blob"} | {EMPTY_TREE: b"tree"}


def _sound_commits(examination: Examination, reader: ObjectReader) -> Iterator[tuple[Ref, Commit]]:
    sound = examination.sound or set()
    for ref in checkpoint_refs(examination.store):
        commit = read_commit(reader, ref.value) if ref.value in sound else None
        if commit is not None and (commit.tree in sound or commit.tree == EMPTY_TREE):
            yield ref, commit


def _incomplete(ref: Ref, workdir: str, missing: list[TreeMatch]) -> Finding:
    paths = [os.fsdecode(each.path) + ("/" if each.mode == DIRECTORY else "") for each in missing]
    meaning = f"checkpoint {ref.value[:8]} of {workdir} lost {shorten(paths)}"
    repair = (
        "look for the content elsewhere; if it is not found, record the checkpoint again without it, so that "
        "everything else can be restored"
    )
    facts = {"id": ref.value, "workdir": workdir, "missing": paths, "objects": [each.id for each in missing]}
    return Finding("checkpoint-incomplete", "error", ref.name, meaning, repair, facts)


def shorten(names: Iterable[str]) -> str:
    """The first names of a list, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def find_unsafe(examination: Examination) -> Iterator[Finding]:
    """Checkpoints with entries that must not be written out, or with too many. No snapshot of ours has them."""
    sound = examination.sound or set()
    kinds = _kinds_but_blobs(examination)
    with ObjectReader(examination.git) as reader:
        link_problem = cache(partial(problem_of_link, reader))

        def problem(name: bytes, mode: int, child: str) -> str | None:
            if (why := entry_problem(name, mode)) is not None or child not in sound:
                return why
            kind = kinds.get(child, b"blob")
            if kind != (b"tree" if mode == DIRECTORY else b"blob"):
                return f"its content is a {kind.decode()}, which does not fit its mode"
            return link_problem(child) if mode == LINK else None

        def is_odd(name: bytes, mode: int, child: str) -> bool:
            is_lost = child not in sound and child != EMPTY_TREE
            return is_lost or problem(name, mode, child) is not None

        search = TreeSearch(lambda name: reader.read(name, b"tree"), is_odd)
        for ref, commit in _sound_commits(examination, reader):
            try:
                for each in search.find(commit.tree):
                    why = problem(each.path.rpartition(b"/")[2], each.mode, each.id)
                    if why is not None or each.id in sound:
                        name = os.fsdecode(each.path)
                        raise UnsafeTree(name=name, why=why or "there are two of that name")
            except (DamagedObject, MalformedObject, UnsafeTree) as found:
                repair = "move it to the quarantine"
                yield Finding("checkpoint-unsafe", "error", ref.name, str(found), repair)


def find_conversations(examination: Examination) -> Iterator[Finding]:
    """Conversations that lost objects. (One that leads nowhere is a dangling ref.)"""
    sound = examination.sound or set()
    kinds = _kinds_but_blobs(examination)
    with ObjectReader(examination.git) as reader:
        search = TreeSearch(lambda name: reader.read(name, b"tree"), lambda _, __, name: name not in sound)
        for ref in every_ref(examination.store):
            is_attached = ref.name.startswith(f"{ATTACHMENTS}/") and ref.value in sound
            if not is_attached or kinds.get(ref.value) != b"tree":  # what is not a tree, no snapshot made
                continue
            try:
                missing = len(search.find(ref.value))
                problem = f"lost {missing} of its objects" if missing else ""
            except (DamagedObject, MalformedObject, UnsafeTree):
                problem = "cannot be read"
            if problem:
                checkpoint = ref.name.rpartition("-")[2][:8]
                meaning = f"the conversation of checkpoint {checkpoint} {problem}"
                repair = "move it to the quarantine; the checkpoint stays as it is"
                facts = {"value": ref.value}
                yield Finding("conversation-damaged", "error", ref.name, meaning, repair, facts)


# --- looking for lost objects elsewhere --------------------------------------------------------


def find_missing_object(examination: Examination) -> Iterator[Finding]:
    """The object that an operation could not read, if it is not in the store."""
    name = examination.object
    if _OBJECT_ID.fullmatch(name) and missing_objects(examination.git, [name]):
        meaning = "it is not in the store"
        yield Finding("object-missing", "error", name, meaning, "look for its content elsewhere", {"lost": [name]})


def recover_lost(examination: Examination, findings: Sequence[Finding]) -> bool:
    """Write again what refs and checkpoints lost, as far as it is found elsewhere; whether anything was."""
    lost: dict[str, list[bytes]] = {}
    for finding in findings:
        facts = finding.facts
        for name in facts.get("lost", ()):
            lost.setdefault(name, [])
        for name, path in zip(facts.get("objects", ()), facts.get("missing", ()), strict=True):
            lost.setdefault(name, []).append(os.fsencode(os.path.join(facts["workdir"], path)))
    recovered = _recover_objects(examination.store, lost)
    if examination.sound is not None:
        examination.sound |= recovered
    return bool(recovered)


def _recover_objects(store: Store, lost: Mapping[str, Iterable[bytes]]) -> set[str]:
    """Write objects again whose content is in the files they were captured from (given for each, as far as known),
    in a stat cache, or in the repository of a project. Returns their ids."""
    wanted = set(lost)

    def write(found: Objects) -> None:
        write_objects(store, _no_longer(wanted, found))

    write(_from_files(lost.items()))
    for project in recorded_projects(store) if wanted else ():
        cache = load_cache(store, project)
        known = cache.index.lookup(cache.index.paths())
        root = os.fsencode(project.workdir)
        paths = [(each.id, [os.path.join(root, path)]) for path, each in known.items() if each.id in wanted]
        write(_from_files(paths))
        write(_from_cache(known, wanted))
        write(_from_repository(store, project, wanted))
    return set(lost) - wanted


def _no_longer(wanted: set[str], found: Objects) -> Objects:
    """The objects that were found, each taken off `wanted` once it is written."""
    for item in found:
        yield item
        wanted.discard(item[0])


def _from_files(paths_of: Iterable[tuple[str, Iterable[bytes]]]) -> Objects:
    for name, paths in paths_of:
        for path in paths:
            try:
                data = os.readlink(path) if os.path.islink(path) else Path(os.fsdecode(path)).read_bytes()
            except OSError:
                continue
            if object_id(b"blob", data) == name:
                yield name, b"blob", data
                break


def _from_cache(known: dict[bytes, Known], wanted: set[str]) -> Objects:
    """Trees of the newest capture. The cache knows every file of it, so each tree can be made again."""
    made: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        name = object_id(b"tree", data)
        made[name] = data
        return name

    patch_tree(EMPTY_TREE, {path: (entry.mode, entry.id) for path, entry in known.items()}, made.__getitem__, keep)
    for name in sorted(made.keys() & wanted):
        yield name, b"tree", made[name]


def _from_repository(store: Store, project: Project, wanted: set[str]) -> Objects:
    objects = project.workdir / ".git" / "objects"
    if wanted and objects.is_dir():
        # As the scratch directory it comes before our objects, and is only read.
        yield from read_intact(store.git().bound(scratch_objects=objects), sorted(wanted))


# --- recording a checkpoint again --------------------------------------------------------------


def record_without_lost(examination: Examination, finding: Finding) -> None:
    """Replace a checkpoint by one without what is lost, with the same time, pin and label. The original commit is
    noted in the quarantine."""
    store, git, ref, old = examination.store, examination.git, finding.subject, finding.facts["id"]
    lost: list[str] = finding.facts["missing"]
    with ObjectReader(git) as reader:
        commit = read_commit(reader, old)
        if commit is None:
            return
        removed: dict[bytes, Leaf | None] = {os.fsencode(path.rstrip("/")): None for path in lost}
        tree = patch_tree(
            commit.tree,
            removed,
            lambda name: reader.read(name, b"tree"),
            lambda data: store.objects.write(b"tree", data),
        )
        original = reader.read(old, b"commit").decode("utf-8", "replace")
    body = {**commit.body, "mended_from": old}
    body["skipped"] = [*body.get("skipped", []), *([path, "damaged"] for path in lost)]
    project = Project(ref.split("/")[2], Path(body.get("workdir", "")))
    new = record_again(store, project, ref, tree, commit.reason, body)
    examination.quarantine.note(f"{ref}.json", {"ref": ref, "lost": lost, "commit": original, "mended": new.value})
    renamed = {ref.rpartition("/")[2]: new.name.rpartition("/")[2]}
    replaced = redirect_refs(store, git, project, renamed, {old: new.value})
    delete_refs(git, replaced)
    redirect_journal(store, project, {old: new.value})
    rename_ids(store, project.id, {old: new.value, attachment_of(ref): attachment_of(new.name)})


def record_again(
    store: Store, project: Project, old_ref: str, tree: str, reason: str, body: Mapping[str, Any]
) -> Ref:
    """Record a checkpoint in the place of another one, with the same time. The same content gives the same ref, so
    an interrupted operation can do it again."""
    facts = {name: value for name, value in body.items() if name not in ("workdir", "ms")}
    of = Project(project.id, Path(str(body.get("workdir", project.workdir))))
    try:
        ref = record_checkpoint(store, of, tree, reason, facts, moment_of(old_ref)).ref
    except RefExists as known:
        ref = str(known)
    return Ref(ref, str(read_ref(store.git_dir, ref)))


def redirect_refs(
    store: Store, git: Git, project: Project, renamed: Mapping[str, str], ids: Mapping[str, str]
) -> list[str]:
    """Let pins, labels and conversations lead to the checkpoints that replace others. `renamed` has the last parts
    of their refs, `ids` the commits. Returns the refs that can be deleted then."""
    replaced = [f"{project.refs}/{old}" for old in renamed]
    for folder in (project.pins, f"{ATTACHMENTS}/{project.id}"):
        for name, value in read_refs(store.git_dir, folder).items():
            if name in renamed:
                _create_ref(store, f"{folder}/{renamed[name]}", ids.get(value, value))
                replaced.append(f"{folder}/{name}")
    for key, value in read_refs(store.git_dir, project.labels).items():
        if value in ids:
            set_ref(git, f"{project.labels}/{key}", ids[value])
    return replaced


def redirect_journal(store: Store, project: Project, ids: Mapping[str, str]) -> None:
    """Let open stages and a begun restore lead to the checkpoints that replace others."""
    journal = read_journal(store, project)
    begun = journal.open
    if begun is not None:
        before, target = (ids.get(name, name) for name in (begun.before, begun.target))
        begun = replace(begun, before=before, target=target)
    stages = tuple(replace(stage, before=ids.get(stage.before, stage.before)) for stage in journal.stages)
    new = replace(journal, open=begun, stages=stages)
    if new != journal:
        write_journal(store, project, new)


# --- records of projects -----------------------------------------------------------------------


def recorded_projects(store: Store) -> list[Project]:
    """Every project with a sound record."""
    return [
        Project(name, Path(record["workdir"]))
        for name, record in sorted(all_records(store).items())
        if _PROJECT_ID.fullmatch(name) and isinstance(record.get("workdir"), str)
    ]


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
            repair = "write it again from the project's checkpoints; the present file goes to the quarantine"
            yield Finding("record-damaged", "warning", f"store/projects/{project}.json", meaning, repair)


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
    """A project's record as far as its checkpoints and its log know it; None if there are no checkpoints."""
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
    for project in recorded_projects(examination.store):
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
    for project in recorded_projects(store):
        if examination.project in (None, project.id):
            problem = _log_problem(store, project, has_checkpoints=project.id in with_checkpoints)
            if problem is not None:
                code, meaning = problem
                repair = (
                    "write it again from what can be read and from the checkpoints; a copy goes to the quarantine"
                )
                yield Finding(code, "warning", examination.name(log_file(store, project.id)), meaning, repair)


def _log_problem(store: Store, project: Project, *, has_checkpoints: bool) -> tuple[str, str] | None:
    path = log_file(store, project.id)
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
    for project in recorded_projects(store):
        if project.id == path.stem:
            rebuild_log(store, project, examination.deadline)


def find_journals(examination: Examination) -> Iterator[Finding]:
    folder = examination.store.git_dir / "journal"
    for path in sorted(folder.glob("*.json")):
        if not _is_journal(path):
            meaning = "the record of restores and stages under way cannot be read; checkpoints are not affected"
            repair = "move it to the quarantine"
            yield Finding("journal-damaged", "warning", examination.name(path), meaning, repair)
    for path in sorted(folder.glob("*.damaged")):
        meaning = "a record of restores and stages under way that could not be read was renamed to this"
        yield Finding("journal-left", "info", examination.name(path), meaning, "move it to the quarantine")


def _is_journal(path: Path) -> bool:
    """Not by `read_journal`, which renames a damaged one at once."""
    record = read_json(path)
    return record is not None and journal_from(record) is not None


def find_staging(examination: Examination) -> Iterator[Finding]:
    """Staging directories of a restore that the project's journal does not know."""
    store = examination.store
    for project in recorded_projects(store):
        begun = read_journal(store, project).open if _is_journal(store.journal_file(project.id)) else None
        known = begun.staging if begun is not None else ()
        for path in sorted(project.workdir.glob(_STAGING)) if project.workdir.is_dir() else ():
            if path.name not in known and path.is_dir():
                meaning = (
                    "files that a restore had moved when it died; its record was lost, but every version is in "
                    "the checkpoint taken before it"
                )
                yield Finding("staging-left", "warning", str(path), meaning, "move it to the quarantine")


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
            repair = "forget it; the next snapshot reads every file again"
            yield Finding("cache-damaged", "error", examination.name(path), meaning, repair)


def _cache_problem(cache: ScanCache, git: Git, sound: set[str] | None) -> str | None:
    if not cache.index.path.exists():
        return None  # forgotten before; only what a tool named is still known
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
    """Remove the index. What a tool named stays, because only the cache knows it."""
    index = examination.store.index_file(Path(finding.subject).stem)
    if index.is_dir():
        examination.quarantine.move(index)
    else:
        index.unlink(missing_ok=True)
