"""Line charts as SVG text: two axes, a few lines, each named at its end. Nothing but Python is needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 48, 52
_LABEL_GAP = 15
# Told apart by people who see colours differently, on white and on black alike.
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#8c6bb1", "#7f7f7f")
_INK, _GRID = "#7f7f7f", "#7f7f7f33"

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Axis:
    """A scale from numbers to places, by powers of ten or evenly."""

    title: str
    low: float
    high: float
    start: float
    end: float
    powers: bool

    def place(self, value: float) -> float:
        low, high, value = (self._measure(each) for each in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        if self.powers:
            exponent = math.floor(math.log10(self.low))
            steps = (digit * 10.0**power for power in range(exponent, exponent + 12) for digit in (1, 2, 5))
        else:
            step = _round_step((self.high - self.low) / 5)
            steps = (number * step for number in range(100))
        return (tick for tick in steps if self.low <= tick <= self.high)

    def _measure(self, value: float) -> float:
        return math.log10(value) if self.powers else value


def chart(title: str, lines: Sequence[Line], x: str, y: str, *, powers: bool, note: str = "") -> str:
    """The picture. The axes go from the smallest to the largest value; an even one begins at 0."""
    xs, ys = ([point[at] for line in lines for point in line.points] for at in (0, 1))
    across = Axis(x, min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, powers)
    up = Axis(y, min(ys) if powers else 0.0, max(ys), _HEIGHT - _BOTTOM, _TOP, powers)
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f"<title>{escape(title)}</title>",
        _text(_LEFT, 22, title, size=15),
        *_grid(across, up),
        *(_drawn(line, across, up, colour) for line, colour in zip(lines, _COLOURS, strict=False)),
        *_names(lines, up),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 16, x, anchor="middle"),
        _text(_LEFT, 40, y),
        _text(_WIDTH - 8, _HEIGHT - 4, note, anchor="end", size=9) if note else "",
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _grid(across: Axis, up: Axis) -> Iterator[str]:
    for tick in across.ticks():
        at = across.place(tick)
        yield _rule(at, up.start, at, up.end)
        yield _text(at, up.start + 16, _number(tick), anchor="middle")
    for tick in up.ticks():
        at = up.place(tick)
        yield _rule(across.start, at, across.end, at)
        yield _text(across.start - 8, at + 4, _number(tick), anchor="end")


def _drawn(line: Line, across: Axis, up: Axis, colour: str) -> str:
    points = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in line.points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'


def _names(lines: Sequence[Line], up: Axis) -> Iterator[str]:
    """Each name beside the end of its line, moved up where two would touch."""
    wanted = [(up.place(line.points[-1][1]), number) for number, line in enumerate(lines)]
    taken = float("inf")
    for at, number in sorted(wanted, reverse=True):
        taken = min(at, taken - _LABEL_GAP)
        yield _text(_WIDTH - _RIGHT + 8, taken + 4, lines[number].name, colour=_COLOURS[number])


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = _INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{_GRID}"/>'


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit for digit in (1, 2, 5, 10) if digit * power >= step) * power


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
