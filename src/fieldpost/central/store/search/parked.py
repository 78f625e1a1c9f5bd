"""Counts of parked notifications, and of the queue of a list: a quick bound rather than a slow exact number.

A count scans at most a fixed number of the newest rows, in the partial index on undelivered rows; if there are more,
the result is marked as a lower bound. The queue of a list is contiguous in the index that claims use, except for held
rows, which are scanned like parked ones.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.notification_tables import IS_CLAIMABLE, IS_HELD, IS_UNDELIVERED
from fieldpost.central.store.search.notifications import (
    IN_RANGE,
    IS_NAMED,
    NAMED_COLUMNS,
    NEWEST_FIRST,
    bounds,
    names_of,
)
from fieldpost.core.notification import list_key
from fieldpost.core.search.notification_filter import Filter

ERRORS_MAX = 20_000
FITTING_MAX = 50_000
OF_LIST_MAX = 10_000
"""How many rows each count scans."""
TEXTS_MAX = 1_000
"""How many distinct error texts to sample for examples."""

_PARKED = f"{IS_UNDELIVERED} and status = 'parked'"

_errors = Statement(
    f"""
    select last_error, count(*) as size, min(terminal_at) as first_at, max(terminal_at) as last_at,
        max(cast(notification_id as text)) as notification_id
    from (
        select last_error, terminal_at, notification_id from notifications
        where {_PARKED} {NEWEST_FIRST} limit :limit
    ) as newest
    group by last_error
    """,
    result={"last_error": Text, "size": BigInteger, "first_at": Moment, "last_at": Moment, "notification_id": Text},
)

_FITS = f"terminal_at <= :as_of and {IS_NAMED}"
_IN_TIME = f"from notifications where {_PARKED} and {IN_RANGE}"
# An index-only scan.
_scanned = Statement(
    f"select count(*) as size from (select 1 as one {_IN_TIME} limit :limit) as newest", result={"size": BigInteger}
)
_JUDGED = f"last_error, subject, terminal_at, {NAMED_COLUMNS}"
# Filters on a text are applied to each distinct text once.
_fitting = Statement(
    f"""
    select case when cast(:by_error as boolean) then last_error end as error,
        case when cast(:by_subject as boolean) then subject end as subject, count(*) as size
    from (select {_JUDGED} {_IN_TIME} {NEWEST_FIRST} limit :limit) as newest
    where {_FITS}
    group by 1, 2
    """,
    result={"error": Text, "subject": Text, "size": BigInteger},
)
_newest_fitting = Statement(
    f"""
    select notification_id from (
        select notification_id, created_at, {_JUDGED} {_IN_TIME} {NEWEST_FIRST} limit :limit
    ) as newest
    where {_FITS} and (not cast(:by_error as boolean) or last_error {{any:errors}})
        and (not cast(:by_subject as boolean) or subject {{any:subjects}})
    {NEWEST_FIRST} limit :wanted
    """,
    lists={"errors": "text", "subjects": "text"},
    result={"notification_id": Id},
)

# The statuses are parameters, so that the planner cannot use the index on undelivered rows instead.
_waiting_of_list = Statement(
    "select count(*) as size from ("
    + " union all ".join(
        f"select * from (select 1 as one from notifications where {IS_CLAIMABLE} and status = :{status}"
        f" and delivery_key = :key limit :limit) as {status}_rows"
        for status in ("pending", "retrying")
    )
    + ") as waiting",
    result={"size": BigInteger},
)


def _of_list(condition: str, order: str = "") -> Statement:
    return Statement(
        f"""
        select count(*) as scanned, count(case when list_name = :list_name then 1 end) as size
        from (select list_name from notifications where {condition} {order} limit :limit) as those
        """,
        result={"scanned": BigInteger, "size": BigInteger},
    )


_held_of_list = _of_list(IS_HELD)
_parked_of_list = _of_list(_PARKED, NEWEST_FIRST)


@dataclass(frozen=True, slots=True)
class ParkedError:
    """An error text, and the parked notifications with this error."""

    error: str
    count: int
    first_at: datetime
    last_at: datetime
    notification_id: str


@dataclass(frozen=True, slots=True)
class Counted:
    """A count; a lower bound unless `is_whole`."""

    count: int
    is_whole: bool


def errors(conn: Connection) -> tuple[list[ParkedError], bool]:
    """The errors of the newest ERRORS_MAX parked notifications, and whether there are no more of them."""
    found = [
        ParkedError(row.last_error, row.size, row.first_at, row.last_at, row.notification_id)
        for row in _errors.run(conn, limit=ERRORS_MAX)
    ]
    return found, sum(one.count for one in found) < ERRORS_MAX


def fitting(conn: Connection, wanted: Filter, as_of: datetime, newest: int) -> tuple[Counted, list[str]]:
    """Count the matching notifications parked up to `as_of`; with the ids of the newest ones."""
    asked: dict[str, Any] = {
        **bounds(wanted),
        "as_of": as_of,
        **names_of(wanted),
        "by_error": wanted.error_key is not None,
        "limit": FITTING_MAX,
    }
    scanned = _scanned.run(conn, **bounds(wanted), limit=FITTING_MAX)[0].size
    found = [row for row in _fitting.run(conn, **asked) if wanted.fits_text(row.subject or "", row.error)]
    counted = Counted(sum(row.size for row in found), scanned < FITTING_MAX)
    if not found:
        return counted, []
    asked["errors"] = list({row.error for row in found[:TEXTS_MAX]})
    asked["subjects"] = list({row.subject for row in found[:TEXTS_MAX]})
    return counted, [row.notification_id for row in _newest_fitting.run(conn, **asked, wanted=newest)]


def of_list(conn: Connection, list_name: str) -> tuple[Counted, Counted]:
    """The size of the queue of this list, and the number of its parked notifications."""
    key = list_key(list_name)
    claimable = _waiting_of_list.run(conn, key=key, pending="pending", retrying="retrying", limit=OF_LIST_MAX)[0].size
    held = _held_of_list.run(conn, list_name=list_name, limit=OF_LIST_MAX)[0]
    parked = _parked_of_list.run(conn, list_name=list_name, limit=OF_LIST_MAX)[0]
    is_whole = claimable < OF_LIST_MAX and held.scanned < OF_LIST_MAX
    return Counted(claimable + held.size, is_whole), Counted(parked.size, parked.scanned < OF_LIST_MAX)
