"""Commits on PostgreSQL that wait for the synchronous standby.

Theory of operation. With `synchronous_standby_names`, COMMIT returns when the standby has the transaction. If the wait
is cancelled (by a timeout of the client, a cancelled task or an administrator), PostgreSQL keeps the transaction: it is
committed and visible here, but a failover to the standby loses it. A repeated request would find its rows, write
nothing, wait for nobody and be acknowledged. Four rules prevent an ack for rows that the standby does not have:

- A transaction that changed nothing writes an empty WAL message before its COMMIT. The standby receives WAL in order,
  so the commit waits for all rows that the transaction has read.
- A commit is never cancelled. A caller that stops waiting drops the connection instead, which does not end the wait at
  the server, and treats the outcome as unknown.
- If somebody else cancels the wait, the server reports success with a warning. The commit is then followed by another
  one, with an empty message, which waits in its place.
- After a commit the server must be outside of a transaction, also on a connection that commits each statement; so must
  a connection that returns to the pool, which is dropped otherwise (`postgres_store`).

Without a standby the empty message costs a flush of the log, and only in transactions that changed nothing.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection

from fieldpost.central.store.engine.store import P, T, Transaction

_MESSAGE = "select pg_logical_emit_message(true, 'fieldpost', '')"
_MESSAGE_IF_UNCHANGED = f"{_MESSAGE} where pg_current_xact_id_if_assigned() is null"


class StandbyConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection whose COMMIT waits for the standby even if the transaction changed nothing."""

    was_wait_cancelled = False
    """Whether a commit was reported as successful without the standby."""

    @property
    def was_left_in_transaction(self) -> bool:
        """Whether the server is in a transaction, to be asked where SQLAlchemy has none."""
        return not self.is_closed() and bool(self.is_in_transaction())

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        # In one round trip with the COMMIT that the driver's transactions send.
        if query == "COMMIT;":
            query = f"{_MESSAGE_IF_UNCHANGED}; {query}"
        return cast(str, await super().execute(query, *args, timeout=timeout))

    def watch_commits(self) -> None:
        """Notice the server's warnings about cancelled waits."""
        self.add_log_listener(_note_cancelled_wait)


def _note_cancelled_wait(connection: StandbyConnection, message: Any) -> None:
    # By the name of the server's function: the warning has no code, and its text may be translated.
    if message.server_source_function == "SyncRepWaitForLSN":
        connection.was_wait_cancelled = True


async def commit(conn: AsyncConnection) -> None:
    """Commit; returns when the standby has all that the transaction wrote and read."""
    await _uncancelled(conn, _commit(conn))


async def run_and_commit(conn: AsyncConnection, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a single statement that commits on its own; returns when the standby has all that it wrote."""

    async def run() -> T:
        result = await conn.run_sync(function, *args, **kwargs)
        await _commit(conn)
        return result

    return await _uncancelled(conn, run())


class Deadline:
    """Drops the connection of a transaction that gets no answer in time."""

    def __init__(self, seconds: float) -> None:
        self.has_passed = False
        self._seconds = seconds

    @contextmanager
    def of(self, conn: AsyncConnection) -> Iterator[None]:
        driver = _driver(conn)

        def drop() -> None:
            self.has_passed = True
            driver.terminate()

        timer = asyncio.get_running_loop().call_later(self._seconds, drop)
        try:
            yield
        finally:
            timer.cancel()


async def _commit(conn: AsyncConnection) -> None:
    driver = _driver(conn)
    await conn.commit()
    if driver.was_left_in_transaction:
        # A BEGIN that SQLAlchemy did not note, as when memory runs out just after it: nothing is committed.
        driver.terminate()
        raise ConnectionResetError("the connection was left in a transaction")
    while driver.was_wait_cancelled:
        driver.was_wait_cancelled = False
        await conn.exec_driver_sql(_MESSAGE)
        await conn.commit()


async def _uncancelled(conn: AsyncConnection, work: Coroutine[Any, Any, T]) -> T:
    """Await the work; if the caller is cancelled, drop the connection, since the driver would cancel the commit."""
    driver = _driver(conn)
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        driver.terminate()
        with suppress(Exception):
            await task
        raise


def _driver(conn: AsyncConnection) -> StandbyConnection:
    assert conn.sync_connection is not None
    return cast(StandbyConnection, conn.sync_connection.connection.driver_connection)
