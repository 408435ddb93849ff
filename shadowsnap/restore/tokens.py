"""Plans that wait for a person: made by a program that may only propose, carried out by their token.

A plan is kept for an hour in `run/` of the base. It is carried out only if the files are still as they were when
it was made, so that what happens is what was shown.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shadowsnap.errors import NoSuchPlan
from shadowsnap.files import make_folder, read_json, write_json
from shadowsnap.model import RestoreResult
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

_SECONDS = 3600.0
_TOKEN = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class WaitingPlan:
    """A restore that was proposed: the checkpoint, the paths, and what the files were like."""

    token: str
    target: str
    paths: tuple[str, ...]
    present: str
    """The tree of the files when it was made."""


def keep_plan(
    store: Store, project: Project, plan: RestoreResult, paths: Sequence[str], present: str
) -> WaitingPlan:
    """Keep a plan until a person confirms it. The same plan has the same token."""
    what = "\0".join((project.id, plan.target.id, present, *sorted(paths)))
    token = hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    _remove_old(store)
    facts = {"at": time.time(), "project": project.id, "target": plan.target.id, "present": present}
    make_folder(store.base / "run")
    write_json(_file(store, token), {**facts, "paths": list(paths)})
    return WaitingPlan(token, plan.target.id, tuple(paths), present)


def find_plan(store: Store, project: Project, token: str) -> WaitingPlan:
    record = (read_json(_file(store, token)) or {}) if _TOKEN.fullmatch(token) else {}
    at, paths = record.get("at"), record.get("paths")
    is_fresh = isinstance(at, (int, float)) and time.time() - at < _SECONDS
    if record.get("project") != project.id or not is_fresh or not isinstance(paths, list):
        raise NoSuchPlan(token=token, workdir=project.workdir)
    return WaitingPlan(token, str(record.get("target")), tuple(map(str, paths)), str(record.get("present")))


def forget_plan(store: Store, token: str) -> None:
    _file(store, token).unlink(missing_ok=True)


def _file(store: Store, token: str) -> Path:
    return store.base / "run" / f"plan-{token}.json"


def _remove_old(store: Store) -> None:
    for path in (store.base / "run").glob("plan-*.json"):
        try:
            if time.time() - path.stat().st_mtime > _SECONDS:
                path.unlink()
        except OSError:
            continue  # another process was quicker
