"""Line charts as geometry: points of time in, what a template needs to draw them out.

The plot has coordinates of its own, WIDTH by HEIGHT, and is stretched to the room it gets; text stands beside it and
is not stretched. The y axis begins at 0, always. Where samples are missing there is a gap and no line that nobody
measured. A chart also tells its values as rows of a table, for those who cannot see it or want to read it exactly; the
plot is cut into the same stretches of time, each of which says its row where one points at it.
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
    """How far back one looks, and how fine."""

    name: str
    length: timedelta
    step: timedelta
    """A point for each of these."""
    gap: timedelta
    """Where nothing is known for longer than this, no line is drawn."""
    tick: timedelta
    row: timedelta
    """A row of the table, and a stretch of the plot that tells it, for each of these."""

    @property
    def is_of_days(self) -> bool:
        """Whether the axis counts days rather than hours."""
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


@dataclass(frozen=True, slots=True)
class Unit:
    """How values are said, and what a y axis may end at."""

    text: Callable[[float], str]
    tops: Sequence[float] = ()
    """Ascending; beyond the last one, and where there are none, the axis ends at a round number."""


COUNT = Unit(number)
AGE = Unit(age, (60, 120, 600, 1200, 3600, 7200, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 10 * 86400, 20 * 86400))


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: ChartPoints
    tone: str = ""
    """As a class of the style sheet; the first series has none."""


@dataclass(frozen=True, slots=True)
class DrawnSeries:
    """One series as it is drawn."""

    name: str
    tone: str
    path: str
    area: str
    last: str | None
    """The newest value, as it is said; None when there is none."""
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
    """One for each series: the largest of this time."""
    band: Band
    """Where this time is in the plot."""


@dataclass(frozen=True, slots=True)
class Chart:
    key: str
    title: str
    span: ChartSpan
    end: datetime
    lines: Sequence[DrawnSeries]
    heights: Sequence[str]
    """What the y axis says, from the top to 0."""
    ticks: Sequence[Tick]
    bands: Sequence[Band]
    rows: Sequence[TableRow]
    has_gaps: bool

    @property
    def is_empty(self) -> bool:
        return all(line.last is None for line in self.lines)

    @property
    def description(self) -> str:
        """In words what the picture shows."""
        told = [f"{line.name}: now {line.last}, max {line.peak}" for line in self.lines if line.last is not None]
        gaps = "; some data is missing" if self.has_gaps else ""
        return f"{'; '.join(told) or 'no data'}{gaps}."

    def told(self, row: TableRow) -> str:
        """In words what a row says."""
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
    """The chart of the span that ends at `end`. Stepped, a point's value holds until the next one, or for `gap`."""
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
    """Where the y axis ends: the first round number, with a round half, that is not below the peak."""
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
    """The points of this time in their order; where a value holds until the next, also the last one before it."""
    found = [(at, value) for at, value in points if scale.begin <= at <= scale.end]
    if not is_stepped:
        return found
    before = [(scale.begin, value) for at, value in points if at < scale.begin]
    return _thinned(before[-1:] + found, scale.begin, step)


def _thinned(points: ChartPoints, begin: datetime, step: timedelta) -> list[tuple[datetime, float]]:
    """Of each step the largest value and the last one, which is what holds afterwards."""
    kept: dict[int, tuple[tuple[datetime, float], tuple[datetime, float]]] = {}
    for point in points:
        place = (point[0] - begin) // step
        largest = kept[place][0] if place in kept else point
        kept[place] = (point if point[1] > largest[1] else largest, point)
    return [point for pair in kept.values() for point in dict.fromkeys(pair)]


def _runs(points: ChartPoints, gap: timedelta) -> Iterator[list[tuple[datetime, float]]]:
    """The points in stretches without a gap."""
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
    """The path of one stretch, and from where to where it goes. One point alone becomes a dot."""
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
    """The newest first. A value that holds is told until it ends, so that a quiet time is not an unknown one."""
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
        told = [unit.text(most) if (most := largest[place]) is not None else UNKNOWN for largest in found]
        at = begin + place * step
        yield TableRow(at, told, scale.band(at, at + step))
