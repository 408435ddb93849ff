"""Writing what turns did as trace records of Agent Trace 0.1 (https://agent-trace.dev).

One record for each turn that brought lines in: the files, and the ranges of its lines in the state at the end of
the turn. `vcs.revision` is the commit that the person was on then.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shadowsnap import __version__
from shadowsnap.deadline import Deadline
from shadowsnap.git.objects import EMPTY_TREE, is_object_id
from shadowsnap.manager import CheckpointManager
from shadowsnap.questions import Moment, Story, Tracer, Version, lines_in
from shadowsnap.snapshot.ignore_rules import find_repository
from shadowsnap.snapshot.states import tree_differences
from shadowsnap.store.layout import open_store
from shadowsnap.store.projects import project_of

VERSION = "0.1.0"
_NAMES = uuid.UUID("6f0b1f0e-4a39-5d3c-9d59-1f6a7f3c9a10")
_BINARY_WITHIN = 8000


def trace_records(manager: CheckpointManager, working_dir: str | Path) -> Iterator[dict[str, Any]]:
    """The records of a project, oldest first. The same turn always has the same record."""
    manager.get(working_dir, "last")  # raises if nothing is known of the directory
    store, project = open_store(manager.settings), project_of(working_dir)
    deadline = Deadline(manager.settings.upkeep_deadline)
    git = store.git(deadline)
    story = Story(store, project, deadline)
    repository = find_repository(project.workdir)
    prefix = b""
    if repository is not None and repository.top != project.workdir:
        prefix = os.fsencode(project.workdir.relative_to(repository.top).as_posix()) + b"/"
    ends, paths, previous = dict[int, int](), dict[int, set[bytes]](), EMPTY_TREE
    for index, moment in enumerate(story.moments):
        if moment.state.scope != "tree":
            continue
        numbers = [number for number in (moment.author.number, *moment.others) if number is not None]
        if numbers and index:
            changed = {item.path for item in tree_differences(git, previous, moment.state.tree)}
            for number in numbers:
                ends[number] = index
                paths.setdefault(number, set()).update(changed)
        previous = moment.state.tree
    everything = sorted({path for some in paths.values() for path in some})
    with Tracer(git, story) as tracer:
        tracer.prepare(everything)
        versions = {path: tracer.trace(path) for path in everything}
        for number in sorted(ends):
            moment = story.moments[ends[number]]
            files = []
            for path in sorted(paths[number]):
                version = versions[path][ends[number]]
                ranges = list(_ranges(tracer, version, number)) if version is not None else []
                if ranges:
                    trace = {"contributor": {"type": "ai"}, "ranges": ranges}
                    files.append({"path": (prefix + path).decode("utf-8", "replace"), "conversations": [trace]})
            if files:
                yield _record(project.id, story, number, moment, files)


def _ranges(tracer: Tracer, version: Version, number: int) -> Iterator[dict[str, Any]]:
    """The lines of a turn in one version of a file, joined where they follow each other."""
    if version.blob is None:
        return
    own = [at for at, (author, _) in enumerate(version.origins, 1) if author.number == number]
    data = tracer.content(version.blob) if own else b""
    if b"\0" in data[:_BINARY_WITHIN]:
        return
    rows = lines_in(data)
    for first, last in runs(own):
        digest = hashlib.sha256(b"".join(rows[first - 1 : last])).hexdigest()
        yield {"start_line": first, "end_line": last, "content_hash": f"sha256:{digest}"}


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges: first and last of each."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _record(
    project: str, story: Story, number: int, moment: Moment, files: list[dict[str, Any]]
) -> dict[str, Any]:
    turn, end = story.history.turns.get(number), moment.checkpoint
    at = moment.author.at
    facts = {
        "turn": number,
        "agent": turn.agent if turn is not None else None,
        "session": turn.session_id if turn is not None else moment.author.session_id,
        "prompt": turn.prompt if turn is not None else moment.author.prompt,
        "checkpoint": end.id if end is not None else None,
    }
    record: dict[str, Any] = {
        "version": VERSION,
        "id": str(uuid.uuid5(_NAMES, f"{project} {number} {facts['checkpoint']}")),
        "timestamp": f"{at:%Y-%m-%dT%H:%M:%S}Z" if at is not None else "1970-01-01T00:00:00Z",
        "tool": {"name": "shadowsnap", "version": __version__},
        "files": files,
        "metadata": {"dev.shadowsnap": {name: value for name, value in facts.items() if value is not None}},
    }
    head = end.metadata.get("git_head") if end is not None else None
    if isinstance(head, str) and is_object_id(head):
        record["vcs"] = {"type": "git", "revision": head}
    return record
