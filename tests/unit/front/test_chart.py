"""Charts: points of time to geometry."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.front.console.kit.chart import AGE, COUNT, HEIGHT, SPANS, WIDTH, Chart, Series, draw, top_of

END = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
HOUR = SPANS["hour"]
MINUTE = timedelta(minutes=1)


def chart(*points: tuple[float, float], **more: object) -> Chart:
    """Of the last hour; points as (minutes before its end, value)."""
    series = Series("queue depth", [(END - minutes * MINUTE, value) for minutes, value in points])
    return draw("depth", "Queue depth", [series], HOUR, END, **more)  # type: ignore[arg-type]


def test_the_line_runs_from_left_to_right_with_0_at_the_bottom() -> None:
    (line,) = chart((60, 0), (57, 5), (54, 10)).lines
    assert line.path == f"M0 {HEIGHT:g} L{WIDTH * 3 / 60:g} 50 L{WIDTH * 6 / 60:g} 0"
    assert (line.last, line.peak) == ("10", "10")


def test_line_has_a_gap_where_samples_are_missing() -> None:
    drawn = chart((60, 1), (59, 1), (40, 2), (39, 2))
    assert drawn.has_gaps
    assert drawn.lines[0].path.count("M") == 2
    assert drawn.lines[0].area.count("Z") == 2
    assert "some data is missing" in drawn.description
    assert [row.values for row in drawn.rows].count(["–"]) == len(drawn.rows) - 2
    assert not chart((60, 1), (55, 1)).has_gaps


def test_a_point_alone_is_a_dot() -> None:
    assert chart((30, 4)).lines[0].path == f"M{WIDTH / 2:g} 0 h.01"


def test_persisting_value_is_a_step_until_the_next_and_starts_before_the_chart() -> None:
    drawn = chart((70, 2), (30, 4), (10, 0), is_stepped=True, gap=timedelta(hours=1))
    assert drawn.lines[0].path == "M0 50 H300 V0 H500 V100 H600"
    assert {row.values[0] for row in drawn.rows} == {"2", "4", "0"}, "no row is unknown"


def test_persisting_value_ends_after_its_maximum() -> None:
    assert chart((60, 4), is_stepped=True, gap=30 * MINUTE).lines[0].path == "M0 0 H300"


def test_chart_without_samples_says_so() -> None:
    drawn = chart()
    assert drawn.is_empty
    assert drawn.description == "no data."
    assert drawn.heights == ["4", "2", "0"]


def test_ticks_are_round_times_at_their_positions() -> None:
    ticks = draw("d", "D", [], HOUR, END + 4 * MINUTE).ticks
    assert [f"{tick.at:%H:%M}" for tick in ticks] == ["07:15", "07:30", "07:45", "08:00"]
    assert ticks[-1].percent == pytest.approx(56 / 60 * 100, abs=0.1)


@pytest.mark.parametrize(
    ("peak", "top"), [(0, 4), (4, 4), (5, 6), (11, 20), (95, 100), (101, 200), (288, 400), (0.5, 4), (1e6, 1e6)]
)
def test_the_axis_ends_at_a_round_number(peak: float, top: float) -> None:
    assert top_of(peak) == top


def test_an_axis_of_ages_ends_at_a_round_age() -> None:
    assert [AGE.text(top_of(age, AGE)) for age in (0, 61, 4000, 100_000)] == ["1 min", "2 min", "2 h", "2 d"]


def test_rows_divide_the_plot_into_described_bands() -> None:
    drawn = chart((57, 5), (56, 7), (3, 2))
    bands = [row.band for row in reversed(drawn.rows)]
    assert [band.x for band in bands] == [WIDTH / 12 * place for place in range(12)]
    assert {band.width for band in bands} == {WIDTH / 12}
    told = [drawn.describe(row) for row in drawn.rows]
    assert (told[0], told[1], told[-1]) == ("queue depth 2", "no data", "queue depth 7")
    assert chart((0, 3)).rows[0].values == ["3"], "the very end belongs to the last of them"


def test_band_is_at_the_position_of_its_time() -> None:
    (band,) = chart((60, 1), bands=[(END - 30 * MINUTE, END - 15 * MINUTE)]).bands
    assert (band.x, band.width) == (WIDTH / 2, WIDTH / 4)


@given(st.floats(0, 1e12))
def test_no_value_is_above_the_axis(peak: float) -> None:
    assert peak <= top_of(peak, COUNT) <= max(4, peak * 10)
    assert peak <= top_of(peak, AGE)
