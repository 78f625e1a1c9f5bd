"""`outbox`: events added to an application's transaction, on each kind of connection; the relay (`outbox_relay`).

Reference: a plain INSERT of the same row on the same connection, with an id and a JSON text that the application makes.
Both write transactions of 500 rows and commit them.
"""

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.harness import Report, Stopwatch, compare
from bench.outbox_relay import run_relay
from bench.stores import Stores
from fieldpost.outbox import Outbox

from support.mariadb import MariadbServer  # isort: skip  (bench.stores adds tests/ to the path)
from support.need import NEEDS  # isort: skip
from support.outbox_kinds import KINDS, MARIADB, SQLITE, AsyncKind, Kind  # isort: skip

ROWS = 500
PAYLOAD = {"service": 7, "group": "plant", "message": "Service 7 has not answered since 12:00", "checks": [3, 3, 2]}
COLUMNS = (
    "event_outbox_id, event_type, payload, action, resource, attributes, correlation_id, order_key, status, retries"
)
NAMES = [
    *("sqlite3", "psycopg", "psycopg-async", "pymysql", "asyncpg", "core-sqlite", "core-psycopg", "core-pymysql"),
    *("orm-psycopg", "core-asyncpg", "orm-asyncpg", "django-sqlite", "django-postgresql", "django-mariadb"),
]


async def run(report: Report, stores: Stores, quick: bool) -> None:
    with ExitStack() as stack:
        mariadb = stack.enter_context(MariadbServer(durable=True)) if NEEDS["mariadb"]() is None else None
        for name in NAMES:
            make, database = KINDS[name]
            if database != MARIADB:
                url = await stores.url("sqlite" if database == SQLITE else "postgresql")
            elif mariadb is not None:
                url = stack.enter_context(mariadb.fresh())
            else:
                continue
            kind = await asyncio.to_thread(make, url)
            await asyncio.to_thread(_create_tables, kind)
            ours, reference = (_in_thread(kind, is_ours) for is_ours in (True, False))
            notes = f"transactions of {ROWS}; reference: a plain INSERT"
            report.add(await compare(f"outbox add, {name}", ours, reference, 3 if quick else 9, "rows/s", notes))
            await asyncio.to_thread(kind.close)
    await run_relay(report, stores, quick)


def _in_thread(kind: Kind, is_ours: bool) -> Callable[[], Any]:
    return lambda: asyncio.to_thread(_round, kind, is_ours)


def _create_tables(kind: Kind) -> None:
    with kind.transaction() as connection:
        kind.create_tables(connection)


def _round(kind: Kind, is_ours: bool) -> float:
    watch = Stopwatch()
    with kind.transaction() as connection:
        if isinstance(kind, AsyncKind):
            kind.runner.run(_add_async(connection) if is_ours else _insert_async(connection))
        elif is_ours:
            for _ in range(ROWS):
                Outbox.add(connection, "SERVICE_DOWN", PAYLOAD)
        else:
            insert = _plain(connection)
            for _ in range(ROWS):
                insert(*_row())
    return watch.rate(ROWS)


async def _add_async(connection: Any) -> None:
    for _ in range(ROWS):
        await Outbox.add_async(connection, "SERVICE_DOWN", PAYLOAD)


async def _insert_async(connection: Any) -> None:
    insert = _plain(connection)
    for _ in range(ROWS):
        await insert(*_row())


def _row() -> tuple[Any, ...]:
    return str(uuid.uuid4()), "SERVICE_DOWN", json.dumps(PAYLOAD), None, None, None, None, None, "PENDING", 0


def _plain(connection: Any) -> Callable[..., Any]:
    """How an application inserts a row with this library."""
    package = type(connection).__module__.partition(".")[0]
    names = COLUMNS.split(", ")
    if package == "sqlalchemy":
        from sqlalchemy import text

        statement = text(f"insert into event_outbox ({COLUMNS}) values (:{', :'.join(names)})")
        return lambda *row: connection.execute(statement, dict(zip(names, row, strict=True)))
    if package == "asyncpg":
        places = ", ".join(f"${number}" for number in range(1, len(names) + 1))
        return lambda *row: connection.execute(f"insert into event_outbox ({COLUMNS}) values ({places})", *row)
    place = "?" if package == "sqlite3" else "%s"
    statement = f"insert into event_outbox ({COLUMNS}) values ({', '.join([place] * len(names))})"
    if package in ("sqlite3", "psycopg"):
        return lambda *row: connection.execute(statement, row)
    if package == "builtins":
        from django.db import connections

        connection = connections[connection]

    def insert(*row: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, row)

    return insert
