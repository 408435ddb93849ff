"""shadowsnap keeps people's files safe from their AI agents.

Importing this package imports almost nothing: it is started once per tool call by agent
hooks, so the names below are loaded on first use.
"""

__version__ = "0.1.0"

_HOMES = {
    "AsyncCheckpointManager": "aio",
    "CheckpointManager": "manager",
    "Settings": "settings",
    "ShadowsnapError": "errors",
    "Event": "events",
    **dict.fromkeys(
        ("Change", "Checkpoint", "Diff", "Entry", "Kept", "Now", "Outcome", "RestoreResult", "Skipped"), "model"
    ),
}
__all__ = ["__version__", *_HOMES]

TYPE_CHECKING = False  # `typing` takes as long to import as Python to start
if TYPE_CHECKING:
    from shadowsnap.aio import AsyncCheckpointManager as AsyncCheckpointManager
    from shadowsnap.errors import ShadowsnapError as ShadowsnapError
    from shadowsnap.events import Event as Event
    from shadowsnap.manager import CheckpointManager as CheckpointManager
    from shadowsnap.model import Change as Change
    from shadowsnap.model import Checkpoint as Checkpoint
    from shadowsnap.model import Diff as Diff
    from shadowsnap.model import Entry as Entry
    from shadowsnap.model import Kept as Kept
    from shadowsnap.model import Now as Now
    from shadowsnap.model import Outcome as Outcome
    from shadowsnap.model import RestoreResult as RestoreResult
    from shadowsnap.model import Skipped as Skipped
    from shadowsnap.settings import Settings as Settings


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
