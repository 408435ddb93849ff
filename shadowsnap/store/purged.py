"""Which checkpoints were recorded anew because a path was purged from them: `purged/<project>.json`.

A ref is named after its commit, so a checkpoint without the path has a new id. The file leads from every old id
to the checkpoint that took its place. What was purged stays noted in it until its bytes are reclaimed, so that a
purge that was interrupted can be finished.
"""

from __future__ import annotations

from pathlib import Path

from shadowsnap.records import Any, dataclass, field
from shadowsnap.store.atomic import read_json, write_json
from shadowsnap.store.layout import Store

FOLDER = "purged"


@dataclass(frozen=True)
class Purged:
    ids: dict[str, str] = field(default_factory=dict)
    """Old id -> the id of the checkpoint that took its place."""
    paths: tuple[str, ...] = ()
    """What was purged and is not reclaimed yet."""
    blobs: tuple[str, ...] = ()
    """The objects of those paths."""


def purged_file(store: Store, project: str) -> Path:
    return store.git_dir / FOLDER / f"{project}.json"


def read_purged(store: Store, project: str) -> Purged:
    """What is noted of a project; nothing, if that is absent or damaged."""
    record = read_json(purged_file(store, project)) or {}
    ids = record.get("ids")
    pairs = ids.items() if isinstance(ids, dict) else ()
    return Purged(
        {old: new for old, new in pairs if isinstance(new, str) and old != new},
        tuple(_texts(record.get("paths"))),
        tuple(_texts(record.get("blobs"))),
    )


def write_purged(store: Store, project: str, purged: Purged) -> None:
    path = purged_file(store, project)
    path.parent.mkdir(exist_ok=True)
    record = {"ids": purged.ids, "paths": list(purged.paths), "blobs": list(purged.blobs)}
    write_json(path, record, fsync=store.fsync)


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
