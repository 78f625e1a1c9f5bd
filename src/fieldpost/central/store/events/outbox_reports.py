"""The outboxes of applications, as their relays last reported them."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Integer, Text

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement


@dataclass(frozen=True, slots=True)
class OutboxReport:
    """The number of open rows in an application's outbox, by the last report of one of its relays."""

    source: str
    open_count: int
    oldest_at: datetime | None
    """When the oldest open row was written, by central's clock; None if no row is open."""
    reported_at: datetime


_save = Statement(
    """
    insert into outbox_reports (source, open_count, oldest_at, reported_at)
    values (:source, :open_count, case when :is_open then {now+offset_s} end, {now})
    on conflict (source) do update set open_count = excluded.open_count, oldest_at = excluded.oldest_at,
        reported_at = excluded.reported_at
    """
)
_all = Statement(
    "select source, open_count, oldest_at, reported_at from outbox_reports order by source",
    result={"source": Text, "open_count": Integer, "oldest_at": Moment, "reported_at": Moment},
)


def save(conn: Connection, source: str, open_count: int, oldest_age_s: float, *, now: datetime | None) -> None:
    """Replace the report of this source."""
    _save.run(conn, source=source, open_count=open_count, is_open=open_count > 0, offset_s=-oldest_age_s, now=now)


def all_reports(conn: Connection) -> list[OutboxReport]:
    """The reports of all applications, by source."""
    return [OutboxReport(row.source, row.open_count, row.oldest_at, row.reported_at) for row in _all.run(conn)]
