"""Rates of delivery paths, shared by all nodes: one time per key, changed under its row lock."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, Text

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement, database_time
from fieldpost.core.delivery.rate import Grant, Rate, take

_add = Statement(
    """
    insert into rates (key, next_at) select key, next_at from {rows} where true order by key
    on conflict (key) do nothing
    """,
    rows={"key": "text", "next_at": "moment"},
)
_locked = Statement(
    "select key, next_at from rates where key {any:keys} order by key for update",
    sqlite="select key, next_at from rates where key {any:keys} order by key",
    lists={"keys": "text"},
    result={"key": Text, "next_at": Moment},
)
_update = Statement(
    "update rates set next_at = u.next_at from {rows} where rates.key = u.key",
    rows={"key": "text", "next_at": "moment"},
)


def take_many(conn: Connection, wanted: Mapping[str, tuple[Rate, int]], *, now: datetime | None) -> dict[str, Grant]:
    """Take as many of the wanted deliveries of each key as its rate allows now."""
    at = database_time(conn, now)
    _add.run(conn, [(key, at) for key in sorted(wanted)])
    grants = {row.key: take(*_given(wanted[row.key], row.next_at), at) for row in _locked.run(conn, keys=list(wanted))}
    _update.run(conn, [(key, grants[key].next_at) for key in sorted(grants)])
    return grants


def _given(wanted: tuple[Rate, int], next_at: datetime) -> tuple[Rate, datetime, int]:
    rate, count = wanted
    return rate, next_at, count
