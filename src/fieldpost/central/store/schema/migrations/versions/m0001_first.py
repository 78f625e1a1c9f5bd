"""The schema of the first release: notifications and what surrounds them."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.engine.column_types import Id, Json, Moment

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("event_id", Id(), nullable=False),
        sa.Column("occurred_at", Moment(), nullable=False),
        sa.Column("ingested_at", Moment(), nullable=False),
        sa.Column("correlation_id", Id(), nullable=True),
        sa.Column("execution_id", sa.Text(), nullable=True),
        sa.Column("parent_execution_id", sa.Text(), nullable=True),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("source_site_id", sa.Text(), nullable=True),
        sa.Column("source_node", sa.Text(), nullable=True),
        sa.Column("source_instance_id", sa.Text(), nullable=True),
        sa.Column("source_script", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_detail", sa.Text(), nullable=True),
        sa.Column("request_summary", sa.Text(), nullable=True),
        sa.Column("response_summary", sa.Text(), nullable=True),
        sa.Column("payload_truncated", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("extra", Json, nullable=True),
        sa.CheckConstraint(
            "channel in ('api_outbound', 'db_outbound', 'notification', 'api_inbound')", name=op.f("ck_audit_channel")
        ),
        sa.CheckConstraint(
            "kind in ('api_call', 'api_call_cached', 'db_write', 'db_write_cached', 'notify_send', 'notify_deliver',"
            " 'inbound_request', 'inbound_auth_failure', 'cached_submit', 'cached_resolve', 'operator_act')",
            name=op.f("ck_audit_kind"),
        ),
        sa.CheckConstraint(
            "status in ('submitted', 'forwarded', 'attempted', 'delivered', 'failed', 'parked',"
            " 'discarded', 'skipped')",
            name=op.f("ck_audit_status"),
        ),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_correlation_id", "audit", ["correlation_id"], unique=False)
    op.create_table(
        "breakers",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("first_failure_at", Moment(), nullable=True),
        sa.Column("last_failure_at", Moment(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("open_until", Moment(), nullable=True),
        sa.Column("probe_owner", sa.Text(), nullable=True),
        sa.Column("probe_until", Moment(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(state = 'half_open') = (probe_owner is not null and probe_until is not null)",
            name=op.f("ck_breakers_probe"),
        ),
        sa.CheckConstraint("state <> 'open' or open_until is not null", name=op.f("ck_breakers_open")),
        sa.CheckConstraint("state in ('closed', 'open', 'half_open')", name=op.f("ck_breakers_state")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_breakers")),
    )
    op.create_table(
        "channels",
        sa.Column("channel_name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("settings", Json, nullable=False),
        sa.Column("retry", sa.Text(), nullable=True),
        sa.Column("is_default", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("updated_at", Moment(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("channel_name", name=op.f("pk_channels")),
    )
    op.create_index(
        "ix_channels_default",
        "channels",
        ["type"],
        unique=True,
        postgresql_where=sa.text("is_default"),
        sqlite_where=sa.text("is_default"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("lease_until", Moment(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "lists",
        sa.Column("list_name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("channel_name", sa.Text(), nullable=True),
        sa.Column("park_uncertain", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("retry", sa.Text(), nullable=True),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("updated_at", Moment(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("list_name", name=op.f("pk_lists")),
    )
    op.create_table(
        "nodes",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("started_at", Moment(), nullable=False),
        sa.Column("heartbeat_at", Moment(), nullable=False),
        sa.Column("stopped_at", Moment(), nullable=True),
        sa.PrimaryKeyConstraint("node_id", name=op.f("pk_nodes")),
    )
    op.create_table(
        "notifications",
        sa.Column("notification_id", Id(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("list_name", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("type_data", Json, nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("retry_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("source_site_id", sa.Text(), nullable=False),
        sa.Column("source_instance_id", sa.Text(), nullable=True),
        sa.Column("source_script", sa.Text(), nullable=True),
        sa.Column("origin_execution_id", sa.Text(), nullable=True),
        sa.Column("origin_parent_execution_id", sa.Text(), nullable=True),
        sa.Column("site_enqueued_at", Moment(), nullable=True),
        sa.Column("site_enqueued_text", sa.Text(), nullable=True),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("last_attempt_at", Moment(), nullable=True),
        sa.Column("next_attempt_at", Moment(), nullable=True),
        sa.Column("delivered_at", Moment(), nullable=True),
        sa.Column("terminal_at", Moment(), nullable=True),
        sa.Column("due_at", Moment(), nullable=True),
        sa.Column("delivery_key", sa.Text(), nullable=False),
        sa.Column("held_by", sa.Text(), nullable=True),
        sa.Column("held_reason", sa.Text(), nullable=True),
        sa.Column("claim_owner", sa.Text(), nullable=True),
        sa.Column("claim_token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_until", Moment(), nullable=True),
        sa.Column("orphan_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cycle", sa.Integer(), server_default="1", nullable=False),
        sa.Column("cycle_started_at", Moment(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "(status = 'delivered') = (delivered_at is not null)", name=op.f("ck_notifications_delivered")
        ),
        sa.CheckConstraint(
            "(status = 'retrying') = (next_attempt_at is not null)", name=op.f("ck_notifications_next_attempt")
        ),
        sa.CheckConstraint(
            "(status in ('pending', 'retrying')) = (due_at is not null)", name=op.f("ck_notifications_due")
        ),
        sa.CheckConstraint(
            "(status in ('pending', 'retrying')) = (terminal_at is null)", name=op.f("ck_notifications_terminal")
        ),
        sa.CheckConstraint(
            "claim_owner is null or status in ('pending', 'retrying')", name=op.f("ck_notifications_claim_live")
        ),
        sa.CheckConstraint("held_by is null or status in ('pending', 'retrying')", name=op.f("ck_notifications_held")),
        sa.CheckConstraint(
            "status in ('pending', 'retrying', 'delivered', 'parked', 'discarded')",
            name=op.f("ck_notifications_status"),
        ),
        sa.CheckConstraint(
            "status not in ('parked', 'retrying') or length(last_error) > 0", name=op.f("ck_notifications_error")
        ),
        sa.CheckConstraint("(claim_owner is null) = (lease_until is null)", name=op.f("ck_notifications_claim")),
        sa.CheckConstraint(
            "retry_count >= 0 and cycle >= 1 and version >= 1 and orphan_count >= 0",
            name=op.f("ck_notifications_counts"),
        ),
        sa.PrimaryKeyConstraint("notification_id", name=op.f("pk_notifications")),
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index(
        "ix_notifications_claim",
        "notifications",
        ["status", "delivery_key", "due_at"],
        unique=False,
        postgresql_where=sa.text("status in ('pending', 'retrying') and held_by is null"),
        sqlite_where=sa.text("status in ('pending', 'retrying') and held_by is null"),
    )
    op.create_index("ix_notifications_created", "notifications", ["created_at", "notification_id"], unique=False)
    op.create_index(
        "ix_notifications_held",
        "notifications",
        ["held_by", "due_at"],
        unique=False,
        postgresql_where=sa.text("held_by is not null"),
        sqlite_where=sa.text("held_by is not null"),
    )
    op.create_index(
        "ix_notifications_suspect",
        "notifications",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("status in ('pending', 'retrying') and orphan_count > 0"),
        sqlite_where=sa.text("status in ('pending', 'retrying') and orphan_count > 0"),
    )
    op.create_table(
        "operators",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.CheckConstraint("role in ('viewer', 'operator', 'admin')", name=op.f("ck_operators_role")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_operators")),
    )
    op.create_table(
        "sites",
        sa.Column("site_name", sa.Text(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("last_seen_at", Moment(), nullable=True),
        sa.PrimaryKeyConstraint("site_name", name=op.f("pk_sites")),
    )
    op.create_table(
        "tokens",
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=True),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("expires_at", Moment(), nullable=True),
        sa.Column("last_used_at", Moment(), nullable=True),
        sa.Column("revoked_at", Moment(), nullable=True),
        sa.CheckConstraint("(kind = 'site') = (role is null)", name=op.f("ck_tokens_role")),
        sa.CheckConstraint("kind in ('site', 'api', 'session')", name=op.f("ck_tokens_kind")),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_tokens")),
    )
    op.create_index("ix_tokens_owner", "tokens", ["kind", "owner"], unique=False)
    op.create_table(
        "tombstones",
        sa.Column("notification_id", Id(), nullable=False),
        sa.Column("source_site_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("terminal_at", Moment(), nullable=False),
        sa.Column("purged_at", Moment(), nullable=False),
        sa.CheckConstraint("status in ('delivered', 'parked', 'discarded')", name=op.f("ck_tombstones_status")),
        sa.PrimaryKeyConstraint("notification_id", name=op.f("pk_tombstones")),
    )
    op.create_table(
        "attempts",
        sa.Column("notification_id", Id(), nullable=False),
        sa.Column("claim_token", sa.BigInteger(), nullable=False),
        sa.Column("cycle", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("is_lone", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("started_at", Moment(), nullable=False),
        sa.Column("finished_at", Moment(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "outcome in ('delivered', 'transient_failure', 'permanent_failure', 'uncertain', 'held', 'released')",
            name=op.f("ck_attempts_outcome"),
        ),
        sa.CheckConstraint("(finished_at is null) = (outcome is null)", name=op.f("ck_attempts_finished")),
        sa.ForeignKeyConstraint(
            ["notification_id"],
            ["notifications.notification_id"],
            name=op.f("fk_attempts_notification_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("notification_id", "claim_token", name=op.f("pk_attempts")),
    )
    op.create_table(
        "list_targets",
        sa.Column("list_name", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["list_name"], ["lists.list_name"], name=op.f("fk_list_targets_list_name"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("list_name", "address", name=op.f("pk_list_targets")),
    )
    op.create_table(
        "targets",
        sa.Column("notification_id", Id(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("settled_at", Moment(), nullable=True),
        sa.CheckConstraint("status <> 'failed' or length(error) > 0", name=op.f("ck_targets_error")),
        sa.CheckConstraint("status in ('due', 'delivered', 'failed')", name=op.f("ck_targets_status")),
        sa.ForeignKeyConstraint(
            ["notification_id"],
            ["notifications.notification_id"],
            name=op.f("fk_targets_notification_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("notification_id", "address", name=op.f("pk_targets")),
    )
