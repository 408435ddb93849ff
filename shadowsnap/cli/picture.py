"""The picture of a report: a lane for each session, turns to scale, and what was taken back.

Positions in time are percentages and heights are pixels. So the picture fits a phone and a wide screen without a
script, and its text keeps its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import sqrt

from shadowsnap.cli.tables import duration_text, entry_changes
from shadowsnap.cli.text import count, html_safe
from shadowsnap.model import TAKEN_BACK, Entry

COLOURS = 6
YOU = "you"
_MOST_LANES = 24
_MOST_BREAKS = 6
_BREAK_AFTER = timedelta(minutes=45)
_BREAK_WIDTH = 3.0
"""Width of an idle time, in percent."""
_LEAST_DISTANCE = 0.3
"""Turns that begin closer than this, in percent, are one mark."""
_LANE_HEIGHT, _TOP_HEIGHT, _BOTTOM_HEIGHT, _BAR_HEIGHT = 52, 26, 30, 26
_TICK_SECONDS = (
    60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 7776000,
)  # fmt: skip
_UNFINISHED = ("interrupted", "running")


@dataclass
class Lane:
    """A session, or the person, with its entries in the order of time."""

    name: str
    agent: str
    colour: str
    entries: list[Entry] = field(default_factory=list)

    @property
    def title(self) -> str:
        return " ".join(part for part in (self.agent, self.name) if part) or "no session"


def lanes_of(entries: Sequence[Entry], names: dict[str, str]) -> tuple[list[Lane], dict[str | None, str]]:
    """The lanes of `entries` (newest first) in the order in which they begin, and the colour of each session.
    Sessions beyond the first 24 share a lane; the person's own lane is the last."""
    lanes: dict[str | None, Lane] = {}
    colours: dict[str | None, str] = {}
    own = Lane("your own edits and snapshots", "", YOU)
    for entry in reversed(entries):
        if entry.kind == "restore":
            continue
        if entry.kind != "turn":
            own.entries.append(entry)
            continue
        session = entry.session_id
        colours.setdefault(session, f"s{len(colours) % COLOURS}")
        if session not in lanes and len(lanes) >= _MOST_LANES:
            session = "\0rest"
        if session not in lanes:
            name = "other sessions" if session == "\0rest" else names.get(session or "", session or "")
            lanes[session] = Lane(name, entry.agent or "", colours[entry.session_id])
        lanes[session].entries.append(entry)
    return [*lanes.values(), *([own] if own.entries else [])], colours


class Scale:
    """Maps moments to positions in percent. Long idle times are drawn short, and are marked."""

    def __init__(self, spans: Sequence[tuple[datetime, datetime]]) -> None:
        busy = _merge_spans(spans)
        gaps = [(after[0] - before[1], before[1], after[0]) for before, after in zip(busy, busy[1:], strict=False)]
        longest = sorted((gap for gap in gaps if gap[0] > _BREAK_AFTER), reverse=True)[:_MOST_BREAKS]
        self.breaks = sorted((begin, end) for _, begin, end in longest)
        begins = [busy[0][0], *(end for _, end in self.breaks)]
        ends = [*(begin for begin, _ in self.breaks), busy[-1][1]]
        self.parts = list(zip(begins, ends, strict=True))
        # Otherwise a part with one short turn would have no width.
        lengths = [max((end - begin).total_seconds(), 1.0) for begin, end in self.parts]
        least = sum(lengths) / 40
        lengths = [max(length, least) for length in lengths]
        free = 98.0 - _BREAK_WIDTH * len(self.breaks)
        self._widths = [free * length / sum(lengths) for length in lengths]
        self._lefts = [1.0]
        for width in self._widths[:-1]:
            self._lefts.append(self._lefts[-1] + width + _BREAK_WIDTH)

    def at(self, moment: datetime) -> float:
        for (begin, end), left, width in zip(self.parts, self._lefts, self._widths, strict=True):
            if moment <= end:
                whole = (end - begin).total_seconds() or 1.0
                return left + width * max(0.0, (moment - begin).total_seconds() / whole)
        return 99.0

    def ticks(self) -> Iterator[tuple[float, datetime]]:
        total = sum((end - begin).total_seconds() for begin, end in self.parts)
        step = next((each for each in _TICK_SECONDS if total / each <= 9), _TICK_SECONDS[-1])
        for begin, end in self.parts:
            start = begin.astimezone()
            midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
            passed = (start - midnight).total_seconds()
            moment = midnight + timedelta(seconds=-(-passed // step) * step)
            while moment <= end:
                yield self.at(moment), moment
                moment += timedelta(seconds=step)


def _merge_spans(spans: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    joined: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + _BREAK_AFTER:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def span_of(entry: Entry, now: datetime) -> tuple[datetime, datetime] | None:
    """When an entry happened. Of edits only the end is known: they were seen then."""
    end = now if entry.status == "running" else entry.ended_at or entry.began_at
    begin = end if entry.kind != "turn" else entry.began_at or end
    return None if begin is None or end is None else (min(begin, end), max(begin, end))


def picture(entries: Sequence[Entry], lanes: Sequence[Lane], now: datetime, shown: int) -> str:
    """The picture of `entries` (newest first) as SVG; empty if no moment is known. The first `shown` of them are
    in the page, and their marks are links."""
    linked = {anchor(entry) for entry in entries[:shown]}
    spans = [span for entry in entries if (span := span_of(entry, now))]
    if not spans or not lanes:
        return ""
    scale = Scale(spans)
    bottom = _TOP_HEIGHT + _LANE_HEIGHT * len(lanes)
    biggest, high = max(_weight(entry) for entry in entries), bottom + _BOTTOM_HEIGHT
    shapes = [*_background(scale, bottom)]
    for at, lane in enumerate(lanes):
        base = _TOP_HEIGHT + _LANE_HEIGHT * (at + 1) - 6
        shapes.append(f'<line class="base" x1="0" x2="100%" y1="{base}.5" y2="{base}.5"/>')
        for group, left, right in _marks(lane, scale, now):
            mark = _mark(group, left, right, base, biggest)
            shapes.append(_link(group, f"{lane.colour} {_css_class(group[0])}", mark, linked))
        shapes.append(f'<text class="lane {lane.colour}" x="8" y="{base - 31}">{html_safe(lane.title)}</text>')
    shapes += _rollbacks(entries, scale, bottom, now, linked)
    return (
        f'<svg class="day" role="img" aria-labelledby="day-title day-text" width="100%" height="{high}">'
        '<title id="day-title">The turns of each session over time</title>'
        f'<desc id="day-text">{html_safe(picture_text(entries, lanes, scale))}</desc>'
        '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0V5"/></pattern></defs>'
        f"{''.join(shapes)}</svg>"
    )


def picture_text(entries: Sequence[Entry], lanes: Sequence[Lane], scale: Scale) -> str:
    """A description of the picture for screen readers."""
    first, last = scale.parts[0][0], scale.parts[-1][1]
    turns = [entry for entry in entries if entry.kind == "turn"]
    sessions = sum(1 for lane in lanes if lane.colour != YOU)
    parts = [f"{count(sessions, 'session')} within {duration_text(first, last)}, {count(len(turns), 'turn')}"]
    for status in ("running", "interrupted", *TAKEN_BACK):
        number = sum(1 for entry in turns if entry.status == status)
        parts += [f"{number} {status}"] if number else []
    rollbacks = sum(1 for entry in entries if entry.kind == "restore")
    return ", ".join([*parts, *([count(rollbacks, "rollback")] if rollbacks else [])])


def _background(scale: Scale, bottom: int) -> Iterator[str]:
    """The time axis, and the idle times that are drawn short."""
    several_days = len({moment.astimezone().date() for part in scale.parts for moment in part}) > 1
    for begin, end in scale.breaks:
        left, right = scale.at(begin), scale.at(begin) + _BREAK_WIDTH
        size = f'width="{_BREAK_WIDTH}%" height="{bottom - _TOP_HEIGHT}"'
        yield f'<rect class="idle" x="{left:.2f}%" y="{_TOP_HEIGHT}" {size}/>'
        yield (
            f'<text class="idle" x="{(left + right) / 2:.2f}%" y="{_TOP_HEIGHT - 8}">'
            f"{_short_duration(end - begin)}<title>{duration_text(begin, end)} without a turn</title></text>"
        )
    shown, shown_narrow, day = -99.0, -99.0, None
    for place, moment in scale.ticks():
        if place - shown < 6.5 or place > 97:
            continue
        narrow = place - shown_narrow >= 24
        text = f"{moment:%H:%M}"
        if several_days and moment.date() != day:
            text = f"{moment.day} {moment:%b}" + (f" {text}" if text != "00:00" else "")
        shown, shown_narrow, day = place, place if narrow else shown_narrow, moment.date()
        yield f'<line class="hour" x1="{place:.2f}%" x2="{place:.2f}%" y1="{_TOP_HEIGHT}" y2="{bottom}"/>'
        wide = "" if narrow else " wide"
        yield f'<text class="hour{wide}" x="{place:.2f}%" y="{bottom + 18}">{text}</text>'


def _marks(lane: Lane, scale: Scale, now: datetime) -> Iterator[tuple[list[Entry], float, float]]:
    """The marks of a lane from left to right. Entries that are too close together are one mark."""
    group: list[Entry] = []
    left = right = 0.0
    for entry in lane.entries:
        span = span_of(entry, now)
        if span is None:
            continue
        begin, end = scale.at(span[0]), scale.at(span[1])
        if (
            group
            and begin - left < _LEAST_DISTANCE
            and (entry.status, entry.kind) == (group[0].status, group[0].kind)
        ):
            group.append(entry)
            right = max(right, end)
            continue
        if group:
            yield group, left, right
        group, left, right = [entry], begin, end
    if group:
        yield group, left, right


def _link(group: list[Entry], kind: str, shape: str, linked: set[str]) -> str:
    """A mark with its title; a link, if its entry is in the page."""
    name, title = anchor(group[0]), f"<title>{html_safe(_title(group))}</title>"
    if name not in linked:
        return f'<g class="mark {kind}">{shape}{title}</g>'
    return f'<a href="#{name}" tabindex="-1" class="mark {kind}">{shape}{title}</a>'


def _css_class(entry: Entry) -> str:
    return entry.status if entry.kind == "turn" and entry.status not in (None, "done") else entry.kind


def _mark(group: list[Entry], left: float, right: float, base: int, biggest: int) -> str:
    entry, lines = group[0], max(_weight(each) for each in group)
    tall = 6 + (_BAR_HEIGHT - 6) * sqrt(lines / biggest) if lines else 3.0
    if entry.kind == "snapshot":
        return f'<circle cx="{left:.2f}%" cy="{base - 6}" r="5"/>'
    wide = max(right - left, 0.35)
    place = f'x="{left:.2f}%" y="{base - tall:.1f}" width="{wide:.2f}%" height="{tall:.1f}" rx="2"'
    return f"<rect {place}/>" + (f'<rect class="over" {place}/>' if _css_class(entry) in _UNFINISHED else "")


def _rollbacks(
    entries: Sequence[Entry], scale: Scale, bottom: int, now: datetime, linked: set[str]
) -> Iterator[str]:
    shown = -1.0
    for entry in reversed(entries):
        span = span_of(entry, now) if entry.kind == "restore" else None
        if span is None or (place := scale.at(span[0])) - shown < _LEAST_DISTANCE:
            continue
        shown = place
        shape = (
            f'<line x1="{place:.2f}%" x2="{place:.2f}%" y1="{_TOP_HEIGHT - 6}" y2="{bottom}"/>'
            f'<svg x="{place:.2f}%" y="{_TOP_HEIGHT - 12}" overflow="visible"><circle r="9"/>'
            '<path d="M-1.5 -4.5L-4.5 -1.5L-1.5 1.5M-4.5 -1.5H1.5A3 3 0 0 1 1.5 4.5H-1"/></svg>'
        )
        yield _link([entry], "restore", shape, linked)


def anchor(entry: Entry) -> str:
    """The name of an entry within the page."""
    if entry.number is not None:
        return f"n{entry.number}"
    moment, state = entry.ended_at or entry.began_at, entry.after or entry.before or ""
    return f"{entry.kind}-{int(moment.timestamp() * 1000) if moment else 0}-{state[:8]}"


def _title(group: list[Entry]) -> str:
    entry = group[0]
    name = {"edits": entry.whose, "restore": entry.reason}.get(entry.kind, f"{entry.kind} {entry.number}")
    if len(group) > 1:
        return f"{name} and {len(group) - 1} more"
    moment = entry.began_at if entry.kind == "turn" else entry.ended_at
    status = entry.status if entry.status != "done" else ""
    when = f"{moment.astimezone():%H:%M}" if moment else ""
    return ", ".join(part for part in (name, when, status or "", entry_changes(entry)) if part)


def _weight(entry: Entry) -> int:
    """How many lines an entry changed, or else how many files."""
    return max((entry.insertions or 0) + (entry.deletions or 0), entry.files_changed or 0)


def _short_duration(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{time.days} d" if hours >= 48 else f"{hours:.0f} h" if hours >= 1 else f"{hours * 60:.0f} min"
