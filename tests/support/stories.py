"""Histories of turns and edits whose truth is known, and the real command that is asked about them."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

from forking import run_program

from shadowsnap import CheckpointManager

BEFORE, PERSON = ("before", None), ("person", None)
Who = tuple[str, int | None]


def run_command(project: Path, base: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
    """The real command, in a process of its own."""
    done = run_program(*words, cwd=project, env={**os.environ, "SHADOWSNAP_HOME": str(base), "COLUMNS": "80"})
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def ask(project: Path, base: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """The answer of the real command, as JSON."""
    ran = run_command(project, base, "--json", *words, code=code)
    assert ran.stderr == b""
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["schema"] == 2
    return found


class Story:
    """A history in which every line is unique, so that its author is known without any diff."""

    def __init__(self, project: Path, base: Path) -> None:
        self.project = project
        self.authors: dict[str, Who] = {}
        self.base = base
        self._managers: dict[str, CheckpointManager] = {}
        self._numbers: dict[str, int] = {}
        self._count = 0

    def manager(self, session: str = "s1") -> CheckpointManager:
        if session not in self._managers:
            self._managers[session] = CheckpointManager(base=self.base, background_upkeep=False, fsync=False)
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
