"""Choosing a remote, and the directory that a lane is resumed in."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import BadRemote, NoRemote, OtherProject, RemoteExists
from shadowsnap.git.trees import name_problem
from shadowsnap.remote.identity import identity_of
from shadowsnap.remote.sealing import check_recipients
from shadowsnap.remote.storage import Storage, normal_url, open_storage, probe
from shadowsnap.store.lanes import (
    PulledLane,
    Remote,
    forget_pulled,
    forget_remote,
    pulled_lanes,
    read_own_lane,
    read_remote,
    write_remote,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, project_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")


def add_remote(
    store: Store,
    project: Project,
    name: str,
    url: str,
    recipients: Sequence[str],
    *,
    plain: bool,
    conversations: bool,
) -> Remote:
    known = read_remote(store, project.id)
    if known is not None:
        raise RemoteExists(workdir=project.workdir, name=known.name, url=known.url)
    if not _NAME.fullmatch(name):
        raise BadRemote(url=name, why="its name must be letters, digits, dots and dashes")
    if plain == bool(recipients):
        why = "say either --plain or who can read it (--to RECIPIENT)"
        raise BadRemote(url=url, why=why if plain else f"a lane is encrypted unless you say otherwise: {why}")
    check_recipients(recipients)
    url = normal_url(url, str(project.workdir))
    _check_place(store, project, url)
    conditions = probe(open_storage(url, store), secrets.token_hex(8))
    remote = Remote(name, url, tuple(recipients), plain, conversations, conditions)
    write_remote(store, project.id, remote)
    return remote


def _check_place(store: Store, project: Project, url: str) -> None:
    """A directory that is captured itself would grow with every push."""
    if not os.path.isabs(url):
        return
    place = Path(os.path.realpath(url))
    for taken, what in ((project.workdir, "the project"), (store.base, "the store")):
        if place == taken or place.is_relative_to(taken):
            raise BadRemote(url=url, why=f"it lies inside {what}")


def remove_remote(store: Store, project: Project, deadline: Deadline) -> Remote:
    remote = read_remote(store, project.id)
    if remote is None:
        raise NoRemote(workdir=project.workdir)
    own = read_own_lane(store, project.id)
    pulled = [
        lane
        for lane in pulled_lanes(store, deadline)
        if own is not None and lane.url == remote.url and lane.identity.is_same(own.identity)
    ]
    forget_pulled(store, pulled, deadline)
    forget_remote(store, project.id, lane=False)
    return remote


def storage_of(store: Store, project: Project) -> Storage:
    remote = read_remote(store, project.id)
    if remote is None:
        raise NoRemote(workdir=project.workdir)
    return open_storage(remote.url, store)


def place_to_resume(
    store: Store, lane: PulledLane, here: Path, directory: Path | None, deadline: Deadline
) -> tuple[Path, bool]:
    """The directory that a lane is resumed in, and whether it is a new one."""
    if directory is None:
        if _why_another(store, lane, here, deadline) is None:
            return here, False
        name = lane.identity.name.rpartition("/")[2]
        usable = name and name_problem(os.fsencode(name)) is None and not name.startswith((".", "-"))
        directory = Path(name if usable else lane.identity.id)
    directory = here / directory
    if not os.path.lexists(directory) or (directory.is_dir() and not os.listdir(directory)):
        return directory, True
    why = _why_another(store, lane, directory, deadline)
    if why is not None:
        project = lane.identity.name or lane.identity.id
        raise OtherProject(workdir=directory, project=project, why=why)
    return directory, False


def _why_another(store: Store, lane: PulledLane, directory: Path, deadline: Deadline) -> str | None:
    """Why a directory is not of the lane's project; None if it is."""
    if not directory.is_dir():
        return "it is no directory"
    project = project_of(directory)
    own = read_own_lane(store, project.id)
    mine = own.identity if own is not None else identity_of(store, project.workdir, deadline)
    if mine is None:
        return "it has files, and nothing says which project they are of"
    return None if mine.is_same(lane.identity) else "it has another first commit or is cloned from elsewhere"
