"""The audit log, and bulk actions with their rows."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.schema.base import metadata, partial_index

IS_ACTION = "kind not in ('notify_send', 'notify_deliver')"
IS_FAILURE = "status in ('failed', 'parked', 'discarded', 'skipped')"

audit = Table(
    "audit",
    metadata,
    # The order of insertion, never reused: the seals refer to entries by it.
    Column("sequence", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True),
    Column("event_id", Id, nullable=False),
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
    UniqueConstraint("event_id"),
    sqlite_autoincrement=True,
)

audit_seals = Table(
    "audit_seals",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("sealed_at", Moment, nullable=False),
    Column("previous", LargeBinary, nullable=False),
    Column("purged_to", Moment),
    Column("count", Integer, nullable=False),
    Column("low", BigInteger, nullable=False),  # the lowest number sealed by this batch
    Column("high", BigInteger, nullable=False),  # the highest number sealed by this batch or an earlier one
    Column("entries", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("gaps", Json, nullable=False),  # numbers that may still commit late; of interest in the newest batch only
    Index("ix_audit_seals_low", "low"),
    Index("ix_audit_seals_sealed_at", "sealed_at"),
)

audit_purges = Table(
    "audit_purges",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row
    Column("purged_to", Moment),
    Column("is_purging", Boolean, nullable=False, server_default=text("false")),  # SQLite: allows DELETE
    CheckConstraint("id = 1", "one"),
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
