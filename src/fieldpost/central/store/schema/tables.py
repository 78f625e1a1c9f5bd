"""The whole present schema. A test proves that the migrations lead exactly here.

The CHECK constraints repeat the invariants that `core.lifecycle` keeps, so that no statement, ours or a visitor's, can
write a state the rules do not know. A claim is not a status: its columns stand beside the status, and taking one
changes no indexed column, which keeps it cheap on PostgreSQL (a HOT update).
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.schema import account_tables, site_tables
from fieldpost.central.store.schema.naming import metadata

# Accounts, and the tables that sites fill, have modules of their own, imported here so that the catalogue is whole.
__all__ = ["account_tables", "metadata", "site_tables"]

IS_CLAIMABLE = "due_at is not null and held_by is null"
IS_HELD = "held_by is not null"
IS_SUSPECT = "due_at is not null and orphan_count > 0"
IS_UNDELIVERED = "status <> 'delivered'"
IS_TERMINAL = "terminal_at is not null"
IS_WAITING = "due_at is not null"
IS_ACTION = "kind not in ('notify_send', 'notify_deliver')"
IS_FAILURE = "status in ('failed', 'parked', 'discarded', 'skipped')"

notifications = Table(
    "notifications",
    metadata,
    Column("notification_id", Id, primary_key=True),
    Column("type", Text, nullable=False),
    Column("list_name", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("type_data", Json),
    Column("status", Text, nullable=False),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Column("source_site_id", Text, nullable=False),
    Column("source_instance_id", Text),
    Column("source_script", Text),
    Column("origin_execution_id", Text),
    Column("origin_parent_execution_id", Text),
    Column("site_enqueued_at", Moment),
    Column("site_enqueued_text", Text),  # what the site wrote, where it is no time
    Column("created_at", Moment, nullable=False),
    Column("last_attempt_at", Moment),
    Column("next_attempt_at", Moment),
    Column("delivered_at", Moment),
    Column("terminal_at", Moment),
    Column("due_at", Moment),
    Column("delivery_key", Text, nullable=False),
    Column("held_by", Text),
    Column("held_reason", Text),
    Column("claim_owner", Text),
    Column("claim_token", BigInteger, nullable=False, server_default="0"),
    Column("lease_until", Moment),
    Column("orphan_count", Integer, nullable=False, server_default="0"),
    Column("cycle", Integer, nullable=False, server_default="1"),
    Column("cycle_started_at", Moment, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("digest", LargeBinary, nullable=False),
    CheckConstraint("status in ('pending', 'retrying', 'delivered', 'parked', 'discarded')", "status"),
    CheckConstraint("retry_count >= 0 and cycle >= 1 and version >= 1 and orphan_count >= 0", "counts"),
    CheckConstraint("(status = 'retrying') = (next_attempt_at is not null)", "next_attempt"),
    CheckConstraint("(status in ('pending', 'retrying')) = (due_at is not null)", "due"),
    CheckConstraint("(status in ('pending', 'retrying')) = (terminal_at is null)", "terminal"),
    CheckConstraint("(status = 'delivered') = (delivered_at is not null)", "delivered"),
    CheckConstraint("status not in ('parked', 'retrying') or length(last_error) > 0", "error"),
    CheckConstraint("held_by is null or status in ('pending', 'retrying')", "held"),
    CheckConstraint("(claim_owner is null) = (lease_until is null)", "claim"),
    CheckConstraint("claim_owner is null or status in ('pending', 'retrying')", "claim_live"),
    Index(
        "ix_notifications_claim",
        "status",
        "delivery_key",
        "due_at",
        postgresql_where=text(IS_CLAIMABLE),
        sqlite_where=text(IS_CLAIMABLE),
    ),
    Index("ix_notifications_held", "held_by", "due_at", postgresql_where=text(IS_HELD), sqlite_where=text(IS_HELD)),
    Index(
        "ix_notifications_held_since", "cycle_started_at", postgresql_where=text(IS_HELD), sqlite_where=text(IS_HELD)
    ),
    Index("ix_notifications_suspect", "due_at", postgresql_where=text(IS_SUSPECT), sqlite_where=text(IS_SUSPECT)),
    Index("ix_notifications_created", "created_at", "notification_id"),
    Index(
        "ix_notifications_undelivered",
        "status",
        "created_at",
        "notification_id",
        "source_site_id",
        postgresql_where=text(IS_UNDELIVERED),
        sqlite_where=text(IS_UNDELIVERED),
    ),
    # By site, so that what waits is counted as it lies and never sorted.
    Index(
        "ix_notifications_waiting",
        "source_site_id",
        "created_at",
        "due_at",
        postgresql_where=text(IS_WAITING),
        sqlite_where=text(IS_WAITING),
    ),
    Index(
        "ix_notifications_terminal",
        "terminal_at",
        "status",
        "source_site_id",
        postgresql_where=text(IS_TERMINAL),
        sqlite_where=text(IS_TERMINAL),
    ),
    postgresql_with={"fillfactor": "80"},
)

targets = Table(
    "targets",
    metadata,
    Column("notification_id", Id, ForeignKey("notifications.notification_id", ondelete="CASCADE"), primary_key=True),
    Column("address", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("settled_at", Moment),
    CheckConstraint("status in ('due', 'delivered', 'failed')", "status"),
    CheckConstraint("status <> 'failed' or length(error) > 0", "error"),
    postgresql_with={"fillfactor": "60"},
)

attempts = Table(
    "attempts",
    metadata,
    Column("notification_id", Id, ForeignKey("notifications.notification_id", ondelete="CASCADE"), primary_key=True),
    Column("claim_token", BigInteger, primary_key=True),
    Column("cycle", Integer, nullable=False),
    Column("node_id", Text, nullable=False),
    Column("is_lone", Boolean, nullable=False, server_default=text("false")),
    Column("started_at", Moment, nullable=False),
    Column("finished_at", Moment),
    Column("outcome", Text),
    Column("phase", Text),
    Column("reply", Text),
    Column("error", Text),
    Column("duration_ms", BigInteger),
    CheckConstraint(
        "outcome in ('delivered', 'transient_failure', 'permanent_failure', 'uncertain', 'held', 'released')",
        "outcome",
    ),
    CheckConstraint("(finished_at is null) = (outcome is null)", "finished"),
    postgresql_with={"fillfactor": "60"},
)

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
    # Most entries tell of deliveries that went well. What people look for is rare, and has small indexes of its own,
    # which cost a delivery nothing; by its site every entry is found.
    Index("ix_audit_site", "source_site_id", "occurred_at"),
    Index("ix_audit_action", "occurred_at", postgresql_where=text(IS_ACTION), sqlite_where=text(IS_ACTION)),
    Index(
        "ix_audit_action_actor", "actor", "occurred_at", postgresql_where=text(IS_ACTION), sqlite_where=text(IS_ACTION)
    ),
    Index(
        "ix_audit_action_target",
        "target",
        "occurred_at",
        postgresql_where=text(IS_ACTION),
        sqlite_where=text(IS_ACTION),
    ),
    Index("ix_audit_failure", "occurred_at", postgresql_where=text(IS_FAILURE), sqlite_where=text(IS_FAILURE)),
)

breakers = Table(
    "breakers",
    metadata,
    Column("key", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("first_failure_at", Moment),
    Column("last_failure_at", Moment),
    Column("last_error", Text),
    Column("open_until", Moment),
    Column("probe_owner", Text),
    Column("probe_until", Moment),
    Column("version", BigInteger, nullable=False),
    CheckConstraint("state in ('closed', 'open', 'half_open')", "state"),
    CheckConstraint("state <> 'open' or open_until is not null", "open"),
    CheckConstraint("(state = 'half_open') = (probe_owner is not null and probe_until is not null)", "probe"),
)

lists = Table(
    "lists",
    metadata,
    Column("list_name", Text, primary_key=True),
    Column("type", Text, nullable=False),
    Column("channel_name", Text),
    Column("park_uncertain", Boolean, nullable=False, server_default=text("false")),
    Column("retry", Text),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("allowed_sites", Json),  # null for all
)

list_targets = Table(
    "list_targets",
    metadata,
    Column("list_name", Text, ForeignKey("lists.list_name", ondelete="CASCADE"), primary_key=True),
    Column("address", Text, primary_key=True),
)

channels = Table(
    "channels",
    metadata,
    Column("channel_name", Text, primary_key=True),
    Column("type", Text, nullable=False),
    Column("settings", Json, nullable=False),
    Column("retry", Text),
    Column("is_default", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("secrets", Json, nullable=False, server_default="{}"),  # setting to sealed text; see keyring.py
    Index(
        "ix_channels_default",
        "type",
        unique=True,
        postgresql_where=text("is_default"),
        sqlite_where=text("is_default"),
    ),
)

secret_keys = Table(
    "secret_keys",
    metadata,
    Column("key_id", Text, primary_key=True),  # tells nothing of the key, which is kept outside
    Column("added_at", Moment, nullable=False),
)

sites = Table(
    "sites",
    metadata,
    Column("site_name", Text, primary_key=True),
    Column("created_at", Moment, nullable=False),
    Column("last_seen_at", Moment),
    Column("revoked_at", Moment),
)

enrolments = Table(
    "enrolments",
    metadata,
    Column("prefix", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("site_name", Text, ForeignKey("sites.site_name"), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("ended_at", Moment),  # when it was used, or replaced by another
    Index("ix_enrolments_site_name", "site_name"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("heartbeat_at", Moment, nullable=False),
    Column("stopped_at", Moment),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("lease_until", Moment, nullable=False),
    Column("token", BigInteger, nullable=False),
)

tombstones = Table(
    "tombstones",
    metadata,
    Column("notification_id", Id, primary_key=True),
    Column("source_site_id", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("status", Text, nullable=False),
    Column("terminal_at", Moment, nullable=False),
    Column("purged_at", Moment, nullable=False),
    CheckConstraint("status in ('delivered', 'parked', 'discarded')", "status"),
    Index("ix_tombstones_purged_at", "purged_at"),
)

samples = Table(
    "samples",
    metadata,
    Column("site", Text, primary_key=True),  # empty for all sites together
    Column("taken_at", Moment, primary_key=True),
    Column("figures", Json, nullable=False),
    Index("ix_samples_taken_at", "taken_at"),
)

# What notifications are found by: see store/terms.py, which says why it is filled behind the arrivals.
search_terms = Table(
    "search_terms",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),  # since 1970
    Column("term", Text, primary_key=True),
    Column("newest", LargeBinary, primary_key=True),
    Column("sweep", BigInteger, primary_key=True, autoincrement=False),
    Column("places", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

search_backlog = Table(
    "search_backlog",
    metadata,
    Column("notification_id", Id, primary_key=True),  # one of those that arrived together
    Column("created_at", Moment, nullable=False),
    Column("count", Integer, nullable=False),
    Index("ix_search_backlog_created_at", "created_at"),
)

bulk_actions = Table(
    "bulk_actions",
    metadata,
    Column("action_id", Id, primary_key=True),
    Column("verb", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("wanted", Json),  # the filter's fields; null for an act on a selection
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
    Column("ended_at", Moment),
    Column("due_at", Moment),  # when its next turn is; null once it has ended
    Column("gathered_to_at", Moment),
    Column("gathered_to_id", Id),
    CheckConstraint("verb in ('retry', 'discard')", "verb"),
    CheckConstraint("status in ('gathering', 'running', 'finished', 'cancelled', 'halted')", "status"),
    CheckConstraint("length(reason) > 0", "reason"),
    CheckConstraint("done >= 0 and conflicts >= 0 and gone >= 0 and done + conflicts + gone <= total", "counts"),
    CheckConstraint("(status in ('gathering', 'running')) = (ended_at is null)", "ended"),
    CheckConstraint("(ended_at is null) = (due_at is not null)", "due"),
    Index(
        "ix_bulk_actions_due",
        "due_at",
        postgresql_where=text("ended_at is null"),
        sqlite_where=text("ended_at is null"),
    ),
    Index("ix_bulk_actions_created_at", "created_at"),
)

bulk_action_rows = Table(
    "bulk_action_rows",
    metadata,
    Column("action_id", Id, ForeignKey("bulk_actions.action_id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),  # 1, 2, 3, …: the order they are worked off in
    Column("notification_id", Id, nullable=False),  # no foreign key: what is purged stays in the record of the act
    Column("version", BigInteger),  # null for what was not there
    Column("error_key", Text),
    Column("outcome", Text),
    Column("current_status", Text),
    Column("settled_at", Moment),
    CheckConstraint("outcome in ('done', 'conflict', 'gone')", "outcome"),
    CheckConstraint("(outcome is null) = (settled_at is null)", "settled"),
    sqlite_with_rowid=False,
)
