"""Kinds of holds, and the text by which a held notification names its hold.

A hold defers a due notification without counting an attempt. A breaker or a pause releases it, a queue behind a rate
gives it its turn, and the other kinds have an end time. `held_by` is the breaker's key, or the kind and the delivery
key: `pause:subscription:…`.
"""

from enum import StrEnum


class HoldKind(StrEnum):
    BREAKER = "breaker"
    """The path fails; released when its breaker closes."""
    PAUSE = "pause"
    """Somebody paused the path, or its receiver has not answered a test yet; released when the path is active."""
    RATE_LIMIT = "rate_limit"
    """The path's rate limit is used up, or the receiver asked to wait."""
    RATE = "rate"
    """In the queue behind the rate of its list or channel, in order of its due time."""
    RATE_FIRST = "rate_first"
    """The same for critical notifications, whose turns come first."""
    RECEIPT = "receipt"
    """A provider has accepted it and will report; ends when the wait for the receipt is over."""
    OUR_SIDE = "our_side"
    """Central cannot make the call: name resolution, address guard, secret or token."""

    @property
    def is_timed(self) -> bool:
        """Whether the hold ends by time instead of by its breaker or a person."""
        return self in (HoldKind.RATE_LIMIT, HoldKind.RECEIPT, HoldKind.OUR_SIDE)

    @property
    def ages(self) -> bool:
        """Whether a notification held past its maximum age is parked."""
        return self in (HoldKind.BREAKER, HoldKind.OUR_SIDE)

    @property
    def is_queue(self) -> bool:
        """Whether its rows wait in order for their turn."""
        return self in (HoldKind.RATE, HoldKind.RATE_FIRST)


_BY_KIND = {kind.value: kind for kind in HoldKind if kind is not HoldKind.BREAKER}


def held_by(kind: HoldKind, delivery_key: str) -> str:
    """The `held_by` of a notification that is held by anything but a breaker."""
    return f"{kind.value}:{delivery_key}"


def kind_of(held_by: str) -> HoldKind:
    """The kind of hold that a `held_by` names."""
    return _BY_KIND.get(held_by.partition(":")[0], HoldKind.BREAKER)
