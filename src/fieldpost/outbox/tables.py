"""The tables in an application's database, declared once; `ddl.py` writes them for each database.

A column that is not among `required` can be added to an existing table: it is nullable or has a constant default.
Times are in UTC: `timestamptz` on PostgreSQL, `datetime(6)` on MariaDB, on SQLite the text `YYYY-MM-DD HH:MM:SS.ffffff`
that SQLAlchemy and Django read and that sorts with the one of CURRENT_TIMESTAMP.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from fieldpost.core.events.outbox import CLAIMABLE, EVENT_TYPE_LENGTH_MAX, OutboxStatus
from fieldpost.core.text import LABEL_BYTES_MAX

OUTBOX = "event_outbox"
HISTORY = "notification_history"
TASKS = "background_tasks"
HEALTH_LOG = "system_health_logs"


class OutboxDatabase(StrEnum):
    """The kinds of database that can hold an outbox."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"
    MARIADB = "mariadb"


class ColumnType(Enum):
    """The meaning of a column, from which its SQL type follows."""

    ID = auto()
    """A UUID."""
    STRING = auto()
    """A text of limited length."""
    TEXT = auto()
    JSON = auto()
    """A JSON text, kept as it was written."""
    INTEGER = auto()
    TOKEN = auto()
    """A 64-bit integer."""
    TIME = auto()


class ColumnDefault(Enum):
    """A default that each database spells differently."""

    NEW_ID = auto()
    NOW = auto()
    """The database's clock at the INSERT itself, not at the start of its transaction."""
    EPOCH = auto()
    """1970-01-01: due at once. A constant, because SQLite adds only columns with constant defaults."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: ColumnType
    length: int = 0
    """Characters of a STRING."""
    default: ColumnDefault | str | int | None = None
    is_nullable: bool = True


@dataclass(frozen=True, slots=True)
class TableIndex:
    name: str
    columns: tuple[str, ...]
    where: str = ""
    """The rows of a partial index."""
    mariadb: tuple[str, ...] = ()
    """Its columns on MariaDB, which has no partial indexes."""


@dataclass(frozen=True, slots=True)
class OutboxTable:
    name: str
    columns: tuple[TableColumn, ...]
    """The first one is the primary key."""
    required: frozenset[str]
    """Columns that an existing table must have; the others are added to it."""
    indexes: tuple[TableIndex, ...]


def _id(name: str, default: ColumnDefault | None = None, *, is_nullable: bool = False) -> TableColumn:
    return TableColumn(name, ColumnType.ID, default=default, is_nullable=is_nullable)


def _string(name: str, length: int = LABEL_BYTES_MAX, default: str | None = None) -> TableColumn:
    return TableColumn(name, ColumnType.STRING, length, default, is_nullable=default is None)


def _time(name: str, default: ColumnDefault | None = None) -> TableColumn:
    return TableColumn(name, ColumnType.TIME, default=default, is_nullable=default is None)


def _number(name: str, type: ColumnType = ColumnType.INTEGER) -> TableColumn:
    return TableColumn(name, type, default=0, is_nullable=False)


def _text(name: str) -> TableColumn:
    return TableColumn(name, ColumnType.TEXT)


# The conditions of partial indexes. SQLite uses such an index only for a query that contains its condition verbatim.
IS_UNPUBLISHED = f"published_at is null and status in ({', '.join(repr(status.value) for status in CLAIMABLE)})"
IS_OPEN = f"status <> '{OutboxStatus.SENT}'"
IS_SENT = f"status = '{OutboxStatus.SENT}'"

EVENT_OUTBOX = OutboxTable(
    OUTBOX,
    (
        _id("event_outbox_id", ColumnDefault.NEW_ID),
        TableColumn("event_type", ColumnType.STRING, EVENT_TYPE_LENGTH_MAX, is_nullable=False),
        TableColumn("payload", ColumnType.JSON, is_nullable=False),
        _string("status", 20, OutboxStatus.PENDING.value),
        _number("retries"),
        _time("last_attempt_at"),
        _time("created_at", ColumnDefault.NOW),
        _time("updated_at", ColumnDefault.NOW),
        _string("action"),
        _string("resource"),
        TableColumn("attributes", ColumnType.JSON),
        _string("correlation_id"),
        _string("order_key"),
        _time("due_at", ColumnDefault.EPOCH),
        _time("published_at"),
        _text("last_error"),
        _string("claim_owner"),
        _number("claim_token", ColumnType.TOKEN),
        _time("lease_until"),
    ),
    required=frozenset(
        ("event_outbox_id", "event_type", "payload", "status", "retries", "last_attempt_at", "created_at", "updated_at")
    ),
    indexes=(
        # EVT-13. Rows that are followed, and counts of open rows.
        TableIndex(
            "ix_event_outbox_status",
            ("status", "published_at"),
            IS_OPEN,
            mariadb=("status", "published_at", "due_at"),
        ),
        # Claims: only unpublished rows. On MariaDB the index above serves them.
        TableIndex("ix_event_outbox_due", ("due_at", "event_outbox_id"), IS_UNPUBLISHED),
        # Is an earlier row of the same order key still open?
        TableIndex(
            "ix_event_outbox_order",
            ("order_key", "created_at", "event_outbox_id"),
            f"order_key is not null and {IS_UNPUBLISHED}",
            mariadb=("status", "order_key", "created_at"),
        ),
        # The purge of SENT rows.
        TableIndex("ix_event_outbox_sent", ("updated_at",), IS_SENT, mariadb=("status", "updated_at")),
    ),
)

NOTIFICATION_HISTORY = OutboxTable(
    HISTORY,
    (
        # Derived from event, notification, target and cycle, so that a result reported twice is one row.
        _id("notification_history_id", ColumnDefault.NEW_ID),
        _id("event_outbox_id", is_nullable=True),
        _string("event_type", EVENT_TYPE_LENGTH_MAX),
        _id("notification_id", is_nullable=True),
        TableColumn("cycle", ColumnType.INTEGER),
        _string("service"),
        _string("group_name"),
        _string("member"),
        _string("channel"),
        _text("recipient"),
        _text("subject"),
        _text("message"),
        _string("status", 20),
        _time("sent_at"),
        _text("error"),
        _time("recorded_at"),
    ),
    required=frozenset(("notification_history_id",)),
    indexes=(
        TableIndex("ix_notification_history_event", ("event_outbox_id",)),
        TableIndex("ix_notification_history_recorded", ("recorded_at",)),
    ),
)

BACKGROUND_TASKS = OutboxTable(
    TASKS,
    (
        TableColumn("task_name", ColumnType.STRING, LABEL_BYTES_MAX, is_nullable=False),
        _string("task_type", 100),
        _string("status", 20),
        _time("last_run_at"),
        _time("next_run_at"),
        _text("error"),
        _time("updated_at"),
    ),
    required=frozenset(("task_name",)),
    indexes=(),
)

SYSTEM_HEALTH_LOGS = OutboxTable(
    HEALTH_LOG,
    (
        _id("system_health_log_id", ColumnDefault.NEW_ID),
        _string("component"),
        _string("status", 20),
        _text("message"),
        _time("last_checked_at"),
    ),
    required=frozenset(("system_health_log_id",)),
    indexes=(TableIndex("ix_system_health_logs_checked", ("last_checked_at",)),),
)

TABLES = (EVENT_OUTBOX, NOTIFICATION_HISTORY, BACKGROUND_TASKS, SYSTEM_HEALTH_LOGS)
