"""Audit entries: append-only records of what changed, when and by whom, written in the transaction of the change."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

SYSTEM = "system"


class AuditChannel(StrEnum):
    API_OUTBOUND = "api_outbound"
    DB_OUTBOUND = "db_outbound"
    NOTIFICATION = "notification"
    API_INBOUND = "api_inbound"


class AuditKind(StrEnum):
    API_CALL = "api_call"
    API_CALL_CACHED = "api_call_cached"
    DB_WRITE = "db_write"
    DB_WRITE_CACHED = "db_write_cached"
    NOTIFY_SEND = "notify_send"
    NOTIFY_DELIVER = "notify_deliver"
    INBOUND_REQUEST = "inbound_request"
    INBOUND_AUTH_FAILURE = "inbound_auth_failure"
    CACHED_SUBMIT = "cached_submit"
    CACHED_RESOLVE = "cached_resolve"
    OPERATOR_ACTION = "operator_action"


class AuditStatus(StrEnum):
    SUBMITTED = "submitted"
    FORWARDED = "forwarded"
    ATTEMPTED = "attempted"
    DELIVERED = "delivered"
    FAILED = "failed"
    PARKED = "parked"
    DISCARDED = "discarded"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry of the audit log; `correlation_id` is the notification's id if it concerns one."""

    event_id: str
    occurred_at: datetime
    kind: AuditKind
    status: AuditStatus
    actor: str
    channel: AuditChannel = AuditChannel.NOTIFICATION
    correlation_id: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None
    source_site_id: str | None = None
    source_node: str | None = None
    source_instance_id: str | None = None
    source_script: str | None = None
    target: str | None = None
    duration_ms: int | None = None
    error_message: str | None = None
    request_summary: str | None = None
    response_summary: str | None = None
    extra: dict[str, object] | None = None
    bulk_action_id: str | None = None
    """The bulk action that changed the notification."""
