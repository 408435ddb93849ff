"""The facts about an agent that the installer, the status and the documentation need.

One module per agent holds its facts in one `Agent`. Files that belong to an installation are
described with placeholders; `install.py` fills them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shadowsnap.agents.edit import Edit

SECONDS_TO_WAIT = 20
"""How long agents are asked to wait for the hook, which gives up by itself before that."""

# Placeholders. In the entry of a hook they stand for a value, in a text for a part of it.
COMMAND = "<<command>>"
"""The command line of the hook, quoted for the shell."""
PROGRAM, ARGUMENTS = "<<program>>", "<<arguments>>"
"""The same as a program and a list of words."""
WORDS = "<<words>>"
"""The same as one list of words, in JSON."""
ROLLBACK = "<<rollback>>"
"""The command line that answers /rollback, quoted for the shell."""
STATUS_LINE = "<<status line>>"
"""The command line that prints the status line, quoted for the shell."""
READERS = "<<readers>>"
"""The tools that only read, as a list in JSON."""
SECONDS, MILLISECONDS = "<<seconds>>", "<<milliseconds>>"
"""How long to wait for the hook."""

Kind = Literal["tool", "prompt", "session-start", "stop", "session-end", "slash"]


@dataclass(frozen=True)
class Event:
    """An event that the hook is registered for."""

    name: str
    """As the agent spells it."""
    kind: Kind
    """What it means. `slash`: a slash command is about to be expanded."""
    seconds: int = SECONDS_TO_WAIT
    matcher: str = ""
    """Restricts the event to some tools or commands."""


@dataclass(frozen=True)
class Folder:
    """Where an agent keeps its settings."""

    user: str
    """Below the home directory."""
    project: str | None
    """Below the directory of a project; None if it has no settings there."""
    variable: str = ""
    """The environment variable that moves the folder of the user."""
    below_config: str = ""
    """Its name below XDG_CONFIG_HOME, for agents that follow that variable."""


@dataclass(frozen=True)
class HooksFile:
    """A JSON or YAML file with lists of hooks under `hooks: event:`."""

    path: str
    """Below the folder. `*.json` stands for each file there."""
    entry: Mapping[str, object]
    """What is added to the list of each event."""
    grouped: bool = False
    """Whether an entry stands in a group with a matcher, as Claude Code writes it."""
    around: Mapping[str, object] = field(default_factory=dict)
    """Members that the file needs besides `hooks`."""
    if_none: str = ""
    """With `*.json`: the file to create if there is none."""
    names_event: bool = False
    """Whether the command names the event, because the input does not."""


@dataclass(frozen=True)
class HookScripts:
    """An executable script for each event, with the name of the event."""

    text: str


@dataclass(frozen=True)
class TextFile:
    """A file that is ours alone."""

    path: str
    text: str
    is_hook: bool = False
    """Whether it is the hook. Otherwise the hook works without it, and an existing file stays."""
    needed: bool = False
    """Whether the hook does not work without it."""
    in_projects: bool = True


@dataclass(frozen=True)
class Retired:
    """A file that older versions installed."""

    path: str


@dataclass(frozen=True)
class Switch:
    """A setting that turns all hooks of an agent off."""

    file: str
    """A JSON file below the folder, of the user and of the project."""
    keys: tuple[str, ...]
    off: object = True
    """The value that turns hooks off. A list with one of ours in it counts as well."""


@dataclass(frozen=True)
class Consent:
    """What the person must do before the agent runs a hook."""

    step: str
    """What to do, as an instruction."""
    record: str
    """Where the agent records it."""
    missing: Callable[[Path, Sequence[Edit], Path | None], str]
    """What is missing of it, as a phrase; empty if the agent runs the hook. Given the folder with the agent's
    settings, our part of them, and the project that the agent works in, if it is known."""


@dataclass(frozen=True)
class Agent:
    """An agent that the hook can be installed into."""

    name: str
    title: str
    folder: Folder
    files: tuple[HooksFile | HookScripts | TextFile | Retired, ...]
    events: tuple[Event, ...]
    readers: tuple[str, ...] = ()
    """Tools that only read and for which the agent does not even start the hook."""
    status_line: Mapping[str, object] = field(default_factory=dict)
    """The member of the first file that shows a status line."""
    switches: tuple[Switch, ...] = ()
    consent: Consent | None = None

    # For the documentation.
    rollback: str = ""
    """How /rollback is called, and who answers."""
    transcript: str = ""
    """Where the conversation is."""
    versions: tuple[str, ...] = ()
    """Versions that were run with the hook, newest first."""
    tested: str = ""
    """When they were run."""
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    """What is not protected, or not known."""


def all_but(readers: Sequence[str]) -> str:
    """A matcher for every tool except these, so that a tool that is new is not missed. It needs a regular
    expression engine with lookahead: JavaScript and Python have it, Rust does not."""
    return f"^(?!(?:{'|'.join(readers)})$).*"


ABOUT_ROLLBACK = "Bring files back to a checkpoint: [N | N FILE... | diff N [M] | undo | redo | pin N | help]"
RUN_ONCE = """\
Run this command once, with the words after /rollback as its arguments if there are any, show me its
output as it is in a code block, and do nothing else:"""
"""For agents without a placeholder for the arguments: they append them to the text."""

SEEN = "November 2026"
"""When the versions in the agents' modules were run."""
