"""Sites: the mirror of their cached calls, intents for them, and their health."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.engine.column_types import Id, Json, Moment

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "site_mirrors",
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("high", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("is_rereading", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("forgotten", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reconciled_at", Moment()),
        sa.Column("replaced_at", Moment()),
        sa.Column("replaced_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("refused_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("trouble", sa.Text()),
        sa.CheckConstraint(
            "cursor >= 0 and round >= 1 and replaced_count >= 0 and refused_count >= 0",
            name=op.f("ck_site_mirrors_counts"),
        ),
        sa.PrimaryKeyConstraint("site", name=op.f("pk_site_mirrors")),
    )
    op.create_table(
        "cached_calls",
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("call_id", Id(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("target_summary", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("retry_count", sa.BigInteger(), nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("http_status", sa.Integer()),
        sa.Column("instance", sa.Text()),
        sa.Column("script", sa.Text()),
        sa.Column("execution_id", sa.Text()),
        sa.Column("parent_execution_id", sa.Text()),
        sa.Column("created_at", Moment()),
        sa.Column("updated_at", Moment()),
        sa.Column("terminal_at", Moment()),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("first_seen_at", Moment(), nullable=False),
        sa.Column("received_at", Moment(), nullable=False),
        sa.Column("begun_at", Moment(), nullable=False),
        sa.Column("ended_at", Moment()),
        sa.Column("gone_at", Moment()),
        sa.CheckConstraint(
            "(status in ('delivered', 'failed', 'discarded')) = (ended_at is not null)",
            name=op.f("ck_cached_calls_ended"),
        ),
        sa.CheckConstraint("category in ('external_call', 'database_write')", name=op.f("ck_cached_calls_category")),
        sa.CheckConstraint(
            "status in ('pending', 'retrying', 'delivered', 'parked', 'failed', 'discarded')",
            name=op.f("ck_cached_calls_status"),
        ),
        sa.CheckConstraint("retry_count >= 0 and version >= 1 and round >= 1", name=op.f("ck_cached_calls_counts")),
        sa.PrimaryKeyConstraint("site", "call_id", name=op.f("pk_cached_calls")),
    )
    op.create_index(
        "ix_cached_calls_ended",
        "cached_calls",
        ["ended_at", "status", "site"],
        unique=False,
        postgresql_where=sa.text("ended_at is not null"),
        sqlite_where=sa.text("ended_at is not null"),
    )
    op.create_index(
        "ix_cached_calls_gone",
        "cached_calls",
        ["gone_at"],
        unique=False,
        postgresql_where=sa.text("gone_at is not null"),
        sqlite_where=sa.text("gone_at is not null"),
    )
    op.create_index(
        "ix_cached_calls_live",
        "cached_calls",
        ["site", "begun_at"],
        unique=False,
        postgresql_where=sa.text("status in ('pending', 'retrying') and gone_at is null"),
        sqlite_where=sa.text("status in ('pending', 'retrying') and gone_at is null"),
    )
    op.create_index(
        "ix_cached_calls_parked",
        "cached_calls",
        ["site", "first_seen_at"],
        unique=False,
        postgresql_where=sa.text("status = 'parked' and gone_at is null"),
        sqlite_where=sa.text("status = 'parked' and gone_at is null"),
    )
    op.create_index("ix_cached_calls_seen", "cached_calls", ["first_seen_at", "call_id"], unique=False)
    op.create_index("ix_cached_calls_site", "cached_calls", ["site", "first_seen_at", "call_id"], unique=False)
    op.create_table(
        "intents",
        sa.Column("intent_id", Id(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message_id", Id()),
        sa.Column("arguments", Json, nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.Column("answer", Json),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("sent_at", Moment()),
        sa.Column("done_at", Moment()),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.CheckConstraint(
            "(state in ('done', 'expired')) = (outcome is not null)", name=op.f("ck_intents_outcome_state")
        ),
        sa.CheckConstraint("(state in ('waiting', 'sent')) = (done_at is null)", name=op.f("ck_intents_done")),
        sa.CheckConstraint(
            "outcome in ('applied', 'not_parked', 'site_unreachable', 'operation_failed')",
            name=op.f("ck_intents_outcome"),
        ),
        sa.CheckConstraint("state <> 'sent' or sent_at is not null", name=op.f("ck_intents_sent")),
        sa.CheckConstraint(
            "state in ('waiting', 'sent', 'done', 'cancelled', 'expired')", name=op.f("ck_intents_state")
        ),
        sa.PrimaryKeyConstraint("intent_id", name=op.f("pk_intents")),
    )
    op.create_index("ix_intents_created", "intents", ["created_at", "intent_id"], unique=False)
    op.create_index(
        "ix_intents_done",
        "intents",
        ["done_at"],
        unique=False,
        postgresql_where=sa.text("done_at is not null"),
        sqlite_where=sa.text("done_at is not null"),
    )
    op.create_index(
        "ix_intents_message",
        "intents",
        ["message_id"],
        unique=False,
        postgresql_where=sa.text("message_id is not null"),
        sqlite_where=sa.text("message_id is not null"),
    )
    op.create_index(
        "ix_intents_open",
        "intents",
        ["site", "intent_id"],
        unique=False,
        postgresql_where=sa.text("state in ('waiting', 'sent')"),
        sqlite_where=sa.text("state in ('waiting', 'sent')"),
    )
    op.create_index("ix_intents_site", "intents", ["site", "created_at", "intent_id"], unique=False)
    op.create_table(
        "site_health",
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("received_at", Moment(), nullable=False),
        sa.Column("report", Json, nullable=False),
        sa.Column("clock_offset_s", sa.Float(), nullable=False),
        sa.Column("sampled_at", Moment()),
        sa.Column("sampled", Json),
        sa.PrimaryKeyConstraint("site", name=op.f("pk_site_health")),
    )
    op.create_table(
        "site_health_samples",
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("taken_at", Moment(), nullable=False),
        sa.Column("figures", Json, nullable=False),
        sa.PrimaryKeyConstraint("site", "taken_at", name=op.f("pk_site_health_samples")),
    )
    op.create_index("ix_site_health_samples_taken_at", "site_health_samples", ["taken_at"], unique=False)
