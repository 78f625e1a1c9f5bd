"""Conversion of table rows to core values."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row

from fieldpost.central.store.schema.notification_tables import notifications
from fieldpost.core.notification import Notification, Provenance, Severity, Status, Summary, Target, TargetStatus

NOTIFICATION_COLUMNS = (
    "notification_id, type, list_name, subject, body, status, retry_count, last_error, source_site_id,"
    " source_instance_id, source_script, origin_execution_id, origin_parent_execution_id, site_enqueued_at,"
    " site_enqueued_text, created_at, last_attempt_at, next_attempt_at, delivered_at, terminal_at, due_at,"
    " delivery_key, held_by, held_reason, cycle, cycle_started_at, version, event_id, is_draft, whole_id, whole_list,"
    " severity, incident, is_cleared"
)
NOTIFICATION_TYPES = {name: notifications.c[name].type for name in NOTIFICATION_COLUMNS.replace(" ", "").split(",")}
_STATUSES = {status.value: status for status in Status}
_COLUMN_COUNT = len(NOTIFICATION_TYPES)
SUMMARY_TYPES = {name: type_ for name, type_ in NOTIFICATION_TYPES.items() if name != "body"}
SUMMARY_COLUMNS = ", ".join(SUMMARY_TYPES)


def notification(row: Row[Any], targets: Iterable[Target] = ()) -> Notification:
    """The row starts with NOTIFICATION_COLUMNS, read by position: a claim converts thousands of rows per second."""
    (
        notification_id,
        type_,
        list_name,
        subject,
        body,
        status,
        retry_count,
        last_error,
        site,
        instance,
        script,
        execution_id,
        parent_execution_id,
        site_enqueued_at,
        site_enqueued_text,
        created_at,
        last_attempt_at,
        next_attempt_at,
        delivered_at,
        terminal_at,
        due_at,
        delivery_key,
        held_by,
        held_reason,
        cycle,
        cycle_started_at,
        version,
        event_id,
        is_draft,
        whole_id,
        whole_list,
        severity,
        incident,
        is_cleared,
    ) = row[:_COLUMN_COUNT]
    return Notification(
        notification_id=notification_id,
        type=type_,
        list_name=list_name,
        subject=subject,
        body=body,
        provenance=Provenance(site, instance, script, execution_id, parent_execution_id),
        status=_STATUSES[status],
        delivery_key=delivery_key,
        created_at=created_at,
        due_at=due_at,
        cycle_started_at=cycle_started_at,
        cycle=cycle,
        version=version,
        retry_count=retry_count,
        last_error=last_error,
        last_attempt_at=last_attempt_at,
        next_attempt_at=next_attempt_at,
        delivered_at=delivered_at,
        terminal_at=terminal_at,
        held_by=held_by,
        held_reason=held_reason,
        site_enqueued_at=site_enqueued_at,
        site_enqueued_text=site_enqueued_text,
        event_id=event_id,
        is_draft=bool(is_draft),
        whole_id=whole_id,
        whole_list=whole_list,
        severity=None if severity is None else Severity(severity),
        incident=incident,
        is_cleared=bool(is_cleared),
        targets=tuple(targets),
    )


def summary(row: Row[Any]) -> Summary:
    """The row holds SUMMARY_COLUMNS."""
    given = {name: getattr(row, name) for name in _SUMMARY_FIELDS}
    given["status"] = Status(row.status)
    given["severity"] = None if row.severity is None else Severity(row.severity)
    return Summary(
        **given,
        provenance=Provenance(
            row.source_site_id,
            row.source_instance_id,
            row.source_script,
            row.origin_execution_id,
            row.origin_parent_execution_id,
        ),
    )


_SUMMARY_FIELDS = [name for name in Summary.__dataclass_fields__ if name in SUMMARY_TYPES]


def target(row: Row[Any]) -> Target:
    status = TargetStatus(row.status)
    accepted_at = row.settled_at if status is TargetStatus.ACCEPTED else None
    return Target(row.address, status, row.error, row.truncated_to, row.provider_id, accepted_at)
