"""What travels between a sender and central, as tagged frozen structs.

Binary frames of JSON with the tag `t`. Messages evolve by adding optional fields only, because a site and central may
differ in version; a receiver ignores fields it does not know and refuses tags it does not know, politely.
"""

from typing import Annotated

import msgspec

PROTOCOL = 1
ITEMS_MAX = 500
FRAME_BYTES_MAX = 4 * 1024 * 1024

ACCEPTED = "accepted"
DUPLICATE = "duplicate"
REJECTED = "rejected"
LATER = "later"


ZLIB = "zlib"
"""A message may be compressed as a whole (RFC 1950). Its first byte tells: no JSON begins with it."""

SEQ_MAX = 2**53
Seq = Annotated[int, msgspec.Meta(ge=0, le=SEQ_MAX)]
"""A sender's number for a message, within what every JSON parser keeps exactly."""


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One notification as a sender gives it. The site is not among the fields: it comes from the token."""

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
    """Only compared with the token's site; a difference rejects the item."""


class Submit(msgspec.Struct, frozen=True, tag_field="t", tag="submit", omit_defaults=True):
    """At most 500 items and 4 MiB; answered by one Ack with the same seq."""

    seq: Seq
    items: tuple[Item, ...]
    more: bool | None = None
    """Whether the sender has more than this to send; central divides what it can store over those that have."""


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one item: accepted and duplicate clear it at the sender, rejected boxes it, later keeps it."""

    notification_id: str
    verdict: str
    code: str | None = None
    error: str | None = None
    wait_s: float | None = None


class Ack(msgspec.Struct, frozen=True, tag_field="t", tag="ack"):
    """Sent only after the commit that stored what it accepts."""

    seq: int
    results: tuple[Result, ...]
    credits: int
    """How many items the sender may have on the way."""
    took_s: float = 0.0
    """How much of the time until the answer was central's own; the rest was the line's."""


class Refusal(msgspec.Struct, frozen=True, tag_field="t", tag="refusal", omit_defaults=True):
    """A whole message was not taken: unknown, malformed, too large, or central cannot store now."""

    code: str
    error: str
    seq: int | None = None
    wait_s: float | None = None


class Hello(msgspec.Struct, frozen=True, tag_field="t", tag="hello"):
    """The first message of both ends."""

    protocol: int
    version: str
    credits: int = ITEMS_MAX
    accepts: tuple[str, ...] = ()
    """In which forms beside plain JSON a message may be sent to whoever says this; see `ZLIB`."""
    begins: bool = False
    """By POST, where each question is a Hello: the first one of a connection; central may not have missed the last."""


class StatusAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Central's record of one notification, as `GET /link/v1/status/{id}` answers it to the site that sent it."""

    notification_id: str
    status: str
    retry_count: int = 0
    last_error: str | None = None
    enqueued_at: str | None = None
    created_at: str | None = None
    next_attempt_at: str | None = None
    delivered_at: str | None = None


class CallRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One cached call as its site's tracking table has it; times are texts by the site's clock."""

    call_id: str
    category: str
    target: str
    """The target's summary: system, method and path, or a connection's name."""
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
    """Cached calls that have changed: the rows whose last change lies after the one and up to the other."""

    incarnation: str
    """Which buffer file it is."""
    after: Seq
    until: Seq
    sent_at: str
    """The site's time, by which the ages of the rows are told."""
    rows: tuple[CallRow, ...]
    forgotten: Seq = 0
    """The newest change among what the site has purged."""


class TelemetryAck(msgspec.Struct, frozen=True, tag_field="t", tag="telemetry_ack"):
    """What was told up to this change is in the mirror; telling goes on from there, be it before what was just told."""

    until: int


class Reconcile(msgspec.Struct, frozen=True, tag_field="t", tag="reconcile"):
    """Central asks which calls have changed after this change; at most so many rows in one answer."""

    after: Seq
    limit: int = ITEMS_MAX
    high: Seq = 0
    """The newest change that central has heard of."""


class ReconcileAnswer(
    msgspec.Struct, frozen=True, tag_field="t", tag="reconcile_answer", omit_defaults=True, kw_only=True
):
    """The oldest changes first, at most so many rows as were asked for."""

    incarnation: str
    after: Seq
    """As it was asked."""
    until: Seq
    high: Seq
    """The newest change of the buffer."""
    sent_at: str
    rows: tuple[CallRow, ...]
    has_more: bool = False
    has_gone_back: bool = False
    """Whether the newest change lies before the one that central has heard of: the buffer was restored from a copy."""
    forgotten: Seq = 0


class Command(msgspec.Struct, frozen=True, tag_field="t", tag="command", omit_defaults=True):
    """Something to be done at the site; the same id may come again, and acts once."""

    intent_id: str
    kind: str
    arguments: dict[str, str | int]
    by: str | None = None
    """Who wants it, for the site's event log."""


Cell = str | int | float | bool | None


class CommandResult(msgspec.Struct, frozen=True, tag_field="t", tag="command_result", omit_defaults=True):
    """What became of a command."""

    intent_id: str
    outcome: str
    detail: str | None = None
    rows: tuple[dict[str, Cell], ...] | None = None
    """The answer to a look."""
    next: str | None = None
    """Where a look that had more goes on."""


class Health(msgspec.Struct, frozen=True, tag_field="t", tag="health", omit_defaults=True, kw_only=True):
    """How a site stands; only the newest counts, so it is not answered."""

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
)


class Said(msgspec.Struct, frozen=True):
    """What central has to say to a sender that asks by `POST /link/v1/control`, where no WebSocket can be had."""

    messages: tuple[LinkMessage, ...]
