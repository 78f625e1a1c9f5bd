"""The relay's connection to PostgreSQL, over asyncpg.

Statements have no names and run in explicit transactions, so a transaction pooler in between is harmless. A second
connection listens for hints; behind a pooler it receives none, and polling finds the rows.

The server ends a transaction that is idle for `IDLE_S`, so that a relay frozen inside one does not keep its rows from
the other relays. The limit is set with BEGIN, because a pooler refuses it as a parameter of the connection.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, TypeVar

from fieldpost.core.errors import ConfigError
from fieldpost.outbox.relay.database import (
    IDLE_S,
    DatabaseTarget,
    HintEvent,
    SqlResult,
    SqlStep,
    TransactionMaker,
    TransientFault,
    missing_driver,
    refuse_column,
    try_again,
    unavailable,
)
from fieldpost.outbox.tables import OUTBOX, OutboxDatabase
from fieldpost.system_error import reason_of

log = logging.getLogger("fieldpost.relay")

T = TypeVar("T")
CONNECT_S = 5.0
COMMAND_S = 30.0
CHANNEL = OUTBOX
"""The channel of NOTIFY on which new rows are announced."""

# Classes of SQLSTATE after which the transaction, or its connection, is gone and the same work may succeed.
_TRANSIENT = ("08", "25P02", "25P03", "40", "53", "55P03", "57", "58", "XX")
_MISSING = ("42P01", "42703")


class PostgresqlOutbox:
    """One connection for the work and one for hints."""

    kind = OutboxDatabase.POSTGRESQL

    def __init__(self, target: DatabaseTarget, *, listen: bool = True, idle_s: float = IDLE_S) -> None:
        try:
            import asyncpg
        except ImportError:
            raise missing_driver("asyncpg", "relay-postgresql") from None
        self._asyncpg = asyncpg
        # The last one appears on a connection whose backend was terminated while it was idle.
        self._errors = (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            OSError,
            TimeoutError,
            asyncpg.InternalClientError,
        )
        self._target = target
        self._listen = listen
        limit = f"SET LOCAL idle_in_transaction_session_timeout = {round(idle_s * 1000)}"
        self._begin = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {limit}"
        self._begin_read = f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {limit}"
        self._lock = asyncio.Lock()
        self._connection: Any = None
        self._listener: Any = None
        self._hint = HintEvent()

    async def run(self, make: TransactionMaker[T], *, is_read: bool = False) -> T:
        async with self._lock:
            return await try_again(lambda: self._attempt(make, is_read))

    async def wait_for_hint(self, seconds: float) -> None:
        if self._listen and (self._listener is None or self._listener.is_closed()):
            await self._start_listening()
        await self._hint.wait(seconds)

    def wake(self) -> None:
        self._hint.set()

    async def close(self) -> None:
        for connection in (self._connection, self._listener):
            if connection is not None:
                with suppress(Exception):
                    await connection.close(timeout=2)

    async def _attempt(self, make: TransactionMaker[T], is_read: bool) -> T:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            await self._connection.execute(self._begin_read if is_read else self._begin)
            try:
                result = await self._drive(make)
                await self._connection.execute("COMMIT;")
            except BaseException:
                await self._roll_back()
                raise
            return result
        except self._errors as error:
            raise self._classified(error) from error

    async def _roll_back(self) -> None:
        """End the failed transaction; if that fails, close the connection."""
        connection, self._connection = self._connection, None
        try:
            await connection.execute("ROLLBACK;", timeout=CONNECT_S)
            self._connection = connection
        except self._errors:
            connection.terminate()

    async def _drive(self, make: TransactionMaker[T]) -> T:
        transaction = make()
        try:
            step = next(transaction)
            while True:
                step = transaction.send(await self._execute(step))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _execute(self, step: SqlStep) -> SqlResult:
        values = [step.parameters[name] for name in step.sql.names]
        text = step.sql.text
        if "returning" in text or text.lstrip().startswith("select"):
            rows = await self._connection.fetch(text, *values)
            return SqlResult([tuple(row) for row in rows], len(rows))
        status: str = await self._connection.execute(text, *values)
        return SqlResult([], int(status.rpartition(" ")[2]))

    def _classified(self, error: Exception) -> Exception:
        state = getattr(error, "sqlstate", None) or ""
        if state.startswith(_MISSING):
            refuse_column(error)
        is_lost = not isinstance(error, self._asyncpg.PostgresError) or state.startswith(("08", "57", "25P03"))
        if is_lost and self._connection is not None:
            # The state of the connection is unknown; the next attempt opens a new one.
            self._connection.terminate()
            self._connection = None
        if is_lost or state.startswith(_TRANSIENT):
            return TransientFault(reason_of(error))
        return unavailable(error)

    async def _connect(self) -> Any:
        try:
            return await self._asyncpg.connect(
                self._target.url, timeout=CONNECT_S, command_timeout=COMMAND_S, statement_cache_size=0
            )
        except ValueError as error:
            raise ConfigError("settings.database", f"relay.database: {error}", field="relay.database") from None

    async def _start_listening(self) -> None:
        try:
            self._listener = await self._connect()
            await self._listener.add_listener(CHANNEL, lambda *_: self._hint.set())
        except self._errors as error:
            log.info("relay.no_hint reason=%s", error)
            self._listener = None
