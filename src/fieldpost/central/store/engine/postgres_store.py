"""The store on PostgreSQL, shared by any number of central nodes.

Each function is its own transaction. A transient failure (`failures.is_transient`) is retried here. A commit is neither
cancelled nor acknowledged before the synchronous standby has it: see `commits`.

A node may freeze between a statement and its COMMIT: a paused virtual machine, a full swap. Its row locks would then
last as long as the pause, and no other node could take over its lead or its claims. So the server ends a session that
is idle in a transaction, or cannot be reached, for longer than the shortest lease, and no statement waits longer than
that for a lock. When the frozen node wakes up, its transaction is gone and runs again, under the leases of that time.
"""

import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from sqlalchemy import event
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from fieldpost.central.store.engine.commits import Deadline, StandbyConnection, commit, run_and_commit
from fieldpost.central.store.engine.failures import (
    first_line,
    hide_values,
    is_read_only,
    is_transient,
    recorded,
    translated,
)
from fieldpost.central.store.engine.postgres_servers import PostgresServers
from fieldpost.central.store.engine.store import P, T, Transaction
from fieldpost.central.store.engine.wake import PostgresWake, Wake
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import Unavailable

log = structlog.get_logger()

TRIES_MAX = 5
LEASE_S = 15.0
ANSWER_S = 90.0
"""How long a transaction may take, its commit included, before the node drops the connection."""

_SETTINGS = {"synchronous_commit": "on", "timezone": "UTC", "application_name": "fieldpost", "jit": "off"}
"""Commits are durable even if the server's default says otherwise."""
_PLANNING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "max_parallel_workers_per_gather": "0",
}
"""Every statement of the store finds its rows by an index, so one plan, made once, fits tables of any size. With the
defaults the planner would plan each claim, which costs more than the claim, or keep a plan from when a table was small
that scans all of it once it has grown; and starting a parallel worker takes longer than any statement here."""


def postgres_engine(
    servers: PostgresServers, lease_s: float = LEASE_S, answer_s: float = ANSWER_S, **options: Any
) -> AsyncEngine:
    """An engine for the statements of the store."""
    settings = _SETTINGS | _PLANNING | _timeouts(lease_s, answer_s)
    # Without `command_timeout`: the driver would cancel a COMMIT as well. The server limits statements only.
    engine = _engine(servers, {"server_settings": settings, "connection_class": StandbyConnection}, **options)

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.driver_connection.watch_commits()

    @event.listens_for(engine.sync_engine, "checkin")
    def check(connection: Any, record: Any) -> None:
        # A BEGIN that SQLAlchemy did not note, as when memory runs out just after it, is not rolled back either.
        if connection is not None and connection.driver_connection.was_left_in_transaction:
            log.warning("store.connection_left_in_transaction")
            record.invalidate()

    return engine


def postgres_engine_for_migrations(url: URL) -> AsyncEngine:
    """An engine for work on whole tables: with PostgreSQL's own plans and without timeouts."""
    return _engine(PostgresServers(url), {"server_settings": _SETTINGS})


def _engine(servers: PostgresServers, connecting: dict[str, Any], **options: Any) -> AsyncEngine:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=partial(servers.connect, **connecting),
        hide_parameters=True,
        **options,
    )
    hide_values(engine.sync_engine)
    if not servers.is_single:
        event.listen(engine.sync_engine, "handle_error", _leave_if_read_only)
    return engine


def _leave_if_read_only(context: ExceptionContext) -> None:
    """Drop all connections of the pool to a former primary that accepts no writes any more: another server may."""
    if is_read_only(context.original_exception):
        context.is_disconnect = True


def _timeouts(lease_s: float, answer_s: float) -> dict[str, str]:
    """Limits of a session, so that a frozen or vanished node keeps its locks no longer than its leases. What they miss
    is ended by other nodes (`stuck_sessions`)."""
    lease_ms = str(max(round(lease_s * 1000), 1))
    keepalive_s = str(max(round(lease_s / 3), 1))
    return {
        "idle_in_transaction_session_timeout": lease_ms,
        "lock_timeout": lease_ms,
        # Ends before a commit begins to wait for the standby, also for a statement that commits on its own.
        "statement_timeout": str(max(round(answer_s * 1000 * 2 / 3), 1)),
        # A client whose machine is gone: unacknowledged data counts, and probes while there is none.
        "tcp_user_timeout": lease_ms,
        "tcp_keepalives_idle": keepalive_s,
        "tcp_keepalives_interval": keepalive_s,
        "tcp_keepalives_count": "2",
    }


class PostgresStore:
    """The store of one node: a pool of connections."""

    def __init__(
        self,
        url: URL,
        clock: Clock | None,
        *,
        connections_max: int = 10,
        wait_s: float = 10.0,
        lease_s: float = LEASE_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.url = url.render_as_string()
        self._clock = clock
        self._answer_s = answer_s
        servers = PostgresServers(url)
        self._engine = postgres_engine(
            servers, lease_s, answer_s, pool_size=connections_max, max_overflow=0, pool_timeout=wait_s
        )
        # The same connections, with each statement committed on its own.
        self._committing = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self.wake: Wake = PostgresWake(servers)
        self.last_failure: Unavailable | None = None

    def now(self) -> datetime | None:
        return self._clock.now() if self._clock else None

    async def write(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async def work(conn: AsyncConnection) -> T:
            result = await conn.run_sync(function, *args, **kwargs)
            await commit(conn)
            return result

        with recorded(self):
            return await self._run(work)

    async def write_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        # Without BEGIN and COMMIT: two round trips fewer.
        with recorded(self):
            return await self._run(lambda conn: run_and_commit(conn, function, *args, **kwargs), self._committing)

    async def confirm(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write(function, *args, **kwargs)

    async def read(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async def work(conn: AsyncConnection) -> T:
            await conn.execution_options(postgresql_readonly=True)
            return await conn.run_sync(function, *args, **kwargs)

        return await self._run(work)

    async def read_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda conn: conn.run_sync(function, *args, **kwargs), self._committing)

    def log_bytes(self) -> None:
        return None

    async def close(self) -> None:
        await self.wake.close()
        await self._engine.dispose()

    async def _run(self, work: Callable[[AsyncConnection], Awaitable[T]], engine: AsyncEngine | None = None) -> T:
        for tries in range(1, TRIES_MAX + 1):
            deadline = Deadline(self._answer_s)
            try:
                async with (engine or self._engine).connect() as conn:
                    with deadline.of(conn):
                        return await work(conn)
            except (DBAPIError, PoolTimeout, OSError) as error:
                if deadline.has_passed:
                    raise translated(TimeoutError(f"no answer within {self._answer_s:g} s")) from error
                if not is_transient(error) or tries == TRIES_MAX:
                    raise translated(error) from error
                log.warning("store.tried_again", error=first_line(error), tries=tries)
                await SystemClock().sleep(random.uniform(0.5, 1.0) * 0.05 * 2**tries)
        raise AssertionError("unreachable")
