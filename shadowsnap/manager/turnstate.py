"""One turn: which directories were taken in it, by which tool calls."""

from __future__ import annotations

import os
import threading
import time

from shadowsnap.model import Outcome
from shadowsnap.records import Any, dataclass, field
from shadowsnap.store.projects import Project, project_of


@dataclass
class Slot:
    """One directory in one turn: whoever comes second waits for the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: Outcome | None = None
    named: set[bytes] = field(default_factory=set)
    turn: int | None = None
    project: Project | None = None
    whole: Project | None = None
    """The same, if all of it was taken."""
    before: str | None = None
    """The checkpoint that holds it."""

    def to_json(self) -> dict[str, Any]:
        workdir = str(self.project.workdir) if self.project else ""
        named = sorted(os.fsdecode(path) for path in self.named)
        return {
            "workdir": workdir,
            "turn": self.turn,
            "named": named,
            "whole": self.whole is not None,
            "before": self.before,
        }

    @classmethod
    def from_json(cls, place: dict[str, Any]) -> Slot:
        project = project_of(place["workdir"])
        named = {os.fsencode(path) for path in place["named"]}
        taken, whole = Outcome("already-taken"), project if place["whole"] else None
        return cls(
            done=taken, named=named, turn=place["turn"], project=project, whole=whole, before=place.get("before")
        )

    def remember(self, outcome: Outcome, project: Project, named: list[bytes]) -> None:
        self.done, self.project = outcome, project
        self.named.update(named)
        self.before = outcome.checkpoint.id if outcome.checkpoint is not None else None
        if outcome.status == "taken" and outcome.checkpoint is not None:
            self.turn = outcome.checkpoint.turn
        if outcome.status != "partial":
            self.whole = project


@dataclass
class Story:
    """What is to be remembered of a turn beside its checkpoints."""

    key: str = ""
    began: float = 0.0
    agent: str | None = None
    parent: str | None = None
    said: Any = None
    """The conversation before the turn."""
    messages: int | None = None
    not_kept: str = ""
    """Why the conversation was not kept."""
    attachments: list[str] = field(default_factory=list)
    """The refs under which it is kept."""
    kept_for: set[str] = field(default_factory=set)
    """The projects with whose checkpoints it is kept."""
    places: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: bool = False

    @classmethod
    def begin(cls, agent: str | None = None, parent: str | None = None, said: Any = None) -> Story:
        return cls(key=f"{time.time_ns()}-{os.getpid()}", began=time.time(), agent=agent, parent=parent, said=said)


@dataclass
class Turn:
    session_id: str | None = None
    prompt: str | None = None
    story: Story = field(default_factory=Story.begin)
    resumed: bool = False
    """Whether other processes have a part in it."""
    slots: dict[str, Slot] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def slot(self, project: str) -> Slot:
        with self.lock:
            return self.slots.setdefault(project, Slot())
