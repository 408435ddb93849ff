"""shadowsnap as a contender: the operations that are timed in this process, and weighed in a fresh one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from shadowsnap import CheckpointManager
from shadowsnap.git import repository as runner

# No limits and nothing in the background: both would disturb a measurement. All else is as usual.
SETTINGS = {"max_snapshots": 0, "max_total_size_mb": 0, "deadline": 3600, "background_upkeep": False}


class Ours:
    """A manager with the default settings, except for what would disturb."""

    def __init__(self, base: Path, tree: Path, *, fsync: bool = True) -> None:
        self.base = base
        self.tree = tree
        self.manager = CheckpointManager(base=base, fsync=fsync, **SETTINGS)

    def do(self, operation: str, *arguments: str) -> str:
        """Run one operation; returns its result."""
        return str(getattr(self, f"_{operation}")(*arguments))

    def processes(self) -> int:
        return runner.processes_started

    def _snapshot(self) -> str:
        self.manager.new_turn()
        outcome = self.manager.ensure_checkpoint(self.tree, "bench")
        if outcome.status not in ("taken", "unchanged"):
            raise RuntimeError(f"the snapshot was {outcome.status}: {outcome.error}")
        return outcome.status

    def _diff(self, ref: str) -> int:
        return len(self.manager.diff(self.tree, ref).changes)

    def _restore(self, ref: str, *paths: str) -> int:
        return len(self.manager.restore(self.tree, ref, paths).written)

    def _list(self) -> int:
        return len(self.manager.list_checkpoints(self.tree))


def in_fresh_process(base: str, tree: str, operation: str, *arguments: str) -> None:
    """What `fresh.weigh` runs: one operation, and on stdout what it cost."""
    began = time.perf_counter()
    ours = Ours(Path(base), Path(tree))
    result = ours.do(operation, *arguments)
    took = (time.perf_counter() - began) * 1000
    facts = {
        "result": result, "ms": took, "git_processes": ours.processes(), "peak_mb": peak_megabytes(),
        "children_mb": children_megabytes(),
    }  # fmt: skip
    print(json.dumps(facts))


def peak_megabytes() -> float:
    """Most memory that this process ever used. (The usual ru_maxrss begins with that of the parent.)"""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return _most_memory(own=True)


def children_megabytes() -> float:
    """Most memory of a process that this one started. One that it forked counts what both have in common, too."""
    return _most_memory(own=False)


def _most_memory(*, own: bool) -> float:
    import resource  # not on Windows

    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF if own else resource.RUSAGE_CHILDREN).ru_maxrss / unit
