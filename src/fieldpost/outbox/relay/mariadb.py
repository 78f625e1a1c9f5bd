"""The relay's connection to MariaDB, over PyMySQL in its own thread, at READ COMMITTED.

The server ends a transaction that is idle for `IDLE_S`, so that a relay frozen inside one does not keep its rows.
"""

import math
from contextlib import suppress
from typing import Any, TypeVar

from fieldpost.outbox.relay.database import (
    IDLE_S,
    DatabaseTarget,
    HintEvent,
    SqlResult,
    SqlStep,
    TransactionMaker,
    TransientFault,
    WorkerThread,
    drive,
    missing_driver,
    refuse_column,
    try_again,
    unavailable,
)
from fieldpost.outbox.tables import OutboxDatabase

T = TypeVar("T")
CONNECT_S = 5
COMMAND_S = 30
PORT = 3306

# Deadlock, lock wait, too many connections, shutdown, killed, read-only, connection errors of the client.
_TRANSIENT = (1040, 1053, 1205, 1213, 1290, 1317, 1836, 1927, 2002, 2003, 2006, 2013, 2014)
_MISSING = (1146, 1054)


class MariadbOutbox:
    """One connection to a MariaDB database."""

    kind = OutboxDatabase.MARIADB

    def __init__(self, target: DatabaseTarget, *, idle_s: float = IDLE_S) -> None:
        try:
            import pymysql
        except ImportError:
            raise missing_driver("PyMySQL", "relay-mariadb") from None
        self._pymysql: Any = pymysql
        self._target = target
        self._idle_s = math.ceil(idle_s)
        self._thread = WorkerThread("fieldpost-relay-mariadb")
        self._connection: Any = None
        self._hint = HintEvent()

    async def run(self, make: TransactionMaker[T], *, is_read: bool = False) -> T:
        return await try_again(lambda: self._thread.run(lambda: self._attempt(make)))

    async def wait_for_hint(self, seconds: float) -> None:
        await self._hint.wait(seconds)

    def wake(self) -> None:
        self._hint.set()

    async def close(self) -> None:
        def close() -> None:
            if self._connection is not None:
                with suppress(Exception):
                    self._connection.close()

        await self._thread.run(close)
        self._thread.close()

    def _attempt(self, make: TransactionMaker[T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.begin()
            try:
                result = drive(make(), self._execute)
                self._connection.commit()
            except BaseException:
                with suppress(Exception):
                    self._connection.rollback()
                raise
            return result
        except (self._pymysql.Error, OSError) as error:
            raise self._classified(error) from error

    def _execute(self, step: SqlStep) -> SqlResult:
        with self._connection.cursor() as cursor:
            count = cursor.execute(step.sql.text, {name: step.parameters[name] for name in step.sql.names})
            return SqlResult(cursor.fetchall() if cursor.description else [], count)

    def _connect(self) -> Any:
        target = self._target
        place = {"unix_socket": target.host} if target.host.startswith("/") else {"host": target.host or "localhost"}
        return self._pymysql.connect(
            **place,
            port=target.port or PORT,
            user=target.user or None,
            password=target.password,
            database=target.path,
            charset="utf8mb4",
            connect_timeout=CONNECT_S,
            read_timeout=COMMAND_S,
            write_timeout=COMMAND_S,
            autocommit=False,
            # So that the number of changed rows is that of matched ones.
            client_flag=self._pymysql.constants.CLIENT.FOUND_ROWS,
            init_command="set session tx_isolation = 'READ-COMMITTED', session idle_transaction_timeout = "
            f"{self._idle_s}",
        )

    def _classified(self, error: Exception) -> Exception:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if code in _MISSING:
            refuse_column(error)
        if isinstance(error, (OSError, self._pymysql.InterfaceError)) or code >= 2000 or code in _TRANSIENT:
            if code not in (1205, 1213):
                with suppress(Exception):
                    self._connection.close()
                self._connection = None
            return TransientFault(str(error))
        return unavailable(error)
