"""The path of every tool call: one snapshot per directory per turn. What is called here by an
agent loop never raises."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.digests import bounded_id
from shadowsnap.errors import (
    DeadlineExceeded,
    DirectoryRefused,
    GitMissing,
    GitTooOld,
    LockTimeout,
    PathRefused,
    RulesUnavailable,
    ShadowsnapError,
    StoreTooNew,
)
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.manager.core import PathLike, as_list, once_more
from shadowsnap.manager.remembering import Remembering, story_from_json, story_to_json
from shadowsnap.manager.turnstate import Call, Slot, Turn, digest
from shadowsnap.model import Checkpoint, Outcome, Skipped
from shadowsnap.records import Any, replace
from shadowsnap.snapshot.take import Request, take_paths, take_snapshot, unprotected
from shadowsnap.snapshot.tools import find_targets, first_name, may_write, path_inside, refusal
from shadowsnap.snapshot.workspace import open_workspace
from shadowsnap.store.checkpoints import newest_name
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, project_of

_REFUSALS = (DirectoryRefused, GitMissing, GitTooOld, StoreTooNew)
_DONE = ("taken", "unchanged", "partial")
# What the capture of single named files may take after the deadline of the whole ran out.
_GRACE_SECONDS = 5.0
# A refusal last: an agent that works in the home directory names the files it writes.
_TELLING = ("failed", "partial", "taken", "unchanged", "already-taken", "refused", "disabled")


class Turns(Remembering):
    def new_turn(
        self,
        session_id: str | None = None,
        prompt: str | None = None,
        conversation: Any = None,
        *,
        agent: str | None = None,
        parent: str | None = None,
    ) -> None:
        """A new message of the person: the next writing tool call takes a new snapshot, which
        remembers what they asked for. `conversation` is what was said so far: JSON data, or the path
        of a transcript. `agent` and `parent` (the session that this one came from) go into the record
        of the session."""
        told, story = self._redacted(prompt), self._new_story(conversation, agent, parent)
        with self._turn_lock:
            left = self._turn
            self._turn = Turn(None if session_id is None else bounded_id(str(session_id)), told, story)
        self._remember_left(left)

    def turn_state(self) -> dict[str, Any]:
        """This turn as JSON, for another process of the same agent to go on with."""
        turn = self._turn
        places = [slot.to_json() for slot in list(turn.slots.values()) if slot.project is not None]
        story = story_to_json(turn.story)
        return {
            "session_id": turn.session_id,
            "prompt": turn.prompt,
            "places": places,
            "story": story,
            "granularity": self.settings.granularity,
            "calls": [call.to_json() for call in list(turn.calls)],
        }

    def resume_turn(self, state: dict[str, Any]) -> None:
        """Go on with a turn of another process: what that one took is already taken. A state that
        cannot be read is a turn that just began."""
        turn = Turn()
        try:
            turn = Turn(state.get("session_id"), state.get("prompt"), story_from_json(state.get("story")), True)
            slots = [Slot.from_json(place) for place in state.get("places", ())]
            turn.slots = {slot.project.id: slot for slot in slots if slot.project is not None}
            turn.calls = [Call.from_json(call) for call in state.get("calls", ())]
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        with self._turn_lock:
            self._turn = turn

    def before_tool(
        self,
        tool_name: str,
        tool_input: Any = None,
        cwd: PathLike | None = None,
        roots: Iterable[PathLike] = (),
    ) -> Outcome:
        """What an agent loop calls before each tool call: makes sure that everything this tool may
        write to is safe. That is the project around `cwd`, further `roots` of the workspace, and
        the projects of files that the input names; of a named file outside any project, the file
        alone. A tool that only reads is `not-needed`; of several directories, the outcome that
        matters most is returned and its note names the others."""
        if not self.settings.enabled:
            return Outcome("disabled")
        try:
            if not may_write(str(tool_name)):
                return Outcome("not-needed")
            where = os.path.abspath(os.fspath(cwd) if cwd else os.getcwd())
            base = self.settings.resolved_base()
            targets = find_targets(tool_input, where, [os.fspath(root) for root in roots], base)
        except Exception as problem:  # promise 4, as below
            return Outcome("failed", error=problem)
        reason, turn = f"before {tool_name} {first_name(targets)}".rstrip(), self._turn
        found = [
            (target.workdir, self._ensured(turn, target.workdir, reason, target.files, tool_name, target.whole))
            for target in targets
        ]
        self._begin_call(turn, str(tool_name), tool_input, [outcome for _, outcome in found])
        return _most_telling(found)

    def after_tool(self, tool_name: str, tool_input: Any = None, cwd: PathLike | None = None) -> Outcome:
        """What an agent loop calls after each tool call if the `granularity` is `tool`: what the call did is
        its work, and what happens until the next one is not the agent's. Of calls that run at the same
        time, the last one closes for all. Never raises."""
        if not self.settings.enabled:
            return Outcome("disabled")
        turn, closed = self._turn, list[tuple[Path, Outcome]]()
        try:
            if not turn.calls:
                return Outcome("not-needed")
            call = turn.end_call(str(tool_name), digest(tool_input), _projects_around(turn, cwd))
            for slot in [turn.slots[each] for each in call.projects if each in turn.slots] if call else ():
                with slot.lock:
                    if slot.whole is not None and slot.end_call():
                        outcome = self._close(turn, slot, slot.whole, f"after {tool_name}")
                        closed.append((slot.whole.workdir, outcome))
        except Exception as problem:  # promise 4
            return Outcome("failed", error=problem)
        return _most_telling(closed) if closed else Outcome("not-needed")

    def ensure_checkpoint(
        self,
        working_dir: PathLike,
        reason: str = "auto",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
    ) -> Outcome:
        """Make sure that the directory as it was at the beginning of this turn is safe. `paths`
        are files a tool names: they are captured even if ignored."""
        turn = self._turn
        outcome = self._ensured(turn, working_dir, reason, paths, tool)
        self._begin_call(turn, tool or "", None, [outcome])
        return outcome

    def end_turn(self, conversation: Any = None) -> list[Outcome]:
        """Close the turn with a snapshot of each directory that was touched in it. `conversation` is
        what was said up to now, as in `new_turn`."""
        turn, outcomes, closed = self._turn, list[Outcome](), dict[str, Outcome]()
        for slot in list(turn.slots.values()):
            if slot.done is None or slot.whole is None:
                continue
            if slot.number and slot.began is None:  # its last tool call is over: what came then is not the turn's
                closed.update({slot.whole.id: slot.ended} if slot.ended is not None else {})
                continue
            outcomes.append(self._close(turn, slot, slot.whole, "end of turn"))
            closed[slot.whole.id] = outcomes[-1]
        self._remember_end(turn, closed, conversation)
        return outcomes

    def snapshot(
        self,
        working_dir: PathLike,
        reason: str = "manual",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
        session_id: str | None = None,
        always: bool = False,
        **labels: Any,
    ) -> Outcome:
        """Take a checkpoint now, whatever the turn; `always`: even if nothing changed since the last.
        Unlike `ensure_checkpoint` it raises what goes wrong; `labels` are the host's own facts about
        it, kept in its metadata."""
        if not self.settings.enabled:
            return Outcome("disabled")
        project = project_of(working_dir)
        named = [path_inside(project.workdir, path) for path in as_list(paths)]
        whose = None if session_id is None else bounded_id(str(session_id))
        facts = (*labels.items(), ("session_id", whose), ("tool", tool))
        request = Request(str(reason), "manual", None, facts, always)
        outcome = self._snapshot(project, request, list(filter(None, named)))
        self._tell_outcome(working_dir, outcome)
        if outcome.checkpoint is None and outcome.error is not None:
            raise outcome.error
        return outcome

    def warm_up(self, working_dir: PathLike) -> bool:
        """Let a process in the background do the work of the first snapshot, while the model is
        thinking; a snapshot that comes meanwhile joins it. Returns at once, and says whether it was
        started: not if there is a checkpoint already, nor where none would be taken. Never raises."""
        from shadowsnap.manager.warmup import start_warmup

        try:
            project = project_of(working_dir)
            settings = self._settings_of(project)
            store = self._store()
            if not settings.enabled or _unusable(project.workdir) or refusal(project.workdir, store.base):
                return False
            return newest_name(store, project) is None and start_warmup(settings, project.workdir)
        except (ShadowsnapError, OSError):
            return False

    def _begin_call(self, turn: Turn, tool: str, tool_input: Any, outcomes: list[Outcome]) -> None:
        """Note a tool call that begins now, where it is to have checkpoints of its own."""
        if self.settings.granularity == "tool":
            found = [outcome.checkpoint for outcome in outcomes if outcome.status in ("taken", "unchanged")]
            projects = tuple(checkpoint.project for checkpoint in found if checkpoint is not None)
            if projects:
                turn.begin_call(Call(tool, digest(tool_input), projects))

    def _close(self, turn: Turn, slot: Slot, project: Project, reason: str) -> Outcome:
        """Close a turn in one directory, or a tool call of it."""
        try:
            facts = (*_facts(turn, None), ("before", slot.began or slot.before), ("call", slot.number or None))
            facts = tuple(fact for fact in facts if fact[1] is not None)
            outcome = self._snapshot(project, Request(reason, "turn-end", slot.turn, facts), [])
            if outcome.checkpoint is not None and outcome.error is None:
                slot.end(outcome)
        except Exception as problem:  # promise 4
            outcome = Outcome("failed", error=problem)
        self._tell_outcome(project.workdir, outcome)
        return outcome

    def _ensured(
        self,
        turn: Turn,
        working_dir: PathLike,
        reason: str,
        paths: Sequence[PathLike],
        tool: str | None,
        whole: bool = True,
    ) -> Outcome:
        if not self.settings.enabled:
            return Outcome("disabled")
        try:
            named = [os.fspath(path) for path in as_list(paths)]
            outcome = self._ensure(turn, working_dir, str(reason), named, tool, whole)
        except _REFUSALS as problem:
            outcome = Outcome("refused", error=problem)
        except Exception as problem:  # promise 4: an agent is never stopped by its safety net
            outcome = Outcome("failed", error=problem)
        self._tell_outcome(working_dir, outcome)
        return outcome

    def _ensure(
        self,
        turn: Turn,
        working_dir: PathLike,
        reason: str,
        paths: list[str],
        tool: str | None,
        whole: bool,
    ) -> Outcome:
        project = project_of(working_dir)
        slot = turn.slot(project.id)
        began = time.monotonic()
        if not slot.lock.acquire(timeout=self.settings.deadline or -1):
            waited = time.monotonic() - began
            raise LockTimeout(seconds=waited, name=project.id, holder="another thread of this process")
        try:
            named, outside = _named_inside(project, paths)
            each_call, first = self.settings.granularity == "tool", slot.done is None
            if slot.done is not None and not each_call and not self._still_unprotected(project, slot, named):
                return Outcome("already-taken", slot.done.checkpoint, skipped=slot.done.skipped)
            facts = _facts(turn, tool)
            if each_call:
                facts = (*facts, ("call", slot.number + 1), ("within", slot.began))
            request = Request(reason, "turn", slot.turn, facts)
            outcome = self._snapshot(project, request, named, whole)
            if outside:
                outcome = replace(
                    outcome, skipped=(*outcome.skipped, *(Skipped(path, "outside") for path in outside))
                )
            if outcome.status in _DONE and not isinstance(outcome.error, DeadlineExceeded):
                slot.remember(outcome, project, named)
                if each_call and outcome.status != "partial":
                    slot.begin_call(outcome.checkpoint.id if outcome.checkpoint is not None else None)
                if first or not each_call:
                    self._remember_beginning(turn, slot)
            return outcome
        finally:
            slot.lock.release()

    @once_more
    def _still_unprotected(self, project: Project, slot: Slot, named: list[bytes]) -> bool:
        """Whether a tool names something now that the snapshot of this turn does not hold."""
        new = set(named) - slot.named
        if not new or slot.whole is None:
            return bool(new)
        store = self._store()
        settings = self._settings_of(project)
        with open_workspace(store, project, settings, self._deadline(), "looking") as space:
            missing = bool(unprotected(space, new))
        if not missing:
            slot.named |= new
        return missing

    @once_more
    def _snapshot(self, project: Project, request: Request, named: list[bytes], whole: bool = True) -> Outcome:
        store = self._store()
        why = refusal(project.workdir, store.base) or _unusable(project.workdir)
        if why is None and not whole:
            why = "it does not look like a project, and the agent works elsewhere"
        if why is not None:
            problem = DirectoryRefused(workdir=project.workdir, why=why)
            return self._paths_alone(store, project, request, named, problem, "refused")
        try:
            with self._opened(store, project, request.kind) as (space, note):
                checkpoint, new = take_snapshot(space, request, named)
                note = "; ".join(filter(None, (note, _nothing_held(checkpoint))))
        except DeadlineExceeded as problem:
            return self._paths_alone(store, project, request, named, problem, "failed")
        undecided = sum(item.why == "undecided" for item in checkpoint.skipped)
        lacking = RulesUnavailable(count=undecided) if undecided else None
        status = "partial" if lacking else "taken" if new else "unchanged"
        return Outcome(status, checkpoint, error=lacking, skipped=checkpoint.skipped, note=note)

    def _paths_alone(
        self,
        store: Store,
        project: Project,
        request: Request,
        named: list[bytes],
        problem: Exception,
        otherwise: str,
    ) -> Outcome:
        """The whole directory cannot be had: capture at least what the tool names."""
        if not named or not project.workdir.is_dir():
            return Outcome(otherwise, error=problem)
        deadline = Deadline(_GRACE_SECONDS)
        with self._opened(store, project, request.kind, deadline=deadline) as (space, note):
            checkpoint = take_paths(space, request, named)
        return Outcome("partial", checkpoint, error=problem, skipped=checkpoint.skipped, note=note)


def _nothing_held(checkpoint: Checkpoint) -> str:
    """A word about a checkpoint without any file, if there are files: somebody may rely on it."""
    if checkpoint.tree != EMPTY_TREE or checkpoint.skipped or checkpoint.metadata.get("empty_dirs"):
        return ""
    try:
        there = {*os.listdir(checkpoint.workdir)} - {".git"}
    except OSError:
        return ""
    return "no file is captured: the ignore rules leave out everything that is here" if there else ""


def _facts(turn: Turn, tool: str | None) -> tuple[tuple[str, Any], ...]:
    return (("session_id", turn.session_id), ("prompt", turn.prompt), ("tool", tool))


def _projects_around(turn: Turn, cwd: PathLike | None) -> set[str]:
    try:
        folder = os.path.realpath(os.fspath(cwd) if cwd else os.getcwd())
    except (TypeError, ValueError, OSError):
        return set()  # the call itself is known by its name
    projects = [slot.project for slot in list(turn.slots.values()) if slot.project is not None]
    return {project.id for project in projects if Path(folder).is_relative_to(project.workdir)}


def _most_telling(found: list[tuple[Path, Outcome]]) -> Outcome:
    """One outcome for several directories: trouble first, then what was taken."""
    chosen = min(found, key=lambda item: _TELLING.index(item[1].status))
    others = [f"{workdir}: {outcome.status}" for workdir, outcome in found if outcome is not chosen[1]]
    return replace(chosen[1], note="; ".join(filter(None, (chosen[1].note, *others))))


def _named_inside(project: Project, paths: list[str]) -> tuple[list[bytes], list[str]]:
    inside, outside = [], []
    for path in paths:
        try:
            inside.append(path_inside(project.workdir, path))
        except PathRefused:
            outside.append(path)
    return [path for path in inside if path], outside


def _unusable(workdir: Path) -> str | None:
    if workdir.is_dir():
        return None
    return "it is not a directory" if workdir.exists() else "it does not exist"
