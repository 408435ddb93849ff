"""Renames that do more than `os.rename`: two files change places at one stroke, or a file gets a name
only if that is free. Linux has both; elsewhere, and on file systems that know neither, the caller
finds another way.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import lru_cache

_NOREPLACE, _EXCHANGE = 1, 2
_HERE = -100
"""In place of an open directory: the path leads there by itself (AT_FDCWD)."""
# What the system says if it, or the file system, does not know how.
_UNKNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})

_Rename = Callable[[int, bytes, int, bytes, int], int]


def exchange(one: bytes, one_in: int | None, other: bytes, other_in: int | None) -> bool:
    """Let two files change places, so that nobody ever finds either name free; False if that is not to be
    had here."""
    return _renamed(one, one_in, other, other_in, _EXCHANGE)


def rename_if_free(old: bytes, old_in: int | None, new: bytes, new_in: int | None) -> bool:
    """Rename onto a free name, else raise FileExistsError; False if that is not to be had here."""
    return _renamed(old, old_in, new, new_in, _NOREPLACE)


def _renamed(old: bytes, old_in: int | None, new: bytes, new_in: int | None, how: int) -> bool:
    rename = _system_call()
    if rename is None:
        return False
    source, target = _HERE if old_in is None else old_in, _HERE if new_in is None else new_in
    sys.audit("os.rename", old, new, source, target)  # as the rename of Python does
    if rename(source, old, target, new, how) == 0:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), old, None, new)


@lru_cache(maxsize=1)
def _system_call() -> _Rename | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, OSError, AttributeError):  # a Python without it, or an old library
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    found: _Rename = function
    return found
