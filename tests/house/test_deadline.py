"""Deadlines: the remaining time, and the error when it is over."""

from __future__ import annotations

import pytest

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import DeadlineExceeded


def test_a_deadline_without_a_limit_never_raises() -> None:
    for unlimited in (NO_DEADLINE, Deadline(), Deadline(0)):
        assert unlimited.remaining() is None
        assert unlimited.check("waiting") is None


def test_the_remaining_time_decreases_to_zero() -> None:
    ahead, over = Deadline(1000), Deadline(1e-9)
    first = ahead.remaining() or 0
    assert 0 < (ahead.remaining() or 0) <= first <= 1000
    assert over.remaining() == 0.0
    assert ahead.check("waiting") is None


def test_the_error_names_the_limit_and_the_work() -> None:
    with pytest.raises(DeadlineExceeded, match="the time limit of 1e-09 s ran out while counting sheep"):
        Deadline(1e-9).check("counting sheep")
