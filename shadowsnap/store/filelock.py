"""Locking an open file, on each platform. The system drops the lock with the process."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt

    # Far behind the text that names the holder: Windows locks also keep readers out.
    _WHERE = 1 << 30
    # Such a lock cannot be shared. So who shares takes one byte, who wants it alone takes all.
    _SHARES = 64

    def try_lock(descriptor: int, *, shared: bool) -> bool:
        if shared:
            return any(_try_bytes(descriptor, _WHERE + number, 1) for number in range(_SHARES))
        return _try_bytes(descriptor, _WHERE, _SHARES)

    def _try_bytes(descriptor: int, start: int, length: int) -> bool:
        os.lseek(descriptor, start, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, length)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Closing the file is enough."""

else:

    def try_lock(descriptor: int, *, shared: bool) -> bool:
        import fcntl

        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Closing the file is not enough if the host forked meanwhile: its child has it open too."""
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
