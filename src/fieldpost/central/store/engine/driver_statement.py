"""A statement that runs on the driver's cursor.

SQLAlchemy's own execution looks up the compiled statement, builds a context, a result and the description of its
columns for every execution: about as much work as the driver does for it, and several times as much for a wide result.
Here all of that is made once. The connection, its transactions, its pool and its errors stay SQLAlchemy's: a failure
goes through the same handler, which drops lost connections and translates the driver's exceptions.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from sqlalchemy import Connection, Row, TextClause
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.types import TypeEngine, to_instance

ColumnTypes = Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]]


class DriverStatement:
    """One statement for one database."""

    def __init__(self, clause: TextClause, conn: Connection, types: ColumnTypes) -> None:
        compiled: Any = clause.compile(dialect=conn.dialect)
        self.clause = clause
        self._sql: str = compiled.string
        self._names: tuple[str, ...] = tuple(compiled.positiontup or ())
        self._types = types
        self._columns: SimpleResultMetaData | None = None

    def run(self, conn: Connection, params: Mapping[str, Any]) -> Iterator[Row[Any]]:
        """Execute the statement at once; the rows that it returns, read as they are taken."""
        args = tuple([params[name] for name in self._names])
        if not conn.in_transaction():
            conn.begin()
        cursor: Any = conn.connection.cursor()
        try:
            cursor.execute(self._sql, args)
        except BaseException as error:
            self._fail(conn, error, args, cursor)
        if cursor.description is None:
            cursor.close()
            return iter(())
        return self._rows(conn, args, cursor)

    def _rows(self, conn: Connection, args: tuple[Any, ...], cursor: Any) -> Iterator[Row[Any]]:
        columns = self._columns
        if columns is None:
            columns = self._columns = self._describe(conn, cursor)
        processors, index = columns._effective_processors, columns._key_to_index
        try:
            for data in cursor:
                yield Row(columns, processors, index, data)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(conn, error, args, cursor)
        finally:
            cursor.close()

    def _describe(self, conn: Connection, cursor: Any) -> SimpleResultMetaData:
        names = [column[0] for column in cursor.description]
        processors = [
            to_instance(self._types[name]).dialect_impl(conn.dialect).result_processor(conn.dialect, code)
            if name in self._types
            else None
            for name, code, *_ in cursor.description
        ]
        return SimpleResultMetaData(names, _processors=processors)

    def _fail(self, conn: Connection, error: BaseException, args: tuple[Any, ...], cursor: Any) -> NoReturn:
        sql = self._sql if isinstance(error, conn.dialect.loaded_dbapi.Error) else None
        conn._handle_dbapi_exception(error, sql, args, cursor, None)
