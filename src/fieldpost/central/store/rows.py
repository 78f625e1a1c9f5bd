"""Table rows to core values: the one place that knows both."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row

from fieldpost.central.store.tables import notifications
from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import Notification, Provenance, Status, Target, TargetStatus

NOTIFICATION_COLUMNS = (
    "notification_id, type, list_name, subject, body, status, retry_count, last_error, source_site_id,"
    " source_instance_id, source_script, origin_execution_id, origin_parent_execution_id, site_enqueued_at,"
    " site_enqueued_text, created_at, last_attempt_at, next_attempt_at, delivered_at, terminal_at, due_at,"
    " delivery_key, held_by, held_reason, cycle, cycle_started_at, version"
)
NOTIFICATION_TYPES = {name: notifications.c[name].type for name in NOTIFICATION_COLUMNS.replace(" ", "").split(",")}


def notification(row: Row[Any], targets: Iterable[Target] = ()) -> Notification:
    return Notification(
        notification_id=NotificationId(row.notification_id),
        type=row.type,
        list_name=row.list_name,
        subject=row.subject,
        body=row.body,
        provenance=Provenance(
            row.source_site_id,
            row.source_instance_id,
            row.source_script,
            row.origin_execution_id,
            row.origin_parent_execution_id,
        ),
        status=Status(row.status),
        delivery_key=row.delivery_key,
        created_at=row.created_at,
        due_at=row.due_at,
        cycle_started_at=row.cycle_started_at,
        cycle=row.cycle,
        version=row.version,
        retry_count=row.retry_count,
        last_error=row.last_error,
        last_attempt_at=row.last_attempt_at,
        next_attempt_at=row.next_attempt_at,
        delivered_at=row.delivered_at,
        terminal_at=row.terminal_at,
        held_by=row.held_by,
        held_reason=row.held_reason,
        site_enqueued_at=row.site_enqueued_at,
        site_enqueued_text=row.site_enqueued_text,
        targets=tuple(targets),
    )


def target(row: Row[Any]) -> Target:
    return Target(row.address, TargetStatus(row.status), row.error)
