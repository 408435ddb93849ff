"""What a scan found."""

from __future__ import annotations

from shadowsnap.engine.worktree import parents
from shadowsnap.records import dataclass, field
from shadowsnap.store.scancache import Directories


@dataclass
class Findings:
    """What differs or may differ from the cache."""

    changed: set[bytes] = field(default_factory=set)
    """Known files whose stat data differ, and files not known yet."""
    gone: set[bytes] = field(default_factory=set)
    directories: Directories = field(default_factory=dict)
    bare: set[bytes] = field(default_factory=set)
    """Directories that may hold nothing that is captured."""
    specials: set[bytes] = field(default_factory=set)
    unreadable: set[bytes] = field(default_factory=set)
    """Directories that could not be read."""
    rules_changed: bool = False
    """The ignore rules are not those of the cache: everything has to be listed anew."""

    def hides(self, path: bytes) -> bool:
        """Whether a path is in a directory that could not be read."""
        return bool(self.unreadable) and not self.unreadable.isdisjoint(parents(path))

    def forget_specials_below(self, folder: bytes) -> None:
        self.specials -= {path for path in self.specials if path.startswith(folder + b"/")}
