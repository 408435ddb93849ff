"""Watching directories, for a manager that lives as long as its agent."""

from __future__ import annotations

from shadowsnap.manager.core import Core, PathLike
from shadowsnap.snapshot.tools import refusal
from shadowsnap.store.projects import project_of
from shadowsnap.store.stat_cache import load_cache


class Watching(Core):
    def watch(self, working_dir: PathLike) -> bool:
        """Let the system tell what happens in a directory from now on, so that a snapshot looks only at what
        was touched since the last one. The first snapshot from now on scans everything once more, and so
        does any for which that is not known: nothing else changes. Says whether it is watched; not where the
        system cannot tell, nor where no snapshot would be taken. Never raises."""
        try:
            project, store = project_of(working_dir), self._store()
            watched = self._watchers.get(project.id)
            if watched is not None and watched.is_alive:
                return True
            refused = not project.workdir.is_dir() or refusal(project.workdir, store.base)
            if refused or not self._settings_of(project).enabled:
                return False
            from shadowsnap.snapshot.watch import start_watching

            watcher = start_watching(project.workdir, load_cache(store, project).directories)
            if watcher is None:
                return False
            self._watchers[project.id] = watcher
        except Exception:  # promise 4: the snapshots will tell what is wrong
            return False
        return True

    def unwatch(self, working_dir: PathLike) -> None:
        """Stop watching a directory. (Whatever is watched is let go of with the manager, too.)"""
        watcher = self._watchers.pop(project_of(working_dir).id, None)
        if watcher is not None:
            watcher.close()
