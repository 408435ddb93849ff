"""One turn: which directories were taken in it, by which tool calls."""

from __future__ import annotations

import hashlib
import os
import time
from _thread import allocate_lock

from shadowsnap.model import Outcome
from shadowsnap.records import Any, dataclass, field
from shadowsnap.store.projects import Project, project_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # it takes a hook longer to import than all the locks that it needs
    from threading import Lock


@dataclass
class Slot:
    """One directory in one turn: whoever comes second waits for the first."""

    lock: Lock = field(default_factory=allocate_lock)
    done: Outcome | None = None
    named: set[bytes] = field(default_factory=set)
    turn: int | None = None
    project: Project | None = None
    whole: Project | None = None
    """The same, if all of it was taken."""
    before: str | None = None
    """The checkpoint that holds it."""
    calls: int = 0
    """How many tool calls are under way, where each has checkpoints of its own."""
    number: int = 0
    """How many there were."""
    began: str | None = None
    """The checkpoint before the first of those that are under way."""
    ended: Outcome | None = None
    """What came of the last closing checkpoint."""

    def to_json(self) -> dict[str, Any]:
        workdir = str(self.project.workdir) if self.project else ""
        named = sorted(os.fsdecode(path) for path in self.named)
        return {
            "workdir": workdir,
            "turn": self.turn,
            "named": named,
            "whole": self.whole is not None,
            "before": self.before,
            "calls": [self.calls, self.number, self.began],
        }

    @classmethod
    def from_json(cls, place: dict[str, Any]) -> Slot:
        project = project_of(place["workdir"])
        named = {os.fsencode(path) for path in place["named"]}
        taken, whole = Outcome("already-taken"), project if place["whole"] else None
        calls, number, began = place.get("calls", (0, 0, None))
        return cls(
            done=taken, named=named, turn=place["turn"], project=project, whole=whole,
            before=place.get("before"), calls=calls, number=number, began=began,
        )  # fmt: skip

    def remember(self, outcome: Outcome, project: Project, named: list[bytes]) -> None:
        self.done, self.project = outcome, project
        self.named.update(named)
        if self.whole is None:  # the beginning of the turn stays what it was
            self.before = outcome.checkpoint.id if outcome.checkpoint is not None else None
        if outcome.status == "taken" and outcome.checkpoint is not None:
            self.turn = outcome.checkpoint.turn
        if outcome.status != "partial" or (outcome.checkpoint is not None and outcome.checkpoint.scope == "tree"):
            self.whole = project

    def begin_call(self, checkpoint: str | None) -> None:
        """A tool call begins at this checkpoint, or joins those that are under way."""
        self.began = self.began or checkpoint
        self.calls += 1
        self.number += 1

    def end_call(self) -> bool:
        """Whether that was the last one under way."""
        self.calls = max(0, self.calls - 1)
        return self.calls == 0 and self.began is not None

    def end(self, outcome: Outcome) -> None:
        """A checkpoint closed it, or there was nothing to close."""
        self.calls, self.began, self.ended = 0, None, outcome
        if self.turn is None and outcome.checkpoint is not None and outcome.status == "taken":
            self.turn = outcome.checkpoint.turn


def digest(tool_input: Any) -> str:
    """Equal for equal inputs of tools."""
    if tool_input is None:
        return ""
    from shadowsnap import lightjson as json

    try:
        told = json.dumps(tool_input, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return "?"  # whatever a host hands over must not stop it
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Call:
    """A tool call under way, and the projects that it may write to."""

    tool: str
    said: str
    projects: tuple[str, ...]

    def to_json(self) -> list[Any]:
        return [self.tool, self.said, list(self.projects)]

    @classmethod
    def from_json(cls, told: list[Any]) -> Call:
        tool, said, projects = told
        return cls(str(tool), str(said), tuple(map(str, projects)))


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
    calls: list[Call] = field(default_factory=list)
    lock: Lock = field(default_factory=allocate_lock)

    def slot(self, project: str) -> Slot:
        with self.lock:
            return self.slots.setdefault(project, Slot())

    def begin_call(self, call: Call) -> None:
        with self.lock:
            self.calls.append(call)

    def end_call(self, tool: str, said: str, projects: set[str]) -> Call | None:
        """The call under way that is meant: the very same, else one of the same tool, else one that may
        write to the same place."""
        with self.lock:
            fitting = (
                [call for call in self.calls if (call.tool, call.said) == (tool, said)]
                or [call for call in self.calls if call.tool == tool]
                or [call for call in self.calls if projects.intersection(call.projects)]
            )
            if not fitting:
                return None
            self.calls.remove(fitting[0])
            return fitting[0]
