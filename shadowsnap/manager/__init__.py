"""What an agent loop owns: a `CheckpointManager` that takes one snapshot per directory per
turn, never raises on that path, and brings any state back.

Its parts: `turns` is the path of a tool call, `looking` and `goingback` are for the person,
`keeping` is for the store, `watching` saves time; all stand on `core`. `whole` puts them together, when
somebody asks for it: a hook needs `turns` alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowsnap.manager.whole import CheckpointManager as CheckpointManager


def __getattr__(name: str) -> object:
    if name != "CheckpointManager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shadowsnap.manager.whole import CheckpointManager

    globals()[name] = CheckpointManager
    return CheckpointManager
