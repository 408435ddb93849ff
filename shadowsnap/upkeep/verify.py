"""Checking now and then that what is stored can be restored: the newest checkpoint of each project.

When that last held is kept in the project's record, for `status`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded, LockTimeout, NoSuchCheckpoint, StoreUnusable
from shadowsnap.files import write_json
from shadowsnap.results import Verification
from shadowsnap.snapshot.copies import verify
from shadowsnap.store.checkpoints import newest_checkpoint
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, all_records, known_projects, locked_project, read_record
from shadowsnap.store.troubles import append_log

_EVERY = 7 * 86400.0
"""So many seconds pass before the newest checkpoint of a project is verified again."""


def verify_newest(store: Store, deadline: Deadline) -> list[Verification]:
    """Verify the newest checkpoint of each project whose turn it is, those first that have waited longest. What is
    left when the time runs out waits for the next upkeep."""
    found, records = [], all_records(store)
    due = [each for each in known_projects(store) if time.time() - _tried(records, each) >= _EVERY]
    for project in sorted(due, key=lambda each: _tried(records, each)):
        try:
            newest = newest_checkpoint(store, project, deadline)
            if newest is None:
                continue
            result = verify(store, newest, deadline)
        except NoSuchCheckpoint:
            continue  # it was dropped just now
        except (DeadlineExceeded, OSError):
            break  # no time, or no room for a copy: that says nothing about the checkpoint
        note_verified(store, project, result, deadline)
        found.append(result)
    return found


def note_verified(store: Store, project: Project, result: Verification, deadline: Deadline) -> None:
    """Keep the outcome; a checkpoint that is not what it says is reported by `status`."""
    if not result.verified:
        what = f"checkpoint {result.checkpoint[:8]} cannot be restored exactly: {result.problems[0]}"
        advice = "run `shadowsnap doctor --repair`"
        with suppress(OSError):
            append_log(store.base, kind="upkeep", what=what, advice=advice, workdir=str(project.workdir))
    with suppress(LockTimeout, StoreUnusable, OSError), locked_project(store, project, "verify", deadline):
        record = read_record(store, project)
        if not record:
            return  # it was cleared just now
        facts = {**_facts(record), "tried_at": result.at.timestamp()}
        if result.verified:
            facts |= {"at": result.at.timestamp(), "checkpoint": result.checkpoint}
        write_json(store.project_file(project.id), {**record, "verified": facts})


def verified_at(record: Mapping[str, Any]) -> float | None:
    """When the newest checkpoint of a project was last found to be exact, by the project's record."""
    at = _facts(record).get("at")
    return at if isinstance(at, (int, float)) else None


def _tried(records: Mapping[str, Mapping[str, Any]], project: Project) -> float:
    at = _facts(records.get(project.id, {})).get("tried_at")
    return at if isinstance(at, (int, float)) else 0.0


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    facts = record.get("verified")
    return facts if isinstance(facts, dict) else {}
