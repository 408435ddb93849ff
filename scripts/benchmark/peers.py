"""scripts/bench --peers: the same three snapshots of a real tree by other programs, each as a process of its own.

shadowsnap, restic, borg and plain git (`add -A`, `commit` in a repository beside the tree); a shadow-git manager
as well, if the path of its module is given. All of them work on one copy, in turns, with a warm cache. A program
that is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmark import report
from benchmark.operations import bytes_below
from benchmark.ours import peak_megabytes
from benchmark.race import wait_for_next_second
from benchmark.rivals import set_aside
from benchmark.trees import Changes, Tree, copy_of, measured
from shadowsnap import CheckpointManager

OURS, GIT, RESTIC, BORG, MANAGER = "shadowsnap", "git add + commit", "restic", "borg", "manager"
FIRST, ONE, UNCHANGED = "first", "one change", "unchanged"

# The interface that shadow-git managers of Python agents have.
_MANAGER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("peer", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["peer"] = module
spec.loader.exec_module(module)
manager = module.CheckpointManager(enabled=True)
manager.new_turn()
manager.ensure_checkpoint(sys.argv[2], "bench")
"""


@dataclass
class Peer:
    """A program that takes snapshots. `begin` are the commands that make an empty store, `take` those that take a
    snapshot; {store} and {number} are filled in."""

    name: str
    begin: list[list[str]]
    take: list[list[str]]
    environment: dict[str, str]
    store: Path
    seconds: dict[str, list[float]] = field(default_factory=dict)
    peak_mb: float = 0.0
    bytes: int = 0
    _number: int = 0

    def start_anew(self) -> None:
        set_aside(self.store)
        self.store.mkdir(parents=True)
        for words in self.begin:
            self._run(words)

    def snapshot(self, operation: str) -> None:
        self._number += 1
        began = time.perf_counter()
        for words in self.take:
            self._run([word.replace("{number}", str(self._number)) for word in words])
        self.seconds.setdefault(operation, []).append(time.perf_counter() - began)

    def _run(self, words: list[str]) -> None:
        process = subprocess.Popen(
            words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        complaint = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        if process.returncode:
            raise SystemExit(f"{words} failed: {complaint.decode(errors='replace')[-500:]}")
        self.peak_mb = max(self.peak_mb, used.ru_maxrss / 1024)


def main(options: argparse.Namespace, scratch: Path, command: str) -> int:
    print(report.headline(report.machine(scratch), report.versions(), command).partition("Medians")[0], flush=True)
    for source in options.tree:
        copy_of(source, scratch / "tree")
        tree = same_for_all(source.resolve().name, scratch)
        print(compare(tree, peers_of(scratch, tree.path, options.manager), options.rounds or 5), flush=True)
        shutil.rmtree(tree.path)
    return 0


def same_for_all(name: str, scratch: Path) -> Tree:
    """The tree in `scratch` without what shadowsnap leaves out, so that all programs keep the same files."""
    path, base = scratch / "tree", scratch / "looking"
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False, deadline=0)
    manager.ensure_checkpoint(path)
    captured = {path / name for name in manager.files(path, "last")}
    for each in path.rglob("*"):
        if each not in captured and (each.is_symlink() or not each.is_dir()):
            each.unlink()
    shutil.rmtree(base)
    return measured(name, path)


def peers_of(scratch: Path, tree: Path, manager: Path | None) -> list[Peer]:
    """Those that are installed."""

    def peer(
        name: str, begin: Callable[[str], list[list[str]]], take: Callable[[str], list[list[str]]], **more: str
    ) -> Peer:
        place = scratch / "stores" / name.replace(" ", "-").replace("+", "")
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(place), "LC_ALL": "C.UTF-8", **more}
        return Peer(name, begin(f"{place}/store"), take(f"{place}/store"), environment, place)

    where, python = str(tree), sys.executable
    git = ["git", "-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "--git-dir"]
    limits = {f"SHADOWSNAP_{name}": "0" for name in ("MAX_SNAPSHOTS", "MAX_TOTAL_SIZE_MB", "BACKGROUND_UPKEEP")}
    found = [
        peer(OURS, lambda _: [], lambda _: [[python, "-I", "-m", "shadowsnap", "-C", where, "snap"]], **limits),
        peer(
            GIT,
            lambda store: [[*git, store, "init", "-q"]],
            lambda store: [
                [*git, store, "--work-tree", where, "add", "-A"],
                [*git, store, "--work-tree", where, "commit", "-q", "--allow-empty", "-m", "snapshot"],
            ],
        ),
    ]
    if shutil.which("restic"):
        found.append(
            peer(
                RESTIC,
                lambda store: [["restic", "init", "-q", "-r", store]],
                lambda store: [["restic", "backup", "-q", "-r", store, where]],
                RESTIC_PASSWORD="bench",
            )
        )
    if shutil.which("borg"):
        found.append(
            peer(
                BORG,
                lambda store: [["borg", "init", "-e", "none", store]],
                lambda store: [["borg", "create", f"{store}::{{number}}", where]],
                BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK="yes",
            )
        )
    if manager is not None:
        words = [python, "-c", _MANAGER, str(manager.resolve()), where]
        found.append(peer(MANAGER, lambda store: [], lambda store: [words]))
    return found


def compare(tree: Tree, peers: Sequence[Peer], rounds: int) -> str:
    """A table: the times of each operation against ours, the blocks of the store after the first snapshot (without
    the caches that some programs have beside it) against those of the tree, and the most memory that a process of
    the program had."""
    changes = Changes(tree.path, [path.relative_to(tree.path) for path in sorted(_files(tree.path))])
    for number in range(rounds):
        turn = number % len(peers)
        order = (*peers[turn:], *peers[:turn])
        for each in order if number < 3 else ():  # first snapshots take long
            each.start_anew()
            each.snapshot(FIRST)
            os.sync()  # what is not written yet takes no blocks
            each.bytes = bytes_below(each.store / "store" if (each.store / "store").is_dir() else each.store)
        for operation in (UNCHANGED, ONE):
            wait_for_next_second()
            if operation == ONE:
                changes.edit(changes.choose(1))
            for each in order:
                each.snapshot(operation)
    ours, size = peers[0], bytes_below(tree.path)
    rows = [["", FIRST, ONE, UNCHANGED, "store / tree", "memory"]]
    for each in peers:
        cells = []
        for operation in (FIRST, ONE, UNCHANGED):
            took, base = median(each.seconds[operation]), median(ours.seconds[operation])
            cells.append(f"{1000 * took:,.0f} ms" if each is ours else f"{took / base:.1f} x")
        # A process begins with the memory of the one that started it, which is this one.
        memory = f"{each.peak_mb:.0f} MB" if each.peak_mb > peak_megabytes() + 1 else f"< {each.peak_mb:.0f} MB"
        rows.append([each.name, *cells, f"{each.bytes / size:.2f}", memory])
    title = f"{tree.name}: {tree.files:,} files, {tree.bytes / 1e6:.0f} MB ({size / 1e6:.0f} MB of blocks)"
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([title, "", lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _files(tree: Path) -> list[Path]:
    return [path for path in tree.rglob("*.*") if path.is_file() and not path.is_symlink() and path.stat().st_size]
