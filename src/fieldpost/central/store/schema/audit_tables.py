"""The audit log, and bulk actions with their rows."""

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, text

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.schema.base import metadata, partial_index

IS_ACTION = "kind not in ('notify_send', 'notify_deliver')"
IS_FAILURE = "status in ('failed', 'parked', 'discarded', 'skipped')"

audit = Table(
    "audit",
    metadata,
    Column("event_id", Id, primary_key=True),
    Column("occurred_at", Moment, nullable=False),
    Column("ingested_at", Moment, nullable=False),
    Column("correlation_id", Id),
    Column("execution_id", Text),
    Column("parent_execution_id", Text),
    Column("channel", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("source_site_id", Text),
    Column("source_node", Text),
    Column("source_instance_id", Text),
    Column("source_script", Text),
    Column("actor", Text, nullable=False),
    Column("target", Text),
    Column("duration_ms", BigInteger),
    Column("error_message", Text),
    Column("request_summary", Text),
    Column("response_summary", Text),
    Column("extra", Json),
    Column("bulk_action_id", Id),
    CheckConstraint("channel in ('api_outbound', 'db_outbound', 'notification', 'api_inbound')", "channel"),
    CheckConstraint(
        "kind in ('api_call', 'api_call_cached', 'db_write', 'db_write_cached', 'notify_send', 'notify_deliver',"
        " 'inbound_request', 'inbound_auth_failure', 'cached_submit', 'cached_resolve', 'operator_action')",
        "kind",
    ),
    CheckConstraint(
        "status in ('submitted', 'forwarded', 'attempted', 'delivered', 'failed', 'parked', 'discarded', 'skipped')",
        "status",
    ),
    Index("ix_audit_correlation_id", "correlation_id"),
    Index("ix_audit_occurred_at", "occurred_at"),
    # Most entries are about successful deliveries. People search for the rare others: small partial indexes find those,
    # and cost a delivery nothing.
    Index("ix_audit_site", "source_site_id", "occurred_at"),
    partial_index("ix_audit_action", "occurred_at", where=IS_ACTION),
    partial_index("ix_audit_action_actor", "actor", "occurred_at", where=IS_ACTION),
    partial_index("ix_audit_action_target", "target", "occurred_at", where=IS_ACTION),
    partial_index("ix_audit_failure", "occurred_at", where=IS_FAILURE),
)

bulk_actions = Table(
    "bulk_actions",
    metadata,
    Column("action_id", Id, primary_key=True),
    Column("verb", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("wanted", Json),  # the filter's fields; null for an action on a selection
    Column("as_of", Moment, nullable=False),
    Column("in_stages", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", Moment, nullable=False),
    Column("status", Text, nullable=False),
    Column("stage", Integer, nullable=False, server_default="0"),
    Column("total", Integer, nullable=False, server_default="0"),
    Column("done", Integer, nullable=False, server_default="0"),
    Column("conflicts", Integer, nullable=False, server_default="0"),
    Column("gone", Integer, nullable=False, server_default="0"),
    Column("note", Text),
    Column("halting_error_key", Text),
    Column("ended_at", Moment),
    Column("due_at", Moment),  # time of its next step; null once it has ended
    Column("gathered_to_at", Moment),
    Column("gathered_to_id", Id),
    CheckConstraint("verb in ('retry', 'discard')", "verb"),
    CheckConstraint("status in ('gathering', 'running', 'finished', 'cancelled', 'halted')", "status"),
    CheckConstraint("length(reason) > 0", "reason"),
    CheckConstraint("done >= 0 and conflicts >= 0 and gone >= 0 and done + conflicts + gone <= total", "counts"),
    CheckConstraint("(status in ('gathering', 'running')) = (ended_at is null)", "ended"),
    CheckConstraint("(ended_at is null) = (due_at is not null)", "due"),
    partial_index("ix_bulk_actions_due", "due_at", where="ended_at is null"),
    Index("ix_bulk_actions_created_at", "created_at"),
)

bulk_action_rows = Table(
    "bulk_action_rows",
    metadata,
    Column("action_id", Id, ForeignKey("bulk_actions.action_id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),  # 1, 2, 3, …: the order of processing
    Column("notification_id", Id, nullable=False),  # no foreign key: the row outlives a purged notification
    Column("version", BigInteger),  # null if the notification did not exist
    Column("error_key", Text),
    Column("outcome", Text),
    Column("current_status", Text),
    Column("settled_at", Moment),
    CheckConstraint("outcome in ('done', 'conflict', 'gone')", "outcome"),
    CheckConstraint("(outcome is null) = (settled_at is null)", "settled"),
    sqlite_with_rowid=False,
)
