"""Tables of routes and templates: routes, their cooldowns, withheld events, templates and their versions."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Float, ForeignKey, Index, Integer, Table, Text

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.schema.base import metadata, partial_index

routes = Table(
    "routes",
    metadata,
    Column("route_id", Id, primary_key=True),
    Column("name", Text, nullable=False),
    Column("filter", Json, nullable=False),
    Column("list_name", Text, nullable=False),
    Column("to_member", Text),
    Column("cooldown_s", Float),
    Column("cooldown_by", Text),
    Column("removed_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    CheckConstraint("cooldown_s > 0", "cooldown"),
    CheckConstraint("cooldown_by is null or cooldown_s is not null", "cooldown_by"),
    partial_index("uq_routes_name", "name", where="removed_at is null", unique=True),
)

cooldowns = Table(
    "cooldowns",
    metadata,
    Column("route_id", Id, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("until", Moment, nullable=False),
    Column("suppressed", Integer, nullable=False),
    Column("last_suppressed_at", Moment),
    Index("ix_cooldowns_until", "until"),
)

# An event that a route matched without making a notification. Goes with its event.
withheld_events = Table(
    "withheld_events",
    metadata,
    Column("event_id", Id, ForeignKey("events.event_id", ondelete="CASCADE"), primary_key=True),
    Column("route_id", Id, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("type", Text, nullable=False),  # of the list
    Column("reason", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    CheckConstraint("reason in ('no_template', 'cooldown')", "reason"),
    Index("ix_withheld_events_reason", "reason", "topic", "type", "created_at", "event_id"),
)

# The current version of each template; without a row here its versions are history.
templates = Table(
    "templates",
    metadata,
    Column("topic", Text, primary_key=True),
    Column("type", Text, primary_key=True),  # empty for all list types without their own
    Column("version", Integer, nullable=False),
)

template_versions = Table(
    "template_versions",
    metadata,
    Column("topic", Text, primary_key=True),
    Column("type", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text, nullable=False),
    # Sources as well; empty if the template sets none of them.
    Column("severity", Text, nullable=False, server_default=""),
    Column("incident", Text, nullable=False, server_default=""),
    Column("is_cleared", Text, nullable=False, server_default=""),
)
