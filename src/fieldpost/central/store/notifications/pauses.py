"""Pauses of single targets: a provider asked for no further request to one of them for a time."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Text

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.notification_tables import IS_TIMED
from fieldpost.core.delivery.holds import HoldKind, held_by
from fieldpost.core.delivery.outcome import TargetPause
from fieldpost.core.text import truncate

PAUSES_MAX = 10_000
"""How many pauses a node knows at a time: those that end first. An unknown one costs another answer."""

_record = Statement(
    """
    insert into target_pauses (delivery_key, address, until, reason)
    select delivery_key, address, until, reason from {rows} where true order by delivery_key, address
    on conflict (delivery_key, address) do update set until = excluded.until, reason = excluded.reason
    where target_pauses.until < excluded.until
    """,
    rows={"delivery_key": "text", "address": "text", "until": "moment", "reason": "text"},
)
_forget = Statement("delete from target_pauses where until < :at")
_all = Statement(
    """
    select delivery_key, address, until, reason from target_pauses where until > :at
    order by until limit :most
    """,
    result={"delivery_key": Text, "address": Text, "until": Moment, "reason": Text},
)
# Rows behind a pause are among the timed ones, in order of their time; the index knows no keys.
_waiting = Statement(
    f"""
    select held_by, count(*) as size from (
        select held_by from notifications where {IS_TIMED} and due_at > :at and due_at <= :until
            and held_by {{any:holds}} limit :count_max
    ) as waiting group by held_by
    """,
    lists={"holds": "text"},
    result={"held_by": Text, "size": BigInteger},
)


def record(conn: Connection, pauses: Collection[TargetPause], at: datetime) -> None:
    """Store pauses and forget those that are over; a pause that ends later stays."""
    if pauses:
        _forget.run(conn, at=at)
        latest = {(one.delivery_key, one.address): one for one in sorted(pauses, key=lambda one: one.until)}
        _record.run(conn, [(one.delivery_key, one.address, one.until, truncate(one.reason)) for one in latest.values()])


def current(conn: Connection, at: datetime) -> list[TargetPause]:
    """The pauses that are not over."""
    found = _all.run(conn, at=at, most=PAUSES_MAX)
    return [TargetPause(row.delivery_key, row.address, row.until, row.reason) for row in found]


def waiting(conn: Connection, keys: Collection[str], at: datetime, until: datetime, count_max: int) -> dict[str, int]:
    """How many rows of these delivery keys a pause holds that ends by `until`; at most `count_max` in all."""
    holds = {held_by(HoldKind.RATE_LIMIT, key): key for key in keys}
    found = _waiting.run(conn, at=at, until=until, holds=list(holds), count_max=count_max) if holds else ()
    return {holds[row.held_by]: row.size for row in found}
