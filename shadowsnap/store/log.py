"""The operation log of a project: what happened, one JSON object per line in `<base>/log/<project>.jsonl`.

Refs and objects say what a directory looked like; the log says what happened to it. Turns, undo and redo,
reverts, stages and sessions are read from it (`history` folds it). Every line has `op` and `at` (seconds):

    begin         turn, before, held; session, agent, parent, prompt, key    a turn began in this project
    more          turn, checkpoint          it named files that `before` does not hold
    call          turn, before              a tool call began (granularity "tool")
    call-end      turn, before, after       and ended
    end           turn, after, status       the turn ended: done or interrupted; tools
    conversation  turn, refs, messages      its conversation was kept (or, with why, was not)
    snapshot      number, checkpoint        taken by hand or by a host
    stage         number, before, after     edits that were kept as a whole; with status discarded: put back
    restore       id, kind, target, before, after, paths     also undo, redo and revert
    session       session, status           how a conversation ended
    attach        checkpoint, session, refs a conversation that came from elsewhere
    purge         paths                     files that a person took out of every checkpoint
    numbers       next                      no number below this is free: written when lines are dropped

A line is appended by one write under the project's lock. A torn or damaged line is passed over: a checkpoint's
own facts are enough to make its line again (`rebuild`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shadowsnap import lightjson as json
from shadowsnap.files import read_json, write_bytes, write_json
from shadowsnap.store.layout import Store

Line = dict[str, Any]

FOLDER = "log"
_APPENDING = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_MOST_BYTES = 256 << 20
_END_OF_TIME = 250_000_000_000.0
"""Later than any moment that a `datetime` can have is damage. (A comparison with NaN is false, too.)"""
_LAST_BYTES = 64 << 10
_INLINE_PATHS = 200
"""A longer list of paths is kept in a file of its own beside the log."""


def log_file(store: Store, project: str) -> Path:
    return store.base / FOLDER / f"{project}.jsonl"


def append_line(store: Store, project: str, op: str, **facts: Any) -> Line:
    """Add one line; facts that are None are left out. The caller holds the project's lock."""
    line = {"op": op, "at": round(time.time(), 3), **_known(facts)}
    if len(paths := line.get("paths", ())) > _INLINE_PATHS:
        line["paths"] = _keep_paths(store, project, paths)
    path = log_file(store, project)
    data = _encoded(line)
    # Of everything else a checkpoint knows enough; the line of a restore says that it came to its end.
    lasting = store.fsync and op == "restore"
    try:
        _append(path, data, lasting)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _append(path, data, lasting)
    return line


def _append(path: Path, data: bytes, lasting: bool) -> None:
    descriptor = os.open(path, _APPENDING, 0o600)
    try:
        if os.fstat(descriptor).st_size:
            os.lseek(descriptor, -1, os.SEEK_END)
            if os.read(descriptor, 1) != b"\n":
                data = b"\n" + data  # the last line is torn: it must not swallow this one
        while data:
            data = data[os.write(descriptor, data) :]
        if lasting:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(store: Store, project: str) -> list[Line]:
    """Every line that can be read, oldest first."""
    return read_log(store, project)[0]


def read_log(store: Store, project: str) -> tuple[list[Line], int]:
    """Every line that can be read, oldest first, and how many cannot."""
    try:
        with open(log_file(store, project), "rb") as file:
            data = file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return [], 0
    lines, damaged = list[Line](), 0
    for row in filter(None, data.split(b"\n")):
        line = _parsed(row)
        if line is None:
            damaged += 1
        else:
            lines.append(line)
    return lines, damaged


def _parsed(row: bytes) -> Line | None:
    try:
        line = json.loads(row) if row else None
    except (ValueError, RecursionError):
        return None
    return line if _is_line(line) else None


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("op"), str):
        return False
    at = value.get("at")
    return isinstance(at, (int, float)) and not isinstance(at, bool) and 0 <= at < _END_OF_TIME


@contextmanager
def taken_back_on_failure(store: Store, project: str) -> Iterator[None]:
    """Remove the lines that were appended within, if it fails. The caller holds the project's lock."""
    path = log_file(store, project)
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        size = 0
    try:
        yield
    except BaseException:
        if path.exists():
            os.truncate(path, size)
        raise


def last_lines(store: Store, project: str) -> list[Line]:
    """The newest lines, oldest first, without reading the whole log."""
    try:
        with open(log_file(store, project), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            rows = file.read(_LAST_BYTES).split(b"\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    return [line for row in rows if (line := _parsed(row)) is not None]


def damaged_lines(store: Store, project: str) -> int:
    """How many lines cannot be read. A last line that is not ended does not count: it may be written just now."""
    try:
        with open(log_file(store, project), "rb") as file:
            rows = file.read(_MOST_BYTES).split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return 0
    return sum(row != b"" and _parsed(row) is None for row in rows)


def next_number(lines: Iterable[Line]) -> int:
    """The first number that these lines do not use, nor any line that was dropped."""
    used, given = [0], [1]
    for line in lines:
        used += [as_number(line.get("turn")), as_number(line.get("number"))]
        given.append(as_number(line.get("next")))
    return max(1 + max(used), *given)


def as_number(value: Any) -> int:
    """The number of a turn or snapshot; 0 if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def has_log(store: Store, project: str) -> bool:
    return os.path.exists(log_file(store, project))


def write_lines(store: Store, project: str, lines: Iterable[Line]) -> None:
    """Replace the log, as pruning and repair do. The caller holds the project's lock."""
    path, lines = log_file(store, project), list(lines)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes(path, b"".join(map(_encoded, lines)), fsync=store.fsync)
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
    """Let the log speak of checkpoints and conversations by their new ids and refs."""

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            return ids.get(value, value)
        return [renamed(each) for each in value] if isinstance(value, list) else value

    change_lines(store, project, lambda line: {name: renamed(value) for name, value in line.items()})


def remove_log(store: Store, project: str) -> None:
    """Remove the log, its lists of paths, and what an interrupted write left."""
    for each in (store.base / FOLDER).glob(f"*{project}*"):
        each.unlink(missing_ok=True)


def logged_projects(store: Store) -> list[str]:
    """The ids of all projects that have a log."""
    try:
        names = os.listdir(store.base / FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl") and name[0] != ".")


def paths_in(store: Store, line: Line) -> list[str] | None:
    """The paths of a restore; None if the list is lost, empty for everything."""
    paths = line.get("paths", [])
    if isinstance(paths, str):
        kept = read_json(store.base / FOLDER / os.path.basename(paths))
        paths = None if kept is None else kept.get("paths")
    return [str(path) for path in paths] if isinstance(paths, list) else None


def _keep_paths(store: Store, project: str, paths: Iterable[str]) -> str:
    paths = list(paths)
    digest = hashlib.sha256("\0".join(paths).encode("utf-8", "surrogateescape")).hexdigest()
    name = f"{project}.{digest[:16]}.paths"
    path = store.base / FOLDER / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(path, {"paths": paths})
    return name


def _known(facts: Mapping[str, Any]) -> Line:
    return {name: value for name, value in facts.items() if value is not None}


def _encoded(line: Line) -> bytes:
    # ASCII: names that are not UTF-8 survive as escaped surrogates.
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"
