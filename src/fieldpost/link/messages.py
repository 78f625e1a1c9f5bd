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


Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
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


class Submit(msgspec.Struct, frozen=True, tag_field="t", tag="submit"):
    """At most 500 items and 4 MiB; answered by one Ack with the same seq."""

    seq: Seq
    items: tuple[Item, ...]


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
    """How many items the sender may send before it hears more."""


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


Message = Hello | Submit | Ack | Refusal
