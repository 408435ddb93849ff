"""Named points of an operation. A test sets `listener` to stop the process at each of them."""

from __future__ import annotations

from collections.abc import Callable

listener: Callable[[str], None] | None = None


def step(name: str) -> None:
    if listener is not None:
        listener(name)
