"""What the times of files and directories prove."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.records import NamedTuple

_SECOND = 10**9
_TWO_SECONDS = 2 * _SECOND

# Local ones, on which every name that comes or goes changes the time of its directory at once. Not
# so over a network or by way of FUSE, where times may be cached, or made up.
_TELLING = frozenset({
    b"bcachefs", b"btrfs", b"ext2", b"ext3", b"ext4", b"f2fs", b"jfs", b"nilfs2", b"overlay", b"ramfs", b"tmpfs",
    b"xfs", b"zfs",
})  # fmt: skip


def directories_tell(workdir: Path) -> bool:
    """Whether a directory below this one whose change time is the same has the same names in it. Where
    that is not known, it does not."""
    return sys.platform == "linux" and kind_of(os.fsencode(workdir), _list_of_mounts()) in _TELLING


def file_system_time(workdir: Path, own_file: Path) -> int | None:
    """The time of the file system that a project is on, in nanoseconds: whatever changes from now on is stamped
    with this time or a later one. The clock of this program proves nothing: a server, or the host of a virtual
    machine, has its own. `own_file` is one of ours; if it is on the same file system, its time is set. Else a
    file without a name is made for a moment. None if neither can be done."""
    try:
        if os.stat(own_file).st_dev == os.stat(workdir).st_dev:
            os.utime(own_file)
            return os.stat(own_file).st_mtime_ns
    except OSError:
        pass
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(workdir, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)


def is_settled(changed_ns: int, now_ns: int) -> bool:
    """Whether a change that comes after `now_ns`, in the time of the file system, is certain to leave another
    time than `changed_ns`. A file system that counts whole seconds stamps two changes alike for a while."""
    return changed_ns + (_TWO_SECONDS if changed_ns % _SECOND == 0 else 0) < now_ns


def is_mounted_below(workdir: Path) -> bool:
    """Whether some directory below this one may be on a file system of its own."""
    inside = os.fsencode(workdir).rstrip(b"/") + b"/"
    mounts = list(_mounts(_list_of_mounts()))
    return not mounts or any(mount.place.startswith(inside) for mount in mounts)


def mounted_below(workdir: Path) -> list[bytes]:
    """The directories below this one that something is mounted on, relative to it, as far as is known."""
    inside = os.fsencode(workdir).rstrip(b"/") + b"/"
    places = (mount.place for mount in _mounts(_list_of_mounts()))
    return [place[len(inside) :] for place in places if place.startswith(inside)]


def kind_of(place: bytes, listed: bytes) -> bytes:
    """The kind of file system that a directory is on, given the list of mounts; empty if that does not
    tell. (By its place and not by the number of its device: a subvolume of btrfs has a number that
    the list does not know.)"""
    mounts = list(_mounts(listed))
    ids = {mount.id for mount in mounts}
    ways = [mount for mount in mounts if (place + b"/").startswith(mount.place + b"/")]
    # From the root on as a path is followed: what lies upon a directory hides all that was mounted
    # below it before.
    kind, below = b"", [mount for mount in ways if mount.on not in ids or mount.on == mount.id]
    while below:
        nearest = min(reversed(below), key=lambda mount: len(mount.place))
        kind = nearest.kind
        below = [mount for mount in ways if mount.on == nearest.id != mount.id]
    return kind


class _Mount(NamedTuple):
    id: bytes
    on: bytes
    """The mount that it lies upon."""
    place: bytes
    kind: bytes


def _mounts(listed: bytes) -> Iterator[_Mount]:
    for line in listed.splitlines():
        about, _, rest = line.partition(b" - ")
        number, on, _, _, place = about.split(b" ")[:5]
        yield _Mount(number, on, _unescaped(place).rstrip(b"/"), rest.split(b" ")[0])


def _list_of_mounts() -> bytes:
    """As the system tells it; empty if it does not."""
    try:
        return Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return b""


def _unescaped(text: bytes) -> bytes:
    """A name in which blanks, tabs, line ends and backslashes are told by their octal numbers."""
    first, *others = text.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in others)
