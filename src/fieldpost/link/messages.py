"""Messages of the link between a sender and central, as tagged frozen structs.

Binary frames of JSON with the tag `t`. Messages evolve only by optional fields, because site and central may have
different versions; a receiver ignores unknown fields and answers unknown tags with a Refusal.
"""

from typing import Annotated, Literal

import msgspec

PROTOCOL = 1
ITEMS_MAX = 500
FRAME_BYTES_MAX = 4 * 1024 * 1024

ACCEPTED = "accepted"
DUPLICATE = "duplicate"
REJECTED = "rejected"
LATER = "later"


ZLIB = "zlib"
"""A message may be compressed as a whole (RFC 1950); its first byte never starts JSON."""

SEQ_MAX = 2**53
Seq = Annotated[int, msgspec.Meta(ge=0, le=SEQ_MAX)]
"""A sender's message number, within the exact integers of every JSON parser."""


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One notification from a sender. The token determines the site."""

    notification_id: str
    list_name: str
    subject: str
    body: str
    enqueued_at: str | None = None
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None
    site: str | None = None
    """If given, it must be the site of the token, or the item is rejected."""
    severity: str | None = None
    incident: str | None = None
    is_cleared: bool = False


class Submit(msgspec.Struct, frozen=True, tag_field="t", tag="submit", omit_defaults=True):
    """At most 500 items and 4 MiB; answered by one Ack with the same seq."""

    seq: Seq
    items: tuple[Item, ...]
    more: bool | None = None
    """Whether the sender has more to send; central divides its capacity among such senders."""


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict on one item. Senders remove accepted and duplicate items, box rejected ones and keep later ones."""

    notification_id: str
    verdict: str
    code: str | None = None
    error: str | None = None
    wait_s: float | None = None


class Ack(msgspec.Struct, frozen=True, tag_field="t", tag="ack"):
    """The answer to a Submit, sent after the commit that stored the accepted items."""

    seq: int
    results: tuple[Result, ...]
    credits: int
    """How many items the sender may have in flight."""
    took_s: float = 0.0
    """Central's share of the response time; the line took the rest."""


STANDBY = "pair.standby"
"""The code of a Refusal by a node of a pair that does not lead."""


class Refusal(msgspec.Struct, frozen=True, tag_field="t", tag="refusal", omit_defaults=True):
    """The rejection of a whole message: unknown, malformed, too large, or central cannot store it now."""

    code: str
    error: str
    seq: int | None = None
    wait_s: float | None = None


class Hello(msgspec.Struct, frozen=True, tag_field="t", tag="hello"):
    """The first message of both peers."""

    protocol: int
    version: str
    credits: int = ITEMS_MAX
    accepts: tuple[str, ...] = ()
    """The encodings besides plain JSON that this peer accepts; see `ZLIB`."""
    begins: bool = False
    """The first Hello of a polling connection; with POST every poll is a Hello."""
    node: int | None = None
    """From central: the node of the site whose token the sender has shown, 0 or 1."""


class StatusAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Central's record of one notification: the answer of `GET /link/v1/status/{id}` to its site."""

    notification_id: str
    status: str
    retry_count: int = 0
    last_error: str | None = None
    enqueued_at: str | None = None
    created_at: str | None = None
    next_attempt_at: str | None = None
    delivered_at: str | None = None


class CallRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One row of the site's tracking table; times are text, by the site's clock."""

    call_id: str
    category: str
    target: str
    """The summary of the target: system, method and path, or the name of a connection."""
    status: str
    version: int
    retry_count: int = 0
    last_error: str | None = None
    http_status: int | None = None
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    terminal_at: str | None = None


class Telemetry(msgspec.Struct, frozen=True, tag_field="t", tag="telemetry", kw_only=True):
    """Changed cached calls: the rows with their last change in (after, until]."""

    incarnation: str
    """The identity of the buffer."""
    after: Seq
    until: Seq
    sent_at: str
    """The site's time; central derives the age of the rows from it."""
    rows: tuple[CallRow, ...]
    forgotten: Seq = 0
    """The newest change among the calls that the site has purged."""


class TelemetryAck(msgspec.Struct, frozen=True, tag_field="t", tag="telemetry_ack"):
    """The mirror is complete up to this change. Resume from here, even if that is before the rows just sent."""

    until: int


class Reconcile(msgspec.Struct, frozen=True, tag_field="t", tag="reconcile"):
    """Central requests the calls that changed after this change, at most `limit` rows."""

    after: Seq
    limit: int = ITEMS_MAX
    high: Seq = 0
    """The newest change that central knows of."""


class ReconcileAnswer(
    msgspec.Struct, frozen=True, tag_field="t", tag="reconcile_answer", omit_defaults=True, kw_only=True
):
    """The requested rows, oldest change first."""

    incarnation: str
    after: Seq
    """As in the request."""
    until: Seq
    high: Seq
    """The newest change of the buffer."""
    sent_at: str
    rows: tuple[CallRow, ...]
    has_more: bool = False
    has_gone_back: bool = False
    """Whether central knows of a newer change than the buffer has: the buffer was restored from a copy."""
    forgotten: Seq = 0


class Command(msgspec.Struct, frozen=True, tag_field="t", tag="command", omit_defaults=True):
    """A command to the site; a repeated id is executed once."""

    intent_id: str
    kind: str
    arguments: dict[str, str | int]
    by: str | None = None
    """The requesting user, for the site's event log."""


CommandCell = str | int | float | bool | None


class CommandResult(msgspec.Struct, frozen=True, tag_field="t", tag="command_result", omit_defaults=True):
    """The result of a command."""

    intent_id: str
    outcome: str
    detail: str | None = None
    rows: tuple[dict[str, CommandCell], ...] | None = None
    """The rows of a query."""
    next: str | None = None
    """Where the next page of a query starts."""


class EpochAsk(msgspec.Struct, frozen=True, tag_field="t", tag="epoch_ask"):
    """A standby asks for the next epoch of its node; answered by EpochAnswer, like all epoch requests."""

    request: Seq
    """The sender's number of this request."""
    known: Seq
    """The highest epoch that the sender knows."""


class EpochRenew(msgspec.Struct, frozen=True, tag_field="t", tag="epoch_renew"):
    """Renews the lease of an epoch, of the sender or on behalf of the other node: its parity names the holder."""

    request: Seq
    epoch: Seq


class EpochGiveBack(msgspec.Struct, frozen=True, tag_field="t", tag="epoch_give_back"):
    """The sender has stopped executing and ends the lease of its epoch."""

    request: Seq
    epoch: Seq


EpochCause = Literal["silence", "cut_off", "handed_over", "forced"]
"""Why a node took an epoch without central: the leader was silent where the pair had no central, this node had heard
neither for ten minutes, the leader handed over to it, or a person forced it."""


class EpochTaken(msgspec.Struct, frozen=True, tag_field="t", tag="epoch_taken", omit_defaults=True):
    """Reports an epoch that the sender took without central; repeated until it is answered."""

    request: Seq
    epoch: Seq
    taken_at: str
    """By the site's clock."""
    cause: EpochCause
    reason: str | None = None
    """The reason given by the person who forced it."""


class EpochAnswer(msgspec.Struct, frozen=True, tag_field="t", tag="epoch_answer"):
    """Central's answer to an epoch request."""

    request: Seq
    """As in the request."""
    epoch: Seq
    """The highest epoch that central knows of the site."""
    is_granted: bool
    """Whether the request was fulfilled; for EpochAsk and EpochRenew, the holder has the lease of `epoch`."""


class PairHealth(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The node of a pair that sends a health report."""

    node: int
    held: Seq
    """The last epoch that the node held."""
    known: Seq
    """The highest epoch that the node knows."""
    is_leading: bool
    grounds: str | None = None
    """Why the leader may execute: `lease`, `peer` or `alone`; None if it may not."""
    peer_age_s: float | None = None
    """How long ago the node heard the other one; None if never since its start."""
    peer_version: str | None = None
    lag_changes: int = 0
    """How many changes of this node the other one lacks."""
    lag_s: float = 0.0
    """The age of the oldest of them."""
    switched_at: str | None = None
    """When this node last became leader or stopped being it."""
    switch_reason: str | None = None
    differences: tuple[str, ...] = ()
    """The settings in which the nodes differ, by name: `external.erp`, `secret erp.token`, `version`."""


class Health(msgspec.Struct, frozen=True, tag_field="t", tag="health", omit_defaults=True, kw_only=True):
    """A health report of a site; not answered, because only the newest one counts."""

    sent_at: str
    version: str
    backlog: dict[str, int]
    oldest_age_s: float = 0.0
    parked: int = 0
    rejected: int = 0
    disk_free_bytes: int | None = None
    events: dict[str, int] = {}
    is_forwarding: bool = True
    forward_error: str | None = None
    failing_for_s: float | None = None
    uptime_s: float = 0.0
    is_stopping: bool = False
    """The agent is being stopped; this is its last report."""
    pair: PairHealth | None = None
    """None for a single site."""


LinkMessage = (
    Hello
    | Submit
    | Ack
    | Refusal
    | Telemetry
    | TelemetryAck
    | Reconcile
    | ReconcileAnswer
    | Command
    | CommandResult
    | Health
    | EpochAsk
    | EpochRenew
    | EpochGiveBack
    | EpochTaken
    | EpochAnswer
)


class Said(msgspec.Struct, frozen=True):
    """Central's pending messages for a sender that polls with `POST /link/v1/control`."""

    messages: tuple[LinkMessage, ...]
