"""All parts of the manager together."""

from __future__ import annotations

from shadowsnap.manager.attaching import Attaching
from shadowsnap.manager.keeping import Keeping
from shadowsnap.manager.looking import Looking
from shadowsnap.manager.stages import Stages
from shadowsnap.manager.turns import Turns
from shadowsnap.manager.watching import Watching


class CheckpointManager(Turns, Looking, Stages, Keeping, Attaching, Watching):
    """Snapshots and restores for any number of directories, from any number of threads."""
