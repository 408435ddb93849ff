"""What can only be seen in a fresh Python process: memory, the cost of importing, the cost of a hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmark.ours import SETTINGS
from benchmark.race import Contender, Pace, Samples, race

_SCRIPTS = Path(__file__).resolve().parent.parent
_WEIGH = "import sys; from benchmark.ours import in_fresh_process; in_fresh_process(*sys.argv[1:])"
_HOOK = (
    "import sys; from shadowsnap import CheckpointManager; "
    f"CheckpointManager(base=sys.argv[1], **{SETTINGS}).ensure_checkpoint(sys.argv[2], 'hook')"
)
NOTHING, IMPORT = "python -c pass", "import shadowsnap"
MANAGER, HOOK = "import CheckpointManager", "hook, unchanged"


def weigh(base: Path, tree: Path, operation: str, *arguments: str) -> dict[str, Any]:
    """One operation in a process of its own: its result, time, git processes and peak memory."""
    _python("from benchmark import ours", base)  # so that nothing is compiled where it counts
    found: dict[str, Any] = json.loads(_python(_WEIGH, base, str(tree), operation, *arguments))
    return found


def race_of_starts(base: Path, tree: Path, pace: Pace) -> dict[str, Samples]:
    """A Python that does nothing, one that imports the package, one that takes an unchanged snapshot."""
    programs = {
        NOTHING: "pass",
        IMPORT: "import shadowsnap",
        MANAGER: "from shadowsnap import CheckpointManager",
        HOOK: _HOOK,
    }
    return race([_start(name, program, base, tree) for name, program in programs.items()], pace)


def _start(name: str, program: str, base: Path, tree: Path) -> Contender:
    def run() -> None:
        _python(program, base, str(tree))

    run()  # compiles what it needs
    return Contender(name, run, lambda: 0)


def _python(program: str, base: Path, *arguments: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", program, str(base), *arguments], env=compiled_environment(base),
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return done.stdout


def compiled_environment(base: Path) -> dict[str, str]:
    """Modules are compiled once, as those of an installed package are, but not into the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, (str(_SCRIPTS), environment.get("PYTHONPATH"))))
    return {**environment, "PYTHONPYCACHEPREFIX": str(base.parent / "compiled"), "PYTHONPATH": path}
