"""Where each agent keeps its transcripts.

The path of a transcript comes with the input of a hook, which any program can make up. So it counts only
below the directory where that agent keeps them: the input cannot have another file copied into the store.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from shadowsnap.files import OutsideFolder, open_below


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


# As their newest versions were seen to do it. An agent that is not listed names no transcript.
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


@dataclass(frozen=True)
class Implied:
    """A transcript that no event names, but whose place follows from the session."""

    place: Place
    name: str
    """Below the folder; `{session}` stands for the id of the session."""


_IMPLIED = {
    "copilot": Implied(Place(".copilot", "session-state", "COPILOT_HOME"), "{session}/events.jsonl"),
    "opencode": Implied(Place(".local/share", "opencode", "XDG_DATA_HOME"), "opencode.db"),
    "goose": Implied(Place(".local/share", "goose/sessions", "XDG_DATA_HOME"), "sessions.db"),
    "hermes": Implied(Place(".hermes", "", "HERMES_HOME"), "state.db"),
}


def implied_transcript(agent: str, session: str) -> tuple[str, str] | None:
    """The transcript of a session and the folder that it lies in, for agents that do not name it; None if it is
    not there."""
    implied = _IMPLIED.get(agent)
    if implied is None or not session or session != os.path.basename(session) or session.startswith("."):
        return None
    folder = _folder(implied.place)
    path = os.path.join(folder, implied.name.format(session=session))
    return (path, folder) if os.path.isfile(path) else None


_VERSION = re.compile(rb'"(?:version|cli_version|copilotVersion)": ?"(\d[\w.+-]{0,39})"')
_BEGINNING = 64 << 10


def version_in_transcript(agent: str, session: str, path: str) -> str:
    """The version of the agent, if its transcript begins with it. Few agents have it in the input of hooks."""
    found = (path, transcripts_folder(agent, path)) if path else implied_transcript(agent, session)
    if found is None or found[1] is None:
        return ""
    try:
        with os.fdopen(open_below(found[1], found[0]), "rb") as file:
            version = _VERSION.search(file.read(_BEGINNING))
    except (OSError, ValueError, OutsideFolder):
        return ""
    return version[1].decode("ascii", "replace") if version else ""


def transcripts_folder(agent: str, path: str) -> str | None:
    """The directory of that agent's transcripts that a path lies in, as it is written; None if it lies in none
    of them. The path itself is not looked up: it may lead to a drive that never answers."""
    wanted = os.path.normcase(os.path.normpath(path))
    for folder in transcripts_folders(agent) if os.path.isabs(path) else ():
        for spelling in (folder, os.path.realpath(folder)):
            if wanted.startswith(os.path.normcase(os.path.join(spelling, ""))):
                return folder
    return None


def transcripts_folders(agent: str) -> list[str]:
    """The directories where an agent keeps its transcripts; the first is where new ones go."""
    return [_folder(place) for place in _PLACES.get(agent, ())]


def _folder(place: Place) -> str:
    named = os.environ.get(place.variable) if place.variable else None
    if named and os.path.isabs(named):
        home = os.path.join(named, place.below)
    else:
        home = os.path.join(os.path.expanduser("~"), place.home)
    return os.path.normpath(os.path.join(home, place.folder))
