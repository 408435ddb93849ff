"""A deadline is a moment, told in words when it has passed."""

from __future__ import annotations

import pytest

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import DeadlineExceeded


def test_without_a_limit_nothing_ever_ends() -> None:
    for unlimited in (NO_DEADLINE, Deadline(), Deadline(0)):
        assert unlimited.remaining() is None
        assert unlimited.check("waiting") is None


def test_time_runs_down_to_nothing_and_no_further() -> None:
    ahead, over = Deadline(1000), Deadline(1e-9)
    first = ahead.remaining() or 0
    assert 0 < (ahead.remaining() or 0) <= first <= 1000
    assert over.remaining() == 0.0
    assert ahead.check("waiting") is None


def test_the_error_says_how_long_and_what_for() -> None:
    with pytest.raises(DeadlineExceeded, match="the time limit of 1e-09 s ran out while counting sheep"):
        Deadline(1e-9).check("counting sheep")
