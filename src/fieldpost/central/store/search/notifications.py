"""Finding notifications by any filter, newest first, without a body read and with an end to how much is looked at.

Theory of operation. Every list has one order, by moment of arrival and id, and is walked from a place in it. Which way
the walk goes depends on what was asked:

    statuses but delivered    the partial index on what was not delivered
    overdue, if they are few  the index on what may be claimed, which is then all that has to be looked at
    site, list, type, words   the places of the terms (terms.py), and before them the rows not yet indexed
    nothing of that           the rows themselves, by the index on their arrival

Where both statuses and terms are asked for it begins with the statuses, of which there are mostly few, and after FEW
rows goes on by the terms: a place is a place on either way. What the way does not answer is judged on each row, by the
database as far as it can and then by its text. A walk that meets nothing that fits could be long, so a search looks at
SCAN_MAX rows at most, of which those that the database leaves out count for less: then it gives what it has found and
the place where it stopped, and whoever asked may go on from there. So every search ends soon, whatever is asked and
however many rows there are.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.notifications.due import IS_OVERDUE
from fieldpost.central.store.schema import rows as to_core
from fieldpost.central.store.schema.notification_tables import IS_UNDELIVERED
from fieldpost.central.store.schema.rows import SUMMARY_COLUMNS, SUMMARY_TYPES
from fieldpost.central.store.search import terms
from fieldpost.central.store.search.postings import places
from fieldpost.core.notification import Status, Summary
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey

SCAN_MAX = 2_500
"""How many rows one search looks at: some tens of milliseconds, so that a page stays quick however rare it is."""
FEW = 2_000
"""So many rows are looked at by their status before the terms are asked; of so many that are overdue each is. What was
not delivered is looked at all the time and in memory; what terms lead to mostly has to come from the disk."""
_LEFT_OUT_PER_ROW = 10
"""So many rows that the database leaves out count as one that it hands over. Of several statuses, which it has to put
in order first, each counts as one."""
_STEP, _STEP_MAX = 200, 5_000
_PLACES_PER_ROW = 5
"""So many places cost about as much to read as one row to judge."""

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_EVER = datetime(9999, 1, 1, tzinfo=UTC)
_FIRST_ID, _LAST_ID = "00000000-0000-1000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
TOP: PageKey = (_EVER, _LAST_ID)

NEWEST_FIRST = "order by created_at desc, notification_id desc"
IN_RANGE = "created_at >= :since and (created_at, notification_id) < (:at, :id)"
_SOME: tuple[Status, ...] = tuple(status for status in Status if status is not Status.DELIVERED)

_by_arrival = f"(select {{columns}} from notifications where {IN_RANGE} {NEWEST_FIRST} limit :step) as c"
# The partial index's own condition stands there in its own words, and the status as a literal: else no database knows
# that it may use it. Of one status the rows lie there as they are wanted. Of several there is one arm for each, since
# only so are they in order without sorting them all.
_OF_STATUS = (
    f"(select {{{{columns}}}} from notifications where {IS_UNDELIVERED} and status = '{{0}}' {{1}}"
    f" and {IN_RANGE} {NEWEST_FIRST} limit :step) as {{0}}_rows"
)
_by_one_status = {status: _OF_STATUS.format(status.value, "") for status in _SOME}
_by_statuses = (
    "(select * from ("
    + " union all ".join(
        "select * from " + _OF_STATUS.format(status.value, f"and cast(:is_{status.value} as boolean)")
        for status in _SOME
    )
    + f") as arms {NEWEST_FIRST} limit :step) as c"
)
_FITS = f"""
    (cast(:any_status as boolean) or status {{any:statuses}})
    and (cast(:site as text) is null or source_site_id = :site)
    and (cast(:list_name as text) is null or list_name = :list_name)
    and (cast(:type as text) is null or type = :type)
    and (cast(:overdue_before as timestamptz) is null or ({IS_OVERDUE}))
"""
_KEY = "created_at, notification_id"
# What is looked at to judge a row by its text; the whole of it is read when it fits.
_TEXTS = "created_at, notification_id, subject, last_error"
_TEXT_TYPES = {name: SUMMARY_TYPES[name] for name in _TEXTS.split(", ")}


def _walking(way: str) -> Statement:
    columns = f"{_TEXTS}, status, source_site_id, list_name, type, due_at, held_by, lease_until"
    return Statement(
        f"select {_TEXTS} from {way.format(columns=columns)} where {_FITS} {NEWEST_FIRST}",
        lists={"statuses": "text"},
        result=_TEXT_TYPES,
    )


def _ending(way: str) -> Statement:
    """Where a step of the walk ended, nowhere when it came to less than it was to."""
    return Statement(
        f"select {_KEY} from {way.format(columns=_KEY)} {NEWEST_FIRST} limit 1 offset :step - 1",
        result={"created_at": Moment, "notification_id": Id},
    )


_ways: dict[tuple[Status, ...], str] = {(): _by_arrival, _SOME: _by_statuses} | {
    (status,): way for status, way in _by_one_status.items()
}
_walks = {statuses: (_walking(way), _ending(way)) for statuses, way in _ways.items()}
_overdue = Statement(
    f"select {_KEY} from notifications where {IS_OVERDUE} limit :most",
    result={"created_at": Moment, "notification_id": Id},
)
_these = Statement(
    f"select {_TEXTS} from notifications where notification_id {{any:ids}} and {_FITS}",
    lists={"ids": "id", "statuses": "text"},
    result=_TEXT_TYPES,
)
_whole = Statement(
    f"select {SUMMARY_COLUMNS} from notifications where notification_id {{any:ids}} {NEWEST_FIRST}",
    lists={"ids": "id"},
    result=SUMMARY_TYPES,
)


@dataclass(frozen=True, slots=True)
class Found:
    """Newest first. `end` is where to go on, None when there is nothing more."""

    notifications: tuple[Summary, ...]
    end: PageKey | None


def find(conn: Connection, wanted: Filter, *, limit: int, before: PageKey | None = None) -> Found:
    """At most so many that fit, older than `before`; fewer, with an end to go on from, when they are rare."""
    assert not wanted.is_stuck, "a filter is resolved before it is asked for"
    assert not wanted.is_overdue, "a filter is resolved before it is asked for"
    found: list[PageKey] = []
    looking = _look(conn, wanted, min(before or TOP, _upper(wanted)), limit)
    while True:
        try:
            row = next(looking)
        except StopIteration as stop:
            return Found(_summaries(conn, found), stop.value)
        if wanted.fits_text(row.subject, row.last_error):
            if len(found) == limit:
                return Found(_summaries(conn, found), found[-1])
            found.append((row.created_at, row.notification_id))


def bounds(wanted: Filter) -> dict[str, Any]:
    """What IN_RANGE is filled with for all of a filter's time."""
    return _range(wanted.since, _upper(wanted))


def _look(conn: Connection, wanted: Filter, before: PageKey, limit: int) -> Generator[Row[Any], None, PageKey | None]:
    """The rows that fit but for their text; where it stopped looking, None when it has seen all."""
    if wanted.overdue_before is not None:
        some = _overdue.run(conn, overdue_before=wanted.overdue_before, most=FEW + 1)
        if len(some) <= FEW:
            found = _within(wanted, before, some)
            for at in range(0, len(found), _STEP):
                yield from _by_places(conn, wanted, found[at : at + _STEP])
            return None
    asked = terms.terms_of(wanted)
    is_rare = bool(wanted.statuses) and Status.DELIVERED not in wanted.statuses
    looked = 0.0
    if is_rare or not asked:
        most = FEW if asked else SCAN_MAX
        step = limit + 1 if _is_plain(wanted, is_rare) else _STEP
        looked, end = yield from _walk(conn, wanted, before, wanted.since, most, is_rare=is_rare, step=step)
        if end is None or not asked:
            return end
        before = end
    indexed = terms.behind_since(conn)
    if indexed is not None and before > (indexed, ""):
        since = max(indexed, wanted.since) if wanted.since else indexed
        more, end = yield from _walk(conn, wanted, before, since, SCAN_MAX - looked, is_rare=False, step=_STEP_MAX)
        looked += more
        if end is not None:
            return end
        before = (indexed, _FIRST_ID)
    return (yield from _by_terms(conn, wanted, asked, before, SCAN_MAX - looked, limit))


def _walk(
    conn: Connection, wanted: Filter, before: PageKey, since: datetime | None, most: float, *, is_rare: bool, step: int
) -> Generator[Row[Any], None, tuple[float, PageKey | None]]:
    """How many rows it looked at, as they count, and where it stopped, None when it has seen all."""
    way = _way(wanted, is_rare)
    statement, ending = _walks[way]
    left_out_per_row = 1 if way == _SOME else _LEFT_OUT_PER_ROW
    looked, walked = 0.0, 0
    while looked < most:
        # As many as would reach the end if they are like those before.
        step = min(step, math.ceil((most - looked) * (walked / looked if walked else 1)))
        part = _bounds(wanted, since, before, is_rare) | {"step": step}
        rows = statement.run(conn, **part, **_judgement(wanted))
        yield from rows
        last = rows[-1:] if len(rows) == step else ending.run(conn, **part)
        if not last:
            return looked + len(rows), None
        looked += len(rows) + (step - len(rows)) / left_out_per_row
        walked += step
        before = (last[0].created_at, last[0].notification_id)
        step = min(4 * step, _STEP_MAX)
    return looked, before


def _way(wanted: Filter, is_rare: bool) -> tuple[Status, ...]:
    if not is_rare:
        return ()
    return wanted.statuses if len(wanted.statuses) == 1 else _SOME


def _by_terms(
    conn: Connection, wanted: Filter, asked: list[str], before: PageKey, most: float, limit: int
) -> Generator[Row[Any], None, PageKey | None]:
    looked = 0.0
    step = _STEP if wanted.statuses or wanted.error_key else limit + 1
    for some in places(conn, asked, wanted.since, before):
        if looked >= most:
            return before
        for at in range(0, len(some.found), step):
            if looked >= most:
                return before
            found = some.found[at : at + step]
            yield from _by_places(conn, wanted, found)
            looked += len(found)
            before = found[-1]
        before = some.end
        looked += some.read / _PLACES_PER_ROW
    return None


def _by_places(conn: Connection, wanted: Filter, found: Sequence[PageKey]) -> Iterator[Row[Any]]:
    """Those of these rows that fit, in the order of their places."""
    ids = [notification_id for _, notification_id in found]
    rows = {row.notification_id: row for row in _these.run(conn, ids=ids, **_judgement(wanted))}
    return (rows[notification_id] for notification_id in ids if notification_id in rows)


def _within(wanted: Filter, before: PageKey, some: Sequence[Row[Any]]) -> list[PageKey]:
    """The places of these rows before that one and since the filter's beginning, newest first."""
    found = ((row.created_at, row.notification_id) for row in some)
    return sorted((at for at in found if (wanted.since or _NEVER, "") <= at < before), reverse=True)


def _summaries(conn: Connection, found: list[PageKey]) -> tuple[Summary, ...]:
    rows = _whole.run(conn, ids=[i for _, i in found]) if found else []
    return tuple(to_core.summary(row) for row in rows)


def _is_plain(wanted: Filter, is_rare: bool) -> bool:
    """Whether every row of the walk fits."""
    has_judgement = (
        wanted.site or wanted.list_name or wanted.type or wanted.subject or wanted.error_key or wanted.overdue_before
    )
    return not has_judgement and (is_rare or not wanted.statuses)


def _bounds(wanted: Filter, since: datetime | None, before: PageKey, is_rare: bool) -> dict[str, Any]:
    is_of_several = _way(wanted, is_rare) == _SOME
    some = {f"is_{status.value}": status in wanted.statuses for status in _SOME} if is_of_several else {}
    return _range(since, before) | some


def _range(since: datetime | None, before: PageKey) -> dict[str, Any]:
    return {"since": since or _NEVER, "at": before[0], "id": before[1]}


def _judgement(wanted: Filter) -> dict[str, Any]:
    return {
        "any_status": not wanted.statuses,
        "statuses": [status.value for status in wanted.statuses],
        "site": wanted.site,
        "list_name": wanted.list_name,
        "type": wanted.type,
        "overdue_before": wanted.overdue_before,
    }


def _upper(wanted: Filter) -> PageKey:
    """The place before which everything arrived in time."""
    return (wanted.until, _FIRST_ID) if wanted.until is not None else TOP
