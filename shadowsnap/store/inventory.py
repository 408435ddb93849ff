"""Every checkpoint of every project at once, in two processes whatever their number."""

from __future__ import annotations

from pathlib import Path

from shadowsnap.git.bulk import read_many
from shadowsnap.git.deadline import Deadline
from shadowsnap.model import Checkpoint
from shadowsnap.records import dataclass, replace
from shadowsnap.store.atomic import read_json
from shadowsnap.store.checkpoints import decode_checkpoint, with_new_ids
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project
from shadowsnap.store.purged import read_purged
from shadowsnap.store.tips import ATTACHMENTS, CHECKPOINTS, PINS, all_refs


@dataclass(frozen=True)
class Inventory:
    refs: dict[str, str]
    """Every ref of the store and what it points to."""
    projects: dict[str, Project]
    checkpoints: dict[str, list[Checkpoint]]
    """By project, newest first."""
    damaged: tuple[str, ...] = ()
    """Refs whose checkpoint cannot be read."""

    @property
    def attachments(self) -> dict[str, str]:
        """Refs of attachments, newest first."""
        found = [ref for ref in self.refs if ref.startswith(f"{ATTACHMENTS}/")]
        return {ref: self.refs[ref] for ref in sorted(found, key=moment_of, reverse=True)}


def take_inventory(store: Store, deadline: Deadline) -> Inventory:
    git = store.git(deadline)
    refs = all_refs(git)
    wanted = sorted((ref for ref in refs if ref.startswith(f"{CHECKPOINTS}/")), reverse=True)
    objects = read_many(git, {refs[ref] for ref in wanted})
    commits = {name: data for name, kind, data in objects if kind == b"commit"}
    found = Inventory(refs, {}, {}, tuple(ref for ref in wanted if refs[ref] not in commits))
    for ref in wanted:
        if refs[ref] in commits:
            _take_in(store, found, ref, commits[refs[ref]])
    for project, listed in found.checkpoints.items():
        if ids := read_purged(store, project).ids:
            listed[:] = [with_new_ids(checkpoint, ids) for checkpoint in listed]
    return found


def _take_in(store: Store, found: Inventory, ref: str, commit: bytes) -> None:
    _, _, identity, name = ref.split("/", 3)
    project = found.projects.get(identity) or _project(store, identity)
    checkpoint = decode_checkpoint(project, ref, found.refs[ref], commit)
    if not project.workdir.is_absolute():
        project = Project(identity, Path(checkpoint.workdir))  # its record is lost
    found.projects[identity] = project
    pinned = f"{PINS}/{identity}/{name}" in found.refs
    found.checkpoints.setdefault(identity, []).append(replace(checkpoint, pinned=pinned))


def moment_of(ref: str) -> int:
    """The milliseconds that a ref name begins with."""
    digits = ref.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _project(store: Store, identity: str) -> Project:
    record = read_json(store.project_file(identity)) or {}
    return Project(identity, Path(str(record.get("workdir", ""))))
