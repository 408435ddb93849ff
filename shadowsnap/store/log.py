"""The operation log of a project: what happened, one JSON object per line in `<base>/log/<project>.jsonl`.

Refs and objects say what a directory looked like; the log says what happened to it. Turns, undo and redo,
reverts, stages and sessions are read from it (`history` folds it). Every line has `op` and `at` (seconds):

    begin         turn, before, held; session, agent, parent, prompt, key    a turn began in this project
    more          turn, checkpoint          it named files that `before` does not hold
    call          turn, before              a tool call began (granularity "tool")
    call-end      turn, before, after       and ended
    end           turn, after, tree, status the turn ended: done or interrupted; tools; again: how often it had
                                            ended before, and was continued
    conversation  turn, refs, messages      its conversation was kept (or, with why, was not)
    snapshot      number, checkpoint        taken by hand or by a host
    stage         number, before, after     edits that were kept as a whole; with status discarded: put back
    restore       id, kind, target, before, after, paths     also undo, redo and revert; seen: the
                                            fingerprint of the files before it; reached: the checkpoint that
                                            holds all files as they are after it
    session       session, status           how a conversation ended
    attach        checkpoint, session, refs a conversation that came from elsewhere
    missed        session                   a tool ran without a snapshot, which had failed
    purge         paths                     files that a person removed from every checkpoint
    numbers       number                    the highest number so far; the line that had it was dropped

A line is appended by one write under the project's lock. A torn or damaged line is passed over: a checkpoint's
own facts are enough to make its line again (`lines_from`).

What went wrong lately, for `status`, is in a log of its own: `<base>/log.jsonl`, kept short.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import LockTimeout
from shadowsnap.files import (
    append_bounded,
    ownership_problem,
    parse_json,
    parse_json_lines,
    read_json,
    write_bytes,
    write_json,
)
from shadowsnap.files import append_line as append_bytes
from shadowsnap.git.refs import ref_names
from shadowsnap.model import Checkpoint, Outcome
from shadowsnap.store.layout import LOGS, Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project

Line = dict[str, Any]

_END_OF_TIME = 250_000_000_000.0
"""Later than any moment that a `datetime` can have is damage. (A comparison with NaN is false, too.)"""
_MOST_BYTES = 256 << 20
_LAST_BYTES = 64 << 10
_INLINE_PATHS = 200
"""A longer list of paths is kept in a file of its own beside the log."""


def append_line(store: Store, project: str, op: str, *, lasting: bool = False, **facts: Any) -> Line:
    """Add one line; facts that are None are left out. If `lasting`, it survives a power cut. The caller holds the
    project's lock."""
    line = _line(op, int(time.time() * 1000) / 1000, **facts)  # rounded down: never in the future
    if len(paths := line.get("paths", ())) > _INLINE_PATHS:
        line["paths"] = _keep_paths(store, project, paths)
    path, fsync = store.log_file(project), lasting and store.fsync
    with taken_back_on_failure(store, project):
        try:
            append_bytes(path, _encoded(line), fsync=fsync)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            append_bytes(path, _encoded(line), fsync=fsync)
    return line


@contextmanager
def taken_back_on_failure(store: Store, project: str) -> Iterator[None]:
    """Remove the lines that were appended within, if it fails. The caller holds the project's lock."""
    path = store.log_file(project)
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        size = 0
    done = False
    try:
        yield
        done = True
    finally:
        if not done and path.exists():
            os.truncate(path, size)


def read_lines(store: Store, project: str) -> list[Line]:
    """Every line that can be read, oldest first."""
    return read_log(store, project)[0]


def read_log(store: Store, project: str) -> tuple[list[Line], int]:
    """Every line that can be read, oldest first, and how many cannot. A last line that is not ended does not
    count: it may be written just now."""
    rows = _read(store, project).split(b"\n")
    found = [(_line_of(row), row) for row in rows]
    damaged = sum(line is None and row != b"" for line, row in found[:-1])
    return [line for line, _ in found if line is not None], damaged


def _read(store: Store, project: str, last: int | None = None) -> bytes:
    """The log, or its `last` bytes; empty if there is none."""
    try:
        with open(store.log_file(project), "rb") as file:
            if last is not None:
                file.seek(max(0, file.seek(0, os.SEEK_END) - last))
            return file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""


_PLAIN = ("turn", "number", "before", "after", "checkpoint", "target", "session", "key", "of", "id", "tree")
"""Facts that are a word or a number. A damaged line may have anything else there, and loses it."""


def _line_of(row: bytes) -> Line | None:
    try:
        line = parse_json(row) if row else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("op"), str) or not _is_time(line.get("at")):
        return None
    for name in _PLAIN:
        if isinstance(line.get(name), (dict, list)):
            del line[name]
    return line


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _END_OF_TIME


def last_lines(store: Store, project: str, mentioned: str = "") -> list[Line]:
    """The newest lines, oldest first, without reading the whole log; none if no line has the text `mentioned` as a
    fact. That is checked on the bytes first, because most logs do not have it."""
    data = _read(store, project, _LAST_BYTES)
    if mentioned and json.dumps(mentioned).encode() not in data:
        return []
    return [line for row in data.split(b"\n") if (line := _line_of(row)) is not None]


def next_number(lines: Iterable[Mapping[str, Any]]) -> int:
    """The first number that these lines do not use."""
    return 1 + max((as_number(line.get(name)) for line in lines for name in ("turn", "number")), default=0)


def as_number(value: Any) -> int:
    """The number of a turn or snapshot; 0 if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def write_lines(store: Store, project: str, lines: Iterable[Line]) -> None:
    """Replace the log, as pruning and repair do. The caller holds the project's lock."""
    path, lines = store.log_file(project), list(lines)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes(path, b"".join(_encoded(line) + b"\n" for line in lines), fsync=store.fsync)
    wanted = {line["paths"] for line in lines if isinstance(line.get("paths"), str)}
    for kept in path.parent.glob(f"{project}.*.paths"):
        if kept.name not in wanted:
            kept.unlink(missing_ok=True)


def change_lines(store: Store, project: str, change: Callable[[Line], Line | None]) -> None:
    """Rewrite every line by a function; None drops it."""
    before = read_lines(store, project)
    after = [new for line in before if (new := change(dict(line))) is not None]
    if after != before:
        write_lines(store, project, after)


def rename_ids(store: Store, project: str, ids: Mapping[str, str]) -> None:
    """Replace ids and refs of checkpoints and conversations in every line."""

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            return ids.get(value, value)
        return [renamed(each) for each in value] if isinstance(value, list) else value

    change_lines(store, project, lambda line: {name: renamed(value) for name, value in line.items()})


def remove_log(store: Store, project: str) -> None:
    """Remove the log, its lists of paths, and what an interrupted write left."""
    for each in (store.base / LOGS).glob(f"*{project}*"):
        each.unlink(missing_ok=True)


def logged_projects(store: Store) -> list[str]:
    """The ids of all projects that have a log."""
    try:
        names = os.listdir(store.base / LOGS)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl") and name[0] != ".")


def paths_in(store: Store, line: Line) -> list[str] | None:
    """The paths of a restore; None if the list is lost, empty for everything."""
    paths = line.get("paths", [])
    if isinstance(paths, str):
        kept = read_json(store.base / LOGS / os.path.basename(paths))
        paths = None if kept is None else kept.get("paths")
    return [str(path) for path in paths] if isinstance(paths, list) else None


def _keep_paths(store: Store, project: str, paths: Iterable[str]) -> str:
    paths = list(paths)
    digest = hashlib.sha256("\0".join(paths).encode("utf-8", "surrogateescape")).hexdigest()
    name = f"{project}.{digest[:16]}.paths"
    path = store.base / LOGS / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(path, {"paths": paths})
    return name


def _encoded(line: Line) -> bytes:
    # ASCII: names that are not UTF-8 survive as escaped surrogates.
    return json.dumps(line, separators=(",", ":")).encode("ascii")


# --- the lines that checkpoints stand for ----------------------------------------------------------
# Of one whose line was never written, of a log that was lost, and of a store of format 1. A checkpoint's own facts
# (kind, turn, session, prompt, what a restore was) are enough for its line. What they do not have is how a turn
# ended that changed nothing, and restores for which nothing had to be saved.

# Lines of the same moment: a turn begins before it says more, and ends last.
_ORDER = {"begin": 0, "end": 2}
_REVERT = re.compile(r"revert of (?:turn (?P<turn>\d+)|session (?P<session>.+)|stage .+)")
_BACK = re.compile(r"before (?:restore|undo|redo) to ([0-9a-f]{8})")


def rebuilt_lines(store: Store, project: Project, newest_first: Sequence[Checkpoint]) -> list[Line]:
    """The whole log of a project that has none, from its checkpoints and the records of format 1."""
    record = read_json(store.project_file(project.id)) or {}
    old = _Format1(store, project, record, {each.id: each for each in newest_first})
    taken = {each.id for each in old.reverts.values()}
    listed = [each for each in reversed(newest_first) if each.id not in taken]
    lines = [line for _, some in lines_from(listed, ()) for line in some]
    lines += old.lines(lines)
    _complete(lines, old.known)
    lines += _conversations(store, project, newest_first, lines)
    lines.sort(key=lambda line: (line["at"], _ORDER.get(line["op"], 1)))
    number = max(next_number(lines), as_number(record.get("next_number")), 1 + as_number(record.get("turn")))
    keys: dict[str, int] = {}
    for line in lines:
        name = {"begin": "turn", "snapshot": "number", "stage": "number"}.get(line["op"])
        if name is not None and name not in line and line.get("status") != "discarded":
            line[name], number = number, number + 1
        if line["op"] == "begin" and "key" in line:
            keys[line["key"]] = line["turn"]
    for line in lines:
        if "of" in line:  # it belongs to a turn that has its number only now
            line["turn"] = keys.get(line.pop("of"))
    kept = [line for line in lines if line["op"] not in ("end", "conversation") or line.get("turn")]
    return [{"op": "numbers", "at": kept[0]["at"], "number": number - 1}, *kept] if kept else []


def lines_from(
    checkpoints: Iterable[Checkpoint], known: Sequence[Line]
) -> Iterator[tuple[Checkpoint, list[Line]]]:
    """The lines that would have been written for these checkpoints, given oldest first, in a log with these
    lines."""
    begins = [line for line in known if line["op"] == "begin"]
    begun, befores = {line.get("turn") for line in begins}, {line.get("before") for line in begins}
    for each in checkpoints:
        at = each.created_at.timestamp()
        lines: list[Line] = []
        amended = each.id if each.metadata.get("amends") else None
        if each.kind == "warm-up":
            pass
        elif amended is not None or (each.kind in ("turn", "turn-end") and each.turn is not None):
            if each.turn not in begun:
                begun.add(each.turn)
                before = each.id if amended or each.kind == "turn" else each.metadata.get("before")
                facts = {"turn": each.turn, "before": before, "session": each.session_id}
                facts |= {name: each.metadata.get(name) for name in ("agent", "parent", "prompt", "key")}
                lines.append(_line("begin", at, held=each.kind == "turn-end" or None, **facts))
            elif amended or (each.kind == "turn" and not each.metadata.get("call") and each.id not in befores):
                lines.append(_line("more", at, turn=each.turn, checkpoint=each.id, before=amended))
            lines += _end_of(each, at) if amended is None else []
        elif each.kind == "stage":
            before = each.metadata.get("before")
            lines.append(_snapshot(each, "stage", before=before, after=each.id, status="committed"))
        elif each.kind == "pre-restore":
            about = each.metadata.get("restore")
            if isinstance(about, dict):
                about = {name: value for name, value in about.items() if name not in ("op", "at")}
                lines.append(_line("restore", at, **{**about, "before": each.id}))
        elif not each.metadata.get("revert"):
            lines.append(_snapshot(each, "snapshot", checkpoint=each.id))
        yield each, lines


def identity_of(line: Line) -> tuple[Any, ...]:
    """Equal for two lines of which one is enough."""
    names = {"begin": ("turn",), "more": ("checkpoint",), "call": ("turn", "before"), "call-end": ("after",)}
    names |= {"end": ("turn", "after"), "snapshot": ("checkpoint",), "stage": ("after",), "restore": ("id",)}
    return line["op"], *(str(line.get(name)) for name in names.get(line["op"], ()))


def _complete(lines: list[Line], known: Mapping[str, Checkpoint]) -> None:
    """Add what follows from other lines: a turn that closed its tool calls is over, and a restore of everything
    led to what it restored."""
    ended = {line.get("turn") for line in lines if line["op"] == "end"}
    last = {line["turn"]: line for line in lines if line["op"] == "call-end"}
    for turn, line in last.items():
        if turn not in ended:
            lines.append(_line("end", line["at"], turn=turn, after=line["after"], status="done"))
    for line in lines:
        if line["op"] == "restore" and not line.get("paths") and line.get("target") in known:
            line.setdefault("after", known[line["target"]].tree)


def _end_of(each: Checkpoint, at: float) -> list[Line]:
    call, before = each.metadata.get("call"), each.metadata.get("before")
    if each.kind == "turn":
        return [_line("call", at, turn=each.turn, before=each.metadata.get("within") or each.id)] if call else []
    if call:
        return [_line("call-end", at, turn=each.turn, before=before, after=each.id)]
    about = {"status": each.metadata.get("ended"), "again": each.metadata.get("again")}
    return [_line("end", at, turn=each.turn, after=each.id, tree=each.tree, **about)]


def _snapshot(each: Checkpoint, op: str, **facts: Any) -> Line:
    about = {name: each.metadata.get(name) for name in ("number", "edit_id", "risk_tier")}
    at = each.created_at.timestamp()
    return _line(op, at, reason=each.reason, session=each.session_id, **about, **facts)


def _conversations(
    store: Store, project: Project, checkpoints: Iterable[Checkpoint], lines: Sequence[Line]
) -> list[Line]:
    """Lines for the conversations that are kept with the states of turns and that no line is about yet."""
    attached = project.attachments
    kept = set(ref_names(store.git_dir, attached))
    noted = {ref for line in lines for ref in line.get("refs", ())}
    found = []
    for each in checkpoints:
        ref = f"{attached}/{each.ref.rpartition('/')[2]}"
        if each.turn is not None and ref.rpartition("/")[2] in kept and ref not in noted:
            found.append(_line("conversation", each.created_at.timestamp(), turn=each.turn, refs=[ref]))
    return found


# --- format 1 ----------------------------------------------------------------------------------------


@dataclass
class _Format1:
    """What format 1 kept beside the checkpoints of one project."""

    store: Store
    project: Project
    record: Mapping[str, Any]
    known: Mapping[str, Checkpoint]

    @property
    def reverts(self) -> dict[str, Checkpoint]:
        """The states that reverts made, by the first digits of their ids. No person took them."""
        goals = {found[1] for each in self.known.values() if (found := _BACK.fullmatch(each.reason))}
        made = [each for each in self.known.values() if each.kind == "manual" and each.id[:8] in goals]
        return {each.id[:8]: each for each in made if _REVERT.fullmatch(each.reason)}

    def lines(self, lines: list[Line]) -> list[Line]:
        """The lines that have to be added; some that are there learn what the records know."""
        found = self._sessions(lines)
        ended = {line["turn"] for line in (*lines, *found) if line["op"] == "end" and "turn" in line}
        return [*found, *self._quiet([*lines, *found], ended), *self._steps()]

    def _quiet(self, lines: Sequence[Line], ended: set[Any]) -> list[Line]:
        """Turns and tool calls that changed nothing were noted in the project's record: they are over."""
        begun = {line["turn"]: line for line in lines if line["op"] == "begin" and "turn" in line}
        found = []
        for turn in _listed(self.record, "quiet_turns"):
            if turn in begun and turn not in ended:
                at, before = begun[turn]["at"], begun[turn].get("before")
                found.append(_line("end", at, turn=turn, after=before, status="done"))
        for before in _listed(self.record, "quiet_calls"):
            call = next((each for each in lines if each["op"] == "call" and each.get("before") == before), None)
            if call is not None:
                found.append(_line("call-end", call["at"], turn=call["turn"], before=before, after=before))
        return found

    def _sessions(self, lines: list[Line]) -> list[Line]:
        """What the records of sessions say of this project: agents, prompts, conversations, how turns ended, and
        turns that have no checkpoint of their own."""
        begun = {line["turn"]: line for line in lines if line["op"] == "begin"}
        ended = {line["turn"] for line in lines if line["op"] == "end"}
        found: list[Line] = []
        for path in sorted((self.store.base / "sessions").glob("[!.]*.json")):
            record = read_json(path) or {}
            session = record.get("id")
            if not isinstance(session, str):
                continue
            here = list[Line]()
            for row in _rows(record.get("turns")):
                for place in _rows(row.get("places")):
                    if place.get("project") == self.project.id:
                        here += self._turn(record, session, row, place, begun, ended)
            for edit in _rows(record.get("edits")):
                if edit.get("status") == "discarded" and edit.get("workdir") == str(self.project.workdir):
                    facts = {name: edit.get(name) for name in ("edit_id", "risk_tier", "status")}
                    here.append(_line("stage", _moment(edit.get("at")), session=session, **facts))
            if here or any(line.get("session") == session for line in lines):
                status = record.get("status")
                if status in ("completed", "failed", "rolled_back"):
                    here.append(_line("session", _moment(record.get("ended")), session=session, status=status))
            found += here
        return found

    def _turn(
        self, record: Line, session: str, row: Line, place: Line, begun: dict[Any, Line], ended: set[Any]
    ) -> list[Line]:
        number, before, after = place.get("turn"), place.get("before"), place.get("after")
        at, key = _moment(row.get("began")), str(row.get("key") or f"{session} {row.get('began')}")
        about = {"session": session, "agent": record.get("agent"), "parent": record.get("parent")}
        about |= {"prompt": row.get("prompt"), "key": key}
        refs = [ref for ref in row.get("attachments") or () if f"/{self.project.id}/" in str(ref)]
        if row.get("attached") is True:  # a conversation that came from elsewhere
            facts = {"checkpoint": before, "refs": refs, "messages": row.get("messages"), "turn": number}
            return [_line("attach", at, began=at, **about, **facts)] if before in self.known else []
        found = []
        if number in begun:
            begin = begun[number]
            begin.update({name: value for name, value in about.items() if isinstance(value, str)})
            begin["at"] = min(begin["at"], at) if at else begin["at"]
        elif before in self.known:  # on a state that was held: it has a number only if it was given one
            begin = _line("begin", at, before=before, held=True, **about)
            if isinstance(number, int) and number > 0:
                begin["turn"] = begun.setdefault(number, begin) and number
            found.append(begin)
        else:
            return []
        of: dict[str, Any] = {"turn": begin["turn"]} if "turn" in begin else {"of": key}
        if isinstance(row.get("ended"), (int, float)) and of.get("turn") not in ended:
            known = place.get("status") in ("taken", "unchanged")
            status = "done" if known else "interrupted"
            found.append(_line("end", _moment(row["ended"]), after=after if known else None, status=status, **of))
            ended |= {of["turn"]} if "turn" in of else set()
        if refs or row.get("not_kept"):
            facts = {"refs": refs or None, "messages": row.get("messages"), "why": row.get("not_kept")}
            found.append(_line("conversation", at, **of, **facts))
        return found

    def _steps(self) -> list[Line]:
        """The ways back and forth that the journal kept, oldest first: what could be undone, then what could be
        redone."""
        path = self.store.journal_file(self.project.id)
        journal = read_json(path) or {}
        lines: list[Line] = []
        for kind, name in (("restore", "undo"), ("undo", "redo")):
            rows = journal.get(name)
            for place, row in enumerate(rows if isinstance(rows, list) else ()):
                if not (isinstance(row, list) and len(row) >= 2 and row[0] in self.known):
                    continue
                paths = row[1]
                if isinstance(paths, str):
                    paths = (read_json(path.parent / paths) or {}).get("paths", [])
                saved = self.known[row[0]]
                facts: dict[str, Any] = {"id": f"format-1-{name}-{place}", "kind": kind, "before": saved.id}
                facts |= {"paths": paths, "exact": row[2:] == [True], **self._goal(saved)}
                if kind == "undo":
                    facts |= {"kind": kind, "undoes": f"format-1-undone-{place}"}
                last = lines[-1]["at"] if lines else 0.0
                lines.append(_line("restore", max(saved.created_at.timestamp(), last), **facts))
        if lines and isinstance(journal.get("at"), str):
            lines[-1]["after"] = journal["at"]
        return lines

    def _goal(self, saved: Checkpoint) -> dict[str, Any]:
        """Where a restore went, as the reason of the state that it saved says."""
        found = _BACK.fullmatch(saved.reason) if saved.kind == "pre-restore" else None
        goal = next((each for each in self.known.values() if found and each.id.startswith(found[1])), None)
        revert = _REVERT.fullmatch(goal.reason) if goal is not None and goal.id[:8] in self.reverts else None
        facts: dict[str, Any] = {"target": goal.id if goal is not None else saved.id}
        if revert is not None:
            facts["kind"] = "revert"
            facts |= {"turn": int(revert["turn"])} if revert["turn"] else {"session": revert["session"]}
        return facts


def _line(op: str, at: float, **facts: Any) -> Line:
    return {"op": op, "at": at, **{name: value for name, value in facts.items() if value is not None}}


def _rows(value: Any) -> list[Line]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _listed(record: Mapping[str, Any], name: str) -> list[Any]:
    found = record.get(name)
    return [each for each in found if isinstance(each, (int, str))] if isinstance(found, list) else []


def _moment(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


# --- what went wrong lately ------------------------------------------------------------------------

_MOST_TROUBLE_BYTES = 200_000
_TAIL_BYTES = 20_000
_REPEAT_SECONDS = 600.0
_PATIENCE_SECONDS = 0.2
_LONGEST, _MOST_PATHS = 2000, 20


def note_trouble(base: Path, workdir: str, outcome: Outcome) -> None:
    """Note a snapshot that failed, was refused, or holds only some paths."""
    problem = outcome.error
    append_trouble(
        base,
        kind=outcome.status,
        workdir=workdir[:_LONGEST],
        error=type(problem).__name__,
        what=str(problem)[:_LONGEST],
        advice=str(getattr(problem, "hint", "")),
        paths=[skipped.path for skipped in outcome.skipped[:_MOST_PATHS]],
    )


def append_trouble(base: Path, **facts: Any) -> None:
    """Note something, if the log can be written: the trouble may be that the disk is full. What was noted just now
    in the same words is not noted again: an agent that works in a refused directory would fill the log."""
    if not base.is_dir() or ownership_problem(base):
        return
    path = base / "log.jsonl"
    line = json.dumps({"at": time.time(), **facts}, separators=(",", ":")).encode("ascii")
    with suppress(OSError):
        try:
            with locked(base / ".log.lock", "log", Deadline(_PATIENCE_SECONDS)):
                if _noted_lately(path, facts):
                    return
                append_bounded(path, line, _MOST_TROUBLE_BYTES)
        except LockTimeout:
            append_bytes(path, line)


def read_troubles(base: Path) -> list[dict[str, Any]]:
    """Oldest first; lines that cannot be read are left out."""
    try:
        data = (base / "log.jsonl").read_bytes()
    except OSError:
        return []
    return _parsed(data)


def _noted_lately(path: Path, facts: dict[str, Any]) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            recent = _parsed(file.read())
    except OSError:
        return False
    plain = parse_json(json.dumps(facts))
    since = time.time() - _REPEAT_SECONDS
    return any(
        since < entry["at"] <= time.time() and {key: entry[key] for key in entry if key != "at"} == plain
        for entry in recent
    )


def _parsed(data: bytes) -> list[dict[str, Any]]:
    return [entry for entry in parse_json_lines(data) if _is_time(entry.get("at"))]
