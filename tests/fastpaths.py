"""Every shortcut of the engine, forced on or forced off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shadowsnap.engine import capture, seed, writing
from shadowsnap.engine.scan import Findings, scan_changes
from shadowsnap.store import statistics

WAYS = ("on", "off")
_NO_LIMIT = 10**9


@contextmanager
def forced(way: str) -> Iterator[None]:
    """On: whatever is written goes into packs, by all cores, and a first snapshot starts from the person's
    checkout. Off: every object is a file of its own, everything is read, every snapshot lists everything anew
    and writes its index from nothing, and nothing is remembered of what was counted."""
    assert way in WAYS
    with pytest.MonkeyPatch.context() as patch:
        limit = 0 if way == "on" else _NO_LIMIT
        patch.setattr(writing, "_FEW", limit)
        patch.setattr(writing, "_FEW_FLUSHED", limit)
        if way == "off":
            patch.setattr(seed, "seeded_cache", lambda _: None)
            patch.setattr(capture, "scan_changes", _as_if_the_rules_had_changed)
            patch.setattr(statistics, "_remembered", lambda *_: {})
        yield


def _as_if_the_rules_had_changed(*arguments: Any) -> Findings:
    found = scan_changes(*arguments)
    found.rules_changed = True
    return found
