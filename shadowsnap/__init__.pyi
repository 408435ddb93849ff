"""The types of the package, whose names are loaded on first use."""

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

__version__: str
