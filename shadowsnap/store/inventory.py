"""Every checkpoint of every project at once, in two processes whatever their number."""

from __future__ import annotations

from pathlib import Path

from shadowsnap.errors import DamagedObject
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.objects import ObjectReader
from shadowsnap.model import Checkpoint
from shadowsnap.records import dataclass, replace
from shadowsnap.store.atomic import read_json
from shadowsnap.store.checkpoints import decode_checkpoint
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project
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
    inventory = Inventory(refs, {}, {}, ())
    damaged: list[str] = []
    with ObjectReader(git) as reader:
        for ref in sorted((ref for ref in refs if ref.startswith(f"{CHECKPOINTS}/")), reverse=True):
            _, _, identity, name = ref.split("/", 3)
            project = inventory.projects.get(identity) or _project(store, identity)
            try:
                checkpoint = decode_checkpoint(project, ref, refs[ref], reader.read(refs[ref], b"commit"))
            except DamagedObject:
                damaged.append(ref)
                continue
            if identity not in inventory.projects and not project.workdir.is_absolute():
                project = Project(identity, Path(checkpoint.workdir))  # its record is lost
            inventory.projects[identity] = project
            pinned = f"{PINS}/{identity}/{name}" in refs
            inventory.checkpoints.setdefault(identity, []).append(replace(checkpoint, pinned=pinned))
    return replace(inventory, damaged=tuple(damaged))


def moment_of(ref: str) -> int:
    """The milliseconds that a ref name begins with."""
    digits = ref.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _project(store: Store, identity: str) -> Project:
    record = read_json(store.project_file(identity)) or {}
    return Project(identity, Path(str(record.get("workdir", ""))))
