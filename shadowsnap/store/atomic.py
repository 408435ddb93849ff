"""Writing small files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
from pathlib import Path

from shadowsnap import lightjson as json
from shadowsnap.git.files import open_temporary, sync_directory
from shadowsnap.records import Any


def write_bytes(path: Path, data: bytes, *, fsync: bool = False) -> None:
    descriptor, temporary = open_temporary(path.parent, f".{path.name}.tmp_")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if fsync:
        sync_directory(path.parent)


def write_json(path: Path, value: Any, *, fsync: bool = False) -> None:
    # ASCII: names that are not UTF-8 survive as escaped surrogates.
    write_bytes(path, json.dumps(value, separators=(",", ":")).encode("ascii"), fsync=fsync)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if the file is absent, damaged or something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
