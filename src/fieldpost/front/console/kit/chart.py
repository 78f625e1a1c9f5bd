"""Geometry of line charts: samples in, paths and labels for the template out.

The plot is WIDTH by HEIGHT units and stretches to the available space; text is outside it. The y axis starts at 0.
Missing samples leave a gap in the line. Each chart also has a table of its values, for screen readers and exact
reading; the plot is divided into slices, one per table row, that show the row's values on hover.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, log10

from fieldpost.core.quantities import age, number

WIDTH, HEIGHT = 600.0, 100.0

UNKNOWN = "–"

ChartPoints = Sequence[tuple[datetime, float]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ChartSpan:
    """A period that a chart can show, and its resolution."""

    name: str
    length: timedelta
    step: timedelta
    """One point per step."""
    gap: timedelta
    """No line is drawn between samples further apart than this."""
    tick: timedelta
    row: timedelta
    """Length of a table row and of its slice of the plot."""

    @property
    def is_of_days(self) -> bool:
        """Whether the axis shows days instead of hours."""
        return self.tick >= _DAY


SPANS: Mapping[str, ChartSpan] = {
    span.name: span
    for span in (
        ChartSpan("hour", _HOUR, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 5 * _MINUTE),
        ChartSpan("day", _DAY, 6 * _MINUTE, 20 * _MINUTE, 6 * _HOUR, _HOUR),
        ChartSpan("week", 7 * _DAY, 42 * _MINUTE, 2 * _HOUR, _DAY, 6 * _HOUR),
    )
}
SPAN_DEFAULT = "day"


def span_for(times: Sequence[datetime], now: datetime) -> ChartSpan:
    """The span with which a page opens, by the times of the samples of a day: the one that they fill."""
    if not times:
        return SPANS["week"]
    return SPANS["hour"] if times[0] > now - SPANS["hour"].length else SPANS["day"]


@dataclass(frozen=True, slots=True)
class Unit:
    """Formatting of values, and the possible ends of the y axis."""

    text: Callable[[float], str]
    tops: Sequence[float] = ()
    """Ascending; larger values end at a round number."""


COUNT = Unit(number)
AGE = Unit(age, (60, 120, 600, 1200, 3600, 7200, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 10 * 86400, 20 * 86400))


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: ChartPoints
    tone: str = ""
    """Class of the style sheet."""


@dataclass(frozen=True, slots=True)
class DrawnSeries:
    """One series with its SVG paths."""

    name: str
    tone: str
    path: str
    area: str
    last: str | None
    """The newest value, formatted; None without samples."""
    peak: str | None


@dataclass(frozen=True, slots=True)
class Tick:
    at: datetime
    percent: float
    """From the left."""


@dataclass(frozen=True, slots=True)
class Band:
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class TableRow:
    at: datetime
    values: Sequence[str]
    """The maximum of each series within the row."""
    band: Band
    """The slice of the plot."""


@dataclass(frozen=True, slots=True)
class Chart:
    key: str
    title: str
    span: ChartSpan
    end: datetime
    lines: Sequence[DrawnSeries]
    heights: Sequence[str]
    """Labels of the y axis, from the top to 0."""
    ticks: Sequence[Tick]
    bands: Sequence[Band]
    rows: Sequence[TableRow]
    has_gaps: bool

    @property
    def is_empty(self) -> bool:
        return all(line.last is None for line in self.lines)

    @property
    def description(self) -> str:
        """Text alternative of the plot."""
        parts = [f"{line.name}: now {line.last}, max {line.peak}" for line in self.lines if line.last is not None]
        gaps = "; some data is missing" if self.has_gaps else ""
        return f"{'; '.join(parts) or 'no data'}{gaps}."

    def describe(self, row: TableRow) -> str:
        """Text of a slice."""
        values = [
            f"{line.name} {value}" for line, value in zip(self.lines, row.values, strict=True) if value != UNKNOWN
        ]
        return ", ".join(values) or "no data"


def draw(
    key: str,
    title: str,
    series: Sequence[Series],
    span: ChartSpan,
    end: datetime,
    *,
    unit: Unit = COUNT,
    is_stepped: bool = False,
    gap: timedelta | None = None,
    bands: Sequence[tuple[datetime, datetime]] = (),
) -> Chart:
    """The chart of the span that ends at `end`. In a stepped chart a value holds until the next, at most for `gap`."""
    scale = _Scale(end - span.length, end)
    allowed = gap or span.gap
    shown = [_within(one.points, scale, span.step, is_stepped=is_stepped) for one in series]
    top = top_of(max((value for points in shown for _, value in points), default=0.0), unit)
    runs = [list(_runs(points, allowed)) for points in shown]
    lines = [
        _line(one, points, found, scale, top, unit, allowed if is_stepped else None)
        for one, points, found in zip(series, shown, runs, strict=True)
    ]
    return Chart(
        key,
        title,
        span,
        end,
        lines,
        [unit.text(top), unit.text(top / 2), unit.text(0)],
        list(_ticks(scale, span.tick)),
        [scale.band(begin, until) for begin, until in bands],
        list(_rows(shown, scale, span.row, unit, allowed if is_stepped else None)),
        any(len(found) > 1 for found in runs),
    )


def top_of(peak: float, unit: Unit = COUNT) -> float:
    """The end of the y axis: the first number not below the peak whose half is round too."""
    for top in unit.tops:
        if peak <= top:
            return top
    if peak <= 4:
        return 4.0
    magnitude = 10.0 ** ceil(log10(peak) - 1)
    return next(factor * magnitude for factor in (1, 2, 4, 6, 8, 10, 20) if peak <= factor * magnitude)


@dataclass(frozen=True, slots=True)
class _Scale:
    begin: datetime
    end: datetime

    def x(self, at: datetime) -> float:
        part = (at - self.begin) / (self.end - self.begin)
        return round(min(max(part, 0.0), 1.0) * WIDTH, 1)

    def band(self, begin: datetime, until: datetime) -> Band:
        return Band(self.x(begin), round(self.x(until) - self.x(begin), 1))


def _within(points: ChartPoints, scale: _Scale, step: timedelta, *, is_stepped: bool) -> list[tuple[datetime, float]]:
    """The points within the scale; in a stepped chart also the last one before it."""
    found = [(at, value) for at, value in points if scale.begin <= at <= scale.end]
    if not is_stepped:
        return found
    before = [(scale.begin, value) for at, value in points if at < scale.begin]
    return _thinned(before[-1:] + found, scale.begin, step)


def _thinned(points: ChartPoints, begin: datetime, step: timedelta) -> list[tuple[datetime, float]]:
    """The largest and the last value of each step; the last one holds afterwards."""
    kept: dict[int, tuple[tuple[datetime, float], tuple[datetime, float]]] = {}
    for point in points:
        index = (point[0] - begin) // step
        largest = kept[index][0] if index in kept else point
        kept[index] = (point if point[1] > largest[1] else largest, point)
    return [point for pair in kept.values() for point in dict.fromkeys(pair)]


def _runs(points: ChartPoints, gap: timedelta) -> Iterator[list[tuple[datetime, float]]]:
    """The points split at gaps."""
    run: list[tuple[datetime, float]] = []
    for point in points:
        if run and point[0] - run[-1][0] > gap:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _line(
    one: Series,
    points: ChartPoints,
    runs: Sequence[ChartPoints],
    scale: _Scale,
    top: float,
    unit: Unit,
    holds: timedelta | None,
) -> DrawnSeries:
    paths = [_path(run, scale, top, holds) for run in runs]
    return DrawnSeries(
        one.name,
        one.tone,
        " ".join(path for path, _, _ in paths),
        " ".join(f"{path} V{HEIGHT:g} H{first:g} Z" for path, first, last in paths if last > first),
        unit.text(points[-1][1]) if points else None,
        unit.text(max(value for _, value in points)) if points else None,
    )


def _path(run: ChartPoints, scale: _Scale, top: float, holds: timedelta | None) -> tuple[str, float, float]:
    """The path of one run, with its first and last x. A single point becomes a dot."""
    first = x = scale.x(run[0][0])
    parts = [f"M{first:g} {_y(run[0][1], top):g}"]
    for at, value in run[1:]:
        x = scale.x(at)
        parts.append(f"L{x:g} {_y(value, top):g}" if holds is None else f"H{x:g} V{_y(value, top):g}")
    if holds is not None and run[-1][0] < scale.end:
        x = scale.x(min(run[-1][0] + holds, scale.end))
        parts.append(f"H{x:g}")
    elif len(run) == 1:
        parts.append("h.01")
    return " ".join(parts), first, x


def _y(value: float, top: float) -> float:
    return round(HEIGHT - value / top * HEIGHT, 1)


def _ticks(scale: _Scale, step: timedelta) -> Iterator[Tick]:
    at = _EPOCH + ceil((scale.begin - _EPOCH) / step) * step
    while at < scale.end:
        yield Tick(at, round(scale.x(at) / WIDTH * 100, 2))
        at += step


def _rows(
    shown: Sequence[ChartPoints], scale: _Scale, step: timedelta, unit: Unit, holds: timedelta | None
) -> Iterator[TableRow]:
    """Table rows, newest first. A value that holds counts until it ends, so quiet periods are not unknown."""
    begin = _EPOCH + (scale.begin - _EPOCH) // step * step
    count = ceil((scale.end - begin) / step)
    found: list[list[float | None]] = []
    for points in shown:
        largest: list[float | None] = [None] * count
        for index, (at, value) in enumerate(points):
            until = at
            if holds is not None:
                until = min(points[index + 1][0] if index + 1 < len(points) else scale.end, at + holds)
            first, last = (min((one - begin) // step, count - 1) for one in (at, until))
            for place in range(first, last + 1):
                known = largest[place]
                largest[place] = value if known is None else max(known, value)
        found.append(largest)
    for place in reversed(range(count)):
        values = [unit.text(most) if (most := largest[place]) is not None else UNKNOWN for largest in found]
        at = begin + place * step
        yield TableRow(at, values, scale.band(at, at + step))
