"""The committed checkpoints of Entire CLI: reading them, keeping their conversations with the matching checkpoints
here, and writing a session of ours as Entire would.

Its temporary checkpoints (branches with files) are imported: `shadowsnap import`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from shadowsnap.compat.entire_export import AGENTS, Exported, export_entire
from shadowsnap.compat.entire_reading import (
    EntireCheckpoint,
    EntireRecord,
    EntireRepository,
    EntireSession,
)
from shadowsnap.errors import NoSuchProject, ShadowsnapError
from shadowsnap.git.reading import ObjectReader
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint

__all__ = [
    "AttachReport", "Attached", "EntireCheckpoint", "EntireRecord", "EntireRepository", "EntireSession",
    "Exported", "attach_entire", "export_entire", "read_entire",
]  # fmt: skip

# Entire makes its record right after the commit that it belongs to.
_SLACK = timedelta(minutes=1)
_TRAILER = "Entire-Checkpoint"
_OURS = {spelt: name for name, spelt in AGENTS.items()}


@dataclass(frozen=True)
class Attached:
    """What became of one session of one checkpoint of Entire: `checkpoint_id` is ours, or else `why` says why
    there is none."""

    entire_id: str
    session_id: str
    checkpoint_id: str | None = None
    why: str = ""


@dataclass(frozen=True)
class AttachReport:
    items: tuple[Attached, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read."""

    @property
    def attached(self) -> tuple[Attached, ...]:
        return tuple(item for item in self.items if item.checkpoint_id is not None)


def read_entire(repository: str | Path) -> EntireRecord:
    """All committed checkpoints of Entire in a repository, of every layout, oldest first."""
    return EntireRepository(repository).read()


def attach_entire(
    repository: str | Path, working_dir: str | Path | None = None, *, manager: CheckpointManager | None = None
) -> AttachReport:
    """Keep each conversation that Entire recorded with the checkpoint of ours that it belongs to, and note it in
    the record of its session. That is the last one of the same session that is not later; else the one before a
    commit that Entire made its record for. What the session itself handed over to us stays. Doing it again
    changes nothing."""
    source, manager = EntireRepository(repository), manager or CheckpointManager.from_settings()
    workdir = Path(working_dir or repository)
    record = source.read()
    try:
        ours = manager.list_checkpoints(workdir)
    except NoSuchProject:
        ours = []
    commits = _commits(source, record)
    items = []
    for each in record.checkpoints:
        for number, session in enumerate(each.sessions):
            matches = (_of_commit(ours, commit) for commit in commits[each.id])
            match = _of_session(ours, session) or next(filter(None, matches), None)
            items.append(_attach(source, manager, workdir, each, number, match))
    return AttachReport(tuple(items), record.problems)


def _attach(
    source: EntireRepository,
    manager: CheckpointManager,
    workdir: Path,
    entire: EntireCheckpoint,
    number: int,
    match: Checkpoint | None,
) -> Attached:
    session = entire.sessions[number]
    if match is None:
        return Attached(entire.id, session.id, why="no checkpoint here is of the same session or commit")
    try:
        transcript = source.transcript(session)
        if transcript is None:
            return Attached(entire.id, session.id, why="it has no transcript")
        kept = manager.attach(
            workdir,
            match.id,
            transcript,
            match.session_id if _is_of(match, session) else session.id or match.session_id,
            prompt=session.prompts[-1] if session.prompts else None,
            agent=_agent(session),
            began=session.created_at,
            key=f"entire-{entire.id}-{number}",
            replace_own=False,
        )
        if kept is None:
            return Attached(entire.id, session.id, why="what the session itself handed over is kept there")
    except ShadowsnapError as problem:
        return Attached(entire.id, session.id, why=str(problem))
    return Attached(entire.id, session.id, match.id)


def _agent(session: EntireSession) -> str | None:
    """The agent as we call it."""
    spelt = str(session.metadata.get("agent") or "")
    return _OURS.get(spelt, spelt) or None


def _of_session(ours: list[Checkpoint], session: EntireSession) -> Checkpoint | None:
    """The last checkpoint of the session, newest first, that is not later."""
    same = (each for each in ours if _is_of(each, session))
    return next((each for each in same if _is_before(each, session.created_at)), None)


def _is_of(checkpoint: Checkpoint, session: EntireSession) -> bool:
    """Entire may put a date before the id that the agent gave to a session."""
    own = checkpoint.session_id
    return bool(own) and (session.id == own or session.id.endswith(f"-{own}"))


def _is_before(checkpoint: Checkpoint, moment: datetime | None) -> bool:
    return moment is None or checkpoint.created_at <= _aware(moment) + _SLACK


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.astimezone()


def _of_commit(ours: list[Checkpoint], commits: tuple[str, ...]) -> Checkpoint | None:
    """The newest checkpoint that was taken on the parent of a commit, or else the first one after it."""
    for commit in commits[1:]:
        for each in ours:
            if each.metadata.get("git_head") == commit:
                return each
    after = [each for each in ours if commits and each.metadata.get("git_head") == commits[0]]
    return after[-1] if after else None


def _commits(source: EntireRepository, record: EntireRecord) -> dict[str, list[tuple[str, ...]]]:
    """For each checkpoint of Entire the commits that name it, or that it names, each with its parents."""
    shape = f"--format=%H %P%x00%(trailers:key={_TRAILER},valueonly,separator=%x20)%x01"
    listed = source.git.run("log", "--all", f"--grep=^{_TRAILER}: ", shape, ok=(0, 128)).decode("utf-8", "replace")
    found: dict[str, list[tuple[str, ...]]] = {each.id: [] for each in record.checkpoints}
    for row in listed.split("\x01\n"):
        commits, _, ids = row.partition("\0")
        for id in ids.replace("\x01", "").split():
            found.setdefault(id, []).append(tuple(commits.split()))
    with ObjectReader(source.git) as reader:
        for each in record.checkpoints:
            found[each.id] += filter(None, (_with_parents(reader, commit) for commit in each.linked_commits))
    return found


def _with_parents(reader: ObjectReader, commit: str) -> tuple[str, ...]:
    """A commit and its parents; empty if it is not here, as after a rebase elsewhere."""
    try:
        header = reader.read(commit, b"commit").partition(b"\n\n")[0].decode("utf-8", "replace")
    except ShadowsnapError:
        return ()
    return (commit, *(line[7:] for line in header.splitlines() if line.startswith("parent ")))
