"""Search for notifications by any filter, newest first, in bounded time and without reading bodies.

Theory of operation. Results have one order, by time of arrival and id, and a search scans from a position (PageKey) in
it. The filter decides which index is scanned:

    event, subscription       the index on the rows of an event, or of a subscription
    undelivered statuses      the partial index on undelivered rows
    overdue, if few           the index on claimable rows, of which all overdue ones are checked
    site, list, type, tokens  the postings of the terms (terms.py), after the rows that are not indexed yet
    no such filter            the rows themselves, by the index on their arrival

A filter with both statuses and terms starts with the statuses, which mostly match few rows, and continues with the
terms after FEW rows; positions are valid in either index. Conditions that the index does not cover are checked on each
row, in the database where possible and then on its text. A scan without matches could be long, so a search scans at
most SCAN_MAX rows, of which those that the database filters out count less. It then returns the matches so far and the
position where it stopped, and the caller may continue from there. So every search ends soon, for any filter and any
number of rows.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.notifications.due import IS_OVERDUE
from fieldpost.central.store.schema import rows as to_core
from fieldpost.central.store.schema.notification_tables import IS_OF_EVENT, IS_UNDELIVERED
from fieldpost.central.store.schema.rows import SUMMARY_COLUMNS, SUMMARY_TYPES
from fieldpost.central.store.search import terms
from fieldpost.central.store.search.postings import places
from fieldpost.core.events.subscription import subscription_key
from fieldpost.core.notification import Status, Summary
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey

SCAN_MAX = 2_500
"""How many rows one search scans: some tens of milliseconds, so that a page is quick even if matches are rare."""
FEW = 2_000
"""How many rows are scanned by status before the terms are used, and up to how many overdue rows are checked one by
one. Undelivered rows are read all the time and in memory; rows found by terms mostly come from the disk."""
_LEFT_OUT_PER_ROW = 10
"""How many rows that the database filters out count as one that it returns. With several statuses, which it has to
merge in order, each row counts as one."""
_STEP, _STEP_MAX = 200, 5_000
_PLACES_PER_ROW = 5
"""How many postings cost about as much to read as checking one row."""

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_EVER = datetime(9999, 1, 1, tzinfo=UTC)
_FIRST_ID, _LAST_ID = "00000000-0000-1000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
TOP: PageKey = (_EVER, _LAST_ID)

NEWEST_FIRST = "order by created_at desc, notification_id desc"
IN_RANGE = "created_at >= :since and (created_at, notification_id) < (:at, :id)"
_SOME: tuple[Status, ...] = tuple(status for status in Status if status is not Status.DELIVERED)

_by_arrival = f"(select {{columns}} from notifications where {IN_RANGE} {NEWEST_FIRST} limit :step) as c"
# The condition repeats that of the partial index literally, with the status as a literal: otherwise no planner uses the
# index. The rows of one status are in order there. Several statuses get one arm each, which avoids sorting all rows.
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
_BY_KEY = f"{IS_OF_EVENT} and delivery_key = :delivery_key"
_by_subscription = (
    f"(select {{columns}} from notifications where {_BY_KEY} and {IN_RANGE} {NEWEST_FIRST} limit :step) as c"
)
# An event's rows are sorted here. The inner limit keeps the planner from the index on arrivals, which has the order.
_by_event = (
    f"(select * from (select {{columns}} from notifications where {IS_OF_EVENT} and event_id = :event_id {{unlimited}})"
    f" as of_event where {IN_RANGE} {NEWEST_FIRST} limit :step) as c"
)
NAMED_COLUMNS = "source_site_id, list_name, whole_list, type, event_id, route_id, delivery_key, severity, incident"
IS_NAMED = """
    (cast(:site as text) is null or source_site_id = :site)
    and (cast(:list_name as text) is null or list_name = :list_name or whole_list = :list_name)
    and (cast(:type as text) is null or type = :type)
    and (cast(:kind as text) is null or (type = 'webhook') = (:kind = 'webhook'))
    and (not cast(:by_subject as boolean) or event_id is null or route_id is not null)
    and (not cast(:by_key as boolean) or delivery_key = :delivery_key)
    and (not cast(:by_event as boolean) or event_id = :event_id)
    and (cast(:severities as text) is null or cast(:severities as text) like '%,' || severity || ',%')
    and (cast(:incident as text) is null or incident = :incident)
"""
"""The filter's conditions on NAMED_COLUMNS, with the parameters of `names_of`."""
_FITS = f"""
    (cast(:any_status as boolean) or status {{any:statuses}})
    and {IS_NAMED}
    and (cast(:stuck_before as timestamptz) is null or (cycle_started_at < :stuck_before
        and (held_by is null or (type <> 'webhook' and held_by not like 'rate%'))
        and (type <> 'webhook' or due_at <= :stuck_at)))
    and (cast(:overdue_before as timestamptz) is null or ({IS_OVERDUE}))
"""
_KEY = "created_at, notification_id"
# The columns for checking a row by its text; the whole row is read only if it matches.
_TEXTS = "created_at, notification_id, subject, last_error"
_TEXT_TYPES = {name: SUMMARY_TYPES[name] for name in _TEXTS.split(", ")}


def _scanning(index: str) -> Statement:
    columns = f"{_TEXTS}, {NAMED_COLUMNS}, status, due_at, cycle_started_at, held_by, lease_until"
    return _on(
        index, columns, f"select {_TEXTS} from {{}} where {_FITS} {NEWEST_FIRST}", _TEXT_TYPES, {"statuses": "text"}
    )


def _ending(index: str) -> Statement:
    """The position where a step of the scan ended; no row if the scan reached its end."""
    query = f"select {_KEY} from {{}} {NEWEST_FIRST} limit 1 offset :step - 1"
    return _on(index, _KEY, query, {"created_at": Moment, "notification_id": Id})


def _on(
    index: str, columns: str, query: str, result: Mapping[str, Any], lists: Mapping[str, ParameterKind] | None = None
) -> Statement:
    """The query on an index of rows, which reads these columns."""
    postgresql, sqlite = (
        query.replace("{}", index.format(columns=columns, unlimited=unlimited))
        for unlimited in ("offset 0", "limit -1 offset 0")
    )
    return Statement(postgresql, sqlite=sqlite, lists=lists or {}, result=result)


ScanIndex = tuple[Status, ...] | str
"""The rows of some statuses (all if empty), of an event or of a subscription."""
_EVENT, _SUBSCRIPTION = "event", "subscription"
_scans_of: dict[ScanIndex, str] = {
    (): _by_arrival,
    _SOME: _by_statuses,
    **{(status,): index for status, index in _by_one_status.items()},
    _EVENT: _by_event,
    _SUBSCRIPTION: _by_subscription,
}
_statements = {statuses: (_scanning(index), _ending(index)) for statuses, index in _scans_of.items()}
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
    """Matches, newest first. `end` is the position to continue from, None at the end."""

    notifications: tuple[Summary, ...]
    end: PageKey | None


def find(conn: Connection, wanted: Filter, *, limit: int, before: PageKey | None = None) -> Found:
    """Up to `limit` matches older than `before`; fewer, with an `end` to continue from, when matches are rare."""
    assert not wanted.is_stuck, "resolve the filter first"
    assert not wanted.is_overdue, "resolve the filter first"
    found: list[PageKey] = []
    rows = _scan(conn, wanted, min(before or TOP, _upper(wanted)), limit)
    while True:
        try:
            row = next(rows)
        except StopIteration as stop:
            return Found(_summaries(conn, found), stop.value)
        if wanted.fits_text(row.subject, row.last_error):
            if len(found) == limit:
                return Found(_summaries(conn, found), found[-1])
            found.append((row.created_at, row.notification_id))


def bounds(wanted: Filter) -> dict[str, Any]:
    """The parameters of IN_RANGE for the whole time range of a filter."""
    return _range(wanted.since, _upper(wanted))


def names_of(wanted: Filter) -> dict[str, Any]:
    """The parameters of IS_NAMED."""
    return {
        "site": wanted.site,
        "list_name": wanted.list_name,
        "type": wanted.type,
        "kind": wanted.kind,
        "by_subject": wanted.subject is not None,
        "by_key": wanted.subscription_id is not None,
        "delivery_key": subscription_key(wanted.subscription_id or ""),
        "by_event": wanted.event_id is not None,
        "event_id": wanted.event_id,
        "severities": f",{','.join(wanted.severities)}," if wanted.severities else None,
        "incident": wanted.incident,
    }


def _scan(conn: Connection, wanted: Filter, before: PageKey, limit: int) -> Generator[Row[Any], None, PageKey | None]:
    """Yield the rows that match but for their text; return where the scan stopped, None at the end."""
    if _is_narrow(wanted):
        step = limit + 1 if _is_plain(wanted, is_rare=False) else _STEP
        _, end = yield from _scan_by(conn, wanted, before, wanted.since, SCAN_MAX, is_rare=False, step=step)
        return end
    if wanted.overdue_before is not None:
        some = _overdue.run(conn, overdue_before=wanted.overdue_before, most=FEW + 1)
        if len(some) <= FEW:
            found = _within(wanted, before, some)
            for at in range(0, len(found), _STEP):
                yield from _at_positions(conn, wanted, found[at : at + _STEP])
            return None
    asked = terms.terms_of(wanted)
    is_rare = bool(wanted.statuses) and Status.DELIVERED not in wanted.statuses
    scanned = 0.0
    if is_rare or not asked:
        most = FEW if asked else SCAN_MAX
        step = limit + 1 if _is_plain(wanted, is_rare) else _STEP
        scanned, end = yield from _scan_by(conn, wanted, before, wanted.since, most, is_rare=is_rare, step=step)
        if end is None or not asked:
            return end
        before = end
    indexed = terms.behind_since(conn)
    if indexed is not None and before > (indexed, ""):
        since = max(indexed, wanted.since) if wanted.since else indexed
        more, end = yield from _scan_by(conn, wanted, before, since, SCAN_MAX - scanned, is_rare=False, step=_STEP_MAX)
        scanned += more
        if end is not None:
            return end
        before = (indexed, _FIRST_ID)
    return (yield from _by_terms(conn, wanted, asked, before, SCAN_MAX - scanned, limit))


def _scan_by(
    conn: Connection, wanted: Filter, before: PageKey, since: datetime | None, most: float, *, is_rare: bool, step: int
) -> Generator[Row[Any], None, tuple[float, PageKey | None]]:
    """Return the weighted number of scanned rows and where the scan stopped, None at the end."""
    index = _index_for(wanted, is_rare)
    statement, ending = _statements[index]
    left_out_per_row = 1 if index == _SOME else _LEFT_OUT_PER_ROW
    scanned, walked = 0.0, 0
    while scanned < most:
        # As many as reach the limit at the rate so far.
        step = min(step, math.ceil((most - scanned) * (walked / scanned if walked else 1)))
        part = _bounds(wanted, since, before, is_rare) | {"step": step}
        rows = statement.run(conn, **part | _conditions(wanted))
        yield from rows
        last = rows[-1:] if len(rows) == step else ending.run(conn, **part)
        if not last:
            return scanned + len(rows), None
        scanned += len(rows) + (step - len(rows)) / left_out_per_row
        walked += step
        before = (last[0].created_at, last[0].notification_id)
        step = min(4 * step, _STEP_MAX)
    return scanned, before


def _is_narrow(wanted: Filter) -> bool:
    return wanted.event_id is not None or wanted.subscription_id is not None


def _index_for(wanted: Filter, is_rare: bool) -> ScanIndex:
    if _is_narrow(wanted):
        return _EVENT if wanted.event_id is not None else _SUBSCRIPTION
    if not is_rare:
        return ()
    return wanted.statuses if len(wanted.statuses) == 1 else _SOME


def _by_terms(
    conn: Connection, wanted: Filter, asked: list[str], before: PageKey, most: float, limit: int
) -> Generator[Row[Any], None, PageKey | None]:
    scanned = 0.0
    step = _STEP if wanted.statuses or wanted.severities or wanted.error_key else limit + 1
    for some in places(conn, asked, wanted.since, before):
        if scanned >= most:
            return before
        for at in range(0, len(some.found), step):
            if scanned >= most:
                return before
            found = some.found[at : at + step]
            yield from _at_positions(conn, wanted, found)
            scanned += len(found)
            before = found[-1]
        before = some.end
        scanned += some.read / _PLACES_PER_ROW
    return None


def _at_positions(conn: Connection, wanted: Filter, found: Sequence[PageKey]) -> Iterator[Row[Any]]:
    """The rows at these positions that match, in order."""
    ids = [notification_id for _, notification_id in found]
    rows = {row.notification_id: row for row in _these.run(conn, ids=ids, **_conditions(wanted))}
    return (rows[notification_id] for notification_id in ids if notification_id in rows)


def _within(wanted: Filter, before: PageKey, some: Sequence[Row[Any]]) -> list[PageKey]:
    """The positions of these rows before `before` and since the filter's start, newest first."""
    found = ((row.created_at, row.notification_id) for row in some)
    return sorted((at for at in found if (wanted.since or _NEVER, "") <= at < before), reverse=True)


def _summaries(conn: Connection, found: list[PageKey]) -> tuple[Summary, ...]:
    rows = _whole.run(conn, ids=[i for _, i in found]) if found else []
    return tuple(to_core.summary(row) for row in rows)


def _is_plain(wanted: Filter, is_rare: bool) -> bool:
    """Whether every scanned row matches."""
    has_conditions = (
        wanted.site
        or wanted.list_name
        or wanted.type
        or wanted.kind
        or (wanted.event_id and wanted.subscription_id)
        or wanted.subject
        or wanted.severities
        or wanted.incident
        or wanted.error_key
        or wanted.stuck_before
        or wanted.overdue_before
    )
    return not has_conditions and (is_rare or not wanted.statuses)


def _bounds(wanted: Filter, since: datetime | None, before: PageKey, is_rare: bool) -> dict[str, Any]:
    some: dict[str, Any] = {}
    match _index_for(wanted, is_rare):
        case "event":
            some = {"event_id": wanted.event_id}
        case "subscription":
            some = {"delivery_key": subscription_key(wanted.subscription_id or "")}
        case index if index == _SOME:
            some = {f"is_{status.value}": status in wanted.statuses for status in _SOME}
    return _range(since, before) | some


def _range(since: datetime | None, before: PageKey) -> dict[str, Any]:
    return {"since": since or _NEVER, "at": before[0], "id": before[1]}


def _conditions(wanted: Filter) -> dict[str, Any]:
    return {
        "any_status": not wanted.statuses,
        "statuses": [status.value for status in wanted.statuses],
        **names_of(wanted),
        "stuck_before": wanted.stuck_before,
        "stuck_at": wanted.stuck_at,
        "overdue_before": wanted.overdue_before,
    }


def _upper(wanted: Filter) -> PageKey:
    """The upper bound of the filter's time range."""
    return (wanted.until, _FIRST_ID) if wanted.until is not None else TOP
