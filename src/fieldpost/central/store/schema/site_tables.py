"""Sites and their enrolments, the mirror of their cached calls, intents for them, and their health.

The mirror holds only what a site reports. An operator's action never edits it: the action becomes an intent for the
site, and the mirror changes when the site reports the result.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.schema.base import metadata, partial_index

sites = Table(
    "sites",
    metadata,
    Column("site_name", Text, primary_key=True),
    Column("created_at", Moment, nullable=False),
    Column("last_seen_at", Moment),
    Column("revoked_at", Moment),
)

enrolments = Table(
    "enrolments",
    metadata,
    Column("prefix", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("site_name", Text, ForeignKey("sites.site_name"), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("ended_at", Moment),  # when it was used or replaced
    Column("node", Integer, nullable=False, server_default="0"),
    Index("ix_enrolments_site_name", "site_name"),
)

site_mirrors = Table(
    "site_mirrors",
    metadata,
    Column("site", Text, primary_key=True),
    Column("incarnation", Text, nullable=False),  # identity of the buffer file
    Column("cursor", BigInteger, nullable=False),  # the mirror has all changes up to this one
    Column("high", BigInteger, nullable=False, server_default="0"),  # the newest change that the site has announced
    Column("round", BigInteger, nullable=False),  # grows when the buffer is read again from the start
    Column("is_rereading", Boolean, nullable=False, server_default=text("false")),
    Column("forgotten", BigInteger, nullable=False, server_default="0"),
    Column("reconciled_at", Moment),
    Column("replaced_at", Moment),
    Column("replaced_count", Integer, nullable=False, server_default="0"),
    Column("refused_count", BigInteger, nullable=False, server_default="0"),
    Column("last_refusal", Text),
    CheckConstraint("cursor >= 0 and round >= 1 and replaced_count >= 0 and refused_count >= 0", "counts"),
)

IS_LIVE_CALL = "status in ('pending', 'retrying') and gone_at is null"
IS_PARKED_CALL = "status = 'parked' and gone_at is null"
IS_ENDED = "ended_at is not null"
IS_GONE = "gone_at is not null"

cached_calls = Table(
    "cached_calls",
    metadata,
    Column("site", Text, primary_key=True),
    Column("call_id", Id, primary_key=True),
    Column("incarnation", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("target_summary", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("retry_count", BigInteger, nullable=False),
    Column("last_error", Text),
    Column("http_status", Integer),
    Column("instance", Text),
    Column("script", Text),
    Column("execution_id", Text),
    Column("parent_execution_id", Text),
    Column("created_at", Moment),  # these three by the site's clock, only for display
    Column("updated_at", Moment),
    Column("terminal_at", Moment),
    Column("version", BigInteger, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("first_seen_at", Moment, nullable=False),  # this and the following by central's clock
    Column("received_at", Moment, nullable=False),
    Column("begun_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("gone_at", Moment),
    CheckConstraint("category in ('external_call', 'database_write')", "category"),
    CheckConstraint("status in ('pending', 'retrying', 'delivered', 'parked', 'failed', 'discarded')", "status"),
    CheckConstraint("(status in ('delivered', 'failed', 'discarded')) = (ended_at is not null)", "ended"),
    CheckConstraint("retry_count >= 0 and version >= 1 and round >= 1", "counts"),
    Index("ix_cached_calls_seen", "first_seen_at", "call_id"),
    Index("ix_cached_calls_site", "site", "first_seen_at", "call_id"),
    partial_index("ix_cached_calls_live", "site", "begun_at", where=IS_LIVE_CALL),
    partial_index("ix_cached_calls_parked", "site", "first_seen_at", where=IS_PARKED_CALL),
    partial_index("ix_cached_calls_ended", "ended_at", "status", "site", where=IS_ENDED),
    partial_index("ix_cached_calls_gone", "gone_at", where=IS_GONE),
)

IS_OPEN = "state in ('waiting', 'sent')"
IS_DONE = "done_at is not null"

intents = Table(
    "intents",
    metadata,
    Column("intent_id", Id, primary_key=True),
    Column("site", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message_id", Id),
    Column("arguments", Json, nullable=False),
    Column("reason", Text),
    Column("actor", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("state", Text, nullable=False),
    Column("outcome", Text),
    Column("detail", Text),
    Column("answer", Json),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("sent_at", Moment),
    Column("done_at", Moment),
    Column("version", BigInteger, nullable=False, server_default="1"),
    CheckConstraint("state in ('waiting', 'sent', 'done', 'cancelled', 'expired')", "state"),
    CheckConstraint("outcome in ('applied', 'not_parked', 'site_unreachable', 'operation_failed')", "outcome"),
    CheckConstraint("(state in ('done', 'expired')) = (outcome is not null)", "outcome_state"),
    CheckConstraint("(state in ('waiting', 'sent')) = (done_at is null)", "done"),
    CheckConstraint("state <> 'sent' or sent_at is not null", "sent"),
    partial_index("ix_intents_open", "site", "intent_id", where=IS_OPEN),
    Index("ix_intents_created", "created_at", "intent_id"),
    Index("ix_intents_site", "site", "created_at", "intent_id"),
    partial_index("ix_intents_message", "message_id", where="message_id is not null"),
    partial_index("ix_intents_done", "done_at", where=IS_DONE),
)

site_health = Table(
    "site_health",
    metadata,
    Column("site", Text, primary_key=True),
    Column("received_at", Moment, nullable=False),
    Column("report", Json, nullable=False),
    Column("clock_offset_s", Float, nullable=False),
    Column("sampled_at", Moment),  # the last sample in site_health_samples
    Column("sampled", Json),
)

site_health_samples = Table(
    "site_health_samples",
    metadata,
    Column("site", Text, primary_key=True),
    Column("taken_at", Moment, primary_key=True),
    Column("figures", Json, nullable=False),
    Index("ix_site_health_samples_taken_at", "taken_at"),
)

site_nodes = Table(
    "site_nodes",
    metadata,
    Column("site", Text, primary_key=True),
    Column("node", Integer, primary_key=True),  # 0 or 1
    Column("added_at", Moment, nullable=False),
    Column("received_at", Moment),  # the newest health report of the node, once it has reported
    Column("report", Json),
    Column("clock_offset_s", Float),
    CheckConstraint("node in (0, 1)", "node"),
)
"""The nodes of sites that have had two; a site without a row has node 0 only."""

site_epochs = Table(
    "site_epochs",
    metadata,
    Column("site", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),  # the highest known one
    Column("node", Integer, nullable=False),  # 0 or 1: its holder
    Column("until", Moment),  # the end of the lease; null once it was given back
    Column("is_taken", Boolean, nullable=False, server_default=text("false")),  # without central
    CheckConstraint("node in (0, 1) and epoch >= 0 and epoch % 2 = node", "holder"),
)

site_switches = Table(
    "site_switches",
    metadata,
    Column("site", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),  # its parity is the node that leads under it
    Column("cause", Text, nullable=False),
    Column("reason", Text),  # of the person who forced it
    Column("taken_at", Moment),  # by the site's clock, if it was taken without central
    Column("recorded_at", Moment, nullable=False),
    CheckConstraint("cause in ('granted', 'taken', 'silence', 'cut_off', 'handed_over', 'forced')", "cause"),
    Index("ix_site_switches_recorded_at", "recorded_at"),
)
