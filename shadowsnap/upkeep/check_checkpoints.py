"""Refs: each must lead to a commit that can be read, or it hides all the others from git."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap import lightjson as json
from shadowsnap.errors import DamagedObject, GitFailed
from shadowsnap.files import read_json, write_bytes, write_json
from shadowsnap.git.index import Known
from shadowsnap.git.maintenance import read_intact
from shadowsnap.git.objects import EMPTY_TREE, object_id
from shadowsnap.git.reading import ObjectReader, missing_objects
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
from shadowsnap.git.trees import DIRECTORY, Leaf, TreeMatch, TreeSearch, name_problem, patch_tree
from shadowsnap.model import Finding
from shadowsnap.store.checkpoints import ATTACHMENTS, attachment_of, record_checkpoint
from shadowsnap.store.journal import journal_from, read_journal
from shadowsnap.store.layout import FORMAT, REFS_LOST, Store, lost_refs
from shadowsnap.store.log import rename_ids
from shadowsnap.store.projects import Project, all_records, note_emptied, project_id, was_emptied
from shadowsnap.store.stat_cache import ScanCache, load_cache, objects_taken_for_stored
from shadowsnap.upkeep.check_objects import write_objects
from shadowsnap.upkeep.quarantine import Quarantine, inside, set_aside

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
    if not may_point_to(ref.name, ref.value):
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
        candidates = (_packed(store)[0].get(ref, ""), commit_in_name(git, ref) or "")
        value = next((each for each in candidates if may_point_to(ref, each) and read_commit(reader, each)), None)
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


_SHOWN = 5
_GITLINK = 0o160000


def find_incomplete(store: Store, git: Git, sound: set[str]) -> Iterator[Finding]:
    """Checkpoints whose files are not all there any more. (Those without a readable commit or tree
    are dangling refs.)"""
    with ObjectReader(git) as reader:
        search = TreeSearch(
            lambda name: reader.read(name, b"tree"),
            lambda _, mode, name: mode != _GITLINK and name not in sound and name != EMPTY_TREE,
        )
        for ref in checkpoint_refs(store):
            commit = read_commit(reader, ref.value) if ref.value in sound else None
            if commit is not None and (commit.tree in sound or commit.tree == EMPTY_TREE):
                missing = [each for each in search.find(commit.tree) if each.id not in sound]
                if missing:
                    yield _incomplete(ref.name, ref.value, commit.body.get("workdir", ""), missing)


def find_unsafe(store: Store, git: Git, sound: set[str]) -> Iterator[Finding]:
    """Checkpoints with a name in them that must not be written out: no snapshot of ours has one."""
    with ObjectReader(git) as reader:
        search = TreeSearch(
            lambda name: reader.read(name, b"tree"),
            lambda name, mode, child: name_problem(name) is not None or (mode == DIRECTORY and child not in sound),
        )
        for ref in checkpoint_refs(store):
            commit = read_commit(reader, ref.value) if ref.value in sound else None
            odd = search.find(commit.tree) if commit is not None and commit.tree in sound else []
            odd = [each for each in odd if each.mode != DIRECTORY or each.id in sound]
            if odd:
                name = ascii(os.fsdecode(odd[0].path))
                meaning = f"it holds {name}, which could be written outside of the project or into a repository"
                yield Finding("checkpoint-unsafe", "error", ref.name, meaning, "set it aside")


def _incomplete(ref: str, name: str, workdir: str, missing: list[TreeMatch]) -> Finding:
    shown = [os.fsdecode(item.path) + ("/" if item.mode == DIRECTORY else "") for item in missing]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    meaning = f"checkpoint {name[:8]} of {workdir} lost {', '.join(shown[:_SHOWN])}{more}"
    repair = (
        "look for the content elsewhere; if it is nowhere, record the checkpoint anew without it: everything "
        "else can then be restored"
    )
    facts = {"id": name, "workdir": workdir, "missing": shown, "objects": [item.id for item in missing]}
    return Finding("checkpoint-incomplete", "error", ref, meaning, repair, facts)


# --- finding what is missing elsewhere -------------------------------------------------------


Found = Iterator[tuple[str, bytes, bytes]]
"""Objects: id, kind, content."""


def recover_objects(store: Store, missing: Mapping[str, Iterable[bytes]]) -> set[str]:
    """Write objects again whose content is still somewhere: in the files they were captured from (given
    for each, as far as known), in what is known of a project, or in the person's own repository.
    Returns those that are back."""
    wanted = set(missing)
    write_objects(store, _off(wanted, _from_files(missing.items())))
    for project in recorded_projects(store) if wanted else ():
        cache = load_cache(store, project)
        known = cache.index.lookup(cache.index.paths())
        root = os.fsencode(project.workdir)
        places = [(each.id, [os.path.join(root, path)]) for path, each in known.items() if each.id in wanted]
        write_objects(store, _off(wanted, _from_files(places)))
        write_objects(store, _off(wanted, _trees_of(known, wanted)))
        write_objects(store, _off(wanted, _from_repository(store, project, wanted)))
    return set(missing) - wanted


def _off(wanted: set[str], found: Found) -> Found:
    for item in found:
        yield item
        wanted.discard(item[0])


def _from_files(places: Iterable[tuple[str, Iterable[bytes]]]) -> Found:
    for name, paths in places:
        for path in paths:
            try:
                data = os.readlink(path) if os.path.islink(path) else _content(path)
            except OSError:
                continue
            if object_id(b"blob", data) == name:
                yield name, b"blob", data
                break


def _content(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _trees_of(known: dict[bytes, Known], wanted: set[str]) -> Found:
    """The newest capture is known file by file, so each of its trees can be made again."""
    made: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        name = object_id(b"tree", data)
        made[name] = data
        return name

    def read(name: str) -> bytes:
        return made[name]

    patch_tree(EMPTY_TREE, {path: (entry.mode, entry.id) for path, entry in known.items()}, read, keep)
    for name in sorted(made.keys() & wanted):
        yield name, b"tree", made[name]


def _from_repository(store: Store, project: Project, wanted: set[str]) -> Found:
    objects = project.workdir / ".git" / "objects"
    if wanted and objects.is_dir():
        # Their objects stand before ours, only to be read.
        yield from read_intact(store.git().bound(scratch_objects=objects), sorted(wanted))


# --- recording anew --------------------------------------------------------------------------


def record_without(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    """Replace a checkpoint by one that lacks what is lost, at the same moment and with its pin and
    label; what it was is written down beside."""
    git, ref = store.git(), finding.subject
    with ObjectReader(git) as reader:
        commit = read_commit(reader, finding.facts["id"])
        if commit is None:
            return
        workdir = commit.body.pop("workdir", "")
        project = Project(ref.split("/")[2], Path(workdir))
        lost: list[str] = finding.facts["missing"]
        removed: dict[bytes, Leaf | None] = {os.fsencode(path.rstrip("/")): None for path in lost}
        tree = patch_tree(
            commit.tree, removed, lambda name: reader.read(name, b"tree"),
            lambda data: store.objects.write(b"tree", data),
        )  # fmt: skip
        original = reader.read(finding.facts["id"], b"commit")
    skipped = [*commit.body.pop("skipped", []), *([path, "damaged"] for path in lost)]
    body = {**commit.body, "skipped": skipped, "mended_from": finding.facts["id"]}
    body.pop("ms", None)
    moment = int(ref.rpartition("/")[2].partition("-")[0])
    mended = record_checkpoint(store, project, tree, commit.reason, body, moment)
    told = {"ref": ref, "lost": lost, "commit": original.decode("utf-8", "replace"), "mended": mended.id}
    quarantine.note(f"{ref}.json", told)
    _take_place(store, git, project, ref, finding.facts["id"], mended.ref, mended.id)


def _take_place(store: Store, git: Git, project: Project, old_ref: str, old: str, new_ref: str, new: str) -> None:
    """Let pin, label, conversation, undo and redo lead to the new checkpoint."""
    old_name, new_name = old_ref.rpartition("/")[2], new_ref.rpartition("/")[2]
    gone = [old_ref]
    if old_name in read_refs(store.git_dir, project.pins):
        set_ref(git, f"{project.pins}/{new_name}", new)
        gone.append(f"{project.pins}/{old_name}")
    for key, value in read_refs(store.git_dir, project.labels).items():
        if value == old:
            set_ref(git, f"{project.labels}/{key}", new)
    attached = read_ref(store.git_dir, attachment_of(old_ref))
    if attached is not None:
        set_ref(git, attachment_of(new_ref), attached)
        gone.append(attachment_of(old_ref))
    delete_refs(git, gone)
    rename_ids(store, project.id, {old: new, attachment_of(old_ref): attachment_of(new_ref)})


_PROJECT_ID = re.compile(r"[0-9a-f]{16}")
_STAGING = ".shadowsnap-restore-*"
_CLOCK_SLACK = 120.0


def recorded_projects(store: Store) -> list[Project]:
    """Every project with a sound record."""
    found = []
    for path in sorted((store.git_dir / "projects").glob("*.json")):
        workdir = (read_json(path) or {}).get("workdir")
        if _PROJECT_ID.fullmatch(path.stem) and isinstance(workdir, str):
            found.append(Project(path.stem, Path(workdir)))
    return found


# --- records ---------------------------------------------------------------------------------


def find_records(store: Store, project: str | None = None) -> Iterator[Finding]:
    """Records that say nothing, and projects with checkpoints but without a record."""
    folder = store.git_dir / "projects"
    listed = {path.stem for path in folder.glob("*.json")}
    with_checkpoints = {ref.name.split("/")[2] for ref in checkpoint_refs(store)}
    for name in sorted(listed | with_checkpoints):
        if project is not None and name != project:
            continue
        problem = _record_problem(folder / f"{name}.json")
        if problem is not None:
            meaning = f"{problem}: limits do not know which directory the project is, nor when it was used"
            repair = "write it anew from the project's checkpoints; what is there now is set aside"
            yield Finding("record-damaged", "warning", f"store/projects/{name}.json", meaning, repair)


def _record_problem(path: Path) -> str | None:
    if not os.path.lexists(path):
        return "it is missing"
    record = read_json(path)
    if record is None:
        return "it cannot be read as a JSON object"
    if isinstance(record.get("format"), int) and record["format"] > FORMAT:
        return None  # of a newer version: not ours to judge
    fitting = isinstance(record.get("workdir"), str) and isinstance(record.get("last_touch"), (int, float))
    return None if fitting and _PROJECT_ID.fullmatch(path.stem) else "it lacks what belongs into it"


def write_record(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    path = store.base / finding.subject
    left = read_json(path) or {}
    if os.path.lexists(path):
        quarantine.take(path)
    record = _record_from_checkpoints(store, path.stem)
    if record is not None:
        known = {key: value for key, value in left.items() if _fits(key, value)}
        turn = max(record["turn"], int(known.get("turn", 0)))
        write_json(path, {**known, **record, "turn": turn}, fsync=store.fsync)


def _fits(key: str, value: Any) -> bool:
    return key in ("created_at", "turn", "newest") and isinstance(value, str if key == "newest" else (int, float))


def _record_from_checkpoints(store: Store, project: str) -> dict[str, Any] | None:
    """What the checkpoints of a project tell of it; None if there are none."""
    refs = [ref for ref in checkpoint_refs(store) if ref.name.split("/")[2] == project]
    workdir, turn = None, 0
    with ObjectReader(store.git()) as reader:
        for ref in refs:
            commit = read_commit(reader, ref.value)
            if commit is not None:
                workdir = commit.body.get("workdir", workdir)
                turn = max(turn, commit.body.get("turn") or 0)
    if not isinstance(workdir, str):
        return None
    first, last = (int(ref.name.rpartition("/")[2][:13]) / 1000 for ref in (refs[0], refs[-1]))
    return {"format": FORMAT, "workdir": workdir, "created_at": first, "last_touch": last, "turn": turn}


def find_clock(store: Store) -> Iterator[Finding]:
    """Things dated in the future: the clock was set back, or was wrong before."""
    now = time.time() + _CLOCK_SLACK
    refs = [ref.name.split("/") for ref in checkpoint_refs(store)]
    newest = {project: int(name[:13]) / 1000 for _, _, project, name in refs}
    for project in recorded_projects(store):
        touched = (read_json(store.project_file(project.id)) or {}).get("last_touch")
        if newest.get(project.id, 0.0) > now or (isinstance(touched, (int, float)) and touched > now):
            meaning = (
                "its newest checkpoint or last use lies in the future, so the clock was set back; new checkpoints "
                "are dated right after it until the clock has caught up, and keep their order"
            )
            yield Finding("clock-back", "info", str(project.workdir), meaning)


# --- journal ---------------------------------------------------------------------------------


def find_journals(store: Store, project: str | None = None) -> Iterator[Finding]:
    folder = store.git_dir / "journal"
    for path in sorted(folder.glob("*.json")):
        if (project is None or path.stem == project) and not _is_journal(path):
            meaning = "the record of undo and redo cannot be read; checkpoints are not affected"
            repair = "set it aside; undo and redo start anew"
            yield Finding("journal-damaged", "warning", inside(store, path), meaning, repair)
    for path in sorted(folder.glob("*.damaged")):
        meaning = "a record of undo and redo that could not be read, and was put out of use"
        yield Finding("journal-left", "info", inside(store, path), meaning, "move it to what was set aside")


def _is_journal(path: Path) -> bool:
    """Without `read_journal`, which puts a damaged one out of use at once."""
    record = read_json(path)
    return record is not None and journal_from(record) is not None


def find_staging(store: Store) -> Iterator[Finding]:
    """What a restore left in a project whose journal does not know of it any more."""
    for project in recorded_projects(store):
        journal = store.journal_file(project.id)
        begun = read_journal(store, project).open if _is_journal(journal) else None
        known = set(begun.staging) if begun is not None else set()
        for path in sorted(project.workdir.glob(_STAGING)) if project.workdir.is_dir() else ():
            if path.name not in known and path.is_dir():
                meaning = (
                    "files that a restore had moved aside when it died; the record of it was lost, but every "
                    "version is in the checkpoint taken before it"
                )
                yield Finding("staging-left", "warning", str(path), meaning, "move it to what was set aside")


# --- the memory of the last capture ----------------------------------------------------------


def find_caches(
    store: Store, git: Git, sound: set[str] | None = None, project: str | None = None
) -> Iterator[Finding]:
    """Caches that cannot be read, or that take objects for stored that are not."""
    for path in sorted((store.git_dir / "indexes").glob("*.json")):
        if not _PROJECT_ID.fullmatch(path.stem) or (project is not None and path.stem != project):
            continue
        of = Project(path.stem, Path())
        problem = _cache_problem(load_cache(store, of), git, sound)
        if problem is not None:
            meaning = f"{problem}: the next snapshot could rely on it"
            repair = "forget it; the next snapshot reads every file again"
            yield Finding("cache-damaged", "error", inside(store, path), meaning, repair)


def _cache_problem(cache: ScanCache, git: Git, sound: set[str] | None) -> str | None:
    if not cache.index.path.exists():
        return None  # forgotten before; only what a tool named is still known
    if not len(cache.index) and cache.tree == EMPTY_TREE and not cache.newest:
        return "what the last capture remembered cannot be read"
    try:
        names = objects_taken_for_stored(cache, git)
        lost = names - sound if sound is not None else set(missing_objects(git, sorted(names)))
        if lost:
            return f"{len(lost)} of the objects it takes for stored are missing or damaged"
        held = {path: (known.mode, known.id) for path, known in cache.index.items()}
        if held != _files_of(git, cache.tree):
            return "its index and its tree do not hold the same files"
        newest = read_ref(git.git_dir, cache.newest.get("ref", ""))
        if newest is not None and not held.items() <= _files_of(git, newest).items():
            return "the newest checkpoint does not hold what it takes for captured"
    except GitFailed:
        return "the tree of the last capture is not all there"
    return None


def _files_of(git: Git, tree: str) -> dict[bytes, tuple[int, str]]:
    rows = (row.partition(b"\t") for row in git.run("ls-tree", "-r", "-z", tree).split(b"\0")[:-1])
    return {path: (int(about[:6], 8), about.split()[2].decode()) for about, _, path in rows}


def forget(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    """What a tool named is kept, as far as it can be read: the files themselves do not tell."""
    index = store.index_file(Path(finding.subject).stem)
    if index.is_dir():
        quarantine.take(index)
    else:
        index.unlink(missing_ok=True)


def find_attachments(store: Store, git: Git, sound: set[str]) -> Iterator[Finding]:
    """Attachments that are not whole any more. (Those that lead nowhere are dangling refs.)"""
    with ObjectReader(git) as reader:
        search = TreeSearch(lambda name: reader.read(name, b"tree"), lambda _, __, name: name not in sound)
        for ref in every_ref(store):
            if ref.name.startswith(f"{ATTACHMENTS}/") and ref.value in sound:
                try:
                    missing = search.find(ref.value)
                except DamagedObject:
                    continue  # not a tree: whoever made it knows
                if missing:
                    yield _damaged(ref.name, ref.value, len(missing))


def _damaged(ref: str, value: str, missing: int) -> Finding:
    checkpoint = ref.rpartition("-")[2][:8]
    meaning = f"the conversation that is kept with checkpoint {checkpoint} lost {missing} of its pieces"
    repair = "set it aside; the checkpoint stays as it is"
    return Finding("conversation-damaged", "error", ref, meaning, repair, {"value": value})


def set_attachment_aside(store: Store, finding: Finding, quarantine: Quarantine) -> None:
    remove_refs(store, [finding.subject], quarantine)


REPAIRS = {
    "packed-refs-damaged": keep_readable_lines,
    "ref-strange": set_ref_aside,
    "ref-damaged": mend_ref,
    "ref-dangling": mend_ref,
    "refs-lost": recover_refs,
    "checkpoint-incomplete": record_without,
    "checkpoint-unsafe": set_ref_aside,
    "record-damaged": write_record,
    "journal-damaged": set_aside,
    "journal-left": set_aside,
    "staging-left": set_aside,
    "cache-damaged": forget,
    "conversation-damaged": set_attachment_aside,
}
