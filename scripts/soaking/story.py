"""One directory and what happens to it.

A story is a list of random steps in one directory: files are edited, and shadowsnap is asked for something in
one of two processes, with one of several managers. While shadowsnap works, nothing else touches the directory: the
judge can be strict because there is one writer at a time. (Other stories, prunes and unjudged chaos go on in the
same store.) A story that found something ends there, since what follows would be wrong for the same reason; the
next one begins with a new directory.

Each step draws from its own random numbers, named by seed, story and step. So `--seed 7 --story repository:13`
repeats a story, except for the moments in which processes are killed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from soaking.edits import SETTINGS, Edits
from soaking.judge import (
    Finding,
    GitProblem,
    Record,
    Store,
    Tree,
    Turn,
    judge_plan,
    judge_restore,
    judge_revert,
    judge_same,
    judge_saved,
    judge_snapshot,
    judge_unchanged,
)
from soaking.manifest import Manifest, Settings, State, leftovers, look, read_manifest, stamp_of_git
from soaking.workers import Died, Reply, Worker

KINDS = ("plain", "repository", "below")
"""A directory without git, the top of a repository, and a directory inside of one."""
_LONGEST = 120
_CERTAIN = 6
"""So many of the newest checkpoints no limit takes: pins and what an undo needs count as well."""

Expectation = Callable[[Manifest], list[Finding]]


@dataclass
class Tally:
    """What was done, by all stories of a lane."""

    counts: Counter[str] = field(default_factory=Counter)
    snapshot_ms: list[float] = field(default_factory=list)
    usual_ms: dict[str, float] = field(default_factory=dict)
    """How long a call takes, so that kills hit all of it."""


@dataclass(frozen=True)
class Manager:
    """Which manager in which process: everything that makes two of them different."""

    worker: int
    watch: bool
    which: int
    settings: Settings


class Stop(Exception):
    """The story found something, or time is up."""


class Story:
    def __init__(
        self, seed: int, kind: str, number: int, top: Path, workers: list[Worker], tally: Tally, end: float
    ) -> None:
        self.name = f"{kind}:{number}"
        self.findings: list[Finding] = []
        self.steps: list[str] = []
        """The steps so far, in words."""
        self._seed = seed
        self._kind = kind
        self._end = end
        self._workers = workers
        self._tally = tally
        self._base = top / "base"
        self._cold = top / "cold" / f"{kind}-{number}"
        self._top = top / "projects" / f"{kind}-{number}"
        self._project = self._top / "pkg" if kind == "below" else self._top
        self._edits = Edits(self._project, self._top)
        self._store = Store(self._base / "store")
        self._chance = Random(f"{seed}/{self.name}/begin")
        self._settings: Settings = {}
        self._records: dict[str, Record] = {}
        self._turns: list[Turn] = []
        self._named: set[str] = set()
        """Every path that a tool ever named."""
        self._unreported: dict[str, tuple[State, frozenset[str]]] = {}
        """By reason: snapshots whose process was killed. If the checkpoint exists, it must hold this."""
        self._calls = 0
        self._step = 0

    def run(self) -> None:
        repository, nested = self._kind != "plain", self._chance.random() < 0.3
        self._edits.begin(self._chance, repository, nested)
        length = self._chance.randint(_LONGEST // 6, _LONGEST)
        try:
            self._snapshot()
            while self._step < length and time.monotonic() < self._end:
                self._step += 1
                self._chance = Random(f"{self._seed}/{self.name}/{self._step}")
                self._one_step()
            self._chance = Random(f"{self._seed}/{self.name}/end")
            self._close()
        except Stop:
            pass
        except Died as problem:
            self.findings.append(Finding("a process died or hangs", str(problem)))
        except GitProblem as problem:
            self.findings.append(Finding("plain git fails", str(problem), lost=True))
        for each in self._workers if self.findings else ():
            each.kill()  # a stage may be open in it

    def _one_step(self) -> None:
        if self._chance.random() < 0.15:
            self._settings = self._chance.choice(SETTINGS)
            self._note(f"settings {self._settings}")
        if self._chance.random() < 0.85:
            self._edit()
        steps = (
            *(self._snapshot,) * 10, *(self._turn,) * 5, *(self._restore,) * 6, *(self._restore_some,) * 4,
            *(self._revert,) * 4, *(self._stage,) * 2, self._prune, self._undo_whatever, self._pin,
            self._name_more,
        )  # fmt: skip
        self._chance.choice(steps)()

    # --- snapshots and turns -----------------------------------------------------------------

    def _snapshot(self) -> Record | None:
        with_tool = self._kind == "repository" and self._chance.random() < 0.2
        return self._take(self._manager(), self._some_names(), with_tool=with_tool)

    def _name_more(self) -> None:
        """A second tool of the same turn names something else. Nothing changed in between, so that the
        checkpoint of the turn must hold it, too, or there is a new one."""
        manager = self._manager()
        if self._take(manager) is not None:
            self._take(manager, self._some_names(always=True), session=None)

    def _turn(self) -> None:
        manager, session = self._manager(), f"{self.name}-{self._step}"
        begin = self._take(manager, self._some_names(), session=session, kill=0)
        if begin is None:
            return
        # A checkpoint that was there already has the number of the turn that took it.
        number = self._last["turn"] if self._last["status"] == "taken" else None
        self._edit()
        before = self._look()
        reply = self._call("end_turn", manager, kill=0.1)
        if reply is None:
            self._recover(lambda after: judge_same("killed end of turn changed files", before.manifest, after))
            return
        if reply["status"] == "none":
            return
        end = self._judge_taken(reply, before, begin.named, must_name=False)
        if end is not None and end is not begin:  # of a turn that changed nothing there may be no record
            self._turns.append(Turn(number, session, begin, end))

    def _take(
        self, manager: Manager, named: Collection[str] = (), *, session: str | None = "", kill: float = 0.1,
        with_tool: bool = False, expect: Expectation | None = None,
    ) -> Record | None:  # fmt: skip
        """Take a snapshot and judge it. None if the process was killed (then another one was asked), or if
        the answer was `already-taken`."""
        # After a kill, what a restore left lies around until this call has cleared it up.
        before = self._look(clean=expect is None)
        named = frozenset(named)
        self._named |= named
        reason = f"soak {self.name} {self._step} {self._calls}"
        paths = [str(self._project / path) if self._chance.random() < 0.3 else path for path in sorted(named)]
        tool = with_tool and len(paths) == 1
        if session == "":
            session = self._chance.choice(["one", "two", "three"])
        reply = self._call("ensure", manager, kill, reason=reason, paths=paths, session=session, tool=tool)
        if reply is None:
            if expect is None:
                self._unreported[reason] = (before, named)
                self._recover(lambda after: judge_same("killed snapshot changed files", before.manifest, after))
            else:
                self._recover(expect)
            return None
        state = self._look()
        if expect is not None:
            self._find(*expect(state.manifest))
            self._find(*self._unsaved(before.manifest, state.manifest))
        else:
            self._find(*judge_same("snapshot changed files", before.manifest, state.manifest))
        return self._judge_taken(reply, state, named)

    def _judge_taken(
        self, reply: Reply, state: State, named: frozenset[str], *, must_name: bool = True
    ) -> Record | None:
        self._last = reply
        if reply["status"] not in ("taken", "unchanged", "already-taken") or reply["id"] is None:
            self._find(Finding("no snapshot", f"{reply['status']}: {reply['error']}"))
            return None
        self._tally.counts[f"snapshots {reply['status']}"] += 1
        tree = self._store.tree(reply["id"])
        self._find(*judge_snapshot(self._store, state, reply, tree, named if must_name else ()))
        earlier = self._records.get(reply["id"])
        if earlier is not None:
            if reply["status"] == "unchanged":
                self._find(*judge_unchanged(earlier, state))
            earlier.call = self._calls
            return earlier
        self._tally.counts["checkpoints verified"] += 1
        self._records[reply["id"]] = Record(reply["id"], state, tree, frozenset(self._named), self._calls)
        return self._records[reply["id"]]

    def _some_names(self, always: bool = False) -> list[str]:
        """Paths that a tool names: existing ones, ignored ones, secrets, and some that do not exist."""
        if not always and self._chance.random() < 0.6:
            return []
        places = [self._edits.existing(self._chance), self._edits.place(self._chance)]
        count = self._chance.randint(1, 2)
        return [path.relative_to(self._project).as_posix() for path in self._chance.sample(places, count)]

    # --- going back and forth ----------------------------------------------------------------

    def _restore(self) -> None:
        record = self._some_record()
        if record is not None:
            self._restore_and_maybe_undo(record, [])

    def _restore_some(self) -> None:
        record = self._some_record()
        if record is None or not record.tree:
            return
        paths = self._chance.sample(sorted(record.tree), min(len(record.tree), self._chance.randint(1, 3)))
        if self._chance.random() < 0.3:
            paths = [paths[0].rpartition("/")[0] or paths[0]]
        self._restore_and_maybe_undo(record, paths)

    def _restore_and_maybe_undo(self, record: Record, paths: list[str]) -> None:
        manager, before = self._manager(), self._look()
        plan = None
        if self._chance.random() < 0.3:
            plan = self._call("restore", manager, 0, ref=record.id, paths=paths, dry_run=True)
            self._find(*judge_same("dry run changed files", before.manifest, read_manifest(self._project)))

        def restored(after: Manifest) -> list[Finding]:
            return judge_restore(record, before, after, paths)

        reply = self._go("restore", restored, manager, ref=record.id, paths=paths)
        if reply is None:
            return
        if "raised" in reply:
            if not self._is_allowed(reply, record.call, plan):
                self._find(Finding("restore failed", f"{reply['raised']}: {reply['text']}"))
            return
        if plan is not None and "raised" not in plan:
            self._find(*judge_plan(plan, reply))
        self._tally.counts["restores"] += 1
        self._maybe_undo(before.manifest)

    def _maybe_undo(self, before: Manifest) -> None:
        """Right after something that changed files: undo gives back exactly what was there, and redo what came."""
        after = read_manifest(self._project)
        if after == before or self._chance.random() < 0.4:
            return
        for do, wanted in (("undo", before), ("redo", after)):
            reply = self._go(do, lambda found, wanted=wanted, do=do: judge_same(f"{do} differs", wanted, found))  # type: ignore[misc]
            if reply is None:
                return
            if "raised" in reply:
                self._find(Finding(f"{do} refused", f"{reply['raised']}: {reply['text']}"))
            self._tally.counts[f"{do}s"] += 1
            if self._chance.random() < 0.6:
                return

    def _undo_whatever(self) -> None:
        """An undo or redo of something long ago: nothing may be lost by it, and that is all that is judged."""
        do = self._chance.choice(["undo", "redo"])
        reply = self._go(do, lambda after: [])
        # Refused, because an edit since then stands in the way: only an undo that comes at once must not be.
        allowed = ("NothingTo", "NoSuch", "NumberDropped", "RestoreRefused")
        if reply is not None and "raised" in reply and not reply["raised"].startswith(allowed):
            self._find(Finding(f"{do} failed", f"{reply['raised']}: {reply['text']}"))

    def _revert(self) -> None:
        if not self._turns:
            return self._turn()
        turn = self._chance.choice(self._turns[-4:])
        by_session = turn.number is None or self._chance.random() < 0.4
        what: Reply = {"session_id": turn.session} if by_session else {"turn": turn.number}
        on_conflict = self._chance.choice(["keep", "keep", "theirs", "markers"])
        what |= {} if on_conflict == "keep" else {"on_conflict": on_conflict}
        manager, before = self._manager(), self._look()
        plan = self._call("revert", manager, 0, what=what, dry_run=True)
        assert plan is not None
        self._find(*judge_same("dry run changed files", before.manifest, read_manifest(self._project)))
        if "raised" in plan:
            if not self._is_allowed(plan, turn.begin.call, None):
                self._find(Finding("revert failed", f"{plan['raised']}: {plan['text']}"))
            return None

        def untouched(after: Manifest) -> list[Finding]:
            """After a kill: what was not planned is as it was."""
            planned = {path.rstrip("/") for path in (*plan["written"], *plan["deleted"])}
            old = {path: entry for path, entry in before.manifest.items() if path not in planned}
            new = {path: entry for path, entry in after.items() if path not in planned}
            files = [{path: each for path, each in some.items() if each.kind != "dir"} for some in (old, new)]
            return judge_same("killed revert changed other files", *files)

        reply = self._go("revert", untouched, manager, what=what, dry_run=False)
        if reply is None:
            return None
        after = read_manifest(self._project)
        if "raised" in reply:  # the pruner beside us may have dropped the turn since the dry run
            if not self._is_allowed(reply, turn.begin.call, plan):
                self._find(Finding("revert failed", f"{reply['raised']}: {reply['text']}"))
            self._find(*judge_same("refused revert changed files", before.manifest, after))
            return None
        self._find(*judge_plan(plan, reply))
        self._find(*judge_revert(turn, before.manifest, after, reply, on_conflict == "keep"))
        self._tally.counts["reverts"] += 1
        self._turns.remove(turn)
        self._maybe_undo(before.manifest)
        return None

    def _stage(self) -> None:
        manager = self._manager()
        record = self._take(manager, kill=0)
        if record is None:
            return
        begun = read_manifest(self._project)
        reply = self._call("stage_begin", manager, 0.1, reason="stage", session="one")
        if reply is None:
            self._recover(lambda after: judge_same("killed stage changed files", begun, after))
            return
        if "raised" in reply:
            self._find(Finding("stage failed", f"{reply['raised']}: {reply['text']}"))
        self._edit()
        before = self._look()
        discard = self._chance.random() < 0.5
        wanted_state = before

        def put_back(after: Manifest) -> list[Finding]:
            return judge_restore(record, wanted_state, after, [])

        if discard:
            reply = self._go("stage_discard", put_back, manager)
        else:
            reply = self._call("stage_commit", manager, 0.2, reason="stage")
            if reply is None:  # then it is committed, or the next call puts it back
                self._recover(self._either(before.manifest, put_back))
                self._went_back()
        if reply is None:
            return
        if "raised" in reply:
            if not self._is_allowed(reply, self._calls, None):
                self._find(Finding("stage failed", f"{reply['raised']}: {reply['text']}"))
            self._workers[manager.worker].kill()  # it cannot be ended any more: the next call puts it back
            self._recover(self._either(before.manifest, put_back))
            return
        self._tally.counts["stages"] += 1
        if not discard:
            self._judge_taken(reply, before, frozenset())

    # --- upkeep ------------------------------------------------------------------------------

    def _prune(self) -> None:
        before = read_manifest(self._project)
        reply = self._call("prune", self._manager(), 0.3, reclaim=self._chance.choice(["always", "when-it-pays"]))
        self._find(*judge_same("prune changed files", before, read_manifest(self._project)))
        if reply is not None and (reply.get("error") or "raised" in reply):
            self._find(Finding("prune failed", str(reply.get("error") or reply)))
        self._tally.counts["prunes"] += reply is not None
        self._check_kept()

    def _pin(self) -> None:
        record = self._some_record(newest=True)
        if record is None or sum(each.pinned for each in self._records.values()) >= 3:
            return
        reply = self._call("pin", self._manager(), 0, ref=record.id)
        assert reply is not None
        if "raised" in reply:
            self._find(Finding("pin failed", f"{reply['raised']}: {reply['text']}"))
        record.pinned = True

    def _check_kept(self) -> dict[str, str]:
        """No checkpoint is missing that the limits leave. Returns those that there are."""
        there = self._store.checkpoints(self._project)
        for record in self._records.values():
            if record.id not in there and (record.pinned or self._calls - record.call < _CERTAIN):
                text = f"{record.id}{' (pinned)' if record.pinned else ''}, {self._calls - record.call} calls old"
                self._find(Finding("checkpoint lost", text, lost=True))
        for record in [each for each in self._records.values() if each.id not in there]:
            del self._records[record.id]
        for name, reason in there.items():
            if reason in self._unreported and name not in self._records:
                state, named = self._unreported.pop(reason)
                reply = {"id": name, "status": "taken, then killed", "skipped": [*state.must_list().items()]}
                tree = self._store.tree(name)
                self._find(*judge_snapshot(self._store, state, reply, tree, named))
                self._tally.counts["checkpoints verified"] += 1
        return there

    # --- the end of a story ------------------------------------------------------------------

    def _close(self) -> None:
        """A snapshot from the cache and one from nothing are the same, and every checkpoint gives back
        what was there when it was taken."""
        self._step += 1
        manager = self._manager(watch=False)
        names = sorted(path for path in self._named if self._is_file(path))
        warm = self._take(manager, names, kill=0)
        if warm is not None:
            # Paths that were named or restored earlier may stay captured: cold, they are named all at once.
            extra = warm.tree.keys() - warm.state.must_hold(names).keys()
            listed = self._last["skipped"]
            # A file that was named may be a directory by now, which is captured as a whole.
            seen = {*extra, *(path for path, _ in listed)}
            folders = {path for path in self._named if any(each.startswith(f"{path}/") for each in seen)}
            paths = sorted({*names, *extra, *folders})
            reply = self._call("ensure", manager, 0, reason="cold", paths=paths, session="one", tool=False,
                               base=str(self._cold))  # fmt: skip
            assert reply is not None
            self._compare_cold(warm, listed, reply)
        there = self._check_kept()
        for name in [name for name in there if name in self._records]:
            self._restore_to_verify(self._records[name], manager)
        self._tally.counts["stories closed"] += 1

    def _restore_to_verify(self, record: Record, manager: Manager) -> None:
        before = self._look()

        def restored(after: Manifest) -> list[Finding]:
            return judge_restore(record, before, after, [])

        reply = self._go("restore", restored, manager, kill=0, ref=record.id, paths=[])
        if reply is not None and "raised" in reply and not self._is_allowed(reply, record.call, None):
            self._find(Finding("restore failed", f"{reply['raised']}: {reply['text']}"))
        self._tally.counts["restores"] += 1

    def _compare_cold(self, warm: Record, listed: list[list[str]], reply: Reply) -> None:
        if reply["status"] != "taken":
            self._find(Finding("no cold snapshot", f"{reply['status']}: {reply['error']}"))
            return
        store = Store(self._cold / "store")
        if store.tree_id(reply["id"]) != self._store.tree_id(warm.id):
            cold = store.tree(reply["id"])
            either = cold.keys() | warm.tree.keys()
            paths = sorted(path for path in either if cold.get(path) != warm.tree.get(path))
            text = "; ".join(f"{path!r}: {warm.tree.get(path)}, cold {cold.get(path)}" for path in paths[:6])
            self._find(Finding("warm is not cold", text, lost=any(path not in warm.tree for path in paths)))
        if sorted(listed) != sorted(reply["skipped"]):
            self._find(Finding("warm skips other files than cold", f"{listed}, cold {reply['skipped']}"))
        self._tally.counts["cold snapshots compared"] += 1

    # --- calls, kills and what follows -------------------------------------------------------

    def _go(
        self, do: str, expect: Expectation, manager: Manager | None = None, kill: float = 0.25, **command: object
    ) -> Reply | None:
        """Something that may change files. `expect` judges them afterwards, also if it was killed and the
        next call finished it; then they may also be just what they were."""
        before = read_manifest(self._project)
        reply = self._call(do, manager or self._manager(), kill, **command)
        self._went_back()
        if reply is None:
            self._recover(self._either(before, expect))
            return None
        after = read_manifest(self._project)
        self._find_leftovers()
        if "raised" in reply:
            self._find(*judge_same(f"{do} failed half way", before, after))
            return reply
        self._find(*self._unsaved(before, after))
        if do != "revert":  # whose answer the judge needs
            self._find(*expect(after))
        return reply

    def _recover(self, expect: Expectation) -> None:
        """The call after a kill: it may be killed, too."""
        kill = 0.2 if self._chance.random() < 0.5 else 0.0
        self._take(self._manager(), expect=expect, kill=kill)
        self._check_kept()

    @staticmethod
    def _either(before: Manifest, expect: Expectation) -> Expectation:
        """A restore happens as a whole or not at all."""

        def judged(after: Manifest) -> list[Finding]:
            found = [] if after == before else expect(after)
            return [Finding(f"after a kill: {each.code}", each.text, each.lost) for each in found]

        return judged

    def _call(self, do: str, manager: Manager, kill: float, **command: object) -> Reply | None:
        """Ask a process; `kill` is the chance that it does not live to answer."""
        self._calls += 1
        usual = self._tally.usual_ms.get(do, 60.0) / 1000
        # Drawn in any case, so that the rest of a repeated story does not depend on it.
        dies, moment = self._chance.random() < kill, self._chance.random() * usual * 1.2
        request = {
            "do": do, "project": str(self._project), "settings": manager.settings, "watch": manager.watch,
            "which": manager.which, **command,
        }  # fmt: skip
        stamp = stamp_of_git(self._top)
        worker = self._workers[manager.worker]
        worker.start()
        reply = worker.ask(request, moment if dies else None)
        self._note(self._in_words(do, manager, command, reply, moment))
        if stamp_of_git(self._top) != stamp:
            self._find(Finding("the person's .git was touched", do))
        if reply is None:
            self._tally.counts["kills"] += 1
            return None
        self._tally.usual_ms[do] = 0.8 * 1000 * usual + 0.2 * reply["ms"]
        if do == "ensure" and reply.get("status") == "taken" and "base" not in command:
            self._tally.snapshot_ms.append(reply["ms"])
        return reply

    @staticmethod
    def _in_words(
        do: str, manager: Manager, command: dict[str, object], reply: Reply | None, moment: float
    ) -> str:
        shown = {name: value for name, value in command.items() if value and name not in ("reason", "session")}
        where = f"process {manager.worker}, manager {manager.which}{', watching' if manager.watch else ''}"
        end = f"killed after {1000 * moment:.0f} ms"
        if reply is not None:
            end = reply.get("raised") or reply.get("status") or "done"
            end += f" {reply['id'][:8]}" if reply.get("id") else ""
        return f"{do} {shown or ''} ({where}): {end}".replace("  ", " ")

    def _manager(self, watch: bool | None = None) -> Manager:
        chance = self._chance
        number, which, watching = chance.randrange(len(self._workers)), chance.randrange(2), chance.random() < 0.4
        return Manager(number, watching if watch is None else watch, which, self._settings)

    def _is_allowed(self, reply: Reply, call: int, plan: Reply | None) -> bool:
        """Errors that are right: the checkpoint was pruned, or something uncaptured is in the way and the
        plan did not promise otherwise."""
        # The last one: of a session.
        if reply["raised"].startswith(("NoSuch", "NumberDropped", "NothingTo", "AmbiguousReference")):
            return self._calls - call >= _CERTAIN
        warned = plan is None or "raised" in plan or bool(plan["conflicts"])
        return bool(reply["raised"] == "RestoreRefused") and warned

    def _unsaved(self, before: Manifest, after: Manifest) -> list[Finding]:
        if before == after:
            return []
        there = self._store.checkpoints(self._project)
        return judge_saved(self._trees(there), before, after)

    def _trees(self, names: Iterable[str]) -> Iterator[Tree]:
        """Those of the checkpoints that the pruner beside us does not drop meanwhile."""
        for name in names:
            try:
                yield self._store.tree(name)
            except GitProblem:
                if name in self._store.checkpoints(self._project):
                    raise

    def _went_back(self) -> None:
        for turn in self._turns:
            turn.straight = False

    # --- small things ------------------------------------------------------------------------

    def _edit(self) -> None:
        self._note("edit: " + ", ".join(self._edits.some(self._chance)))

    def _look(self, clean: bool = True) -> State:
        if clean:
            self._find_leftovers()
        return look(self._project, self._top, self._settings)

    def _find_leftovers(self) -> None:
        """Every call after a kill clears up first, so there is never anything when a call has returned."""
        self._find(*(Finding("left behind", str(path)) for path in leftovers(self._project)))

    def _some_record(self, newest: bool = False) -> Record | None:
        there = [self._records[name] for name in self._check_kept() if name in self._records]
        if not there:
            return None
        return there[0] if newest else self._chance.choice(there)

    def _is_file(self, path: str) -> bool:
        place = self._project / path
        return place.is_file() or place.is_symlink()

    def _find(self, *findings: Finding) -> None:
        if findings:
            self.findings += findings
            raise Stop

    def _note(self, text: str) -> None:
        self.steps.append(f"{self._step:3} {text}")
