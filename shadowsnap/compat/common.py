"""What the faces share: the capture rules of the original system, and which checkpoints are a face's own."""

from __future__ import annotations

import os
from typing import Any

from shadowsnap.base import configured_base
from shadowsnap.errors import ShadowsnapError
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint
from shadowsnap.settings import load_settings

ERRORS = (ShadowsnapError, OSError, ValueError, TypeError, AttributeError, RuntimeError)
"""What a face that never raises turns into an answer."""
# Nothing of the defaults is excluded, but for repositories, and what a restore that is under way leaves.
_NO_DEFAULTS = ("!*", ".git/", ".shadowsnap-restore-*/")
_LIMITS = ("max_snapshots", "max_total_size_mb", "retention_days")


def open_manager(base: str | os.PathLike[str], excludes: list[str], **settings: Any) -> CheckpointManager:
    """A manager that captures what the original system captured: its excludes take the place of the defaults,
    files that look like secrets are no exception, and there is no limit that is not given here. In the store
    that all hosts share the person's own limits hold, since upkeep keeps them for every project."""
    limits: dict[str, Any] = dict.fromkeys((*_LIMITS, "max_file_size_mb"), 0) | settings
    if is_shared(base):
        person = load_settings().settings
        limits |= {name: getattr(person, name) for name in _LIMITS}
    return CheckpointManager(base=base, excludes=(*_NO_DEFAULTS, *excludes), include_secrets=True, **limits)


def is_shared(base: str | os.PathLike[str]) -> bool:
    """Whether this is the base that all hosts use, and not one of a face's own."""
    return os.path.realpath(base) == os.path.realpath(configured_base())


def own_checkpoints(manager: CheckpointManager, workdir: str, face: str) -> list[Checkpoint]:
    """The checkpoints of a directory that a face, or the system that it stands for, recorded. In a base of the
    face's own, that is all of them."""
    found = manager.list_checkpoints(workdir)
    if not is_shared(manager.settings.resolved_base()):
        return found
    facts = [(each.metadata.get("face"), str(each.metadata.get("imported_from"))) for each in found]
    own = [recorded == face or imported.startswith(face) for recorded, imported in facts]
    return [each for each, is_own in zip(found, own, strict=True) if is_own]


def drop_own(manager: CheckpointManager, workdir: str, face: str) -> None:
    """Delete what a face recorded of a directory. What restores saved on the way goes with it, unless another
    host has checkpoints there."""
    own = {each.id for each in own_checkpoints(manager, workdir, face)}
    others = [each for each in manager.list_checkpoints(workdir) if each.id not in own]
    if all(each.kind == "pre-restore" for each in others):
        manager.clear(workdir)
    elif own:
        manager.delete(workdir, own)
