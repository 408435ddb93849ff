"""blame: each line of a file, and who brought it in."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import remove_tree
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchPath, NoSuchTurn, NothingToRedo, NothingToUndo

BEFORE, PERSON = ("before", None), ("person", None)
Who = tuple[str, int | None]


def ask(project: Path, base: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
    """The real command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "shadowsnap", *words],
        cwd=project,
        env={**os.environ, "SHADOWSNAP_HOME": str(base), "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def blamed(project: Path, base: Path, name: str, *options: str) -> dict[str, Any]:
    found = json.loads(ask(project, base, "--json", "blame", name, *options).stdout)
    assert found.keys() == {"schema", "lines"} and found["schema"] == 2
    assert all(line.keys() == {"line", "number", "who", "agent", "prompt"} for line in found["lines"])
    return found


class Story:
    """A history in which every line is unique, so that its author is known without any diff."""

    def __init__(self, project: Path, base: Path) -> None:
        self.project = project
        self.authors: dict[str, Who] = {}
        self._base = base
        self._managers: dict[str, CheckpointManager] = {}
        self._numbers: dict[str, int] = {}
        self._count = 0

    def manager(self, session: str = "s1") -> CheckpointManager:
        if session not in self._managers:
            self._managers[session] = CheckpointManager(base=self._base, background_upkeep=False, fsync=False)
        return self._managers[session]

    # --- edits ---------------------------------------------------------------------------------------

    def new_line(self, who: Who) -> str:
        self._count += 1
        text = f"line {self._count} of {who[0]} {who[1]}"
        self.authors[text] = who
        return text

    def edit(self, name: str, who: Who, chance: random.Random) -> None:
        """Insert, replace and delete a few lines; most of the file stays."""
        path = self.project / name
        lines = path.read_text().splitlines() if path.exists() else []
        for _ in range(chance.randint(1, 4)):
            at = chance.randint(0, len(lines))
            new = [self.new_line(who) for _ in range(chance.choice((0, 1, 1, 2, 5)))]
            lines[at : at + chance.choice((0, 0, 1, 3))] = new
        end = chance.choice(("\n", "\n", "\n", ""))
        path.write_text("\n".join(lines) + (end if lines else ""))

    # --- turns ---------------------------------------------------------------------------------------

    def begin(self, session: str, tool: str = "Bash", name: str | None = None) -> Who:
        manager = self.manager(session)
        manager.new_turn(session, prompt=f"a prompt in {session}", agent="claude")
        self.call(session, tool, name)
        number = max(entry.number or 0 for entry in manager.timeline(self.project))
        return ("turn", number)

    def call(self, session: str, tool: str, name: str | None) -> None:
        told = {"command": "make"} if name is None else {"file_path": str(self.project / name)}
        outcome = self.manager(session).before_tool(tool, told, self.project)
        assert outcome.protected, outcome

    def end(self, session: str) -> None:
        self.manager(session).end_turn()

    def turn(self, session: str, name: str, chance: random.Random) -> Who:
        who = self.begin(session)
        self.edit(name, who, chance)
        self.end(session)
        return who

    # --- what blame has to say -----------------------------------------------------------------------

    def check(self, name: str) -> None:
        lines = self.manager().blame(self.project, name)
        content = (self.project / name).read_bytes()
        assert b"".join(line.text for line in lines) == content
        assert [line.line for line in lines] == list(range(1, len(lines) + 1))
        texts = [line.text.decode().removesuffix("\n") for line in lines]
        found = {text: (line.author.who, line.author.number) for text, line in zip(texts, lines, strict=True)}
        wrong = {text: who for text, who in found.items() if who != self.authors[text]}
        assert not wrong, wrong


@pytest.fixture
def story(tmp_path: Path, base: Path) -> Story:
    project = tmp_path / "work"
    project.mkdir()
    return Story(project, base)


# --- random histories -------------------------------------------------------------------------------------

FILES = ("a.txt", "b.txt")
DEEDS = ("turn", "turn", "turn", "person", "person", "interrupted", "restore", "undo", "redo", "revert",
         "snapshot", "rename", "some", "parallel", "two calls", "delete")  # fmt: skip


@given(seed=st.integers(0, 10**9))
def test_blame_of_random_histories(tmp_path: Path, seed: int) -> None:
    chance, place = random.Random(seed), tmp_path / f"{seed}-{time.time_ns()}"
    project = place / "work"
    project.mkdir(parents=True)
    story = Story(project, place / "base")
    for name in FILES:
        for _ in range(3):
            story.edit(name, BEFORE, chance)
    story.turn("s1", "a.txt", chance)
    done = []
    for _ in range(chance.randint(3, 10)):
        deed = chance.choice(DEEDS)
        done.append(deed)
        perform(story, deed, chance)
        if chance.random() < 0.3:
            check_all(story, done)
    check_all(story, done)
    remove_tree(place)


def check_all(story: Story, done: list[str]) -> None:
    for path in sorted(story.project.glob("*.txt")):
        try:
            story.check(path.name)
        except AssertionError as problem:
            raise AssertionError(f"{path.name} after {done}: {problem}") from problem


def perform(story: Story, deed: str, chance: random.Random) -> None:
    project, manager = story.project, story.manager()
    names = sorted(path.name for path in project.glob("*.txt"))
    name = chance.choice((*names, "new.txt"))
    if deed == "turn":
        story.turn(chance.choice(("s1", "s2")), name, chance)
    elif deed == "person":
        story.edit(name, PERSON, chance)
    elif deed == "interrupted":  # never closed; the next turn of the session comes at once
        who = story.begin("s1")
        story.edit(name, who, chance)
        story.begin("s1")
        story.end("s1")
    elif deed == "snapshot":
        manager.snapshot(project, "by hand")
    elif deed == "delete" and len(names) > 1:
        (project / names[0]).unlink()
    elif deed == "rename" and names:
        manager.snapshot(project, "about to rename")
        (project / names[-1]).rename(project / f"renamed-{chance.randint(0, 10**6)}.txt")
        manager.snapshot(project, "renamed")
    elif deed == "two calls":
        who = story.begin("s2")
        story.edit(name, who, chance)
        story.call("s2", "Edit", name)
        story.edit(chance.choice(FILES), who, chance)
        story.end("s2")
    elif deed == "parallel":
        one, two = story.begin("s1", "Edit", "a.txt"), story.begin("s2", "Edit", "b.txt")
        story.edit("a.txt", one, chance)
        story.edit("b.txt", two, chance)
        for session in chance.sample(("s1", "s2"), 2):
            story.end(session)
    elif deed in ("restore", "some"):
        numbers = [entry.number for entry in manager.timeline(project) if entry.number and entry.state]
        ref, paths = chance.choice(numbers), [] if deed == "restore" else chance.sample(FILES, 1)
        try:
            manager.restore(project, str(ref) + chance.choice(("", ":after")), paths)
        except (NoSuchPath, NoSuchTurn):
            pass  # nothing of that name then or now; a turn that was never closed has no end
    elif deed in ("undo", "redo"):
        with suppress(NothingToUndo, NothingToRedo):
            getattr(manager, deed)(project)
    elif deed == "revert":
        turns = [entry.number for entry in manager.timeline(project) if entry.kind == "turn"]
        manager.revert(project, chance.choice(turns))
