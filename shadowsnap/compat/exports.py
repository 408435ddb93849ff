"""Exports of what turns did, in formats that other tools read.

Agent Trace 0.1 (https://agent-trace.dev): one record for each turn that brought lines in, with the files and the
ranges of its lines in the state at the end of the turn. `vcs.revision` is the commit that the person was on then.

Authorship notes of git-ai, by its standard 3.0.0: for each commit since the beginning of the timeline, the
sessions that its added lines came from. The notes are kept under `refs/notes/ai` of the person's repository, where
git-ai and others read them. A note of another tool is never replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shadowsnap import __version__
from shadowsnap.deadline import Deadline
from shadowsnap.errors import BadArguments
from shadowsnap.git.objects import EMPTY_TREE, is_object_id
from shadowsnap.git.reading import hunks_of_texts, parse_hunks
from shadowsnap.git.repository import Git
from shadowsnap.manager import CheckpointManager
from shadowsnap.questions import Moment, Story, Tracer, Version, lines_in
from shadowsnap.results import Author
from shadowsnap.snapshot.ignore_rules import UserRepository, find_repository
from shadowsnap.snapshot.states import tree_differences
from shadowsnap.store.layout import open_store
from shadowsnap.store.projects import Project, project_of

_BINARY_PROBE_BYTES = 8000


# --- Agent Trace -------------------------------------------------------------------------------------

TRACE_VERSION = "0.1.0"
_RECORD_NAMESPACE = uuid.UUID("6f0b1f0e-4a39-5d3c-9d59-1f6a7f3c9a10")


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
    """The lines of a turn in one version of a file, as ranges with the hash of their content."""
    if version.blob is None:
        return
    own = [at for at, (author, _) in enumerate(version.origins, 1) if author.number == number]
    data = tracer.content(version.blob) if own else b""
    if b"\0" in data[:_BINARY_PROBE_BYTES]:
        return
    rows = lines_in(data)
    for first, last in number_ranges(own):
        digest = hashlib.sha256(b"".join(rows[first - 1 : last])).hexdigest()
        yield {"start_line": first, "end_line": last, "content_hash": f"sha256:{digest}"}


def number_ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Join ascending numbers to ranges of first and last."""
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
        "version": TRACE_VERSION,
        "id": str(uuid.uuid5(_RECORD_NAMESPACE, f"{project} {number} {facts['checkpoint']}")),
        "timestamp": f"{at:%Y-%m-%dT%H:%M:%S}Z" if at is not None else "1970-01-01T00:00:00Z",
        "tool": {"name": "shadowsnap", "version": __version__},
        "files": files,
        "metadata": {"dev.shadowsnap": {name: value for name, value in facts.items() if value is not None}},
    }
    head = end.metadata.get("git_head") if end is not None else None
    if isinstance(head, str) and is_object_id(head):
        record["vcs"] = {"type": "git", "revision": head}
    return record


# --- notes of git-ai ---------------------------------------------------------------------------------

NOTE_SCHEMA = "authorship/3.0.0"
NOTES_REF = "refs/notes/ai"
_MOST_COMMITS = 1000
_OUR_ATTRIBUTES = {"exported_by": "shadowsnap"}
_NOTHING = "0" * 40
_MOST_CANDIDATES = 10


@dataclass(frozen=True)
class Note:
    """The note of one commit. `status`: `written`, `unchanged`, `foreign` (of another tool) or `planned`."""

    commit: str
    text: str
    lines: int
    status: str

    def to_dict(self) -> dict[str, Any]:
        return {"commit": self.commit, "lines": self.lines, "status": self.status}


def export_notes(
    manager: CheckpointManager, working_dir: str | Path, *, dry_run: bool = False
) -> list[Note]:
    """Write the notes of all commits that hold lines of a turn, newest first."""
    manager.get(working_dir, "last")  # raises if nothing is known of the directory
    store, project = open_store(manager.settings), project_of(working_dir)
    deadline = Deadline(manager.settings.upkeep_deadline)
    repository = find_repository(project.workdir)
    if repository is None:
        raise BadArguments(what=f"--git-notes: {project.workdir} is not in a git repository")
    story = Story(store, project, deadline)
    person = ("user.name=shadowsnap", "user.email=shadowsnap@localhost", "core.fsmonitor=false")
    theirs = Git(store.git(deadline).executable, repository.git_dir, config=person, deadline=deadline)
    notes = []
    with Tracer(store.git(deadline), story) as tracer:
        commits = _Commits(theirs, repository, project)
        for commit, at in commits.since(_oldest_moment(story)):
            lines: dict[str, dict[str, list[int]]] = {}
            sessions: dict[str, Any] = {}
            for path, blob, added in commits.added_lines(commit):
                if '"' in path or "\n" in path:
                    continue  # the format has no way to write such a name
                origins = _origins(tracer, story, commits, os.fsencode(path), blob, at)
                for number in added:
                    who = origins[number - 1] if number <= len(origins) else None
                    if who is not None and who.who == "turn":
                        key, session = _session(project, who)
                        sessions[session] = _session_record(who, project)
                        lines.setdefault(commits.prefix + path, {}).setdefault(key, []).append(number)
            if lines:
                text = note_text(commit, lines, sessions)
                total = sum(len(some) for keys in lines.values() for some in keys.values())
                notes.append(Note(commit, text, total, _write(theirs, commit, text, dry_run=dry_run)))
    return notes


def note_text(commit: str, lines: dict[str, dict[str, list[int]]], sessions: dict[str, Any]) -> str:
    """An authorship log: which lines of which file are of which session, then what is known of the sessions."""
    rows = []
    for path, keys in sorted(lines.items()):
        rows.append(f'"{path}"' if any(char.isspace() for char in path) else path)
        for key, numbers in sorted(keys.items(), key=lambda item: item[1]):
            ranges = (str(first) if first == last else f"{first}-{last}" for first, last in number_ranges(numbers))
            rows.append(f"  {key} {','.join(ranges)}")
    known: dict[str, Any] = {"schema_version": NOTE_SCHEMA, "base_commit_sha": commit, "prompts": {}}
    known["sessions"] = dict(sorted(sessions.items()))
    return "\n".join([*rows, "---", json.dumps(known, indent=2)]) + "\n"


class _Commits:
    """The commits of the person's repository."""

    def __init__(self, git: Git, repository: UserRepository, project: Project) -> None:
        self._git = git
        inside = project.workdir.relative_to(repository.top).as_posix()
        self.prefix = "" if inside == "." else f"{inside}/"

    def since(self, seconds: float) -> Iterator[tuple[str, float]]:
        """The newest commits, and when each was made. Merges are left out: their lines came with their parents."""
        words = ("log", f"-{_MOST_COMMITS}", "--no-merges", "--format=%H %ct", f"--since=@{int(seconds)}", "HEAD")
        for row in self._git.run(*words, ok=range(256)).decode().splitlines():
            commit, _, at = row.partition(" ")
            yield commit, float(at)

    def added_lines(self, commit: str) -> Iterator[tuple[str, str, list[int]]]:
        """For each file of the project that a commit changed: its path in the project, its blob, and the numbers
        of the added lines."""
        tree = ("diff-tree", "--root", "--no-commit-id", "-r", "--no-renames")
        raw = self._git.run(*tree, "-z", "--raw", "--no-abbrev", commit).split(b"\0")
        patch = ("-p", "-U0", "--full-index", "--text", "--minimal", "--no-ext-diff", "--no-textconv")
        hunks = parse_hunks(self._git.run(*tree, *patch, commit))
        for facts, path in zip(raw[0::2], raw[1::2], strict=False):
            _, mode, old, new, _ = facts.decode().split(" ")
            name = os.fsdecode(path)
            if mode not in ("100644", "100755") or new == _NOTHING or not name.startswith(self.prefix):
                continue
            added = [
                hunk.new + 1 + line for hunk in hunks.get((old, new), ()) for line in range(hunk.new_count)
            ]
            yield name.removeprefix(self.prefix), new, added

    def content(self, blob: str) -> bytes:
        return self._git.run("cat-file", "blob", blob)


def _origins(
    tracer: Tracer, story: Story, commits: _Commits, path: bytes, blob: str, at: float
) -> Sequence[Author | None]:
    """The author of each line of a committed version: from a known state with the same version of the file, or
    else from the most similar of the versions that are nearest in time."""
    versions = [
        (abs(_seconds(moment.author) - at), order, version)
        for order, (moment, version) in enumerate(zip(story.moments, tracer.trace(path), strict=True))
        if version is not None and version.blob is not None
    ]
    same = [each for each in versions if each[2].blob == blob]
    if same:
        return [author for author, _ in min(same)[2].origins]
    if not versions:
        return []
    data = commits.content(blob)
    if b"\0" in data[:_BINARY_PROBE_BYTES]:
        return []
    nearest = sorted(versions, key=lambda each: each[:2])[:_MOST_CANDIDATES]
    candidates = {version.blob: version for _, _, version in nearest}
    found = (_origins_by_similarity(tracer, version, data) for version in candidates.values())
    return min(found, key=lambda each: each.count(None))


def _origins_by_similarity(tracer: Tracer, version: Version, data: bytes) -> list[Author | None]:
    """The author of each line of `data` that a known version has too, and None for the others."""
    assert version.blob is not None
    found: list[Author | None] = []
    at = 0
    for hunk in hunks_of_texts(tracer.git, tracer.content(version.blob), data):
        found += [author for author, _ in version.origins[at : hunk.old]]
        found += [None] * hunk.new_count
        at = hunk.old + hunk.old_count
    return found + [author for author, _ in version.origins[at:]]


def _session(project: Project, who: Author) -> tuple[str, str]:
    """The keys of a turn and of its session in a note; the same at every export."""
    session = f"s_{_digest(f'{_agent_name(who)}:{_session_key(who, project)}')}"
    return f"{session}::t_{_digest(f'{project.id}:{who.number}')}", session


def _session_record(who: Author, project: Project) -> dict[str, Any]:
    identity = {"tool": _agent_name(who), "id": _session_key(who, project), "model": "unknown"}
    return {"agent_id": identity, "custom_attributes": dict(_OUR_ATTRIBUTES)}


def _agent_name(who: Author) -> str:
    return who.agent or "unknown"


def _session_key(who: Author, project: Project) -> str:
    return who.session_id or f"{project.id}-{who.number}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:14]


def _write(git: Git, commit: str, text: str, *, dry_run: bool) -> str:
    there = git.run("notes", f"--ref={NOTES_REF}", "show", commit, ok=range(256)).decode("utf-8", "replace")
    if there and not _is_ours(there):
        return "foreign"
    if there.strip() == text.strip():
        return "unchanged"
    if dry_run:
        return "planned"
    stdin = text.encode("utf-8", "replace")
    git.run("notes", f"--ref={NOTES_REF}", "add", "--force", "--file=-", commit, stdin=stdin)
    return "written"


def _is_ours(note: str) -> bool:
    """Whether shadowsnap wrote a note: all its sessions have our attributes."""
    try:
        sessions = json.loads(note.partition("\n---\n")[2])["sessions"].values()
        return all(session["custom_attributes"] == _OUR_ATTRIBUTES for session in sessions)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _oldest_moment(story: Story) -> float:
    return min((_seconds(moment.author) for moment in story.moments), default=0.0)


def _seconds(author: Author) -> float:
    return author.at.timestamp() if author.at is not None else 0.0
