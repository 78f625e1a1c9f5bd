"""Words and filters: one rule for what is stored and what is asked."""

import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import LIVE, Status
from fieldpost.core.search.filters import NOTIFICATION_FILTERS, parse_moment
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.tokens import TOKEN_LENGTH_MAX, TOKENS_MAX, tokenize
from fieldpost.core.times import from_microseconds

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
BY = Thresholds()
LIVE_STATUSES = tuple(status for status in Status if status in LIVE)


@pytest.mark.req("KPI-12")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Pump 3 is HOT", ("pump", "3", "is", "hot")),
        ("pump-3/hot: 93°C!", ("pump", "3", "hot", "93", "c")),
        ("hot, hot, HOT", ("hot",)),
        ("100% of_it", ("100", "of", "it")),
        ("  ", ()),
        ("%_'\"", ()),
        ("Straße STRASSE", ("strasse",)),
        ("ﬁlter", ("filter",)),  # a ligature is its letters
        ("Ünïcode", ("ünïcode",)),
        ("ΣΊΣΥΦΟΣ σίσυφος", ("σίσυφοσ",)),
        ("水泵 过热", ("水泵", "过热")),
        ("नमस्ते", ("नमस्ते",)),  # marks belong to their letters
    ],
)
def test_text_is_split_into_case_insensitive_words(text: str, found: tuple[str, ...]) -> None:
    assert tokenize(text) == tuple(unicodedata.normalize("NFKC", word) for word in found)


@given(st.text())
def test_words_match_in_any_case_and_normalization_form(text: str) -> None:
    found = tokenize(text)
    assert tokenize(" ".join(found)) == found
    assert set(tokenize(unicodedata.normalize("NFD", text))) == set(tokenize(unicodedata.normalize("NFC", text)))
    assert len(set(found)) == len(found)
    assert all(0 < len(word) <= TOKEN_LENGTH_MAX for word in found)


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_ascii_fast_path_gives_the_same_words(text: str) -> None:
    assert set(tokenize(text)) <= set(tokenize(text + " é"))
    assert set(tokenize(text + " é")) - set(tokenize(text)) == {"é"}


def test_all_words_must_occur_as_whole_words() -> None:
    wanted = Filter(subject="hot PUMP")
    assert wanted.fits_text("Pump 3 is hot", None)
    assert not wanted.fits_text("Pump 3 is cold", None)
    assert not wanted.fits_text("Pumps are hot", None)
    assert Filter().fits_text("anything", None)


def test_errors_are_searched_by_fingerprint() -> None:
    wanted = Filter(error_key=fingerprint_key("451 server 7 is busy"))
    assert wanted.fits_text("x", "451 server 12 is busy")
    assert not wanted.fits_text("x", "550 no such user")
    assert not wanted.fits_text("x", None)


@pytest.mark.req("KPI-03", "KPI-12")
def test_stuck_filter_selects_live_rows_older_than_the_threshold() -> None:
    resolved = Filter(is_stuck=True).resolved(NOW, BY)
    since = NOW - BY.stuck_after
    assert resolved == Filter(statuses=LIVE_STATUSES, until=since, stuck_before=since, stuck_at=NOW)
    earlier = NOW - timedelta(days=1)
    narrowed = Filter(is_stuck=True, statuses=(Status.RETRYING, Status.PARKED), until=earlier)
    assert narrowed.resolved(NOW, BY) == Filter(
        statuses=(Status.RETRYING,), until=earlier, stuck_before=NOW - BY.stuck_after, stuck_at=NOW
    )
    assert Filter(is_stuck=True, statuses=(Status.DELIVERED,)).resolved(NOW, BY) is None


@pytest.mark.req("DEC-16")
def test_overdue_filter_selects_live_rows_that_arrived_and_were_free_before_the_threshold() -> None:
    since = NOW - BY.overdue_after
    resolved = Filter(is_overdue=True).resolved(NOW, BY)
    assert resolved == Filter(statuses=LIVE_STATUSES, until=since, overdue_before=since)
    both = Filter(is_overdue=True, is_stuck=True, statuses=(Status.RETRYING, Status.PARKED))
    assert both.resolved(NOW, BY) == Filter(
        statuses=(Status.RETRYING,),
        until=NOW - BY.stuck_after,
        stuck_before=NOW - BY.stuck_after,
        stuck_at=NOW,
        overdue_before=since,
    )
    assert Filter(is_overdue=True, statuses=(Status.PARKED,)).resolved(NOW, BY) is None


def test_error_filter_selects_parked_notifications_unless_a_status_is_given() -> None:
    key = fingerprint_key("550")
    assert Filter(error_key=key).resolved(NOW, BY) == Filter(error_key=key, statuses=(Status.PARKED,))
    asked = Filter(error_key=key, statuses=(Status.RETRYING,))
    assert asked.resolved(NOW, BY) == asked
    stuck = Filter(error_key=key, is_stuck=True).resolved(NOW, BY)
    assert stuck is not None
    assert stuck.statuses == LIVE_STATUSES


labels = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
moments = st.integers(0, 4 * 10**15).map(from_microseconds)
filters = st.builds(
    Filter,
    statuses=st.lists(st.sampled_from(Status), unique=True).map(tuple),
    type=st.none() | labels,
    site=st.none() | labels,
    list_name=st.none() | labels,
    since=st.none() | moments,
    until=st.none() | moments.map(lambda at: at + timedelta(days=50_000)),
    is_stuck=st.booleans(),
    is_overdue=st.booleans(),
    subject=st.none() | st.just("pump hot"),
    error_key=st.none() | st.just("0123456789ab"),
)


@pytest.mark.req("KPI-11", "KPI-12")
@given(filters)
def test_filter_round_trip_by_fields(wanted: Filter) -> None:
    told = wanted.fields()
    assert Filter.parse(told) == wanted
    assert set(told) <= {field.name for field in NOTIFICATION_FILTERS}


@pytest.mark.bad_input(46)
def test_unknown_or_repeated_field_is_rejected() -> None:
    for given_, code, field in (
        ({"colour": "red"}, "filter.unknown", "colour"),
        ({"site": ["a", "b"]}, "filter.one", "site"),
        ({"site": []}, "filter.one", "site"),
        ({"status": ["parked", "lost"]}, "filter.choice", "status"),
        ({"subject": " ".join(f"w{n}" for n in range(TOKENS_MAX + 1))}, "filter.words", "subject"),
    ):
        with pytest.raises(InvalidInput) as refused:
            Filter.parse(given_)  # type: ignore[arg-type]
        assert (refused.value.code, refused.value.field) == (code, field)


@pytest.mark.bad_input(47)
def test_time_is_written_in_utc() -> None:
    for text in (
        "2026-11-15T08:00Z",
        "2026-11-15T08:00:00Z",
        "2026-11-15T08:00:00.000000Z",
        "2026-11-15T08:00:00+00:00",
    ):
        assert parse_moment(text, "from") == NOW
    assert parse_moment("0001-01-01T00:00:00Z", "from") == datetime(1970, 1, 1, tzinfo=UTC)
    for text in ("2026-11-15T08:00:00", "2026-11-15T09:00:00+01:00", "2026-11-15T08:00:00z", "٢026-11-15T08:00:00Z"):
        with pytest.raises(InvalidInput) as refused:
            parse_moment(text, "to")
        assert (refused.value.code, refused.value.field) == ("filter.time", "to")
