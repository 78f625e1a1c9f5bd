"""Versions of what nodes cache: one number for each kind of thing, counted up by every change.

A node compares the number with the one it cached under, by one small query, instead of reading everything again.
"""

from sqlalchemy import BigInteger, Connection

from fieldpost.central.store.engine.statement import Statement

EVENTS = "events"
"""Subscriptions and topics, as publishing uses them."""
PATHS = "paths"
"""Lists, channels and subscriptions, as the dispatcher uses them."""

_version = Statement(
    "select coalesce((select version from catalogues where name = :name), 0) as version", result={"version": BigInteger}
)
_count = Statement(
    """
    insert into catalogues (name, version) values (:name, 1)
    on conflict (name) do update set version = catalogues.version + 1
    """
)


def version_of(conn: Connection, name: str) -> int:
    """The number of changes so far."""
    return int(_version.run(conn, name=name)[0].version)


def count_change(conn: Connection, name: str) -> None:
    """Count a change, in the transaction that makes it."""
    _count.run(conn, name=name)
