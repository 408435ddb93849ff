"""Settings: what can be set, the defaults, and where the store lies. (`layers` reads them from files.)"""

from __future__ import annotations

import os
import sys

from shadowsnap.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


CHOICES = {"granularity": ("turn", "tool")}
"""What a setting can be that is a word."""


@dataclass(frozen=True)
class Settings:
    """All settings of a manager; limits of 0 mean "no limit"."""

    enabled: bool = True
    """Take snapshots at all."""
    max_snapshots: int = 20
    """Turns that pruning leaves of each project."""
    max_total_size_mb: float = 500
    """Size of the store that pruning aims at."""
    max_file_size_mb: float = 10
    """Larger files are not captured."""
    base: Path | None = None
    """Where the store lies."""
    deadline: float = 30.0
    """Seconds one operation may take before it gives up (0: as long as it needs)."""
    excludes: tuple[str, ...] = ()
    """More patterns in .gitignore syntax, on top of the defaults."""
    include_secrets: bool = False
    """Capture files that look like secrets too."""
    capture_secrets: tuple[str, ...] = ()
    """Patterns of such names that are captured all the same, as in `secrets.yaml`."""
    fsync: bool = True
    """Flush a checkpoint to the disk before calling it taken."""
    import_legacy: bool = True
    """Import the checkpoints of older tools that are found in the base on first use."""

    retention_days: float = 30
    """Older checkpoints go, except the newest of a project."""
    orphan_grace_days: float = 7
    """How long a project's directory must be gone before its checkpoints go."""
    attachment_days: float = 30
    """Older conversations go; the checkpoints they belong to stay."""
    max_attachments_mb: float = 100
    """Size of all kept conversations that pruning aims at."""
    keep_conversations: bool = True
    """Keep the conversations that agents hand over with the checkpoints."""
    max_conversation_mb: float = 50
    """A larger conversation is not kept."""
    redact: tuple[str, ...] = ()
    """Regular expressions: what they match is taken out of conversations, as secrets are."""
    min_interval_hours: float = 24
    """`auto_prune` does nothing more often than that."""
    upkeep_deadline: float = 600.0
    """Seconds that pruning and repacking may take, outside of any snapshot."""
    granularity: str = "turn"
    """`turn`: a snapshot before the first writing tool of a turn. `tool`: before and after each of them."""
    background_upkeep: bool = True
    """Start upkeep as a process of its own when enough has piled up."""

    @property
    def max_file_bytes(self) -> int | None:
        return int(self.max_file_size_mb * 1024 * 1024) if self.max_file_size_mb > 0 else None

    @property
    def max_conversation_bytes(self) -> int | None:
        return int(self.max_conversation_mb * 1024 * 1024) if self.max_conversation_mb > 0 else None

    def resolved_base(self) -> Path:
        from pathlib import Path

        return Path(os.path.realpath(os.path.expanduser(self.base) if self.base else base_folder()))


def settings_to_text(settings: Settings) -> str:
    """Settings for a process that is started to work with the same ones."""
    import json

    told = {name: getattr(settings, name) for name in Settings.__match_args__}
    return json.dumps({**told, "base": os.fspath(settings.resolved_base())})


def settings_from_text(text: str) -> Settings:
    """The settings another process was started with. What another version told is left out."""
    import json
    from pathlib import Path

    told = json.loads(text)
    facts = {name: told[name] for name in Settings.__match_args__ if name in told}
    facts = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
    return Settings(**{**facts, "base": Path(told["base"])})


def configured_base() -> str:
    """Where the store of this person lies, who may have moved it in their settings file."""
    if not is_moved_by_variable():
        try:
            with open(config_file(), "rb") as file:
                mentioned = b"base" in file.read()
        except OSError:
            mentioned = False
        if mentioned:
            from shadowsnap.layers import load_settings

            return os.fspath(load_settings().settings.resolved_base())
    return base_folder()


def is_moved_by_variable() -> bool:
    return bool(os.environ.get("SHADOWSNAP_HOME"))


def config_file() -> str:
    """The person's own settings file, whether it is there or not."""
    expand, join = os.path.expanduser, os.path.join
    if sys.platform == "win32":
        folder = os.environ.get("APPDATA") or expand(join("~", "AppData", "Roaming"))
    elif sys.platform == "darwin":
        folder = expand(join("~", "Library", "Application Support"))
    else:
        config = os.environ.get("XDG_CONFIG_HOME")
        folder = config if config and os.path.isabs(config) else expand(join("~", ".config"))
    return join(folder, "shadowsnap", "config.toml")


def environment_settings() -> dict[str, str]:
    """What SHADOWSNAP_* variables say, by the names of settings. SHADOWSNAP_HOME is the base."""
    found = {name[11:].lower(): text for name, text in os.environ.items() if name.startswith("SHADOWSNAP_")}
    return {name: text for name, text in found.items() if name not in ("home", "debug")}


def base_folder() -> str:
    """Where the store lies by default. (Text: most hooks end before anything needs a `Path`.)"""
    expand, join = os.path.expanduser, os.path.join
    if home := os.environ.get("SHADOWSNAP_HOME"):
        return expand(home)
    if sys.platform == "win32":
        return join(os.environ.get("LOCALAPPDATA") or expand(join("~", "AppData", "Local")), "shadowsnap")
    if sys.platform == "darwin":
        return expand(join("~", "Library", "Application Support", "shadowsnap"))
    state = os.environ.get("XDG_STATE_HOME")
    # The XDG rules say that a relative value is to be ignored.
    return join(state if state and os.path.isabs(state) else expand(join("~", ".local", "state")), "shadowsnap")
