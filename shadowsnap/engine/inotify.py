"""The system's own word about what happens in directories (Linux).

Asked for directly and not by way of a library: an event is in the queue before the call that caused
it returns, so whoever reads the queue knows of everything that was done before. A thread in between,
which collects events for a while, could not promise that, nor say that some were lost.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator

from shadowsnap.records import NamedTuple

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, IS_DIRECTORY = 0x2000, 0x4000, 0x8000, 0x40000000

_DIRECTORIES_ONLY, _NO_LINKS, _NOT_UNLINKED = 0x01000000, 0x02000000, 0x04000000
_WANTED = (
    MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
    | _DIRECTORIES_ONLY | _NO_LINKS | _NOT_UNLINKED
)  # fmt: skip
_HEAD = struct.Struct("iIII")
_PIECE = 1 << 17


class Event(NamedTuple):
    watch: int
    mask: int
    name: bytes
    """Of what is in the directory; empty for the directory itself."""


class Inotify:
    """A queue of events, and the directories that it is about. Raises OSError where the system has none."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError("there is no inotify on this system")
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = _checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: bytes) -> int:
        """Watch a directory; the number that its events will have."""
        return _checked(self._library.inotify_add_watch(self.descriptor, directory, _WANTED))

    def remove(self, watch: int) -> None:
        # It fails where the directory is gone, and its watch with it.
        self._library.inotify_rm_watch(self.descriptor, watch)

    def events(self) -> Iterator[Event]:
        """Everything that happened before this call. (Not all that can be read: somebody may write on
        without end.)"""
        left = _readable_bytes(self.descriptor)
        while left > 0:
            data = os.read(self.descriptor, _PIECE)
            left -= len(data)
            yield from decoded(data)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


def decoded(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield Event(watch, mask, data[at : at + length].rstrip(b"\0"))
        at += length


def _readable_bytes(descriptor: int) -> int:
    import fcntl
    import termios

    answer = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
