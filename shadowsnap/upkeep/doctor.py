"""The doctor: checks of refs, checkpoints and conversations; the table of all checks; and three ways to run them.

`examine` reports what is wrong, `repair` also repairs it, and `repair_quickly` runs after an operation failed:
only the checks that can explain the failure, for one project, and within seconds.

A dangling ref may make git list no refs at all, so each must lead to a readable commit. Lost content is first
looked for elsewhere: in the files that it was captured from, in the stat caches, and in the repository of the
project.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from shadowsnap.base import project_id
from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject, ShadowsnapError, UnsafeTree
from shadowsnap.files import UnreadableFile, read_bounded, write_bytes
from shadowsnap.git.index import Known
from shadowsnap.git.maintenance import read_intact
from shadowsnap.git.objects import EMPTY_TREE, MAX_IN_MEMORY, object_id
from shadowsnap.git.reading import ObjectReader, kinds_of, missing_objects, problem_of_link
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
from shadowsnap.results import Checkup, Finding
from shadowsnap.store.checkpoints import ATTACHMENTS, CHECKPOINTS, moment_of, record_checkpoint
from shadowsnap.store.layout import REFS_LOST, Store, lost_refs
from shadowsnap.store.locks import alone, locked
from shadowsnap.store.log import rename_ids
from shadowsnap.store.projects import (
    Project,
    all_records,
    known_projects,
    may_lack_checkpoints,
    note_emptied,
    read_journal,
    write_journal,
)
from shadowsnap.store.stat_cache import load_cache
from shadowsnap.upkeep import check_store
from shadowsnap.upkeep.check_store import (
    CHECKPOINT_REF,
    OBJECT_ID,
    Commit,
    Examination,
    Ref,
    checkpoint_refs,
    every_ref,
    packed_refs,
    read_commit,
    write_objects,
    write_packed_refs,
)
from shadowsnap.upkeep.reclaim import upkeep_lock

_SHOWN = 5

Objects = Iterator[tuple[str, bytes, bytes]]
"""Id, kind and content of objects."""


# --- refs --------------------------------------------------------------------------------------


def find_refs(examination: Examination) -> Iterator[Finding]:
    """Damaged and dangling refs. The fact `lost` names the objects that are missing."""
    store, project = examination.store, examination.project
    if packed_refs(store)[1]:
        meaning = "it has lines that git does not understand, so git reads no ref at all"
        yield Finding("packed-refs-damaged", "error", "store/packed-refs", meaning)
    refs = [ref for ref in every_ref(store) if project is None or project in ref.name.split("/")]
    values = sorted({ref.value for ref in refs if OBJECT_ID.fullmatch(ref.value)})
    missing = set(missing_objects(examination.git, values))
    with ObjectReader(examination.git) as reader:
        for ref in refs:
            problem = _ref_problem(ref, missing, reader)
            if problem is not None:
                code, why, lost = problem
                meaning = f"{why}: as long as it is there, git may refuse to list the others"
                yield Finding(code, "error", ref.name, meaning, facts={"value": ref.value, "lost": lost})


def _ref_problem(ref: Ref, missing: set[str], reader: ObjectReader) -> tuple[str, str, list[str]] | None:
    """The code of the finding, what is wrong, and the objects that are lost."""
    is_checkpoint = ref.name.startswith(f"{CHECKPOINTS}/")
    if is_checkpoint and not CHECKPOINT_REF.fullmatch(ref.name):
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
    return "ref-dangling", why, [data[5:45].decode("ascii", "replace")]


def repair_packed_refs(examination: Examination, _: Finding) -> None:
    store = examination.store
    packed, has_unreadable = packed_refs(store)
    if has_unreadable:
        examination.quarantine.move(store.git_dir / "packed-refs")
        write_packed_refs(store, packed)


def repair_ref(examination: Examination, finding: Finding) -> None:
    """Write the value of a ref again: `packed-refs` may have it, and the ref of a checkpoint is named after its
    commit. If it is not found, the ref goes to the quarantine."""
    store, ref = examination.store, finding.subject
    candidates = (packed_refs(store)[0].get(ref, ""), commit_in_name(examination.git, ref) or "")
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
    """Move a ref to the quarantine. Done without git, which deletes no ref that it cannot read."""
    store, name = examination.store, finding.subject
    path = store.git_dir / name
    packed, has_unreadable = packed_refs(store)
    if os.path.lexists(path) and not path.is_dir():
        examination.quarantine.move(path)  # a packed ref of the same name counts again
    elif name in packed:
        examination.quarantine.note(f"{name}.json", {"ref": name, "value": packed.pop(name)})
        if not has_unreadable:
            write_packed_refs(store, packed)


# --- lost refs ---------------------------------------------------------------------------------


def find_lost_refs(examination: Examination) -> Iterator[Finding]:
    """Projects that lost all their checkpoints, although none was dropped on purpose."""
    store = examination.store
    if lost_refs(store):
        meaning = "the refs of all checkpoints are gone; the checkpoints themselves may still be there"
        yield Finding("refs-lost", "error", f"store/{CHECKPOINTS}", meaning)
        return
    listed = {ref.project for ref in checkpoint_refs(store)}
    for project, record in all_records(store).items():
        is_named = project not in listed and record.get("workdir")
        if is_named and not may_lack_checkpoints(store, project, record):
            meaning = "its checkpoints are not listed any more, although they were not dropped"
            yield Finding("refs-lost", "error", str(record["workdir"]), meaning, facts={"project": project})


def recover_refs(examination: Examination, finding: Finding) -> None:
    """Create the ref of every checkpoint commit in the store again: of one project, or of all."""
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
    for lost in find_lost_refs(examination):  # no commit of these is left
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
    kinds = _kinds_without_blobs(examination)

    def is_lost(_: bytes, mode: int, name: str) -> bool:
        if mode == DIRECTORY:
            return kinds.get(name) != b"tree"
        return mode != GITLINK and name not in sound

    with ObjectReader(examination.git) as reader:
        search = TreeSearch(reader.tree, is_lost)
        for ref, commit in _sound_commits(examination, reader):
            try:
                missing = [each for each in search.find(commit.tree) if each.id not in sound]
            except (DamagedObject, MalformedObject, UnsafeTree):
                continue  # `find_unsafe` finds it
            if missing:
                yield _incomplete(ref, commit.body.get("workdir", ""), missing)


def _kinds_without_blobs(examination: Examination) -> dict[str, bytes]:
    """The kinds of all readable objects except blobs."""
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
    facts = {"id": ref.value, "workdir": workdir, "missing": paths, "objects": [each.id for each in missing]}
    return Finding("checkpoint-incomplete", "error", ref.name, meaning, facts=facts)


def shorten(names: Iterable[str]) -> str:
    """The first names of a list, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def find_unsafe(examination: Examination) -> Iterator[Finding]:
    """Checkpoints with unsafe entries, or with too many. shadowsnap takes no such snapshots."""
    sound = examination.sound or set()
    kinds = _kinds_without_blobs(examination)
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

        search = TreeSearch(reader.tree, is_odd)
        for ref, commit in _sound_commits(examination, reader):
            try:
                for each in search.find(commit.tree):
                    why = problem(each.path.rpartition(b"/")[2], each.mode, each.id)
                    if why is not None or each.id in sound:
                        name = os.fsdecode(each.path)
                        raise UnsafeTree(name=name, why=why or "there are two of that name")
            except (DamagedObject, MalformedObject, UnsafeTree) as found:
                yield Finding("checkpoint-unsafe", "error", ref.name, str(found))


def find_conversations(examination: Examination) -> Iterator[Finding]:
    """Conversations that lost objects. (One that leads nowhere is a dangling ref.)"""
    sound = examination.sound or set()
    kinds = _kinds_without_blobs(examination)
    with ObjectReader(examination.git) as reader:
        search = TreeSearch(reader.tree, lambda _, __, name: name not in sound)
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
                yield Finding("conversation-damaged", "error", ref.name, meaning, facts={"value": ref.value})


# --- looking for lost objects elsewhere --------------------------------------------------------


def find_missing_object(examination: Examination) -> Iterator[Finding]:
    """The object that an operation could not read, if it is not in the store."""
    name = examination.object
    if OBJECT_ID.fullmatch(name) and missing_objects(examination.git, [name]):
        meaning = "it is not in the store"
        yield Finding("object-missing", "error", name, meaning, "look for its content elsewhere", {"lost": [name]})


def recover_lost(examination: Examination, findings: Sequence[Finding]) -> bool:
    """Write the lost objects of refs and checkpoints again if they are found elsewhere; whether any was."""
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
    """Write lost objects again whose content is found: in the files that they were captured from (as far as these
    are known), in a stat cache, or in the repository of a project. Returns their ids."""
    wanted = set(lost)

    def write(found: Objects) -> None:
        write_objects(store, _discarding_written(wanted, found))

    write(_from_files(lost.items()))
    for project in known_projects(store) if wanted else ():
        cache = load_cache(store, project)
        known = cache.index.lookup(cache.index.paths())
        root = os.fsencode(project.workdir)
        paths = [(each.id, [os.path.join(root, path)]) for path, each in known.items() if each.id in wanted]
        write(_from_files(paths))
        write(_from_cache(known, wanted))
        write(_from_repository(store, project, wanted))
    return set(lost) - wanted


def _discarding_written(wanted: set[str], found: Objects) -> Objects:
    """The same objects; each is removed from `wanted` once it is written."""
    for item in found:
        yield item
        wanted.discard(item[0])


def _from_files(paths_of: Iterable[tuple[str, Iterable[bytes]]]) -> Objects:
    for name, paths in paths_of:
        for path in paths:
            try:
                data = os.readlink(path) if os.path.islink(path) else read_bounded(path, MAX_IN_MEMORY)
            except (OSError, UnreadableFile):  # another kind of file is in its place now
                continue
            if data is not None and object_id(b"blob", data) == name:
                yield name, b"blob", data
                break


def _from_cache(known: dict[bytes, Known], wanted: set[str]) -> Objects:
    """Trees of the newest capture, made again from the files in the cache."""
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
    """Replace a checkpoint by one without the lost files, with the same time, pin and label. The quarantine gets
    the original commit."""
    store, git, ref, old = examination.store, examination.git, finding.subject, finding.facts["id"]
    lost: list[str] = finding.facts["missing"]
    with ObjectReader(git) as reader:
        commit = read_commit(reader, old)
        if commit is None:
            return
        removed: dict[bytes, Leaf | None] = {os.fsencode(path.rstrip("/")): None for path in lost}
        tree = reader.changed_tree(commit.tree, removed, store.objects)
        original = reader.read(old, b"commit").decode("utf-8", "replace")
    body = {**commit.body, "mended_from": old}
    body["skipped"] = [*body.get("skipped", []), *([path, "damaged"] for path in lost)]
    project = Project(ref.split("/")[2], Path(body.get("workdir", "")))
    new = record_again(store, project, ref, tree, commit.reason, body)
    examination.quarantine.note(f"{ref}.json", {"ref": ref, "lost": lost, "commit": original, "mended": new.value})
    renamed = {ref.rpartition("/")[2]: new.name.rpartition("/")[2]}
    replaced = redirect_refs(store, git, project, renamed, {old: new.value})
    redirect_records(store, project, renamed, {old: new.value})
    delete_refs(git, replaced)


def record_again(
    store: Store, project: Project, old_ref: str, tree: str, reason: str, body: Mapping[str, Any]
) -> Ref:
    """Record a checkpoint in the place of another one, with the same time. The same content gives the same ref, so
    an interrupted operation can be repeated."""
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
    """Point pins, labels and conversations to the checkpoints that replace others. `renamed` maps the last parts
    of their refs, `ids` the commits. Returns the refs that can be deleted then."""
    replaced = [f"{project.refs}/{old}" for old in renamed]
    for folder in (project.pins, project.attachments):
        for name, value in read_refs(store.git_dir, folder).items():
            if name in renamed:
                _create_ref(store, f"{folder}/{renamed[name]}", ids.get(value, value))
                replaced.append(f"{folder}/{name}")
    for key, value in read_refs(store.git_dir, project.labels).items():
        if value in ids:
            set_ref(git, f"{project.labels}/{key}", ids[value])
    return replaced


def redirect_records(store: Store, project: Project, renamed: Mapping[str, str], ids: Mapping[str, str]) -> None:
    """Name the replacing checkpoints in open stages, a begun restore and the log."""
    journal = read_journal(store, project)
    begun = journal.open
    if begun is not None:
        before, target = (ids.get(name, name) for name in (begun.before, begun.target))
        begun = replace(begun, before=before, target=target)
    stages = tuple(replace(stage, before=ids.get(stage.before, stage.before)) for stage in journal.stages)
    new = replace(journal, open=begun, stages=stages)
    if new != journal:
        write_journal(store, project, new)
    refs = {f"{project.attachments}/{old}": f"{project.attachments}/{name}" for old, name in renamed.items()}
    rename_ids(store, project.id, {**ids, **refs})


# --- the table of checks -----------------------------------------------------------------------
# The order matters: first what git needs to open the store, then the object files, then what is made of them. Each
# check finds more once the ones before it are repaired.

# Nested damage shows itself level by level: closed directories, trees that were missing.
_MOST_ROUNDS = 100
# An agent waits for a quick repair.
_QUICK_SECONDS = 10.0
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_SPACE_MESSAGES = ("No space left on device", "Disk quota exceeded", "File too large")

NEVER, AFTER_GIT_ERROR, AFTER_ANY_ERROR = "never", "after an error of git", "after any error"
Repair = tuple[str, Callable[[Examination, Finding], None]]
"""A repair in words, and the function that makes it."""


@dataclass(frozen=True)
class Check:
    find: Callable[[Examination], Iterable[Finding]]
    repairs: Mapping[str, Repair]
    """How to repair each kind of finding, by its code. A finding of another code is only reported."""
    recover: Callable[[Examination, Sequence[Finding]], bool] | None = None
    """Tried before `repairs`, for all findings together: looks for lost content elsewhere. If it finds any, the
    check starts again."""
    quick: str = NEVER
    """When a quick repair makes this check."""
    full: bool = True
    """Whether an examination of the whole store makes this check."""

    def findings(self, examination: Examination) -> list[Finding]:
        """The findings of this check, each with its repair in words."""
        words = {code: text for code, (text, _) in self.repairs.items()}
        found = self.find(examination)
        return [replace(each, repair=each.repair or words.get(each.code, "")) for each in found]


_MOVED: Repair = ("move it to the quarantine", check_store.quarantine_file)
_FOLDER: Repair = ("move it to the quarantine and make the folder", check_store.make_folder)
_REF: Repair = ("write it again if its commit is in the store; else move it to the quarantine", repair_ref)
_LOG: Repair = (
    "write it again from what can be read and from the checkpoints; a copy goes to the quarantine",
    check_store.rebuild_operation_log,
)

_WITHOUT_LOST = (
    "look for the content elsewhere; if it is not found, record the checkpoint again without it, so that "
    "everything else can be restored"
)

# Before the store can be locked.
ACCESS = (
    Check(check_store.find_permissions, {
        "base-open": ("set its mode to 0700", check_store.close_to_others),
        "closed": ("give its owner access again", check_store.open_to_owner),
    }, quick=AFTER_ANY_ERROR),
    Check(check_store.find_leads_elsewhere, {"leads-elsewhere": _MOVED}, quick=AFTER_ANY_ERROR),
    Check(check_store.find_blocked_locks, {
        "folder-replaced": _FOLDER,
        "lock-replaced": _MOVED,
    }, quick=AFTER_ANY_ERROR),
)  # fmt: skip
# Before git can open the store.
STRUCTURE = (
    Check(check_store.find_layout, {
        "folder-missing": ("make it", check_store.make_folder),
        "folder-replaced": _FOLDER,
        "file-damaged": ("write it again; the present file goes to the quarantine", check_store.write_file),
    }, quick=AFTER_ANY_ERROR),
    Check(find_lost_refs, {
        "refs-lost": ("search the objects of the store for checkpoints and list them again", recover_refs),
    }, quick=AFTER_ANY_ERROR),
)  # fmt: skip
CONTENT = (
    Check(check_store.find_old_git, {}),
    Check(check_store.find_stale_locks, {
        "lock-stale": ("remove it", check_store.remove_lock),
    }, quick=AFTER_ANY_ERROR),
    Check(check_store.find_leftovers, {"leftover": ("remove it", check_store.remove_leftover)}),
    Check(check_store.find_damaged_objects, {
        "pack-damaged": (
            "move it to the quarantine, and write every object in it again that can still be read",
            check_store.repair_pack,
        ),
        "object-damaged": (
            "move it to the quarantine, and look for its content in the project's files and elsewhere",
            check_store.repair_object,
        ),
        "object-shared": ("replace it by a copy that was checked", check_store.own_object),
    }, quick=AFTER_GIT_ERROR),
    # Before refs and checkpoints: lost objects are looked for in every project that has a record.
    Check(check_store.find_records, {
        "record-damaged": (
            "write it again from the project's checkpoints; the present file goes to the quarantine",
            check_store.rewrite_record,
        ),
    }, quick=AFTER_ANY_ERROR),
    Check(find_missing_object, {}, recover=recover_lost, quick=AFTER_GIT_ERROR, full=False),
    Check(find_refs, {
        "packed-refs-damaged": (
            "keep the lines that can be read; the present file goes to the quarantine", repair_packed_refs,
        ),
        "ref-strange": ("move it to the quarantine", quarantine_checkpoint_ref),
        "ref-damaged": _REF,
        "ref-dangling": _REF,
    }, recover=recover_lost, quick=AFTER_GIT_ERROR),
    Check(find_incomplete, {
        "checkpoint-incomplete": (_WITHOUT_LOST, record_without_lost),
    }, recover=recover_lost),
    Check(find_unsafe, {"checkpoint-unsafe": ("move it to the quarantine", quarantine_checkpoint_ref)}),
    Check(find_conversations, {
        "conversation-damaged": ("move it to the quarantine; the checkpoint stays as it is", quarantine_ref),
    }),
    Check(check_store.find_logs, {"log-damaged": _LOG, "log-lost": _LOG}, quick=AFTER_ANY_ERROR),
    Check(check_store.find_journals, {"journal-damaged": _MOVED, "journal-left": _MOVED}),
    Check(check_store.find_staging, {"staging-left": _MOVED}),
    Check(check_store.find_caches, {
        "cache-damaged": ("forget it; the next snapshot reads every file again", check_store.forget_index),
    }, quick=AFTER_ANY_ERROR),
    Check(check_store.find_clock, {}),
)  # fmt: skip
CHECKS = (*ACCESS, *STRUCTURE, *CONTENT)
REPAIRABLE = {code for check in CHECKS for code in check.repairs}
"""The codes of findings that can be repaired."""


def examine(base: Path, deadline: Deadline, *, fsync: bool = True) -> Checkup:
    """Report everything that is wrong, and change nothing."""
    store = Store(base, fsync)
    if not base.is_dir():
        return Checkup(str(base))
    newer = check_store.find_newer_format(store)
    if newer is not None:
        return Checkup(str(base), (newer,))
    examination = Examination(store)
    found = ACCESS[0].findings(examination)
    if not _has_error(found):
        if not os.path.lexists(store.git_dir):
            return Checkup(str(base), tuple(found))
        found += _find(examination, [*ACCESS[1:], *STRUCTURE])
    if _has_error(found):
        meaning = "git cannot open the store as it is, so its checkpoints were not examined"
        return Checkup(str(base), (*found, Finding("not-examined", "info", "store", meaning)))
    with locked(store.store_lock(), "doctor", deadline, shared=True, looking=True):
        return _examine_content(examination, found)


def _find(examination: Examination, checks: Iterable[Check]) -> list[Finding]:
    return [finding for check in checks if check.full for finding in check.findings(examination)]


def _has_error(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _examine_content(examination: Examination, found: list[Finding]) -> Checkup:
    """Examine a store that git can open."""
    # Listed before the objects are read: what a snapshot records meanwhile does not count as missing.
    refs = check_store.checkpoint_refs(examination.store)
    found = [*found, *_find(examination, CONTENT)]
    damaged = {finding.subject for finding in found}
    intact = sum(ref.name not in damaged for ref in refs)
    return Checkup(str(examination.store.base), tuple(found), checkpoints=len(refs), intact=intact)


def repair(base: Path, deadline: Deadline, *, fsync: bool = True) -> Checkup:
    """Repair what an examination finds. What cannot be saved goes to the quarantine. Nothing is run or written in
    a store of another user."""
    before = examine(base, deadline, fsync=fsync)
    if not any(finding.code in REPAIRABLE for finding in before.findings) or check_store.is_foreign(
        Store(base, fsync)
    ):
        return before
    repairing, done = Examination(Store(base, fsync)), list[Finding]()
    with ExitStack() as locks:
        _repair(repairing, [check for check in CHECKS if check.full], done, deadline, locks)
        examination = Examination(repairing.store)
        after = _examine_content(examination, _find(examination, ACCESS))
    # Some findings disappear with others: a checkpoint is complete again once its object is back.
    repaired: list[Finding] = []
    for finding in (*(finding for finding in before.findings if finding.code in REPAIRABLE), *done):
        if finding not in repaired and finding not in after.findings:
            repaired.append(finding)
    quarantine = repairing.quarantine.used
    return replace(
        after,
        findings=(*repaired, *after.findings),
        repaired=tuple(repaired),
        set_aside=str(quarantine) if quarantine else None,
        applied=True,
    )


def _repair(
    examination: Examination, checks: Iterable[Check], done: list[Finding], deadline: Deadline, locks: ExitStack
) -> None:
    """Run checks and repair what they find; repaired findings are added to `done`. The store is locked once its
    locks work."""
    is_locked = False
    for check in checks:
        if check not in ACCESS and not is_locked:
            if check_store.is_foreign(examination.store):  # not known while the base was closed
                return
            if not examination.quick:
                locks.enter_context(locked(upkeep_lock(examination.store), "doctor", deadline))
            locks.enter_context(alone(examination.store.store_lock(), "doctor", deadline))
            is_locked = True
        for finding in _repair_until_clean(examination, check):
            done.append(finding)  # one by one: the next repair may fail


def _repair_until_clean(examination: Examination, check: Check) -> Iterator[Finding]:
    """Repair what a check finds until it finds nothing new. Yields what was repaired."""
    found, tried = check.findings(examination), list[Finding]()
    for _ in range(_MOST_ROUNDS):
        if not found:
            return
        if check.recover is not None and check.recover(examination, found):
            left = check.findings(examination)
            if left != found:
                yield from (finding for finding in found if finding not in left)
                found = [finding for finding in left if finding not in tried]
                continue
        for finding in found:
            if finding.code in check.repairs:
                try:
                    check.repairs[finding.code][1](examination, finding)
                except (OSError, ShadowsnapError):
                    continue  # it is found again at the end, and reported
                yield finding
        tried += found
        found = [finding for finding in check.findings(examination) if finding not in tried]


# --- after an operation failed -----------------------------------------------------------------


def is_disk_full(problem: BaseException | None) -> bool:
    """Whether an operation failed for lack of disk space: then nothing is damaged."""
    while problem is not None:
        if isinstance(problem, OSError) and problem.errno in _NO_SPACE:
            return True
        if isinstance(problem, GitFailed) and any(text in str(problem) for text in _NO_SPACE_MESSAGES):
            return True
        problem = problem.__cause__
    return False


def repair_quickly(
    base: Path, project: Project, problem: Exception, deadline: Deadline, *, fsync: bool
) -> Checkup:
    """Repair what may have made an operation on this project fail."""
    store = Store(base, fsync)
    if not base.is_dir() or check_store.find_newer_format(store) is not None:
        return Checkup(str(base))
    left = deadline.remaining()
    deadline = Deadline(_QUICK_SECONDS if left is None else max(0.1, min(left, _QUICK_SECONDS)))
    examination = Examination(store, deadline, project.id, _unreadable_object(problem))
    when = (AFTER_ANY_ERROR,) if isinstance(problem, OSError) else (AFTER_ANY_ERROR, AFTER_GIT_ERROR)
    done: list[Finding] = []
    with ExitStack() as locks, suppress(ShadowsnapError, OSError):
        # If another process holds the lock, or it takes too long, what was repaired so far counts.
        _repair(examination, [check for check in CHECKS if check.quick in when], done, deadline, locks)
    quarantine = examination.quarantine.used
    return Checkup(str(base), tuple(done), tuple(done), str(quarantine) if quarantine else None, applied=True)


def _unreadable_object(problem: Exception) -> str:
    """The object that could not be read, if the error names it."""
    if isinstance(problem, DamagedObject):
        return str(problem.facts.get("id", ""))
    found = re.search(r"\b[0-9a-f]{40}\b", str(problem))
    return found[0] if found else ""
