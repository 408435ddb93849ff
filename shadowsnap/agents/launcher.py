"""The programs that agents start: two small scripts of ours in `<base>/bin`.

The settings of an agent name `<base>/bin/shadowsnap`, never a Python. So the command in them stays the
same when shadowsnap is updated or moves to another virtual environment, and with it the trust that
an agent such as Codex keeps for exactly this command. `shadowsnap install` writes the scripts anew.

Windows has no such scripts: there, settings name the Python itself.
"""

from __future__ import annotations

import os
import re
import shlex
import site
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from shadowsnap.base import configured_base
from shadowsnap.errors import SettingsRefused
from shadowsnap.git.process import try_command

# Directories in which uv keeps environments that it may remove at any time (`uvx`, `uv run --with`).
_UV_CACHE = re.compile(r"(?:archive|builds|environments)-v\d+")
_CACHES = ("cache", ".cache", "caches")

# `-c` instead of `-m`: it saves the import of runpy, at every tool call.
_START = """\
import sys
try:
    from shadowsnap.cli.main import main
except ImportError:
    if sys.argv[1:2] == ["hook"]:
        sys.exit(0)
    print("NOT protected: shadowsnap is no longer installed for", sys.executable)
    sys.exit(1)
sys.exit(main())"""

_SHADOWSNAP = """\
#!/bin/sh
# Written by `shadowsnap install`, which writes it anew when shadowsnap has moved. Settings of agents name this
# script, so that their commands stay the same. Like the hook itself, it never stops an agent.
python={python}
if [ -x "$python" ]; then
    exec "$python" {flags} -c {start} "$@"
fi
[ "$1" = hook ] && exit 0
echo "NOT protected: the Python of shadowsnap is missing ($python)."
echo "Install shadowsnap again, then run: shadowsnap install AGENT"
exit 1
"""

_ROLLBACK = """\
#!/bin/sh
# Written by `shadowsnap install`. The /rollback commands of agents run it with the line as one word, or with - and
# the line on standard input. It always exits with 0: several agents show nothing of a command that fails.
if [ "$1" = - ]; then
    line=
    while IFS= read -r part; do
        line="$line$part "
    done
    set -- "$line$part"
fi
{shadowsnap} rollback "$@" 2>&1
exit 0
"""


@dataclass(frozen=True)
class Launcher:
    """The command lines that go into settings of agents, as lists of words."""

    shadowsnap: tuple[str, ...]
    rollback: tuple[str, ...]

    def hook(self, agent: str, *more: str) -> tuple[str, ...]:
        return (*self.shadowsnap, "hook", agent, *more)

    def status_line(self, agent: str) -> tuple[str, ...]:
        return (*self.shadowsnap, "statusline", agent)


def launcher() -> Launcher:
    """The command lines for this person, whether the scripts are there yet or not."""
    if sys.platform == "win32":
        words = program_words()
        return Launcher(words, (*words, "rollback"))
    folder = _folder()
    return Launcher((str(folder / "shadowsnap"),), (str(folder / "shadowsnap-rollback"),))


def hook_command(agent: str) -> str:
    """The command line of the hook as settings name it, quoted for the shell."""
    return quoted(launcher().hook(agent))


def scripts() -> dict[Path, str]:
    """The scripts as they should be now, by path. Raises SettingsRefused if this program is not here to stay."""
    words = program_words()
    if sys.platform == "win32":
        return {}
    flags = [word for word in words[1:] if word in ("-I", "-E", "-P")]
    shadowsnap, rollback = Path(launcher().shadowsnap[0]), Path(launcher().rollback[0])
    return {
        shadowsnap: _SHADOWSNAP.format(
            python=shlex.quote(words[0]), flags=" ".join(flags), start=shlex.quote(_START)
        ),
        rollback: _ROLLBACK.format(shadowsnap=shlex.quote(str(shadowsnap))),
    }


def program_words() -> tuple[str, ...]:
    """The command line that starts this program, also where it is not on the PATH. Isolated (-I): no
    variable and no module of a project can get between an agent and its hook. Packages that a person
    installed for themselves alone are not found that way; for those, variables (-E) and the current
    directory (-P) are left out instead. Raises SettingsRefused if this program may be gone tomorrow."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise _refused("this program has no Python to start it with")
    for path in (sys.executable, __file__):
        if _is_in_cache(path):
            raise _refused(f"this shadowsnap is in a cache and may be removed at any time ({path})")
    options = _isolation(sys.executable)
    if options is None:
        raise _refused(
            "an isolated Python does not find shadowsnap, and one that is not isolated would run what a project "
            "calls shadowsnap"
        )
    return (sys.executable, *options, "-m", "shadowsnap")


_ISOLATED, _WITH_OWN_PACKAGES = ("-I",), ("-E", "-P")


def _isolation(python: str) -> tuple[str, ...] | None:
    """The options with which Python finds this very package, and nothing of a project; None if there are none."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if site.ENABLE_USER_SITE is not False and folder == site.getusersitepackages():
        return _WITH_OWN_PACKAGES
    if folder in site.getsitepackages():
        return _ISOLATED
    return _isolation_tried(python, folder)  # an editable installation, or none at all


@lru_cache
def _isolation_tried(python: str, folder: str) -> tuple[str, ...] | None:
    code = "import shadowsnap; print(shadowsnap.__file__)"
    for options in (_ISOLATED, _WITH_OWN_PACKAGES):
        found = os.fsdecode(try_command([python, *options, "-c", code], Path(os.sep), dict(os.environ))).strip()
        if os.path.realpath(found) == os.path.realpath(os.path.join(folder, "shadowsnap", "__init__.py")):
            return options
    return None


def _refused(why: str) -> SettingsRefused:
    problem = SettingsRefused(path="the agent's settings", why=why)
    problem.hint = "install it first: uv tool install shadowsnap (or pipx install shadowsnap)"
    return problem


def _is_in_cache(path: str) -> bool:
    names = [name.lower() for name in Path(path).parts]
    of_pipx = "pipx" in names and any(name in _CACHES for name in names)
    return of_pipx or any(_UV_CACHE.fullmatch(name) for name in names)


def launcher_problem() -> str:
    """Why the scripts cannot start shadowsnap, as a phrase; empty if they can."""
    if sys.platform == "win32":
        return ""
    path = Path(launcher().shadowsnap[0])
    try:
        python = interpreter_in(path.read_text("utf-8"))
    except (OSError, ValueError):
        return f"{path} is missing"
    if not python:
        return f"{path} was changed"
    return "" if os.access(python, os.X_OK) else f"the Python of shadowsnap is missing: {python}"


def interpreter_in(script: str) -> str:
    """The Python that a script starts."""
    match = re.search(r"^python=(.+)$", script, re.MULTILINE)
    words = shlex.split(match.group(1)) if match else []
    return words[0] if words else ""


def quoted(words: tuple[str, ...]) -> str:
    """A command line for the shell of this system."""
    if sys.platform == "win32":
        return " ".join(f'"{word}"' if re.search(r"[^\w.:\\/-]", word) else word for word in words)
    return shlex.join(words)


def _folder() -> Path:
    return Path(os.path.abspath(configured_base()), "bin")
