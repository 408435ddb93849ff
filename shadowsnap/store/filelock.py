"""Locking an open file, on each platform. The system drops the lock with the process."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt

    # Far behind the text that names the holder: Windows locks also keep readers out.
    _WHERE = 1 << 30

    def try_lock(descriptor: int, *, shared: bool) -> bool:
        os.lseek(descriptor, _WHERE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def try_lock(descriptor: int, *, shared: bool) -> bool:
        import fcntl

        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
