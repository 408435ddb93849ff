"""How long questions take that are answered from the operation logs: 200 projects with 10,000 entries in all.

    scripts/bench log [PROJECTS ENTRIES]

Every project is a real one, with real checkpoints. Prints the median of five runs of each question.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from shadowsnap import CheckpointManager

PROJECTS, ENTRIES, RUNS = 200, 10_000, 5
WORDS = ("fix the tests", "add a login page", "clean up", "write the docs", "rename the module")


def fill(manager: CheckpointManager, top: Path, projects: int, entries: int) -> list[Path]:
    """Projects whose turns each change one of a few files; sessions of five turns."""
    folders = [top / f"project-{number}" for number in range(projects)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        for turn in range(entries // projects):
            session, name = f"session-{number}-{turn // 5}", f"file{turn % 7}.txt"
            manager.new_turn(session, f"{WORDS[turn % len(WORDS)]} number {turn}", agent="bench")
            manager.before_tool("Write", {"file_path": name}, folder)
            (folder / name).write_text(f"{number} {turn}\n")
            manager.end_turn()
    return folders


def questions(manager: CheckpointManager, folders: list[Path]) -> dict[str, Callable[[], object]]:
    middle = folders[len(folders) // 2]
    number = len(folders) // 2
    since = time.time() - 60
    return {
        "timeline of one project": lambda: manager.timeline(middle),
        "timeline of one project, one path": lambda: manager.timeline(middle, path="file3.txt"),
        "one session by its id": lambda: manager.session(f"session-{number}-0"),
        "all sessions": lambda: manager.sessions(),
        "sessions of one project": lambda: manager.sessions(working_dir=middle),
        "sessions by text": lambda: manager.sessions(text="login page number 11"),
        "sessions by time": lambda: manager.sessions(since=since),
        "sessions by path, in one project": lambda: manager.sessions(working_dir=middle, path="file3.txt"),
        "sessions by path, in all projects": lambda: manager.sessions(path="file3.txt"),
        "checkpoints by text, in all projects": lambda: manager.search("login page number 11"),
        "checkpoints by path, in all projects": lambda: manager.search(path="file3.txt"),
        "checkpoints by session": lambda: manager.search(session_id=f"session-{number}-0"),
        "a state by its number": lambda: manager.get(middle, 7),
    }


def main(arguments: list[str]) -> int:
    projects, entries = map(int, arguments) if len(arguments) == 2 else (PROJECTS, ENTRIES)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        manager = CheckpointManager(
            base=top / "base", fsync=False, background_upkeep=False, max_snapshots=0, deadline=0
        )
        began = time.monotonic()
        folders = fill(manager, top, projects, entries)
        size = sum(path.stat().st_size for path in (top / "base" / "log").iterdir())
        seconds = time.monotonic() - began
        print(f"{projects} projects, {entries} turns, {size / 2**20:.1f} MB of logs, made in {seconds:.0f} s")
        for name, ask in questions(manager, folders).items():
            times = []
            for _ in range(RUNS):
                began = time.perf_counter()
                found = ask()
                times.append(1000 * (time.perf_counter() - began))
            count = len(found) if isinstance(found, list) else 1
            print(f"{name:40} {median(times):8.0f} ms  {count:6} found")
    return 0
