"""Rates of delivery paths, shared by all nodes: one time per key, changed under its row lock."""

from collections.abc import Collection, Mapping
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
_read = Statement(
    "select key, next_at from rates where key {any:keys}",
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
    grants = {key: take(*_given(wanted[key], next_at), at) for key, next_at in lock(conn, wanted, at).items()}
    save(conn, {key: grant.next_at for key, grant in grants.items()})
    return grants


def lock(conn: Connection, keys: Collection[str], at: datetime) -> dict[str, datetime]:
    """The states of these rates, locked in the order of their keys; a rate that was never used starts now."""
    if not keys:
        return {}
    _add.run(conn, [(key, at) for key in sorted(keys)])
    return {row.key: row.next_at for row in _locked.run(conn, keys=list(keys))}


def save(conn: Connection, states: Mapping[str, datetime]) -> None:
    """Write the states of locked rates."""
    if states:
        _update.run(conn, sorted(states.items()))


def read(conn: Connection, keys: Collection[str]) -> dict[str, datetime]:
    """The states of these rates, for a forecast."""
    return {row.key: row.next_at for row in _read.run(conn, keys=list(keys))} if keys else {}


def _given(wanted: tuple[Rate, int], next_at: datetime) -> tuple[Rate, datetime, int]:
    rate, count = wanted
    return rate, next_at, count
