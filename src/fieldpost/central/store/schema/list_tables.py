"""Lists with their targets, channels, and the ids of the keys that seal the secrets of channels."""

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Integer, Table, Text, text

from fieldpost.central.store.engine.column_types import Json, Moment
from fieldpost.central.store.schema.base import metadata, partial_index

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
    Column("allowed_sites", Json),  # null: all sites
    Column("severity", Text),  # of notifications that have none
    Column("rate", Text),  # null: the default of the type
)

list_targets = Table(
    "list_targets",
    metadata,
    Column("list_name", Text, ForeignKey("lists.list_name", ondelete="CASCADE"), primary_key=True),
    Column("address", Text, primary_key=True),
    Column("secret", Text),  # sealed; see keyring.py
    Column("moved_to", Text),  # the address that the provider gave it since
    partial_index("ix_list_targets_moved", "list_name", where="moved_to is not null"),
)

channels = Table(
    "channels",
    metadata,
    Column("channel_name", Text, primary_key=True),
    Column("type", Text, nullable=False),
    Column("settings", Json, nullable=False),
    Column("max_retries", Integer, nullable=False, server_default="10"),
    Column("retry_delay_s", Float, nullable=False, server_default="60"),
    Column("retry", Text),  # null: fixed, by the two columns above
    Column("is_default", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("secrets", Json, nullable=False, server_default="{}"),  # setting to sealed text; see keyring.py
    Column("rate", Text),  # null: the default of the type
    Column("receipt_wait_s", Float, nullable=False, server_default="300"),
    Column("receipt_missing", Text, nullable=False, server_default="delivered"),
    partial_index("ix_channels_default", "type", unique=True, where="is_default"),
)

secret_keys = Table(
    "secret_keys",
    metadata,
    Column("key_id", Text, primary_key=True),  # reveals nothing of the key, which is kept outside the database
    Column("added_at", Moment, nullable=False),
)
