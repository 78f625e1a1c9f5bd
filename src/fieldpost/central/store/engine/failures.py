"""Failures of the database: retried, reported as Unavailable, or bugs.

Transient failures end without our doing: a deadlock, a restart, a lost connection, a cancelled statement. PostgreSQL's
are retried, since every function of the store is safe to run twice. Other failures of the database (a full disk, too
many connections) become Unavailable. All others are bugs and are raised unchanged.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import asyncpg
import structlog
from sqlalchemy import event
from sqlalchemy.engine import Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fieldpost.central.store.engine.store import Store
from fieldpost.core.errors import Unavailable

log = structlog.get_logger()

# Serialization failure, deadlock, cancelled statement, lock timeout, terminated session (by an administrator, a crash,
# a shutdown or the idle-in-transaction timeout).
_TRANSIENT = {"40001", "40P01", "57014", "55P03", "57P01", "57P02", "57P03", "25P03"}
# Read-only, disk full, out of memory, too many connections.
_UNAVAILABLE: set[str | int | None] = {"25006", "53100", "53200", "53300"}
# SQLite's: busy, locked, out of memory, read-only, I/O error, corrupt, full, cannot open.
_UNAVAILABLE |= {5, 6, 7, 8, 10, 11, 13, 14}

# PostgreSQL quotes a value that it cannot parse, the driver one that it cannot encode.
_QUOTED = re.compile(r"((?:invalid input for query argument|invalid input syntax for type) [$\w ]+):.*", re.DOTALL)


@contextmanager
def recorded(store: Store) -> Iterator[None]:
    """Around a write: keep in `store.last_failure` whether the database was available."""
    try:
        yield
    except Unavailable as error:
        store.last_failure = error
        raise
    store.last_failure = None


@contextmanager
def logged(event: str, level: Literal["warning", "error"] = "warning", **details: str) -> Iterator[None]:
    """Around one turn of a loop: log its failure, at this level if the store is unavailable, and continue."""
    try:
        yield
    except Unavailable as error:
        getattr(log, level)(f"{event}.failed", error=error.message, **details)
    except Exception:
        log.exception(f"{event}.faulted", **details)


def hide_values(engine: Engine) -> None:
    """Remove values from the messages of this engine's errors, since errors are logged.

    `hide_parameters` covers only the parameters that SQLAlchemy itself would print.
    """

    @event.listens_for(engine, "handle_error")
    def hide(context: ExceptionContext) -> None:
        for error in (context.sqlalchemy_exception, context.original_exception):
            if error is not None:
                error.args = tuple(_QUOTED.sub(r"\1", one) if isinstance(one, str) else one for one in error.args)


def is_transient(error: Exception) -> bool:
    """Whether the same transaction may succeed a moment later."""
    if isinstance(error, DBAPIError):
        # Class 08: the connection was lost. While it is being made, only the code shows that.
        state = _sqlstate(error) or ""
        return error.connection_invalidated or state in _TRANSIENT or state.startswith("08") or _is_driver_lost(error)
    return isinstance(error, OSError)


def is_duplicate_key(error: DBAPIError) -> bool:
    """Whether another transaction on PostgreSQL stored a row with the same key."""
    return _sqlstate(error) == "23505"


def is_read_only(error: BaseException) -> bool:
    """Whether the driver failed because the PostgreSQL server accepts no writes."""
    return getattr(error, "sqlstate", None) == "25006"


def translated(error: Exception) -> Exception:
    """Unavailable for failures of the database; bugs are returned unchanged."""
    if isinstance(error, DBAPIError):
        codes = {_sqlstate(error), _sqlite_code(error)}
        return _unavailable(error) if is_transient(error) or codes & _UNAVAILABLE else error
    return _unavailable(error) if isinstance(error, PoolTimeout | OSError) else error


def first_line(error: Exception) -> str:
    """The first line of the driver's message."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(cause).strip().splitlines()[0][:300] if str(cause).strip() else type(cause).__name__


def _is_driver_lost(error: DBAPIError) -> bool:
    """Whether the driver failed internally, as it does when a connection ends while it is being made."""
    cause = error.orig.__cause__ if error.orig is not None else None
    return isinstance(cause, asyncpg.InternalClientError)


def _sqlite_code(error: DBAPIError) -> int | None:
    code = getattr(error.orig, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF  # the primary code, without the extension


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(
        "store.unavailable",
        f"the central store is unavailable: {first_line(error)}",
        hint="nothing was lost: senders keep their messages and retry",
    )
