"""Text for people: harmless, short, and as wide as it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.cli.text import age, ago, columns, count, cut, cut_path, encodable, one_line, safe

ANYTHING = st.text(st.characters(exclude_categories=()))


@given(ANYTHING)
def test_safe_text_can_do_nothing_to_a_terminal(text: str) -> None:
    assert all(char.isprintable() or char == "\u200d" for char in safe(text))
    assert safe(safe(text)) == safe(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9 \u96ea", "plain \u00e9 \u96ea"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc\rd\x00", "a\\nb\\tc\\rd\\x00"),
        ("\udcff\udc80", "\\xff\\x80"),
        ("\u202e\u2066", "\\u202e\\u2066"),
        ("\x9b31m", "\\u009b31m"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
        ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb"),
    ],
)
def test_what_is_shown_instead(text: str, shown: str) -> None:
    assert safe(text) == shown


@given(ANYTHING, st.integers(3, 40))
def test_cut_text_fits(text: str, width: int) -> None:
    for shorten in (cut, cut_path):
        assert columns(shorten(safe(text), width)) <= width
    if columns(safe(text)) <= width:
        assert cut(safe(text), width) == cut_path(safe(text), width) == safe(text)


def test_the_end_of_a_path_stays() -> None:
    assert cut_path("very/long/way/to/file.py", 14) == "...y/to/file.py"[:3] + "/to/file.py"
    assert cut("very long reason", 12) == "very long..."


@given(ANYTHING, st.sampled_from(["ascii", "latin-1", "utf-8", "cp437", "utf-16"]))
def test_any_encoding_can_take_it(text: str, encoding: str) -> None:
    shown = encodable(text, encoding)
    assert shown.encode(encoding).decode(encoding) == shown


def test_one_line() -> None:
    assert one_line("  a\n\n b\t\x1bc ") == "a b \\x1bc"


@pytest.mark.parametrize(
    ("seconds", "short", "sentence"),
    [
        (-500, "now", "just now"),
        (0, "now", "just now"),
        (59, "59 s", "59 s ago"),
        (60, "1 min", "1 min ago"),
        (3599, "59 min", "59 min ago"),
        (3600, "1 h", "1 h ago"),
        (47 * 3600, "47 h", "47 h ago"),
        (48 * 3600, "2 d", "2 d ago"),
        (99 * 86400, "99 d", "99 d ago"),
    ],
)
def test_ages(seconds: int, short: str, sentence: str) -> None:
    moment = datetime.now(UTC) - timedelta(seconds=seconds + 0.2)
    assert (age(moment), ago(moment)) == (short, sentence)


def test_an_old_age_is_a_date() -> None:
    moment = datetime.now(UTC) - timedelta(days=200)
    assert age(moment) == f"{moment.astimezone():%Y-%m-%d}"
    assert ago(moment) == f"on {age(moment)}"


def test_counts() -> None:
    assert [count(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
