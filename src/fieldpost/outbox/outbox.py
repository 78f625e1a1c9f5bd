"""`Outbox`: events written in the transaction that changes the data."""

import logging
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from fieldpost.clock import SystemClock
from fieldpost.core.events.outbox import OutboxEvent, check_outbox_event
from fieldpost.core.ids import ENTROPY_BYTES, precise_id
from fieldpost.outbox.connections import async_driver_of, driver_of, explained
from fieldpost.outbox.ddl import changes
from fieldpost.outbox.insert import insert_of
from fieldpost.outbox.schema_queries import COLUMNS_QUERY, columns_by_table

_log = logging.getLogger("fieldpost.outbox")
_clock = SystemClock()


class Outbox:
    """The transactional outbox: add an event to the transaction that changes your data.

        with engine.begin() as connection:
            connection.execute(insert(orders).values(id=7, total=120))
            Outbox.add(connection, "ORDER_PLACED", {"order": 7, "total": 120})

    If the transaction commits, the relay (`fieldpost relay`) publishes the event to central, however long central is
    away; if it rolls back, the event never existed. There is nothing to construct, to close or to configure.

    A connection is one of these:

    - SQLAlchemy 2: `Connection`, `Session`, `AsyncConnection`, `AsyncSession`, also scoped sessions
    - DB-API: connections of psycopg 3, sqlite3 and PyMySQL
    - asyncpg: a connection, also from a pool
    - Django: the alias of a database, such as `"default"`, or its connection
    """

    @staticmethod
    def add(
        connection: Any,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        action: str | None = None,
        resource: str | None = None,
        attributes: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        order_key: str | None = None,
        deliver_after: datetime | timedelta | None = None,
    ) -> str:
        """Write an event into the caller's transaction and return its id, which is also its id at central.

        One INSERT on the given connection: no commit, no flush of other work, no thread, no network.

        Args:
            connection: where your transaction is open; see the class for the kinds.
            event_type: the name of the topic at central, at most 100 characters: `SERVICE_DOWN`.
            payload: a JSON object of at most 256 KiB. Templates and webhooks read it.
            action: what happened to the resource: `create`.
            resource: the subject of the event, such as a URL or a name.
            attributes: values by which routes and subscriptions filter.
            correlation_id: an id that connects this event with others, such as the one of a request.
            order_key: events of one key are published one after another, in the order of their INSERTs. Their
                deliveries have no order.
            deliver_after: publish the event later: a datetime with a time zone, or a timedelta from now by the
                database's clock.

        Raises:
            InvalidInput: an argument is invalid, or this is not a connection; `field` names the argument.
            Conflict: the connection is closed (`outbox.closed`), its transaction has failed
                (`outbox.failed_transaction`) or ended (`outbox.ended_transaction`), or it would commit the event on its
                own (`outbox.autocommit`).
            ConfigError: the table is missing (`outbox.no_table`); create it with `create_tables`.

        Nothing is written when one of these is raised. Other errors of the database pass through.
        """
        event_id, event = _prepare(
            event_type, payload, action, resource, attributes, correlation_id, order_key, deliver_after
        )
        driver = driver_of(connection)
        connection = driver.resolve(connection)
        driver.check(connection)
        statement, values = insert_of(event_id, event, driver.dialect(connection))
        try:
            driver.execute(connection, statement, values)
        except Exception as error:
            if (known := explained(error)) is not None:
                raise known from error
            raise
        _log.debug("event.added event_id=%s event_type=%s", event_id, event_type)
        return event_id

    @staticmethod
    async def add_async(
        connection: Any,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        action: str | None = None,
        resource: str | None = None,
        attributes: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        order_key: str | None = None,
        deliver_after: datetime | timedelta | None = None,
    ) -> str:
        """The same as `add`, for connections of asyncpg, asynchronous psycopg and SQLAlchemy's asyncio."""
        event_id, event = _prepare(
            event_type, payload, action, resource, attributes, correlation_id, order_key, deliver_after
        )
        driver = async_driver_of(connection)
        connection = await driver.resolve(connection)
        await driver.check(connection)
        statement, values = insert_of(event_id, event, driver.dialect(connection))
        try:
            await driver.execute(connection, statement, values)
        except Exception as error:
            if (known := explained(error)) is not None:
                raise known from error
            raise
        _log.debug("event.added event_id=%s event_type=%s", event_id, event_type)
        return event_id

    @staticmethod
    def create_tables(connection: Any) -> list[str]:
        """Create the tables of the outbox, or add missing columns and indexes; return the executed statements.

        An existing `event_outbox` with the columns of EVT-12 is extended; its own columns stay as they are. Commit
        afterwards. MariaDB commits implicitly at each of these statements: do not call it inside a transaction there.

        Raises Conflict (`outbox.table`) if another table has the name of one of these.
        """
        driver = driver_of(connection)
        connection = driver.resolve(connection)
        database = driver.dialect(connection).database
        statements = changes(database, columns_by_table(driver.query(connection, COLUMNS_QUERY[database])))
        for statement in statements:
            driver.execute(connection, statement)
        return statements

    @staticmethod
    async def create_tables_async(connection: Any) -> list[str]:
        """The same as `create_tables`, for asynchronous connections."""
        driver = async_driver_of(connection)
        connection = await driver.resolve(connection)
        database = driver.dialect(connection).database
        statements = changes(database, columns_by_table(await driver.query(connection, COLUMNS_QUERY[database])))
        for statement in statements:
            await driver.execute(connection, statement)
        return statements


def _prepare(
    event_type: str,
    payload: Mapping[str, Any],
    action: str | None,
    resource: str | None,
    attributes: Mapping[str, str] | None,
    correlation_id: str | None,
    order_key: str | None,
    deliver_after: datetime | timedelta | None,
) -> tuple[str, OutboxEvent]:
    now = _clock.now()
    event = check_outbox_event(
        event_type, payload, action, resource, attributes, correlation_id, order_key, deliver_after, now
    )
    return precise_id(now, os.urandom(ENTROPY_BYTES)), event
