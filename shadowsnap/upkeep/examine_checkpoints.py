"""Checkpoints: whether everything they consist of is there, and what becomes of those that lost
something: they are recorded anew without it, so that all the rest can be restored."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from shadowsnap.git.index import Known
from shadowsnap.git.names import name_problem
from shadowsnap.git.objects import EMPTY_TREE, object_id
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.refs import delete_refs, read_ref, read_refs, set_ref
from shadowsnap.git.runner import Git
from shadowsnap.git.trees import DIRECTORY, Leaf, patch_tree
from shadowsnap.git.treesearch import Sighting, TreeSearch
from shadowsnap.git.verify import read_whole
from shadowsnap.model import Finding
from shadowsnap.store.checkpoints import record_checkpoint
from shadowsnap.store.journal import Step, read_journal, write_journal
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project
from shadowsnap.store.scancache import load_cache
from shadowsnap.store.tips import attachment_of
from shadowsnap.upkeep.examine_objects import write_objects
from shadowsnap.upkeep.examine_projects import recorded_projects
from shadowsnap.upkeep.examine_refs import checkpoint_refs, read_commit, set_ref_aside
from shadowsnap.upkeep.quarantine import Quarantine

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


def _incomplete(ref: str, name: str, workdir: str, missing: list[Sighting]) -> Finding:
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
        yield from read_whole(store.git().bound(scratch_objects=objects), sorted(wanted))


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
    journal = read_journal(store, project)
    moved = replace(journal, undo=_renamed(journal.undo, old, new), redo=_renamed(journal.redo, old, new))
    if moved != journal:
        write_journal(store, project, moved)


def _renamed(steps: tuple[Step, ...], old: str, new: str) -> tuple[Step, ...]:
    return tuple(replace(step, checkpoint=new) if step.checkpoint == old else step for step in steps)


MENDS = {"checkpoint-incomplete": record_without, "checkpoint-unsafe": set_ref_aside}
