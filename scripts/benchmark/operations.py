"""The operations that are measured on one tree, each as a race."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmark.fresh import weigh
from benchmark.ours import Ours
from benchmark.race import Contender, Pace, Samples, nothing, race, wait_for_next_second
from benchmark.rivals import Copy, Git, ReadTreeFlow, ShadowRepository, StatusThroughOurIndex
from benchmark.trees import CannotGet, Changes, Tree
from shadowsnap.snapshot.ignore_rules import exclude_file
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of

OURS, WATCHING = "shadowsnap", "watching"
STATUS, SHADOW_STATUS = "git status", "git status (shadow)"
COPY, ADD_COMMIT, READ_TREE = "cp -r", "git add + commit", "read-tree flow"
CHECKOUT, DIFF_TREE, FOR_EACH_REF = "git checkout", "git diff-tree -p", "git for-each-ref"

FIRST, UNCHANGED, ONE, HUNDRED = "first snapshot", "unchanged", "1 file changed", "100 files changed"
DIFF, RESTORE_ONE = "diff against disk", "restore 1 file"
RESTORE_MANY, RESTORE_UNSAVED, LIST = "restore 1,000 files", "restore 1,000 unsaved", "list"

FILES = {HUNDRED: 100, RESTORE_MANY: 1000, RESTORE_UNSAVED: 1000}
"""How many files change, if the tree has as many."""

_HEAVY_ROUNDS = 5


@dataclass
class Result:
    tree: str
    operation: str
    samples: dict[str, Samples]
    peak_mb: float | None = None
    """Of a fresh Python process that does it once."""
    facts: dict[str, object] = field(default_factory=dict)

    def median(self, name: str) -> float | None:
        found = self.samples.get(name)
        return found.median if found and found.milliseconds else None

    def status(self) -> float | None:
        """The faster of the two ways to run git status on this tree."""
        known = [time for time in (self.median(STATUS), self.median(SHADOW_STATUS)) if time is not None]
        return min(known, default=None)

    def to_dict(self) -> dict[str, object]:
        contenders = {name: samples.to_dict() for name, samples in self.samples.items()}
        return {
            "tree": self.tree, "operation": self.operation, "peak_mb": self.peak_mb, **self.facts,
            "contenders": contenders,
        }  # fmt: skip


class Course:
    """One tree with everybody's repositories, all of them beside it in a scratch directory."""

    def __init__(self, tree: Tree, scratch: Path, pace: Pace, say: Callable[[str], None]) -> None:
        self.tree = tree
        self._pace = pace
        self._say = say
        store = Store(scratch / "base")
        project = project_of(tree.path)
        self.ours = Ours(store.base, tree.path)
        # With a store of its own: each of the two would wonder at the snapshots of the other.
        self._watching = Ours(scratch / "watching", tree.path)
        self._status = StatusThroughOurIndex(
            scratch / "status", store.git_dir, store.index_file(project.id), tree.path,
            store.exclude_file(project.id),
        )  # fmt: skip
        self._shadow = ShadowRepository(scratch / "shadow", tree.path, exclude_file())
        self._flow = ReadTreeFlow(scratch / "flow", tree.path)
        self._copying: Samples | None = None
        self._copy = Copy(tree.path, scratch / "copy")

    def run(self) -> list[Result]:
        results = [self._first()]
        files = self._shadow.files()
        if not files:
            raise CannotGet(f"there is nothing to capture in {self.tree.name}: every file is ignored")
        self._changes = Changes(self.tree.path, files)
        results += [
            self._snapshot(UNCHANGED, 0),
            self._snapshot(ONE, 1),
            self._snapshot(HUNDRED, FILES[HUNDRED]),
            self._diff(),
            self._restore_one(),
            self._restore_many(),
        ]
        if not self._pace.quick:
            results.append(self._restore_unsaved())
        return results

    def one_change(self) -> Result:
        """Only this, for when many trees are compared."""
        self._prepare()
        return self._snapshot(ONE, 1)

    def one_change_of_many(self) -> Result:
        """The same by shadowsnap and `git status` alone, in a tree with too many files for a shadow repository."""
        self.ours.do("snapshot")
        wait_for_next_second()
        self.ours.do("snapshot")
        candidates = (path for path in self.tree.path.rglob("*.*") if path.is_file())
        self._changes = Changes(self.tree.path, [next(candidates).relative_to(self.tree.path)])

        def edit() -> None:
            self._follow()
            self._changes.edit(self._changes.choose(1))
            wait_for_next_second()

        contenders = [self._mine("snapshot"), Contender(STATUS, self._status.run, self._status.git.processes)]
        return Result(self.tree.name, ONE, race(contenders, Pace(3, 60), edit))

    def scans(self) -> list[Result]:
        """What finds the changes among many files, and little else."""
        self._prepare()
        return [self._snapshot(UNCHANGED, 0), self._snapshot(ONE, 1)]

    def _prepare(self) -> None:
        """Take the first snapshots without timing them."""
        self.ours.do("snapshot")
        self._watching.do("snapshot")
        self._shadow.commit()
        self._flow.start_from(self._shadow)
        self._changes = Changes(self.tree.path, self._shadow.files())

    # --- snapshots ---------------------------------------------------------------------------

    def _first(self) -> Result:
        self._say(FIRST)
        samples = race(
            [
                self._mine("snapshot", before=self._forget),
                Contender(ADD_COMMIT, self._shadow.commit, self._shadow.git.processes, self._shadow.create),
                Contender(COPY, self._copy.run, _none, after=self._copy.set_aside),
            ],
            Pace(_HEAVY_ROUNDS, 3 * self._pace.patience),
        )
        self._flow.start_from(self._shadow)  # whose first snapshot is the same
        self._copying = samples[COPY]
        facts = {
            "store_bytes": bytes_below(self.ours.base), "shadow_bytes": bytes_below(self._shadow.git.git_dir)
        }  # fmt: skip
        self._forget()
        peak = self._weigh("snapshot")
        return Result(self.tree.name, FIRST, samples, peak, facts)

    def _snapshot(self, operation: str, changed: int) -> Result:
        self._begin(operation)
        paths = self._changes.choose(changed)

        def edit() -> None:
            self._follow()
            self._changes.edit(paths)

        edit()
        seen = self._status.changes()
        samples = race(
            [
                self._mine("snapshot"),
                *self._watched(),
                *self._statuses(),
                Contender(ADD_COMMIT, self._shadow.commit, self._shadow.git.processes),
                Contender(READ_TREE, self._flow.snapshot, self._flow.git.processes),
            ],
            self._pace,
            edit if changed else nothing,
        )
        if self._copying is not None:
            samples[COPY] = self._copying  # the same work whatever changed
        self._changes.edit(paths)
        peak = self._weigh("snapshot")
        facts = {"files_changed": len(paths), "status_lines": seen}
        return Result(self.tree.name, operation, samples, peak, facts)

    # --- looking -----------------------------------------------------------------------------

    def _diff(self) -> Result:
        self._begin(DIFF)
        before = self._shadow.head()
        paths = self._changes.choose(10)
        self._changes.edit(paths)
        self._shadow.commit()
        after = self._shadow.head()
        git = self._shadow.git
        samples = race(
            [
                self._mine("diff", "last"),
                *self._statuses(),
                Contender(DIFF_TREE, lambda: _run(git, "diff-tree", "-p", before, after), git.processes),
            ],
            self._pace,
        )
        peak = self._weigh("diff", "last")
        return Result(self.tree.name, DIFF, samples, peak, {"files_changed": len(paths)})

    # --- going back --------------------------------------------------------------------------

    def _restore_one(self) -> Result:
        self._begin(RESTORE_ONE)
        ref, git, commit = self._newest(), self._shadow.git, self._shadow.head()
        paths = self._changes.choose(1)
        names = [str(path) for path in paths]
        edit = partial(self._changes.edit, paths)

        def check_out() -> None:
            git("--literal-pathspecs", "checkout", "-q", commit, "--", *names)

        samples = race(
            [
                self._mine("restore", ref, *names, before=edit),
                *self._statuses(),
                Contender(CHECKOUT, check_out, git.processes, before=edit),
            ],
            self._pace,
        )
        edit()
        peak = self._weigh("restore", ref, *names)
        return Result(self.tree.name, RESTORE_ONE, samples, peak, {"files_changed": len(paths)})

    def _restore_many(self) -> Result:
        """From one captured state to another; `git checkout` of one commit from another."""
        self._begin(RESTORE_MANY)
        ref, shadow, commit = self._newest(), self._shadow, self._shadow.head()
        paths = self._changes.choose(FILES[RESTORE_MANY])
        self._changes.edit(paths)
        shadow.commit()
        changed = shadow.head()

        def go_to_changed() -> None:
            shadow.git("checkout", "-q", "-f", changed)
            self.settle()

        samples = race(
            [
                self._mine("restore", ref, before=go_to_changed),
                Contender(CHECKOUT, lambda: _run(shadow.git, "checkout", "-q", commit), shadow.git.processes,
                          before=go_to_changed),
            ],
            self._pace_of_restores,
        )  # fmt: skip
        go_to_changed()
        peak = self._weigh("restore", ref)
        return Result(self.tree.name, RESTORE_MANY, samples, peak, {"files_changed": len(paths)})

    def _restore_unsaved(self) -> Result:
        """Back from changes that no snapshot holds yet: they are saved first, by us and by git."""
        self._begin(RESTORE_UNSAVED)
        ref, shadow, commit = self._newest(), self._shadow, self._shadow.head()
        paths = self._changes.choose(FILES[RESTORE_MANY])

        def edit() -> None:
            shadow.git("checkout", "-q", "-f", commit)
            self.settle()
            self._changes.edit(paths)

        def save_and_check_out() -> None:
            shadow.commit()
            shadow.git("checkout", "-q", commit)

        samples = race(
            [
                self._mine("restore", ref, before=edit),
                Contender(CHECKOUT, save_and_check_out, shadow.git.processes, before=edit),
            ],
            self._pace_of_restores,
        )
        edit()
        peak = self._weigh("restore", ref)
        return Result(self.tree.name, RESTORE_UNSAVED, samples, peak, {"files_changed": len(paths)})

    @property
    def _pace_of_restores(self) -> Pace:
        """Each begins with a wait for the next second, so there is little time for many."""
        return Pace(1, self._pace.patience) if self._pace.quick else Pace(7, 5 * self._pace.patience)

    # --- small steps -------------------------------------------------------------------------

    def _mine(self, operation: str, *arguments: str, before: Callable[[], None] = nothing) -> Contender:
        return Contender(OURS, lambda: _done(self.ours, operation, *arguments), self.ours.processes, before)

    def _watched(self) -> list[Contender]:
        """Ourselves, while the directory is watched, where the system has that."""
        if not self._watching.manager.watch(self.tree.path):
            return []
        for _ in range(2):  # the first one after it began scans everything
            self._watching.do("snapshot")
        return [Contender(WATCHING, lambda: _done(self._watching, "snapshot"), self._watching.processes)]

    def _statuses(self) -> list[Contender]:
        return [
            Contender(STATUS, self._status.run, self._status.git.processes),
            Contender(SHADOW_STATUS, self._shadow.status, self._shadow.status_processes),
        ]

    def _weigh(self, operation: str, *arguments: str) -> float:
        return float(weigh(self.ours.base, self.tree.path, operation, *arguments)["peak_mb"])

    def _forget(self) -> None:
        shutil.rmtree(self.ours.base, ignore_errors=True)

    def _newest(self) -> str:
        return self.ours.manager.get(self.tree.path, "last").id

    def _follow(self) -> None:
        self._status.follow(self._newest())

    def _begin(self, operation: str) -> None:
        self._say(operation)
        self.settle()

    def settle(self) -> None:
        """Let everybody know the tree as it is, in a later second than that of its last change."""
        wait_for_next_second()
        self.ours.do("snapshot")
        self._watching.do("snapshot")
        self._shadow.commit()
        self._follow()


def list_checkpoints(tree: Tree, scratch: Path, pace: Pace, count: int, say: Callable[[str], None]) -> Result:
    """A list of many checkpoints with their statistics, against the bare list of the refs."""
    say(f"{LIST} of {count} checkpoints")
    ours = Ours(scratch / "list-base", tree.path, fsync=False)
    ours.do("snapshot")
    store = Store(ours.base)
    files = ShadowRepository(scratch / "list-shadow", tree.path, exclude_file())
    files.git("add", "-A")
    changes = Changes(tree.path, files.files())
    for _ in range(count - 1):
        changes.edit(changes.choose(3))
        ours.do("snapshot")
    git = Git(store.git_dir, tree.path, locks=False)
    refs = project_of(tree.path).refs
    samples = race(
        [
            Contender(OURS, lambda: _done(ours, "list"), ours.processes),
            Contender(FOR_EACH_REF, lambda: _run(git, "for-each-ref", refs), git.processes),
        ],
        pace,
    )
    peak = float(weigh(ours.base, tree.path, "list")["peak_mb"])
    return Result(tree.name, LIST, samples, peak, {"checkpoints": int(ours.do("list"))})


def _none() -> int:
    return 0


def _run(git: Git, *args: str) -> None:
    git(*args)


def _done(ours: Ours, operation: str, *arguments: str) -> None:
    ours.do(operation, *arguments)


def bytes_below(folder: Path) -> int:
    """What a directory takes on the disk."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_blocks * 512
        for parent, _, names in os.walk(folder)
        for name in names
    )
