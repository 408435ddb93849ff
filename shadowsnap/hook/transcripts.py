"""Where each agent keeps its transcripts.

The path of a transcript comes with the input of a hook, which any program can make up. So it counts only
below the directory where that agent keeps them: the input cannot have another file copied into the store.
"""

from __future__ import annotations

import os

from shadowsnap.records import dataclass


@dataclass(frozen=True)
class Place:
    """A directory of transcripts."""

    home: str
    """The agent's own directory, below the home of the person."""
    folder: str
    variable: str = ""
    """The environment variable that names another one."""
    below: str = ""
    """What comes between the directory that the variable names and `folder`."""


# As their newest versions were seen to do it. An agent that is not listed tells of no transcript.
_PLACES: dict[str, tuple[Place, ...]] = {
    "claude": (Place(".claude", "projects", "CLAUDE_CONFIG_DIR"),),
    "codex": (Place(".codex", "sessions", "CODEX_HOME"),),
    "gemini": (Place(".gemini", "tmp", "GEMINI_CLI_HOME", ".gemini"),),
    "qwen": (
        Place(".qwen", "projects", "QWEN_RUNTIME_DIR"),
        Place(".qwen", "projects", "QWEN_HOME"),
        Place(".qwen", "tmp", "QWEN_RUNTIME_DIR"),
    ),
    "copilot": (Place(".copilot", "session-state", "COPILOT_HOME"),),
    "cursor": (Place(".cursor", "projects"),),
    "windsurf": (Place(".windsurf", "transcripts"),),
}


def transcripts_folder(agent: str, path: str) -> str | None:
    """The directory of that agent's transcripts that a path lies in, as it is written; None if it lies in none
    of them. The path itself is not looked up: it may lead to a drive that never answers."""
    told = os.path.normcase(os.path.normpath(path))
    for folder in _folders(agent) if os.path.isabs(path) else ():
        for spelling in (folder, os.path.realpath(folder)):
            if told.startswith(os.path.normcase(os.path.join(spelling, ""))):
                return folder
    return None


def _folders(agent: str) -> list[str]:
    found = []
    for place in _PLACES.get(agent, ()):
        named = os.environ.get(place.variable) if place.variable else None
        if named and os.path.isabs(named):
            home = os.path.join(named, place.below)
        else:
            home = os.path.join(os.path.expanduser("~"), place.home)
        found.append(os.path.normpath(os.path.join(home, place.folder)))
    return found
