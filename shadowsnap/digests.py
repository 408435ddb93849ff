"""SHA-1 and SHA-256 without OpenSSL, as long as there is little to hash.

`hashlib` loads OpenSSL, which takes 3.5 ms: a hook that hashes some kilobytes is done sooner with
Python's own code, although OpenSSL is up to nine times as fast. Who hashes more gets OpenSSL.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Digest(Protocol):
        def update(self, data: bytes | memoryview, /) -> None: ...
        def digest(self) -> bytes: ...
        def hexdigest(self) -> str: ...


# Where loading OpenSSL costs as much as it saves.
_LITTLE = 1 << 19
_hashed = 0


def sha1(data: bytes | memoryview = b"", more: int = 0) -> Digest:
    """Of `data`, and of about so many bytes `more` that it is going to be fed."""
    if _is_little(len(data) + more):
        try:
            from _sha1 import sha1 as small  # type: ignore[import-not-found]

            return small(data)  # type: ignore[no-any-return]
        except ImportError:
            pass  # a Python that relies on OpenSSL alone
    import hashlib

    return hashlib.sha1(data, usedforsecurity=False)


def sha256(data: bytes | memoryview = b"", more: int = 0) -> Digest:
    if _is_little(len(data) + more):
        try:
            if sys.version_info >= (3, 12):
                from _sha2 import sha256 as small
            else:
                from _sha256 import sha256 as small  # type: ignore[import-not-found]
            return small(data)  # type: ignore[no-any-return]
        except ImportError:
            pass
    import hashlib

    return hashlib.sha256(data, usedforsecurity=False)


def _is_little(size: int) -> bool:
    global _hashed
    _hashed += size
    return _hashed <= _LITTLE and "hashlib" not in sys.modules


_LONGEST_ID = 200


def bounded_id(text: str) -> str:
    """An id that came from outside. A very long one is shortened, and told apart from others by its digest: every
    checkpoint and every list has it."""
    if len(text) <= _LONGEST_ID:
        return text
    return f"{text[:100]}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
