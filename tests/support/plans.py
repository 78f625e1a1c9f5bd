"""How a database goes about a statement, and how much it reads for it: told by the database itself.

The statements are those that the store really runs, caught on their way; no test repeats one.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, event

from fieldpost.central.store.engine.store import Store
from fieldpost.core.errors import Unavailable

STEPS = 1000
"""SQLite's virtual machine is asked after so many of its steps."""


def plans_of(conn: Connection, work: Callable[[Connection], Any], table: str = "notifications") -> list[str]:
    """The plan of each statement on this table that the work runs, as text."""
    caught: list[tuple[str, Any]] = []

    def catch(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if table in statement:
            caught.append((statement, parameters))

    event.listen(conn, "before_cursor_execute", catch)
    try:
        work(conn)
    finally:
        event.remove(conn, "before_cursor_execute", catch)
    assert caught, f"the work runs no statement on {table}"
    explain = _explain_sqlite if conn.dialect.name == "sqlite" else _explain_postgresql
    return [explain(conn, *one) for one in caught]


def _explain_sqlite(conn: Connection, statement: str, parameters: Any) -> str:
    rows = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    return "\n".join(str(row[-1]) for row in rows)


def _explain_postgresql(conn: Connection, statement: str, parameters: Any) -> str:
    """The plan that is kept for any parameters, as the store's connections keep it."""
    nulls = ", ".join("null" for _ in parameters)
    conn.exec_driver_sql(f"PREPARE looked_at AS {statement}")
    rows = conn.exec_driver_sql(f"EXPLAIN EXECUTE looked_at{f'({nulls})' if nulls else ''}").fetchall()
    conn.exec_driver_sql("DEALLOCATE looked_at")
    return "\n".join(str(row[0]) for row in rows)


def reads_of(conn: Connection, work: Callable[[Connection], Any]) -> int:
    """How much the database looks at for this work: rows of `notifications` on PostgreSQL, thousands of steps of its
    virtual machine on SQLite. The same number on every machine, however loaded."""
    return _steps_of(conn, work) if conn.dialect.name == "sqlite" else _rows_of(conn, work)


def _rows_of(conn: Connection, work: Callable[[Connection], Any]) -> int:
    def read() -> int:
        found = conn.exec_driver_sql(
            "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables"
            " where relname = 'notifications'"
        )
        return int(found.scalar_one())

    before = read()
    work(conn)
    return read() - before


def _steps_of(conn: Connection, work: Callable[[Connection], Any]) -> int:
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    connection: Any = conn.connection.dbapi_connection
    connection.set_progress_handler(tick, STEPS)
    try:
        work(conn)
    finally:
        connection.set_progress_handler(None, 0)
    return count


class MeasuredStore:
    """A store as it is, which notes of every function how often it ran and how much the database looked at for it."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.wake = store.wake
        self.last_failure: Unavailable | None = None
        self.calls: Counter[str] = Counter()
        self.reads_max: Counter[str] = Counter()
        """The most that one call of it read."""
        self._store = store

    def now(self) -> datetime | None:
        return self._store.now()

    async def write(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._store.write(self._measured(function), *args, **kwargs)

    async def read(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._store.read(self._measured(function), *args, **kwargs)

    # In a transaction: the database counts reads per transaction.
    write_one = write
    read_one = read

    async def close(self) -> None:
        await self._store.close()

    def _measured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(conn: Connection, *args: Any, **kwargs: Any) -> Any:
            results = []
            reads = reads_of(conn, lambda conn: results.append(function(conn, *args, **kwargs)))
            self.calls[function.__name__] += 1
            self.reads_max[function.__name__] = max(self.reads_max[function.__name__], reads)
            return results[0]

        return measured


def fill(
    conn: Connection, list_name: str, count: int, *, held_by: str | None = None, delivery_key: str | None = None
) -> None:
    """So many due rows of one list, or of the subscription with this delivery key, by one statement."""
    sql = _FILL_SQLITE if conn.dialect.name == "sqlite" else _FILL_POSTGRESQL
    held = f"'{held_by}', 'down'" if held_by else "null, null"
    key, type_ = (delivery_key, "webhook") if delivery_key else (f"list:{list_name}", "email")
    conn.exec_driver_sql(sql.format(name=list_name, count=count, held=held, key=key, type=type_))


_COLUMNS = """
    notification_id, type, list_name, subject, body, status, source_site_id, delivery_key, digest, created_at, due_at,
    cycle_started_at, held_by, held_reason
"""
_FILL_POSTGRESQL = f"""
    insert into notifications ({_COLUMNS})
    select gen_random_uuid(), '{{type}}', '{{name}}', 'Pump 3 stopped', 'No flow.', 'pending', 'plant-7', '{{key}}',
        'x', at, at, at, {{held}}
    from (select n, timestamptz '2025-12-31 00:00:00Z' + n * interval '1 millisecond' as at
          from generate_series(1, {{count}}) n) numbers
"""
_FILL_SQLITE = f"""
    insert into notifications ({_COLUMNS})
    with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {{count}})
    select lower(printf('%s-%s-7%s-8%s-%s', hex(randomblob(4)), hex(randomblob(2)), substr(hex(randomblob(2)), 2),
        substr(hex(randomblob(2)), 2), hex(randomblob(6)))), '{{type}}', '{{name}}', 'Pump 3 stopped', 'No flow.',
        'pending', 'plant-7', '{{key}}', 'x', 1767139200000000 + n, 1767139200000000 + n, 1767139200000000 + n,
        {{held}}
    from numbers
"""
