"""The operation log of a project: what happened, one JSON object per line in `<base>/log/<project>.jsonl`.

Refs and objects say what a directory looked like; the log says what happened to it. Turns, undo and redo,
reverts, stages and sessions are read from it (`history` folds it). Every line has `op` and `at` (seconds):

    begin         turn, before, held; session, agent, parent, prompt, key    a turn began in this project
    more          turn, checkpoint          it named files that `before` does not hold
    call          turn, before              a tool call began (granularity "tool")
    call-end      turn, before, after       and ended
    end           turn, after, tree, status the turn ended: done or interrupted; tools; again: how often it had
                                            ended before, and was gone on with
    conversation  turn, refs, messages      its conversation was kept (or, with why, was not)
    snapshot      number, checkpoint        taken by hand or by a host
    stage         number, before, after     edits that were kept as a whole; with status discarded: put back
    restore       id, kind, target, before, after, paths     also undo, redo and revert; seen: the
                                            fingerprint of the files before it; reached: the checkpoint that
                                            holds all files as they are after it
    session       session, status           how a conversation ended
    attach        checkpoint, session, refs a conversation that came from elsewhere
    purge         paths                     files that a person took out of every checkpoint
    numbers       number                    the highest number so far; the line that had it was dropped

A line is appended by one write under the project's lock. A torn or damaged line is passed over: a checkpoint's
own facts are enough to make its line again (`rebuild`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shadowsnap.files import parse_json, read_json, write_bytes, write_json
from shadowsnap.store.layout import Store

Line = dict[str, Any]

FOLDER = "log"
_APPENDING = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_END_OF_TIME = 250_000_000_000.0
"""Later than any moment that a `datetime` can have is damage. (A comparison with NaN is false, too.)"""
_MOST_BYTES = 256 << 20
_LAST_BYTES = 64 << 10
_INLINE_PATHS = 200
"""A longer list of paths is kept in a file of its own beside the log."""


def log_file(store: Store, project: str) -> Path:
    return store.base / FOLDER / f"{project}.jsonl"


def append_line(store: Store, project: str, op: str, *, lasting: bool = False, **facts: Any) -> Line:
    """Add one line; facts that are None are left out. If `lasting`, it survives a power cut. The caller holds the
    project's lock."""
    line = {"op": op, "at": int(time.time() * 1000) / 1000, **_known(facts)}  # rounded down: never in the future
    if len(paths := line.get("paths", ())) > _INLINE_PATHS:
        line["paths"] = _keep_paths(store, project, paths)
    path = log_file(store, project)
    data, fsync = _encoded(line), lasting and store.fsync
    try:
        _append(path, data, fsync)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _append(path, data, fsync)
    return line


def _append(path: Path, data: bytes, fsync: bool) -> None:
    descriptor = os.open(path, _APPENDING, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size:
            os.lseek(descriptor, -1, os.SEEK_END)
            if os.read(descriptor, 1) != b"\n":
                data = b"\n" + data  # the last line is torn: it must not swallow this one
        if os.write(descriptor, data) != len(data):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        if fsync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def taken_back_on_failure(store: Store, project: str) -> Iterator[None]:
    """Remove the lines that were appended within, if it fails. The caller holds the project's lock."""
    path = log_file(store, project)
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


def damaged_lines(store: Store, project: str) -> int:
    """How many lines cannot be read."""
    return read_log(store, project)[1]


def read_log(store: Store, project: str) -> tuple[list[Line], int]:
    """Every line that can be read, oldest first, and how many cannot. A last line that is not ended does not
    count: it may be written just now."""
    rows = _rows(store, project)
    found = [(_line_of(row), row) for row in rows]
    damaged = sum(line is None and row != b"" for line, row in found[:-1])
    return [line for line, _ in found if line is not None], damaged


def _rows(store: Store, project: str) -> list[bytes]:
    try:
        with open(log_file(store, project), "rb") as file:
            return file.read(_MOST_BYTES).split(b"\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []


_PLAIN = ("turn", "number", "before", "after", "checkpoint", "target", "session", "key", "of", "id", "tree")
"""Facts that are a word or a number. A damaged line may have anything else there, and loses it."""


def _line_of(row: bytes) -> Line | None:
    try:
        line = parse_json(row) if row else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("op"), str):
        return None
    at = line.get("at")
    is_time = isinstance(at, (int, float)) and not isinstance(at, bool) and 0 <= at < _END_OF_TIME
    if not is_time:
        return None
    for name in _PLAIN:
        if isinstance(line.get(name), (dict, list)):
            del line[name]
    return line


def last_lines(store: Store, project: str, mentioned: str = "") -> list[Line]:
    """The newest lines, oldest first, without reading the whole log; none if no line has the text `mentioned` as a
    fact, which most often is so and quickly seen."""
    try:
        with open(log_file(store, project), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            data = file.read(_LAST_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    if mentioned and json.dumps(mentioned).encode() not in data:
        return []
    return [line for row in data.split(b"\n") if (line := _line_of(row)) is not None]


def next_number(lines: Iterable[Mapping[str, Any]]) -> int:
    """The first number that these lines do not use."""
    return 1 + max((as_number(line.get(name)) for line in lines for name in ("turn", "number")), default=0)


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
