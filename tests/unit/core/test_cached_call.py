"""Which report wins, and how the mirror's cursor moves."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fieldpost.core.sites.call_mirror import (
    BufferPosition,
    Mirror,
    Stretch,
    apply_answer,
    apply_telemetry,
    by_central,
    ended_round,
    is_contiguous,
    reread,
    wins,
)
from support.sample import MINUTE, NOW

SITE = "plant-7"
KNOWN = Mirror(site=SITE, incarnation="first", cursor=10, high=10)


def stretch(after: int, until: int, incarnation: str = "first", forgotten: int = 0) -> Stretch:
    return Stretch(incarnation, after, until, forgotten)


@pytest.mark.req("DEC-29", "RES-36")
@pytest.mark.parametrize(
    ("report", "known", "is_news"),
    [
        ((1, 1), None, True),
        ((1, 4), (1, 3), True),
        ((1, 3), (1, 3), False),
        ((1, 2), (1, 3), False),
        ((2, 1), (1, 9), True),
        ((1, 99), (2, 1), False),
    ],
)
def test_a_report_wins_by_its_version_and_a_later_round_over_all(
    report: tuple[int, int], known: tuple[int, int] | None, is_news: bool
) -> None:
    assert wins(report, known) is is_news


@pytest.mark.req("DEC-29", "TEL-02")
@pytest.mark.parametrize(
    ("after", "until", "cursor"),
    [
        pytest.param(10, 15, 15, id="joins on"),
        pytest.param(3, 15, 15, id="overlaps"),
        pytest.param(3, 8, 10, id="comes late"),
        pytest.param(12, 15, 10, id="leaves a gap"),
    ],
)
def test_telemetry_moves_the_cursor_only_without_a_gap(after: int, until: int, cursor: int) -> None:
    assert apply_telemetry(KNOWN, SITE, stretch(after, until), NOW).cursor == cursor


def test_first_message_of_a_site_starts_its_mirror() -> None:
    assert apply_telemetry(None, SITE, stretch(0, 3), NOW) == Mirror(site=SITE, incarnation="first", cursor=3, high=3)
    assert apply_telemetry(None, SITE, stretch(2, 3), NOW) == Mirror(site=SITE, incarnation="first", cursor=0, high=3)


def test_telemetry_of_another_buffer_starts_a_new_round_and_records_the_replacement() -> None:
    after = apply_telemetry(KNOWN, SITE, stretch(0, 2, "second"), NOW)
    assert after == Mirror(
        site=SITE,
        incarnation="second",
        cursor=2,
        high=2,
        round=2,
        is_rereading=True,
        replaced_at=NOW,
        replaced_count=1,
    )


@pytest.mark.req("RES-38", "TEL-03")
def test_last_answer_completes_the_mirror() -> None:
    part, is_whole = apply_answer(KNOWN, SITE, stretch(10, 15), BufferPosition(20, True), NOW)
    assert (part.cursor, part.reconciled_at, is_whole) == (15, None, False)
    rest, is_whole = apply_answer(part, SITE, stretch(15, 20), BufferPosition(20, False), NOW)
    assert (rest.cursor, rest.reconciled_at, is_whole) == (20, NOW, True)
    assert not ended_round(part, rest, is_whole)


def test_restored_buffer_is_read_again() -> None:
    before = replace(KNOWN, cursor=100)
    after, is_whole = apply_answer(before, SITE, stretch(100, 100), BufferPosition(60, False), NOW)
    assert (after.cursor, after.round, after.replaced_count, is_whole) == (0, 2, 1, False)
    part, is_whole = apply_answer(after, SITE, stretch(0, 50), BufferPosition(61, True), NOW)
    assert (part.cursor, part.is_rereading, is_whole) == (50, True, False)
    rest, is_whole = apply_answer(part, SITE, stretch(50, 61), BufferPosition(61, False), NOW)
    assert (rest.cursor, rest.is_rereading, rest.replaced_count) == (61, False, 1)
    assert ended_round(part, rest, is_whole)


def test_buffer_restored_during_reconciliation_is_noticed_too() -> None:
    """It has all that was read, and not what it was known to have beyond."""
    part, _ = apply_answer(KNOWN, SITE, stretch(10, 12), BufferPosition(20, True), NOW)
    assert (part.cursor, part.high) == (12, 20)
    after, is_whole = apply_answer(part, SITE, stretch(12, 13), BufferPosition(13, False, has_gone_back=True), NOW)
    assert (after.cursor, after.high, after.replaced_count, is_whole) == (0, 0, 1, False)


def test_range_that_does_not_follow_the_cursor_is_rejected() -> None:
    for after, until, may in ((10, 15, True), (3, 15, True), (3, 8, True), (12, 15, False)):
        assert is_contiguous(apply_telemetry(KNOWN, SITE, stretch(after, until), NOW), stretch(after, until)) is may


def test_answer_older_than_telemetry_is_not_mistaken_for_a_restored_buffer() -> None:
    """The site read its newest change, then telemetry overtook the answer."""
    overtaken = apply_telemetry(KNOWN, SITE, stretch(10, 30), NOW)
    after, is_whole = apply_answer(overtaken, SITE, stretch(10, 25), BufferPosition(25, False), NOW)
    assert (after.cursor, after.replaced_count, is_whole) == (30, 0, True)


def test_another_buffer_that_answers_from_the_middle_is_read_again_from_its_start() -> None:
    after, is_whole = apply_answer(KNOWN, SITE, stretch(10, 12, "second"), BufferPosition(12, False), NOW)
    assert (after.incarnation, after.cursor, after.round, is_whole) == ("second", 0, 2, False)


def test_another_buffer_that_answers_from_its_start_is_complete_at_once() -> None:
    empty = replace(KNOWN, cursor=0)
    after, is_whole = apply_answer(empty, SITE, stretch(0, 12, "second"), BufferPosition(12, False), NOW)
    assert (after.cursor, after.is_rereading, is_whole) == (12, False, True)
    assert ended_round(empty, after, is_whole)


def test_buffer_that_purged_unreported_changes_is_read_again_and_not_called_replaced() -> None:
    after, is_whole = apply_answer(KNOWN, SITE, stretch(10, 20, forgotten=12), BufferPosition(20, False), NOW)
    assert (after.cursor, after.round, after.is_rereading, after.replaced_count, is_whole) == (0, 2, True, 0, False)
    rest, is_whole = apply_answer(after, SITE, stretch(0, 20, forgotten=12), BufferPosition(20, False), NOW)
    assert (rest.cursor, rest.round, is_whole) == (20, 2, True)
    heard, is_whole = apply_answer(KNOWN, SITE, stretch(10, 20, forgotten=10), BufferPosition(20, False), NOW)
    assert (heard.round, is_whole) == (1, True)


def test_telemetry_does_not_skip_purged_unreported_changes() -> None:
    after = apply_telemetry(KNOWN, SITE, stretch(10, 20, forgotten=12), NOW)
    assert (after.cursor, after.round, after.is_rereading) == (0, 2, True)
    assert apply_telemetry(KNOWN, SITE, stretch(10, 20, forgotten=9), NOW).cursor == 20


def test_new_mirror_ignores_changes_purged_before_it_started() -> None:
    part, is_whole = apply_answer(None, SITE, stretch(0, 5, forgotten=90), BufferPosition(100, True), NOW)
    assert (part.cursor, part.round, is_whole) == (5, 1, False)
    rest, is_whole = apply_answer(part, SITE, stretch(5, 100, forgotten=90), BufferPosition(100, False), NOW)
    assert (rest.cursor, rest.round, is_whole) == (100, 1, True)


def test_answer_from_an_earlier_round_leaves_the_mirror_incomplete() -> None:
    again = reread(KNOWN, 0)
    after, is_whole = apply_answer(again, SITE, stretch(10, 20), BufferPosition(20, False), NOW)
    assert (after.cursor, after.is_rereading, is_whole) == (0, True, False)


@pytest.mark.req("DEC-04")
def test_age_is_right_even_if_the_sites_clock_is_wrong() -> None:
    wrong = NOW + timedelta(days=4000)
    assert by_central(wrong - 5 * MINUTE, wrong, NOW) == NOW - 5 * MINUTE


@pytest.mark.req("DEC-04")
def test_impossible_time_becomes_now() -> None:
    assert by_central(NOW + MINUTE, NOW, NOW) == NOW
    assert by_central(None, NOW, NOW) == NOW
    assert by_central(NOW, None, NOW) == NOW
