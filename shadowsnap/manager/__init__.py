"""What an agent loop owns: a `CheckpointManager` that takes one snapshot per directory per
turn, never raises on that path, and brings any state back.

Its parts: `turns` is the path of a tool call, `looking` and `goingback` are for the person,
`keeping` is for the store; all stand on `core`.
"""

from __future__ import annotations

from shadowsnap.manager.goingback import GoingBack
from shadowsnap.manager.keeping import Keeping
from shadowsnap.manager.looking import Looking
from shadowsnap.manager.turns import Turns


class CheckpointManager(Turns, Looking, GoingBack, Keeping):
    """Snapshots and restores for any number of directories, from any number of threads."""
