"""Tables of events: topics, subscriptions, events and their tombstones, reports of outboxes; catalogue versions."""

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Index, Integer, LargeBinary, Table, Text, text

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.schema.base import metadata, partial_index

IS_UNMATCHED = "match_count = 0"

catalogues = Table(
    "catalogues",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)

topics = Table(
    "topics",
    metadata,
    Column("topic", Text, primary_key=True),
    Column("description", Text, nullable=False),
    Column("attributes", Json, nullable=False),
    Column("schema", Text),
    Column("example", Text),
    Column("owners", Json, nullable=False),  # owners whose subscriptions may get its events; "*" for all
    Column("archived_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("kanaal_id", Id),  # of a kanaal of the ZGW API: random, part of its URL
    Column("documentation_url", Text),
    partial_index("uq_topics_kanaal_id", "kanaal_id", where="kanaal_id is not null", unique=True),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("subscription_id", Id, primary_key=True),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("filter", Json, nullable=False),
    Column("state", Text, nullable=False),
    Column("state_reason", Text),
    Column("state_by", Text),
    Column("state_at", Moment),
    # Made by a subscriber: it gets only topics that its owner may read.
    Column("is_restricted", Boolean, nullable=False, server_default=text("false")),
    # Disabled or removed, with notifications left that are to be parked or discarded.
    Column("is_draining", Boolean, nullable=False, server_default=text("false")),
    Column("settings", Json, nullable=False),
    Column("secrets", Json, nullable=False),
    Column("retry", Text),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    # False until the receiver has answered a signed test, for a URL that a subscriber gave.
    Column("is_verified", Boolean, nullable=False, server_default=text("true")),
    Column("abonnement_id", Id),  # of an abonnement of the ZGW API: random, part of its URL
    CheckConstraint("state in ('active', 'unverified', 'paused', 'disabled', 'removed')", "state"),
    CheckConstraint("not is_draining or state in ('disabled', 'removed')", "draining"),
    # Per owner: an error about a taken name must not reveal another owner's subscription.
    partial_index("uq_subscriptions_name", "owner", "name", where="state <> 'removed'", unique=True),
    partial_index("uq_subscriptions_abonnement_id", "abonnement_id", where="abonnement_id is not null", unique=True),
    partial_index("ix_subscriptions_draining", "subscription_id", where="is_draining"),
)

events = Table(
    "events",
    metadata,
    Column("event_id", Id, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("action", Text),
    Column("resource", Text),
    Column("attributes", Json, nullable=False),
    Column("occurred_at", Moment),
    Column("correlation_id", Text),
    Column("payload", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("match_count", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("ix_events_created_at", "created_at", "event_id"),
    Index("ix_events_topic", "topic", "created_at", "event_id"),
    partial_index("ix_events_unmatched", "topic", "created_at", where=IS_UNMATCHED),
    Index("ix_events_source", "source", "created_at", "event_id"),
    partial_index("ix_events_resource", "resource", "created_at", "event_id", where="resource is not null"),
    partial_index(
        "ix_events_correlation_id", "correlation_id", "created_at", "event_id", where="correlation_id is not null"
    ),
)

event_tombstones = Table(
    "event_tombstones",
    metadata,
    Column("event_id", Id, primary_key=True),
    Column("source", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("purged_at", Moment, nullable=False),
    Index("ix_event_tombstones_purged_at", "purged_at"),
)

# Events about subscriptions that are to be published, written with the change that they report.
notices = Table(
    "notices",
    metadata,
    Column("event_id", Id, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("subscription_id", Id, nullable=False),
    Column("payload", Json, nullable=False),
    Column("created_at", Moment, nullable=False),
)

# The last report of an application's relays: how many rows of its outbox are open.
outbox_reports = Table(
    "outbox_reports",
    metadata,
    Column("source", Text, primary_key=True),
    Column("open_count", BigInteger, nullable=False),
    Column("oldest_at", Moment),
    Column("reported_at", Moment, nullable=False),
)
