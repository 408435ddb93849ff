"""Looking: lists, references, differences, and which directory is meant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shadowsnap.manager.core import Core, PathLike, as_list, check_there, once_more
from shadowsnap.model import Checkpoint, Diff
from shadowsnap.snapshot.take import capture_same_scope
from shadowsnap.snapshot.tools import existing_folder, path_inside, project_root, refusal
from shadowsnap.snapshot.workspace import open_workspace
from shadowsnap.store.checkpoints import files_of, find_checkpoint, list_checkpoints, newest_name
from shadowsnap.store.projects import known_projects, project_of


class Looking(Core):
    @once_more
    def list_checkpoints(
        self,
        working_dir: PathLike,
        limit: int | None = None,
        session_id: str | None = None,
        path: PathLike | None = None,
    ) -> list[Checkpoint]:
        """Newest first; of one session, or only those in which one path changed (or, where there is
        nothing before them to compare with, that hold it)."""
        store, project = self._known(working_dir)
        inside = None if path is None else path_inside(project.workdir, path)
        narrow = session_id is not None or inside is not None
        found = list_checkpoints(store, project, self._deadline(), None if narrow else limit, path=inside)
        if inside is not None:
            from shadowsnap.store.checkpoints import touching

            found = touching(store, found, inside, self._deadline())
        if session_id is not None:
            found = [checkpoint for checkpoint in found if checkpoint.session_id == session_id]
        return found[:limit]

    @once_more
    def get(self, working_dir: PathLike, ref: str) -> Checkpoint:
        """The checkpoint that a hash prefix, `last`, `last~2` or a label names."""
        store, project = self._known(working_dir)
        return find_checkpoint(store, project, ref, self._deadline())

    @once_more
    def diff(
        self, working_dir: PathLike, ref: str, other: str | None = None, paths: Sequence[PathLike] = ()
    ) -> Diff:
        """What changed from one checkpoint to another, or to the files on disk now."""
        from shadowsnap.snapshot.states import State, compare

        store, project = self._known(working_dir)
        deadline = self._deadline()
        chosen = [path_inside(project.workdir, path) for path in as_list(paths)]
        first = find_checkpoint(store, project, ref, deadline)
        old = State.of_checkpoint(first)
        if other is not None:
            second = find_checkpoint(store, project, other, deadline)
            changes, text = compare(store.git(deadline), old, State.of_checkpoint(second), chosen)
            return Diff(first.id, second.id, changes, text)
        check_there(project)
        settings, watcher = self._settings_of(project), self._watchers.get(project.id)
        with open_workspace(
            store, project, settings, deadline, "diff", lasting=False, watcher=watcher
        ) as space:
            now = State.of_capture(capture_same_scope(space, old))
            return Diff(first.id, None, *compare(space.git, old, now, chosen))

    @once_more
    def files(self, working_dir: PathLike, ref: str) -> list[str]:
        """Every file that a checkpoint holds."""
        store, project = self._known(working_dir)
        deadline = self._deadline()
        return files_of(store, find_checkpoint(store, project, ref, deadline), deadline)

    @once_more
    def contents(self, working_dir: PathLike, ref: str, paths: Sequence[str]) -> dict[str, bytes]:
        """What files held at a checkpoint, by path; those that it does not have are left out."""
        from shadowsnap.store.checkpoints import contents_of

        store, project = self._known(working_dir)
        deadline = self._deadline()
        return contents_of(store, find_checkpoint(store, project, ref, deadline), paths, deadline)

    def projects(self) -> list[Path]:
        """Every directory that has checkpoints."""
        store = self._store()
        self._import_due(store)
        return [project.workdir for project in known_projects(store) if newest_name(store, project) is not None]

    def find_project(self, directory: PathLike) -> Path:
        """The project that is meant by someone who stands in this directory: the nearest one at
        or above it that has checkpoints, as far up as their repository reaches. If there is none,
        the one that a snapshot would be taken of."""
        store, start = self._store(), project_of(directory).workdir
        for folder in (start, *start.parents):
            if folder != start and refusal(folder, store.base) is not None:
                break  # the home directory may have checkpoints of single files
            if newest_name(store, project_of(folder)) is not None:
                return folder
            if (folder / ".git").exists():
                break
        return self.get_working_dir_for_path(start) if start.is_dir() else start

    def get_working_dir_for_path(self, file_path: PathLike) -> Path:
        """The project a file belongs to: the nearest directory above it that looks like the root
        of one, never at or above the home directory; otherwise the file's own directory."""
        path = os.path.abspath(Path(file_path).expanduser())
        return project_root(path, self.settings.resolved_base()) or existing_folder(path)
