"""The calls of an agent loop: a turn begins, tools are about to run, the turn ends.

Nothing here raises. It is what a hook imports before each tool call that may write; what only people ask for is
in the manager.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any, Literal

from shadowsnap.access import Access, PathLike, retry_after_repair
from shadowsnap.deadline import Deadline
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
from shadowsnap.files import make_private_folder
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.process import start_detached
from shadowsnap.git.repository import network_environment, sealed_environment
from shadowsnap.model import Checkpoint, Outcome, Skipped
from shadowsnap.settings import Settings, settings_from_text, settings_to_text
from shadowsnap.snapshot.take import Request, all_held, take_paths, take_snapshot
from shadowsnap.snapshot.tools import bounded_id, may_write, path_inside, refusal
from shadowsnap.snapshot.workspace import open_workspace
from shadowsnap.store.checkpoints import list_checkpoints, newest_name
from shadowsnap.store.history import STILL_AT_WORK_SECONDS, logged_end, note
from shadowsnap.store.layout import Store
from shadowsnap.store.log import append_trouble, last_lines, note_trouble
from shadowsnap.store.projects import Project, locked_project, project_of
from shadowsnap.turns import (
    BackgroundJobs,
    Call,
    OpenTurn,
    TurnInProject,
    find_targets,
    first_name,
    input_digest,
    keep_at_beginning,
    keep_at_end,
    redacted_prompt,
)
from shadowsnap.upkeep import start_upkeep, why_due

TurnStatus = Literal["done", "interrupted"]
Taken = tuple[Outcome, int | None, str | None]
"""What came of a snapshot, the number of its turn, and the amended state before it, if any."""

_EVENTS = {
    "taken": "CheckpointTaken",
    "partial": "CheckpointTaken",
    "unchanged": "CheckpointUnchanged",
    "already-taken": "CheckpointSkipped",
    "refused": "CheckpointSkipped",
}
_TROUBLE = ("failed", "partial", "refused")
_REFUSALS = (DirectoryRefused, GitMissing, GitTooOld, StoreTooNew)
_SAFE = ("taken", "unchanged", "partial")
# Of several outcomes, the one that is returned. A refusal comes last: an agent that works in the home
# directory names the files it writes.
_BY_WEIGHT = ("failed", "partial", "taken", "unchanged", "already-taken", "refused", "disabled")
_GRACE_SECONDS = 5.0
_SECONDS_TO_NOTE = 1.0
"""What the capture of single named files may take after the deadline of the whole ran out."""


class AgentLoop:
    """The turn of an agent that is under way, and the snapshots that it needs. `CheckpointManager` describes the
    calls that have the same name there."""

    def __init__(self, access: Access, jobs: BackgroundJobs | None = None) -> None:
        self._access = access
        self.turn = OpenTurn()
        self.jobs = jobs or BackgroundJobs()
        """Work in threads of its own."""
        self._turn_lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        return self._access.settings

    @property
    def warnings(self) -> list[str]:
        """What was ignored in settings files and variables, and why."""
        return self._access.warnings

    # --- a turn ---------------------------------------------------------------------------------------

    def new_turn(
        self, session_id: str | None, prompt: str | None, conversation: Any, agent: str | None, parent: str | None
    ) -> None:
        turn = OpenTurn(
            session_id=None if session_id is None else bounded_id(str(session_id)),
            prompt=self._redacted(prompt),
            agent=agent,
            parent=parent,
        )
        if conversation is not None and self.settings.enabled:
            turn.not_kept = "unreadable"
            self.safely(lambda: turn.take_conversation(conversation, self.settings))
        with self._turn_lock:
            self.turn = turn

    def end_turn(
        self, conversation: Any = None, status: TurnStatus = "done", last_heard: float | None = None
    ) -> list[Outcome]:
        """Close the turn. One that was given up long ago, when it was last heard of, ends with the first state
        that is known from after that: what others did until now is none of its work."""
        turn, outcomes = self.turn, list[Outcome]()
        given_up = last_heard if last_heard and time.time() - last_heard > STILL_AT_WORK_SECONDS else None
        turn.again += turn.ended
        for part in list(turn.projects.values()):
            if part.outcome is None or part.project is None:
                continue
            if given_up is not None and (known := self._state_after(part.project, part.number, given_up)):
                part.after = Outcome("unchanged", known)
                self.safely(lambda part=part: self._log_end(turn, part, status))  # type: ignore[misc]
                continue
            # Its last tool call is over, so that the rest is not the turn's; or only named files were captured.
            if not part.is_whole or (part.call_count and part.began is None):
                self.safely(lambda part=part: self._log_end(turn, part, status))  # type: ignore[misc]
                continue
            outcomes.append(self._close(turn, part, part.project, "end of turn", status))
        turn.ended = True
        if self.settings.sync:
            self.sync(part.project for part in turn.projects.values() if part.project is not None)
        if self.settings.enabled and (turn.conversation is not None or conversation is not None or turn.not_kept):
            self.jobs.wait()
            self.safely(lambda: keep_at_end(turn, conversation, self.settings))
        return outcomes

    def turn_state(self) -> dict[str, Any]:
        return self.turn.to_json(self.settings.granularity)

    def note_named(self, files: Iterable[str]) -> None:
        """Note files that tools of this turn named without a snapshot, because they did not exist."""
        paths = list(files)
        for part in self.turn.projects.values():
            if part.project is not None:
                part.named.update(_named_inside(part.project, paths)[0])

    def resume_turn(self, state: dict[str, Any]) -> None:
        with self._turn_lock:
            self.turn = OpenTurn.from_json(state)

    # --- a tool call ----------------------------------------------------------------------------------

    def before_tool(
        self, tool_name: str, tool_input: Any, cwd: PathLike | None, roots: Iterable[PathLike]
    ) -> Outcome:
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
        reason, turn = f"before {tool_name} {first_name(targets)}".rstrip(), self.turn
        turn.note_tool(str(tool_name), tool_input)
        found = []
        for target in targets:
            folder, files, whole = target.workdir, target.files, target.whole
            found.append((folder, self._ensure_safely(turn, folder, reason, files, tool_name, whole)))
        self._begin_call(turn, str(tool_name), tool_input, [outcome for _, outcome in found])
        return _weightiest(found)

    def ensure_checkpoint(
        self,
        working_dir: PathLike,
        reason: str,
        paths: Sequence[PathLike],
        tool: str | None,
        labels: Mapping[str, Any],
    ) -> Outcome:
        turn = self.turn
        if tool:
            turn.note_tool(tool, os.fspath(paths[0]) if paths and not isinstance(paths, str) else None)
        outcome = self._ensure_safely(turn, working_dir, reason, paths, tool, labels=labels)
        self._begin_call(turn, tool or "", None, [outcome])
        return outcome

    def after_tool(self, tool_name: str, tool_input: Any, cwd: PathLike | None) -> Outcome:
        if not self.settings.enabled:
            return Outcome("disabled")
        turn, closed = self.turn, list[tuple[Path, Outcome]]()
        try:
            if not turn.calls:
                return Outcome("not-needed")
            call = turn.end_call(str(tool_name), input_digest(tool_input), _projects_around(turn, cwd))
            for part in [turn.projects[each] for each in call.projects if each in turn.projects] if call else ():
                with part.lock:
                    if part.is_whole and part.project is not None and part.end_call():
                        outcome = self._close(turn, part, part.project, f"after {tool_name}", "")
                        closed.append((part.project.workdir, outcome))
        except Exception as problem:  # promise 4
            return Outcome("failed", error=problem)
        return _weightiest(closed) if closed else Outcome("not-needed")

    def _ensure_safely(
        self,
        turn: OpenTurn,
        working_dir: PathLike,
        reason: str,
        paths: Sequence[PathLike],
        tool: str | None,
        whole: bool = True,
        labels: Mapping[str, Any] | None = None,
    ) -> Outcome:
        if not self.settings.enabled:
            return Outcome("disabled")
        try:
            named = [os.fspath(path) for path in as_list(paths)]
            outcome = self._ensure(turn, working_dir, str(reason), named, tool, whole, labels or {})
        except _REFUSALS as problem:
            outcome = Outcome("refused", error=problem)
        except Exception as problem:  # promise 4: an agent is never stopped by its safety net
            outcome = Outcome("failed", error=problem)
        if outcome.status in ("failed", "refused"):
            self.safely(lambda: self._note_missed(working_dir, turn))
        self.report(working_dir, outcome)
        return outcome

    def _note_missed(self, working_dir: PathLike, turn: OpenTurn) -> None:
        """Say in the log that a tool runs without a snapshot: what it writes is not the person's work."""
        project = project_of(working_dir)
        if not os.path.exists(Store(self.settings.resolved_base()).log_file(project.id)):
            return  # nothing is known from before that it could be compared with
        try:
            store = self._access.store()
        except ShadowsnapError:
            return  # of a newer version, or not to be written
        with locked_project(store, project, "note", Deadline(_SECONDS_TO_NOTE)):
            newest = last_lines(store, project.id)[-1:]
            if not newest or newest[0]["op"] != "missed":
                note(store, project, "missed", session=turn.session_id)

    def _ensure(
        self,
        turn: OpenTurn,
        working_dir: PathLike,
        reason: str,
        paths: list[str],
        tool: str | None,
        whole: bool,
        labels: Mapping[str, Any],
    ) -> Outcome:
        project = project_of(working_dir)
        part = turn.project(project.id)
        began = time.monotonic()
        if not part.lock.acquire(timeout=self.settings.deadline or -1):
            waited = time.monotonic() - began
            raise LockTimeout(seconds=waited, name=project.id, holder="another thread of this process")
        try:
            named, outside = _named_inside(project, paths)
            each_call, first = self.settings.granularity == "tool", part.outcome is None
            if part.outcome is not None and not each_call and not self._still_unprotected(project, part, named):
                return Outcome("already-taken", part.outcome.checkpoint, skipped=part.outcome.skipped)
            facts = (*labels.items(), *turn.facts(tool))
            if each_call:
                facts = (*facts, ("call", part.call_count + 1), ("within", part.began))
            if part.is_whole:
                facts = (*facts, ("amends", part.before))
            request = Request(reason, "turn", part.number, facts)
            outcome, number, before = self.take(project, request, named, whole)
            if outside:
                skipped = (*outcome.skipped, *(Skipped(path, "outside") for path in outside))
                outcome = replace(outcome, skipped=skipped)
            if outcome.status in _SAFE and not isinstance(outcome.error, DeadlineExceeded):
                part.take(outcome, number, project, named)
                part.before = before or part.before
                if each_call and outcome.status != "partial":
                    part.begin_call(outcome.checkpoint.id if outcome.checkpoint is not None else None)
                if first and not turn.resumed and turn.conversation is not None:
                    self._keep_later(turn, part)  # the tool waits
            return outcome
        finally:
            part.lock.release()

    @retry_after_repair
    def _still_unprotected(self, project: Project, part: TurnInProject, named: list[bytes]) -> bool:
        """Whether a tool names something now that the snapshot of this turn does not hold."""
        new = set(named) - part.named
        if not new or not part.is_whole:
            return bool(new)
        access = self._access
        settings, deadline = access.settings_of(project), access.deadline()
        with open_workspace(access.store(), project, settings, deadline, "looking") as space:
            held = all_held(space, new)
        if held:
            part.named |= new
        return not held

    def _begin_call(self, turn: OpenTurn, tool: str, tool_input: Any, outcomes: list[Outcome]) -> None:
        """Note a tool call that begins now, where it is to have checkpoints of its own."""
        if self.settings.granularity == "tool":
            found = [outcome.checkpoint for outcome in outcomes if outcome.status in ("taken", "unchanged")]
            projects = tuple(checkpoint.project for checkpoint in found if checkpoint is not None)
            if projects:
                turn.begin_call(Call(tool, input_digest(tool_input), projects))

    # --- the end of a turn or a call --------------------------------------------------------------------

    def _close(self, turn: OpenTurn, part: TurnInProject, project: Project, reason: str, status: str) -> Outcome:
        """Close a turn in one project (with its status), or a tool call of it."""
        try:
            facts = (*turn.facts(), ("before", part.began or part.before), ("call", part.call_count or None))
            if status:
                facts = (*facts, ("ended", status), ("tools", turn.tools or None), ("again", turn.again or None))
            facts = tuple(fact for fact in facts if fact[1] is not None)
            # Also what was named before it existed: if it is ignored, no scan finds it.
            outcome, *_ = self.take(project, Request(reason, "turn-end", part.number, facts), sorted(part.named))
            if outcome.checkpoint is not None and outcome.error is None:
                part.close(outcome)
            if status and part.call_count:
                self._log_end(turn, part, status)
        except Exception as problem:  # promise 4
            outcome = Outcome("failed", error=problem)
        self.report(project.workdir, outcome)
        return outcome

    def _state_after(self, project: Project, number: int | None, moment: float) -> Checkpoint | None:
        """The oldest state of the whole directory that was captured after a moment, but not for this turn."""
        try:
            listed = list_checkpoints(self._access.store(), project, self._access.deadline(), statistics=False)
        except ShadowsnapError:
            return None  # the turn ends with the files as they are
        later = [each for each in listed if each.created_at.timestamp() > moment]
        return next((each for each in reversed(later) if each.scope == "tree" and each.turn != number), None)

    def _log_end(self, turn: OpenTurn, part: TurnInProject, status: str) -> None:
        """The end of a turn that takes no checkpoint of its own for it."""
        assert part.project is not None
        store = self._access.store()
        after = part.after.checkpoint if part.after is not None else None
        with locked_project(store, part.project, "end of turn", self._access.deadline()):
            if logged_end(store, part.project, part.number, turn.again) is not None:
                return
            facts: dict[str, Any] = {"turn": part.number, "status": status, "tools": turn.tools or None}
            facts["again"] = turn.again or None
            if after is not None:
                facts |= {"after": after.id, "tree": after.tree}
            note(store, part.project, "end", **facts)

    def sync(self, projects: Iterable[Project]) -> None:
        """Put projects that have a remote into the queue, and make sure that a process pushes them. Nothing here
        waits for a remote."""
        from shadowsnap.store import lanes  # here: most people have no remote

        try:
            base = self.settings.resolved_base()
            due = [each for each in projects if os.path.exists(base / "remote" / f"{each.id}.json")]
            if due:
                store = Store(base, self.settings.fsync)
                for project in due:
                    lanes.note_unpushed(store, project.id)
                if not lanes.is_worked_off(store):
                    text, environment = settings_to_text(self.settings), network_environment()
                    start_detached("shadowsnap.remote.push", text, cwd=store.git_dir, environment=environment)
        except Exception:  # promise 4: `status` shows the age of unpushed work
            pass

    # --- a snapshot -------------------------------------------------------------------------------------

    @retry_after_repair
    def take(self, project: Project, request: Request, named: list[bytes], whole: bool = True) -> Taken:
        """Take a snapshot. If the directory as a whole cannot be captured, at least what the tool names is."""
        store = self._access.store()
        why = refusal(project.workdir, store.base) or why_unusable(project.workdir)
        if why is None and not whole:
            why = "it does not look like a project, and the agent works elsewhere"
        if why is not None:
            problem = DirectoryRefused(workdir=project.workdir, why=why)
            return self._take_named(store, project, request, named, problem, "refused")
        try:
            with self._access.opened(store, project, request.kind) as (space, recovered):
                checkpoint, new, number, before = take_snapshot(space, request, named)
                notes = "; ".join(filter(None, (recovered, _nothing_held(checkpoint))))
        except DeadlineExceeded as problem:
            return self._take_named(store, project, request, named, problem, "failed")
        undecided = sum(item.why == "undecided" for item in checkpoint.skipped)
        lacking = RulesUnavailable(count=undecided) if undecided else None
        outcome = Outcome(
            "partial" if lacking else "taken" if new else "unchanged",
            checkpoint,
            error=lacking,
            skipped=checkpoint.skipped,
            note=notes,
        )
        return outcome, number, before

    def _take_named(
        self,
        store: Store,
        project: Project,
        request: Request,
        named: list[bytes],
        problem: Exception,
        otherwise: Literal["refused", "failed"],
    ) -> Taken:
        """The directory as a whole cannot be captured: capture at least what the tool names."""
        if not named or not project.workdir.is_dir():
            return Outcome(otherwise, error=problem), None, None
        deadline = Deadline(_GRACE_SECONDS)
        with self._access.opened(store, project, request.kind, deadline=deadline) as (space, recovered):
            checkpoint, _, number, _ = take_paths(space, request, named)
        outcome = Outcome("partial", checkpoint, error=problem, skipped=checkpoint.skipped, note=recovered)
        return outcome, number, None

    def report(self, working_dir: PathLike, outcome: Outcome) -> None:
        """Note what went wrong for `status`, start upkeep in the background if it is due, and emit the event."""
        base = self.settings.resolved_base()
        try:
            if outcome.status in _TROUBLE:
                note_trouble(base, os.fspath(working_dir), outcome)
            elif outcome.status == "taken" and outcome.checkpoint and self.settings.background_upkeep:
                store = Store(base, self.settings.fsync)
                if why_due(store, Project(outcome.checkpoint.project, Path()), self.settings):
                    start_upkeep(store, self.settings)
        except Exception:  # the snapshot is what counts
            pass
        self._access.emit(_EVENTS.get(outcome.status, "CheckpointFailed"), working_dir, outcome=outcome)

    # --- what a snapshot does not depend on ---------------------------------------------------------------

    def safely(self, job: Callable[[], None]) -> None:
        """Do what a snapshot does not depend on; if it fails, `status` reports it."""
        try:
            job()
        except Exception as problem:  # promise 4
            try:
                error = type(problem).__name__
                what = f"a session could not be recorded: {error}: {problem}"[:2000]
                append_trouble(self.settings.resolved_base(), kind="session", what=what, error=error, advice="")
            except Exception:  # a log that cannot be written must not stop an agent
                pass

    def _redacted(self, prompt: Any) -> str | None:
        """What a person asked for, without secrets. If that fails, nothing of it is kept."""
        found: list[str] = []

        def redact() -> None:
            found.append(redacted_prompt(prompt, self.settings))

        if prompt:
            self.safely(redact)
        return found[0] if found else None

    def _keep_later(self, turn: OpenTurn, part: TurnInProject) -> None:
        """Keep the conversation before a turn, in the background. A program that is about to end has no threads
        any more; then it is done at the end of the turn."""

        def keep() -> None:
            keep_at_beginning(turn, part, self.settings)

        self.safely(lambda: self.jobs.add(lambda: self.safely(keep)))

    # --- the first snapshot, taken ahead of time ----------------------------------------------------------

    def warm_up(self, working_dir: PathLike) -> bool:
        try:
            project = project_of(working_dir)
            settings = self._access.settings_of(project)
            store = self._access.store()
            if not settings.enabled or why_unusable(project.workdir) or refusal(project.workdir, store.base):
                return False
            return newest_name(store, project) is None and _start_warm_up(settings, project.workdir)
        except (ShadowsnapError, OSError):
            return False

    def take_first(self, working_dir: PathLike) -> Outcome:
        outcome, *_ = self.take(project_of(working_dir), Request("first snapshot", "warm-up"), [])
        self.report(working_dir, outcome)
        if outcome.checkpoint is None and outcome.error is not None:
            raise outcome.error
        return outcome


def as_list(paths: Sequence[PathLike] | PathLike) -> Sequence[PathLike]:
    return [paths] if isinstance(paths, (str, os.PathLike)) else paths


def why_unusable(workdir: Path) -> str | None:
    if workdir.is_dir():
        return None
    return "it is not a directory" if workdir.exists() else "it does not exist"


def _named_inside(project: Project, paths: list[str]) -> tuple[list[bytes], list[str]]:
    inside, outside = [], []
    for path in paths:
        try:
            inside.append(path_inside(project.workdir, path))
        except PathRefused:
            outside.append(path)
    return [path for path in inside if path], outside


def _projects_around(turn: OpenTurn, cwd: PathLike | None) -> set[str]:
    try:
        folder = os.path.realpath(os.fspath(cwd) if cwd else os.getcwd())
    except (TypeError, ValueError, OSError):
        return set()  # the call itself is known by its name
    projects = [part.project for part in list(turn.projects.values()) if part.project is not None]
    return {project.id for project in projects if Path(folder).is_relative_to(project.workdir)}


def _weightiest(found: list[tuple[Path, Outcome]]) -> Outcome:
    """One outcome for several directories: trouble first, then what was taken."""
    chosen = min(found, key=lambda item: _BY_WEIGHT.index(item[1].status))
    others = [f"{workdir}: {outcome.status}" for workdir, outcome in found if outcome is not chosen[1]]
    return replace(chosen[1], note="; ".join(filter(None, (chosen[1].note, *others))))


def _nothing_held(checkpoint: Checkpoint) -> str:
    """A note about a checkpoint without any file in a directory that has files."""
    if checkpoint.tree != EMPTY_TREE or checkpoint.skipped or checkpoint.metadata.get("empty_dirs"):
        return ""
    try:
        there = {*os.listdir(checkpoint.workdir)} - {".git"}
    except OSError:
        return ""
    return "no file is captured: the ignore rules leave out everything that is here" if there else ""


# --- the process that takes a first snapshot ------------------------------------------------------------------

_ROUND_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_MOST_ROUNDS = 150


def _start_warm_up(settings: Settings, workdir: Path) -> bool:
    """Start a process that takes the first snapshot of a project; whether that was possible."""
    base = settings.resolved_base()
    make_private_folder(base)
    text = settings_to_text(replace(settings, base=base))
    return start_detached("shadowsnap.loop", text, str(workdir), cwd=base, environment=sealed_environment())


def main(settings: str, workdir: str) -> int:
    """What that process does. A large project takes longer than a tool call may wait, so it works in short rounds,
    each of which goes on where the last one stopped. A snapshot that comes meanwhile waits for the end of a round,
    and goes on from there, too."""
    if hasattr(os, "nice"):
        os.nice(10)
    loop = AgentLoop(Access(replace(settings_from_text(settings), deadline=_ROUND_SECONDS)))
    for _ in range(_MOST_ROUNDS):
        try:
            loop.take_first(workdir)
        except (DeadlineExceeded, LockTimeout):
            sleep(_PAUSE_SECONDS)
        except (ShadowsnapError, OSError):
            return 1  # refused, or a problem that the next snapshot will report
        else:
            return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
