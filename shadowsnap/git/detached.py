"""Starting a process that goes on by itself: nobody waits for it, nothing of it is heard."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from shadowsnap.git.environment import sealed_environment

_PACKAGE_PARENT = Path(__file__).resolve().parent.parent.parent


def start_detached_python(module: str, *arguments: str, cwd: Path) -> bool:
    """Run `python -m module` independently of this process and of its terminal; False if there
    is no Python to run it."""
    if not sys.executable or getattr(sys, "frozen", False):  # a bundled application is no Python
        return False
    # -s: nothing of the user's site; the working directory, from which -m imports first, is ours.
    command = [sys.executable, "-s", "-m", module, *arguments]
    environment = {**sealed_environment(), "PYTHONPATH": str(_PACKAGE_PARENT), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        _start(command, cwd, environment)
    except OSError:
        return False
    return True


if sys.platform == "win32":

    def _start(command: Sequence[str], cwd: Path, environment: dict[str, str]) -> None:
        flags = (
            subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.IDLE_PRIORITY_CLASS
        )
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, creationflags=flags, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        process.returncode = 0  # it is nobody's child any more: no warning about it

else:

    def _start(command: Sequence[str], cwd: Path, environment: dict[str, str]) -> None:
        # The shell starts it and is gone at once: what it started belongs to init, and a host
        # program that runs for days collects no zombies.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command], cwd=cwd, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            start_new_session=True, timeout=5,
        )  # fmt: skip
