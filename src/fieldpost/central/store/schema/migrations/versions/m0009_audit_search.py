"""Indexes for looking through the audit log, and for counting by site what waits."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_IS_ACT = "kind not in ('notify_send', 'notify_deliver')"
_IS_TROUBLE = "status in ('failed', 'parked', 'discarded', 'skipped')"


def upgrade() -> None:
    _add("ix_notifications_waiting", "notifications", ["source_site_id", "created_at", "due_at"], "due_at is not null")
    op.create_index("ix_audit_site", "audit", ["source_site_id", "occurred_at"], unique=False)
    _add("ix_audit_act", "audit", ["occurred_at"], _IS_ACT)
    _add("ix_audit_act_actor", "audit", ["actor", "occurred_at"], _IS_ACT)
    _add("ix_audit_act_target", "audit", ["target", "occurred_at"], _IS_ACT)
    _add("ix_audit_trouble", "audit", ["occurred_at"], _IS_TROUBLE)


def _add(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, unique=False, postgresql_where=sa.text(where), sqlite_where=sa.text(where))
