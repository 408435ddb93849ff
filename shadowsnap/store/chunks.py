"""Cutting text into pieces so that what two texts have in common is in the same pieces.

A conversation grows at its end, and is now and then shortened or changed in the middle. So the
lines themselves decide where a piece ends: the same lines give the same pieces, wherever they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

LEAST = 4 << 10
USUAL = 12 << 10
MOST = 64 << 10


def split(data: bytes) -> Iterator[bytes]:
    """The pieces of a text, in order; put together they are the text again."""
    start = at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        end = min(end, at + MOST, start + MOST)
        if _ends_here(data[at:end], end - start):
            yield data[start:end]
            start = end
        at = end
    if start < len(data):
        yield data[start:]


def _ends_here(line: bytes, size: int) -> bool:
    # The longer a line, the likelier: so pieces have about the same size, however long lines are.
    return size >= MOST or (size >= LEAST and zlib.crc32(line) % USUAL < len(line))
