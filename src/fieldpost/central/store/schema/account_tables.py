"""The part of the schema that says who may come in: people, tokens, one-time links, and how often a login failed."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, LargeBinary, Table, Text

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.schema.naming import metadata

tokens = Table(
    "tokens",
    metadata,
    Column("prefix", Text, primary_key=True),
    Column("kind", Text, nullable=False),  # whose it is: a site's, a program's, a browser session's
    Column("digest", LargeBinary, nullable=False),
    Column("owner", Text, nullable=False),  # the site's or the operator's name
    Column("role", Text),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("last_used_at", Moment),
    Column("revoked_at", Moment),
    Column("name", Text),  # what its owner calls it
    Column("created_by", Text),
    Column("address", Text),  # where a session was opened from, and by which browser
    Column("user_agent", Text),
    CheckConstraint("kind in ('site', 'api', 'session')", "kind"),
    CheckConstraint("(kind = 'site') = (role is null)", "role"),
    Index("ix_tokens_owner", "kind", "owner"),
)

users = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("password_hash", Text),  # none until a one-time link was used, or where the identity provider knows him
    Column("role", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text),
    Column("disabled_at", Moment),
    Column("last_login_at", Moment),
    Column("subject", Text),  # whom the identity provider means: issuer and subject
    Column("version", BigInteger, nullable=False, server_default="1"),
    CheckConstraint("role in ('viewer', 'operator', 'admin')", "role"),
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
    Column("ended_at", Moment),  # when it was used, or replaced by another
    Index("ix_login_links_user_name", "user_name"),
)

login_delays = Table(
    "login_delays",
    metadata,
    Column("key", Text, primary_key=True),  # an account, by the digest of the name that was typed, or an address
    Column("failures", Integer, nullable=False),
    Column("failed_at", Moment, nullable=False),
    Column("free_at", Moment, nullable=False),  # until then nothing is tried
    CheckConstraint("failures >= 0", "failures"),
)
