"""All parts of the manager together."""

from __future__ import annotations

from shadowsnap.manager.goingback import GoingBack
from shadowsnap.manager.keeping import Keeping
from shadowsnap.manager.looking import Looking
from shadowsnap.manager.turns import Turns


class CheckpointManager(Turns, Looking, GoingBack, Keeping):
    """Snapshots and restores for any number of directories, from any number of threads."""
