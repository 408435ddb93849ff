"""Finding what a capture has to take in: what a scan tells, and what no scan can."""

from __future__ import annotations

from shadowsnap.engine.findings import Findings
from shadowsnap.engine.person import ignored_paths
from shadowsnap.engine.rules import is_secret
from shadowsnap.engine.scan import Comparison, scan_changes, scan_everything
from shadowsnap.engine.workspace import Workspace
from shadowsnap.store.scancache import NEVER_ASKED, ScanCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowsnap.engine.seed import Seeded


class Finder:
    """Holds the files against a cache, which learns on the way what the person's git tracks."""

    def __init__(
        self, space: Workspace, cache: ScanCache, comparison: Comparison, seeded: Seeded | None = None
    ) -> None:
        self._space = space
        self._cache = cache
        # A watcher speaks of what differs from the cache that it keeps.
        self._comparison = comparison if cache.kept is not None else comparison.by_git()
        self._seeded = seeded

    def find(self) -> Findings:
        """Everything that differs from the cache, and what the settings of now leave out."""
        found = self._find()
        found.changed |= self._known_under_other_limits() - found.gone
        return found

    def _find(self) -> Findings:
        cache, space, comparison = self._cache, self._space, self._comparison
        if cache.patterns is None:
            self._ask_what_person_tracks(True)
            self._note_links(comparison)
            found = scan_everything(space, cache, comparison)
            found.changed |= self._touched_meanwhile() - found.gone
            return found
        found = self._find_changes(comparison)
        found.changed |= self._touched_meanwhile() - found.gone
        # A seeded index holds all they track; which of it an exclude matches can wait. If their index is
        # gone by the next capture, nobody can be asked any more, and all that matches goes.
        wait = self._seeded is not None and not found.rules_changed
        if self._seeded is None and cache.tracked_as_of == NEVER_ASKED and not self._their_index():
            found.rules_changed = True
        dropped = set() if wait else self._ask_what_person_tracks(found.rules_changed)
        if found.rules_changed:
            return scan_everything(space, cache, comparison, found)
        found.gone |= dropped
        found.changed -= dropped
        return found

    def _find_changes(self, comparison: Comparison) -> Findings:
        self._note_links(comparison)
        found, watcher = scan_changes(self._space, self._cache, comparison, self._seeded), self._space.watcher
        if comparison.touched is None or watcher is None:
            return found
        if watcher.has_new_link(self._space.worktree, found.changed):
            return self._find_changes(comparison.by_git())
        return found

    def _note_links(self, comparison: Comparison) -> None:
        """Tell a watcher which files can be written to by other names, of which it hears nothing."""
        if self._space.watcher is not None and comparison.touched is None:
            self._space.watcher.note_links(self._space.worktree, self._cache.index.paths())

    def _touched_meanwhile(self) -> set[bytes]:
        """Git compares times by the second: a change of permission bits in the very second of
        the last capture would escape it. So we look at those files ourselves, once."""
        known = self._cache.index.lookup(self._cache.unsettled)
        self._cache.unsettled = set()
        looks = {path: self._space.worktree.look(path) for path in known}
        return {path for path, seen in looks.items() if seen is None or not known[path].is_untouched(seen)} | {
            path for path, entry in known.items() if entry.ctime_ns // 10**9 >= self._comparison.began_ns // 10**9
        }

    def _known_under_other_limits(self) -> set[bytes]:
        """Known files that the settings of now leave out: other settings let them in."""
        settings, cache = self._space.settings, self._cache
        limits = [settings.max_file_bytes or 0, int(settings.include_secrets)]
        before, cache.limits = cache.limits, limits
        if not before or before == limits:
            return set()
        known = cache.index.lookup(list(cache.index.paths()))
        return {
            path
            for path, entry in known.items()
            if entry.size > (settings.max_file_bytes or entry.size)
            or (not settings.include_secrets and is_secret(path))
        }

    def _ask_what_person_tracks(self, again: bool) -> set[bytes]:
        """Learn which files their git tracks although an exclude matches, if that may have
        changed; returns those that it no longer tracks and that are to be left out again."""
        cache, space = self._cache, self._space
        now = self._their_index()
        if now == cache.tracked_as_of and not again:
            return set()
        tracked: list[bytes] | None = []
        if space.repository is not None and now:
            excludes = space.store.exclude_file(space.project.id)
            from shadowsnap.engine.borrow import tracked_despite_excludes

            tracked = tracked_despite_excludes(
                space.store, space.repository, space.git, space.project.workdir, excludes
            )
        if tracked is None:
            return set()  # their repository cannot be read now: what we know of it stays
        no_longer = cache.tracked - set(tracked) - cache.named
        cache.tracked, cache.tracked_as_of = set(tracked), now
        # Git refuses to answer about paths behind a link; those are gone anyway.
        return ignored_paths(space.git, sorted(filter(space.worktree.reaches, no_longer)))

    def _their_index(self) -> list[int]:
        """Changes whenever the index of the person's repository does; empty if there is none."""
        return self._space.repository.index_signature() if self._space.repository else []
