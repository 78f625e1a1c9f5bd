"""Central nodes, their leases, the values that the installation keeps, and the history of the KPIs."""

from sqlalchemy import BigInteger, Column, Index, Table, Text

from fieldpost.central.store.engine.column_types import Json, Moment
from fieldpost.central.store.schema.base import metadata

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

installation = Table(
    "installation",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

samples = Table(
    "samples",
    metadata,
    Column("site", Text, primary_key=True),  # empty: all sites together
    Column("taken_at", Moment, primary_key=True),
    Column("figures", Json, nullable=False),
    Index("ix_samples_taken_at", "taken_at"),
)
