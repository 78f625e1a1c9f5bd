"""Notifications with their targets and attempts, tombstones of purged ones, wholes, and breakers.

The CHECK constraints repeat the invariants of `core.delivery.lifecycle`, so that no statement, ours or one typed by
hand, can write a state that the rules do not know. A claim is not a status: its columns are beside the status, and
taking a claim changes no indexed column, which keeps it cheap on PostgreSQL (a HOT update).
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

from fieldpost.central.store.engine.column_types import Id, Json, Key, Moment
from fieldpost.central.store.schema.base import metadata, partial_index

IS_FREE = "due_at is not null and held_by is null"
IS_CLAIMABLE = f"{IS_FREE} and not is_timed"
IS_TIMED = "is_timed"
IS_HELD = "held_by is not null and not is_timed"
IS_AGING = f"{IS_HELD} and held_by not like 'pause:%' and held_by not like 'rate%'"
IS_OF_EVENT = "event_id is not null"
IS_LIVE_OF_EVENT = "due_at is not null and event_id is not null"
IS_ENDED_OF_EVENT = "terminal_at is not null and event_id is not null"
IS_PART = "whole_id is not null"
IS_SUSPECT = "due_at is not null and orphan_count > 0"
IS_UNDELIVERED = "status <> 'delivered'"
IS_TERMINAL = "terminal_at is not null"
IS_WAITING = "due_at is not null"

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
    Column("site_enqueued_text", Text),  # the text that the site sent, if it is not a time
    Column("created_at", Moment, nullable=False),
    Column("last_attempt_at", Moment),
    Column("next_attempt_at", Moment),
    Column("delivered_at", Moment),
    Column("terminal_at", Moment),
    Column("due_at", Moment),
    Column("delivery_key", Key, nullable=False),
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
    # Waits for due_at: its retry time, or the end of a hold without a breaker. Once that has passed any node clears it.
    Column("is_timed", Boolean, nullable=False, server_default=text("false")),
    Column("event_id", Id),
    # Of a notification that a route made of its event: the route, and the template version that gave its text.
    Column("route_id", Id),
    Column("template_type", Text),
    Column("template_version", Integer),
    # Text and targets are still to be made of the event; the next attempt does that first.
    Column("is_draft", Boolean, nullable=False, server_default=text("false")),
    # Of a part: the submission to a list of lists, and that list.
    Column("whole_id", Id),
    Column("whole_list", Text),
    Column("severity", Text),
    Column("incident", Text),
    Column("is_cleared", Boolean, nullable=False, server_default=text("false")),
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
    partial_index("ix_notifications_claim", "status", "delivery_key", "due_at", where=IS_CLAIMABLE),
    partial_index("ix_notifications_held", "held_by", "due_at", where=IS_HELD),
    partial_index("ix_notifications_held_key", "held_by", "delivery_key", "due_at", where=IS_HELD),
    partial_index("ix_notifications_held_since", "cycle_started_at", where=IS_AGING),
    partial_index("ix_notifications_timed", "due_at", where=IS_TIMED),
    partial_index("ix_notifications_event_id", "event_id", "notification_id", where=IS_OF_EVENT),
    partial_index("ix_notifications_subscription_live", "delivery_key", "notification_id", where=IS_LIVE_OF_EVENT),
    partial_index("ix_notifications_subscription", "delivery_key", "created_at", "notification_id", where=IS_OF_EVENT),
    partial_index(
        "ix_notifications_event_ended", "source_site_id", "terminal_at", "notification_id", where=IS_ENDED_OF_EVENT
    ),
    partial_index("ix_notifications_whole_id", "whole_id", where=IS_PART),
    partial_index("ix_notifications_suspect", "due_at", where=IS_SUSPECT),
    Index("ix_notifications_created", "created_at", "notification_id"),
    partial_index(
        "ix_notifications_undelivered",
        "status",
        "created_at",
        "notification_id",
        "source_site_id",
        "type",
        where=IS_UNDELIVERED,
    ),
    # The site comes first, so that counting the queue by site needs no sort.
    partial_index(
        "ix_notifications_waiting",
        "source_site_id",
        "created_at",
        "cycle_started_at",
        "due_at",
        "type",
        "held_by",
        where=IS_WAITING,
    ),
    partial_index("ix_notifications_terminal", "terminal_at", "status", "source_site_id", "type", where=IS_TERMINAL),
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
    # How many characters of subject and body were sent, if the type takes no more.
    Column("truncated_to", Integer),
    # By which a provider reports on the target that it has accepted.
    Column("provider_id", Text),
    CheckConstraint("status in ('due', 'accepted', 'delivered', 'failed')", "status"),
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
    # Requests and responses of a webhook, with the tries within the attempt.
    Column("exchanges", Json),
    CheckConstraint(
        "outcome in ('delivered', 'transient_failure', 'permanent_failure', 'uncertain', 'held', 'released',"
        " 'abandoned', 'crashed')",
        "outcome",
    ),
    CheckConstraint("(finished_at is null) = (outcome is null)", "finished"),
    postgresql_with={"fillfactor": "60"},
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
    Column("whole_id", Id),  # of a part
    CheckConstraint("status in ('delivered', 'parked', 'discarded')", "status"),
    Index("ix_tombstones_purged_at", "purged_at"),
    partial_index("ix_tombstones_whole_id", "whole_id", where=IS_PART),
)

# Submissions to lists of lists. Their parts are notifications; a whole has no state.
wholes = Table(
    "wholes",
    metadata,
    Column("whole_id", Id, primary_key=True),
    Column("list_name", Text, nullable=False),
    Column("source_site_id", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", Moment, nullable=False),
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
    Column("failing_since", Moment),
    Column("warned_percent", Integer, nullable=False, server_default="0"),
    Column("release_size", Integer, nullable=False, server_default="0"),
    Column("wait_until", Moment),
    Column("wait_kind", Text),
    Column("wait_reason", Text),
    Column("probed_key", Text),
    CheckConstraint("state in ('closed', 'open', 'half_open')", "state"),
    CheckConstraint("state <> 'open' or open_until is not null", "open"),
    CheckConstraint("(state = 'half_open') = (probe_owner is not null and probe_until is not null)", "probe"),
)

receipts = Table(
    "receipts",
    metadata,
    Column("notification_id", Id, ForeignKey("notifications.notification_id", ondelete="CASCADE"), primary_key=True),
    Column("address", Text, primary_key=True),
    Column("token", Text, nullable=False),  # of the URL that the provider calls; a new one for each attempt
    Column("channel_name", Text, nullable=False),
    Column("provider_id", Text),
    Column("asked_count", Integer, nullable=False, server_default="0"),
    Column("ask_at", Moment),
    # A final report that is not applied yet, because an attempt was in progress.
    Column("status", Text),
    Column("error", Text),
    Column("reported_at", Moment),
    Index("uq_receipts_token", "token", unique=True),
    partial_index("ix_receipts_ask_at", "ask_at", where="ask_at is not null"),
    partial_index("ix_receipts_reported_at", "reported_at", where="reported_at is not null"),
)

target_pauses = Table(
    "target_pauses",
    metadata,
    Column("delivery_key", Text, primary_key=True),
    Column("address", Text, primary_key=True),
    Column("until", Moment, nullable=False),
    Column("reason", Text, nullable=False),
    Index("ix_target_pauses_until", "until"),
)

rates = Table(
    "rates",
    metadata,
    Column("key", Text, primary_key=True),
    Column("next_at", Moment, nullable=False),
)
