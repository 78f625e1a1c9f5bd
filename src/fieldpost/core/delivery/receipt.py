"""Receipts: a provider's later report on a target that it has accepted.

An adapter with receipts returns `Target(address, TargetStatus.ACCEPTED, provider_id=…)` for a target that the provider
took over. `ask` polls receipts; `read_callback` reads one that the provider sent. A receipt settles its target:
delivered, failed, or due again; one that reports transit changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from fieldpost.core.errors import InvalidInput

RECEIPT_WAIT_S_DEFAULT = 300.0
RECEIPT_WAIT_S_MAX = 7 * 86400.0
FIRST_ASK = timedelta(seconds=5)
LAST_ASK = timedelta(minutes=10)


class ReceiptMissing(StrEnum):
    """The result of an accepted target on which no receipt arrives."""

    DELIVERED = "delivered"
    """It counts as delivered, with that remark."""
    RETRY = "retry"
    PARK = "park"


def next_ask(asked_count: int) -> timedelta:
    """How long to wait before a provider is polled again: twice as long each time, up to ten minutes."""
    doubled: int = 1 << min(asked_count, 16)
    return min(FIRST_ASK * doubled, LAST_ASK)


def check_receipt_wait(value: object, field: str = "receipt_wait_s") -> float:
    """The wait in seconds, the default for None; raises InvalidInput."""
    if value is None:
        return RECEIPT_WAIT_S_DEFAULT
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= RECEIPT_WAIT_S_MAX:
        rule = f"must be a number of seconds from 1 to {RECEIPT_WAIT_S_MAX:g}"
        raise InvalidInput("receipt.wait", f"{field} {rule}, got {str(value)[:64]!r}", field=field)
    return float(value)


def check_receipt_missing(value: object, field: str = "receipt_missing") -> ReceiptMissing:
    """The setting of this name, the default for None; raises InvalidInput."""
    for known in ReceiptMissing:
        if value == known or (value is None and known is ReceiptMissing.DELIVERED):
            return known
    names = ", ".join(ReceiptMissing)
    raise InvalidInput("receipt.missing", f"{field} must be one of {names}, got {str(value)[:64]!r}", field=field)


class ReceiptStatus(StrEnum):
    """The report of a provider on an accepted target."""

    IN_TRANSIT = "in_transit"
    DELIVERED = "delivered"
    FAILED = "failed"
    DUE = "due"
    """Not delivered, but a further attempt may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One report. Receipts may arrive twice, late and in any order."""

    provider_id: str
    """The id that the provider returned when it accepted the target; empty for a callback that does not repeat it."""
    status: ReceiptStatus
    error: str | None = None
    """Why the target failed or is due again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A provider's request to a receipt URL."""

    method: str
    url: str
    """The whole public URL, which providers sign."""
    headers: Mapping[str, str]
    """Names in lower case."""
    query: Mapping[str, str]
    body: bytes


@runtime_checkable
class Receipts(Protocol):
    """An adapter whose provider reports on accepted targets."""

    can_ask: bool
    """Whether `ask` works; otherwise receipts arrive by callback alone."""

    async def ask(self, settings: Mapping[str, object], provider_ids: Sequence[str]) -> Sequence[Receipt]:
        """Poll the provider, within the adapter's deadline; ids that it does not answer for are left out."""

    def read_callback(self, settings: Mapping[str, object], callback: Callback) -> Receipt:
        """The receipt in a callback. Raises InvalidInput if it is malformed, Denied if its signature is wrong."""
