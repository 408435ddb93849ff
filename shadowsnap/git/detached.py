"""Starting a process that goes on by itself: nobody waits for it, nothing of it is heard."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from shadowsnap.git.environment import sealed_environment

_PACKAGE = Path(__file__).resolve().parent.parent
# An isolated Python (-I) looks neither into the directory it is started in nor into PYTHONPATH, where a project
# could have put a module of any name. So it is told by a path where this very package is.
_START = """
import importlib.util, runpy, sys
package, module, *sys.argv[1:] = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    "shadowsnap", package + "/__init__.py", submodule_search_locations=[package])
sys.modules["shadowsnap"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["shadowsnap"])
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def start_detached_python(module: str, *arguments: str, cwd: Path) -> bool:
    """Run a module of ours independently of this process and of its terminal; False if there is no Python to
    run it."""
    if not sys.executable or getattr(sys, "frozen", False):  # a bundled application is no Python
        return False
    command = [sys.executable, "-I", "-B", "-c", _START, str(_PACKAGE), module, *arguments]
    try:
        _start(command, cwd, sealed_environment())
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
