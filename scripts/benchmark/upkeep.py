"""scripts/bench upkeep: what a store costs over time, and what keeping it small costs."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmark import report
from benchmark.ours import SETTINGS
from benchmark.trees import copy_of, generate, measured
from shadowsnap import CheckpointManager
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.git.objects import count_objects
from shadowsnap.git.packs import PackWriter
from shadowsnap.git.trees import DIRECTORY, REGULAR, Leaf, format_tree
from shadowsnap.settings import Settings
from shadowsnap.store.checkpoints import record_checkpoint
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.locks import if_free
from shadowsnap.store.projects import project_of, touch_record
from shadowsnap.upkeep.reclaim import memory_file, upkeep_lock

_ROUNDS = 10
_NUMBERS = (5, 20, 21, 500)
_LIMIT_SECONDS = 60.0
# What a snapshot leaves out by default must not count for the copy either.
_NOT_CAPTURED = ("__pycache__", "site-packages", "lib-dynload", "config-*", "*.so", "*.a", "*.exe", ".git")


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    scratch = Path(tempfile.mkdtemp(prefix="shadowsnap-bench-", dir=options.scratch))
    try:
        print(f"{report.machine(scratch)}\n{report.versions()}\n", flush=True)
        found = {
            "snapshots": snapshot_times(scratch, options.files),
            "prune": prune_many(scratch, options.projects, options.checkpoints),
            "size": size_over_turns(scratch, options.tree, options.turns),
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0 if found["prune"]["seconds"] < _LIMIT_SECONDS else 1


# --- snapshots beside a limit ------------------------------------------------------------------


def snapshot_times(scratch: Path, files: int) -> dict[str, float]:
    """The same change, recorded as the 5th, 20th, 21st and 500th checkpoint under a limit of 20; in turn,
    so that what else happens on the machine happens to all. The last one also starts upkeep in the
    background, which happens once in ten minutes at most."""
    tree = generate(scratch / "snapshots", files).path
    bases = _stores_with(scratch, tree, [number - 1 for number in _NUMBERS])
    courses = [(number, base, False) for number, base in zip(_NUMBERS, bases, strict=True)]
    courses.append((_NUMBERS[-1], bases[-1], True))
    times: dict[str, list[float]] = {}
    for turn in range(_ROUNDS):
        for number, base, starting in courses[turn % len(courses) :] + courses[: turn % len(courses)]:
            work = scratch / f"{turn}-{number}-{starting}"
            shutil.copytree(base, work)
            os.sync()  # so that the snapshot does not wait for the copy to be written
            if not starting:
                (work / "store" / "upkeep-started").touch()
            manager = CheckpointManager(base=work, max_snapshots=20)
            took = _snapshot(manager, tree, f"{turn} {number} {starting}")
            name = f"as number {number}{', starting upkeep' if starting else ''}"
            times.setdefault(name, []).append(took)
            if starting:
                _wait_for_upkeep(work)
    found = {name: round(median(times[name]), 2) for name in sorted(times, key=_in_order)}
    print(f"snapshot of 1 changed file among {files:,}, max_snapshots=20, median of {_ROUNDS}:")
    for name, milliseconds in found.items():
        print(f"  {name:32} {milliseconds:8.1f} ms", flush=True)
    return found


def _in_order(name: str) -> tuple[int, str]:
    return int(name.split()[2].rstrip(",")), name


def _stores_with(scratch: Path, tree: Path, counts: list[int]) -> list[Path]:
    """Copies of a store from when it had so many checkpoints."""
    base, found = scratch / "growing", []
    manager = CheckpointManager(base=base, **SETTINGS)
    for number in range(1, max(counts) + 1):
        _snapshot(manager, tree, f"growing {number}")
        if number in counts:
            found.append(scratch / f"with-{number}")
            shutil.copytree(base, found[-1])
    return found


def _snapshot(manager: CheckpointManager, tree: Path, content: str) -> float:
    path = next(path for path in sorted(tree.rglob("*")) if path.is_file())
    path.write_text(f"// {content}\n")
    manager.new_turn()
    began = time.perf_counter()
    outcome = manager.ensure_checkpoint(tree, "bench")
    took = (time.perf_counter() - began) * 1000
    if outcome.status != "taken":
        raise RuntimeError(f"the snapshot was {outcome.status}: {outcome.error}")
    return took


def _wait_for_upkeep(base: Path) -> None:
    """Let a process that was started in the background come to its end."""
    store, done = Store(base), False
    while not done:
        time.sleep(0.05)
        with if_free(upkeep_lock(store), "bench") as held:
            done = held is not None and memory_file(store).exists()


# --- pruning much ------------------------------------------------------------------------------


def prune_many(scratch: Path, projects: int, checkpoints: int) -> dict[str, float]:
    """Keep 20 of very many checkpoints, and repack."""
    base = scratch / "many"
    manager = CheckpointManager(base=base, max_snapshots=20, background_upkeep=False)
    store = open_store(Settings(base=base, fsync=False))
    for number in range(projects):
        _fill(store, scratch / "projects" / f"p{number}", checkpoints // projects, random.Random(number))
    began = time.perf_counter()
    planned = manager.prune(dry_run=True)
    plan_seconds = time.perf_counter() - began
    began = time.perf_counter()
    result = manager.prune(reclaim="always")
    seconds = time.perf_counter() - began
    if result.error is not None or len(result.dropped) != len(planned.dropped):
        raise RuntimeError(f"the prune went wrong: {result.error!r}")
    began = time.perf_counter()
    manager.prune()
    again = time.perf_counter() - began
    began = time.perf_counter()
    manager.status()
    status = time.perf_counter() - began
    before, after = ((size or 0) / 2**20 for size in (result.bytes_before, result.bytes_after))
    print(f"\nprune of {checkpoints:,} checkpoints over {projects} projects, {len(result.dropped):,} dropped:")
    print(f"  plan (dry run)       {plan_seconds:8.2f} s")
    print(f"  prune and repack     {seconds:8.2f} s  ({before:.1f} -> {after:.1f} MB, limit {_LIMIT_SECONDS:g} s)")
    print(f"  prune, nothing to do {again:8.2f} s")
    print(f"  status               {status:8.2f} s")
    return {"seconds": round(seconds, 2), "plan": round(plan_seconds, 2), "again": round(again, 2)}


def _fill(store: Store, workdir: Path, count: int, chance: random.Random) -> None:
    """Checkpoints of a project with 30 files of which one or two change each turn. They are written
    straight into the store: taking them from files would take longer than all the rest."""
    workdir.mkdir(parents=True)
    project = project_of(workdir)
    pack = PackWriter(store.git_dir / "objects", fsync=False)
    folders: dict[bytes, dict[bytes, Leaf]] = {b"d%d" % number: {} for number in range(5)}

    def write(folder: dict[bytes, Leaf], name: bytes) -> None:
        text = b"".join(b"%d\n" % chance.randint(0, 9999) for _ in range(200))
        folder[name] = (REGULAR, pack.add(b"blob", text))

    for number in range(30):
        write(folders[b"d%d" % (number % 5)], b"f%d" % number)
    trees = []
    for _ in range(count):
        changed = chance.choice(list(folders))
        write(folders[changed], chance.choice(list(folders[changed])))
        below = {name: pack.add(b"tree", format_tree(content)) for name, content in folders.items()}
        top = {name: (DIRECTORY, tree) for name, tree in below.items()}
        trees.append(pack.add(b"tree", format_tree(top)))
    pack.finish()
    for turn, tree in enumerate(trees, 1):
        record_checkpoint(store, project, tree, f"turn {turn}", {"kind": "turn", "turn": turn, "scope": "tree"})
    touch_record(store, project, turn=count)


# --- size over turns ---------------------------------------------------------------------------


def size_over_turns(scratch: Path, source: Path, turns: int) -> dict[str, float]:
    """A real project over many turns of editing, against one plain copy of it."""
    wanted = scratch / "source" / "project"
    shutil.copytree(source, wanted, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_CAPTURED))
    tree = copy_of(wanted, scratch / "size")
    manager = CheckpointManager(base=scratch / "turns", **SETTINGS)
    chance = random.Random(1)
    files = sorted(path for path in tree.path.rglob("*.py") if path.is_file() and not path.is_symlink())
    store = Store(scratch / "turns")
    sizes = []
    for turn in range(turns):
        for path in chance.sample(files, 3):
            _edit(path, turn, chance)
        manager.new_turn()
        outcome = manager.ensure_checkpoint(tree.path, "bench")
        if outcome.status != "taken":
            raise RuntimeError(f"the snapshot was {outcome.status}: {outcome.error}")
        sizes.append(count_objects(store.git(NO_DEADLINE)).bytes)
    began = time.perf_counter()
    result = manager.prune(reclaim="always")
    seconds = time.perf_counter() - began
    copy = measured("copy", tree.path).bytes
    found = {
        "one plain copy": copy,
        "store after the first turn": sizes[0],
        f"store after {turns} turns": sizes[-1],
        "... and repacked": result.bytes_after or 0,
    }
    print(f"\n{source.name}: {tree.files:,} files, {turns} turns, 3 files edited in each:")
    for name, size in found.items():
        print(f"  {name:28} {size / 2**20:8.1f} MB   {size / copy:5.2f} x")
    print(f"  {turns} plain copies{'':14} {turns * copy / 2**20:8.1f} MB   (repack took {seconds:.1f} s)")
    return {**found, "repack seconds": round(seconds, 2)}


def _edit(path: Path, turn: int, chance: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = chance.randint(0, len(lines))
    lines[at:at] = [b"# turn %d: %d\n" % (turn, chance.randint(0, 10**9)) for _ in range(chance.randint(1, 8))]
    path.write_bytes(b"".join(lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench upkeep", description=__doc__)
    parser.add_argument("--files", type=int, default=1000, help="in the tree whose snapshots are timed")
    parser.add_argument("--projects", type=int, default=200)
    parser.add_argument("--checkpoints", type=int, default=10_000, help="in all projects together")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--tree", type=Path, default=Path(sysconfig.get_path("stdlib")), metavar="DIR",
                        help="the real project (default: Python's standard library); not touched")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser
