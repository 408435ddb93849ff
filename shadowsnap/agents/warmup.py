"""The first snapshot of a project, taken in the background when a session begins in it.

`python -m shadowsnap.agents.warmup BASE DIRECTORY`. A large project takes longer than a hook may
wait; every later snapshot starts from this one. It works in short rounds, each of which goes on
where the last one stopped, so that a hook that comes meanwhile does not wait long for its turn.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from shadowsnap.errors import DeadlineExceeded, LockTimeout, NoSuchProject, ShadowsnapError
from shadowsnap.git.detached import start_detached_python
from shadowsnap.manager import CheckpointManager

_ROUND_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_MOST_ROUNDS = 150


def start_warmup(manager: CheckpointManager, cwd: str) -> bool:
    """Start it if this project has no checkpoint yet; whether it was started."""
    workdir = manager.get_working_dir_for_path(cwd)
    try:
        manager.list_checkpoints(workdir, limit=1)
    except NoSuchProject:
        base = manager.settings.resolved_base()
        return start_detached_python("shadowsnap.agents.warmup", str(base), str(workdir), cwd=base)
    return False


def main(arguments: list[str]) -> int:
    base, workdir = (Path(argument) for argument in arguments)
    if hasattr(os, "nice"):
        os.nice(10)
    manager = CheckpointManager.from_settings(base=base, deadline=_ROUND_SECONDS)
    for _ in range(_MOST_ROUNDS):
        try:
            manager.snapshot(workdir, "first snapshot")
        except (DeadlineExceeded, LockTimeout):
            time.sleep(_PAUSE_SECONDS)
        except (ShadowsnapError, OSError):
            return 1  # refused, or a problem that the next hook will tell of
        else:
            return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
