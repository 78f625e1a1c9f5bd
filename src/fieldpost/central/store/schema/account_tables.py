"""Users, tokens, one-time login links, delays after failed logins, and clients of the ZGW API."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, LargeBinary, Table, Text

from fieldpost.central.store.engine.column_types import Json, Moment
from fieldpost.central.store.schema.base import metadata

tokens = Table(
    "tokens",
    metadata,
    Column("prefix", Text, primary_key=True),
    Column("kind", Text, nullable=False),  # of a site, a program or a browser session
    Column("digest", LargeBinary, nullable=False),
    Column("owner", Text, nullable=False),  # name of the site or user
    Column("role", Text),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("last_used_at", Moment),
    Column("revoked_at", Moment),
    Column("name", Text),  # chosen by its owner
    Column("created_by", Text),
    Column("address", Text),  # of the browser that opened the session
    Column("user_agent", Text),
    Column("generation", Integer),  # of an API token: rotation adds one of the same name
    Column("subscription_owner", Text),  # of a subscriber's API token, unless its user has one
    Column("node", Integer, nullable=False, server_default="0"),  # of the site
    CheckConstraint("kind in ('site', 'api', 'session')", "kind"),
    CheckConstraint("(kind = 'site') = (role is null)", "role"),
    Index("ix_tokens_owner", "kind", "owner"),
    Index("ix_tokens_name", "name", "generation", unique=True),
)

users = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("password_hash", Text),  # null before the first password, and for users of an identity provider
    Column("role", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text),
    Column("disabled_at", Moment),
    Column("last_login_at", Moment),
    Column("subject", Text),  # issuer and subject at the identity provider
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("subscription_owner", Text),  # the owner whose subscriptions a subscriber may see and change
    CheckConstraint("role in ('viewer', 'operator', 'admin', 'subscriber')", "role"),
    CheckConstraint("(role = 'subscriber') = (subscription_owner is not null)", "subscription_owner"),
    Index("ix_users_subject", "subject", unique=True),
)

login_links = Table(
    "login_links",
    metadata,
    Column("prefix", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("user_name", Text, ForeignKey("users.name", ondelete="CASCADE"), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("ended_at", Moment),  # when it was used or replaced
    Index("ix_login_links_user_name", "user_name"),
)

login_delays = Table(
    "login_delays",
    metadata,
    Column("key", Text, primary_key=True),  # an address, or the digest of the name that was typed
    Column("failures", Integer, nullable=False),
    Column("failed_at", Moment, nullable=False),
    Column("free_at", Moment, nullable=False),  # no login is tried before
    CheckConstraint("failures >= 0", "failures"),
)

zgw_clients = Table(
    "zgw_clients",
    metadata,
    Column("client_id", Text, primary_key=True),
    Column("scopes", Json, nullable=False),
    Column("kanalen", Json, nullable=False),  # that it may publish on; empty for all
    Column("secrets", Json, nullable=False),  # sealed
    Column("rotated_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("last_used_at", Moment),
    Column("revoked_at", Moment),
    Column("version", BigInteger, nullable=False, server_default="1"),
)
