"""The audit log: append-only, written in the transaction of the change."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert

from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.schema.audit_tables import audit
from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus


class NotificationEntry(NamedTuple):
    """An entry about a notification; provenance and target are copied from its row."""

    event_id: str
    notification_id: str
    occurred_at: datetime | None
    """None: when the row was created."""
    kind: AuditKind
    status: AuditStatus
    actor: str | None
    """None: the script that sent it."""
    duration_ms: int | None = None
    error: str | None = None
    response: str | None = None
    request: str | None = None


_ROWS: Mapping[str, ParameterKind] = {
    "event_id": "id",
    "notification_id": "id",
    "occurred_at": "moment",
    "kind": "text",
    "status": "text",
    "actor": "text",
    "duration_ms": "int",
    "error": "text",
    "response": "text",
    "request": "text",
}

_add = Statement(
    """
    insert into audit (event_id, occurred_at, ingested_at, correlation_id, execution_id, parent_execution_id, channel,
        kind, status, source_site_id, source_node, source_instance_id, source_script, actor, target, duration_ms,
        error_message, response_summary, request_summary, bulk_action_id)
    select u.event_id, coalesce(u.occurred_at, n.created_at), coalesce(u.occurred_at, n.created_at), n.notification_id,
        n.origin_execution_id, n.origin_parent_execution_id, 'notification', u.kind, u.status, n.source_site_id, :node,
        n.source_instance_id, n.source_script, coalesce(u.actor, n.source_script, n.source_site_id), n.list_name,
        u.duration_ms, u.error, u.response, u.request, :bulk_action_id
    from {rows} join notifications n on n.notification_id = u.notification_id
    """,
    rows=_ROWS,
)


def add_for_notifications(
    conn: Connection, node: str | None, entries: Sequence[NotificationEntry], bulk_action_id: str | None = None
) -> None:
    """Append entries about notifications that have a row."""
    if entries:
        _add.run(conn, entries, node=node, bulk_action_id=bulk_action_id)


def add(conn: Connection, entries: Sequence[AuditEntry]) -> None:
    """Append entries about anything else: conflicts, changes of lists, channels, sites."""
    if entries:
        conn.execute(insert(audit), [_row(entry) for entry in entries])


def of_notification(conn: Connection, notification_id: str) -> list[AuditEntry]:
    """The entries of one notification, oldest first."""
    found = conn.execute(
        audit.select().where(audit.c.correlation_id == notification_id).order_by(audit.c.occurred_at, audit.c.event_id)
    )
    return [to_entry(dict(row)) for row in found.mappings()]


def to_entry(row: dict[str, Any]) -> AuditEntry:
    """Convert a row to an entry."""
    row.pop("ingested_at", None)
    row.pop("sequence", None)
    return AuditEntry(
        **row
        | {
            "kind": AuditKind(row["kind"]),
            "status": AuditStatus(row["status"]),
            "channel": AuditChannel(row["channel"]),
        }
    )


def _row(entry: AuditEntry) -> dict[str, Any]:
    row = {name: getattr(entry, name) for name in AuditEntry.__dataclass_fields__}
    return row | {
        "kind": entry.kind.value,
        "status": entry.status.value,
        "channel": entry.channel.value,
        "ingested_at": entry.occurred_at,
    }
