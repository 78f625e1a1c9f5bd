"""The one INSERT of the outbox, for each database and style of placeholders.

Created, updated and due times come from the database's clock at the statement itself, because transactions begin and
commit in any order. On PostgreSQL every value travels as text: an application may have registered its own codecs for
`json` or `uuid`, and an existing table may have other types (`jsonb`, `text`).
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from fieldpost.core.events.outbox import OutboxEvent, OutboxStatus
from fieldpost.outbox.connections import SqlDialect
from fieldpost.outbox.ddl import NOW
from fieldpost.outbox.tables import OUTBOX, OutboxDatabase

_COLUMNS = (
    *("event_outbox_id", "event_type", "payload", "action", "resource"),
    *("attributes", "correlation_id", "order_key"),
)
_CASTS = {"event_outbox_id": "uuid", "payload": "json", "attributes": "json"}
_AFTER = {
    OutboxDatabase.POSTGRESQL: "clock_timestamp() + make_interval(secs => cast({} as double precision))",
    OutboxDatabase.SQLITE: "strftime('%Y-%m-%d %H:%M:%f000', 'now', {})",
    OutboxDatabase.MARIADB: "utc_timestamp(6) + interval {} microsecond",
}
_AT = {
    OutboxDatabase.POSTGRESQL: "cast(cast({} as text) as timestamptz)",
    OutboxDatabase.SQLITE: "{}",
    OutboxDatabase.MARIADB: "{}",
}


def insert_of(event_id: str, event: OutboxEvent, dialect: SqlDialect) -> tuple[str, tuple[Any, ...]]:
    """The statement and its values."""
    values = (
        *(event_id, event.event_type, event.payload, event.action, event.resource),
        *(event.attributes, event.correlation_id, event.order_key),
    )
    match event.deliver_after:
        case None:
            return _statement(dialect, ""), values
        case timedelta() as wait:
            return _statement(dialect, "after"), (*values, _wait(wait, dialect.database))
        case datetime() as moment:
            zone = "+00" if dialect.database is OutboxDatabase.POSTGRESQL else ""
            return _statement(dialect, "at"), (*values, f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}{zone}")


def _wait(wait: timedelta, database: OutboxDatabase) -> float | int | str:
    match database:
        case OutboxDatabase.POSTGRESQL:
            return wait.total_seconds()
        case OutboxDatabase.SQLITE:
            return f"+{wait.total_seconds():.6f} seconds"
        case OutboxDatabase.MARIADB:
            return wait // timedelta(microseconds=1)


@lru_cache(maxsize=32)
def _statement(dialect: SqlDialect, due: str) -> str:
    database, style = dialect
    now, places = NOW[database], [_value(dialect, at, name) for at, name in enumerate(_COLUMNS, 1)]
    last = f"${len(_COLUMNS) + 1}" if style == "$" else style
    match due:
        case "after":
            due_at = _AFTER[database]
        case "at":
            due_at = _AT[database]
        case _:
            due_at = now
    if style == "%s":
        now, due_at = now.replace("%", "%%"), due_at.replace("%", "%%")
    names = ", ".join((*_COLUMNS, "status", "retries", "created_at", "updated_at", "due_at"))
    values = ", ".join((*places, f"'{OutboxStatus.PENDING}'", "0", now, now, due_at.format(last)))
    return f"insert into {OUTBOX} ({names}) values ({values})"


def _value(dialect: SqlDialect, at: int, name: str) -> str:
    place = f"${at}" if dialect.style == "$" else dialect.style
    if dialect.database is not OutboxDatabase.POSTGRESQL:
        return place
    text = f"cast({place} as text)"
    return f"cast({text} as {_CASTS[name]})" if name in _CASTS else text
